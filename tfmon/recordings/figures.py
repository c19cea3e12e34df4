"""The figures of a race for a comparison with another race.

Slices of two races are not paired. With several races on each side, the scatter includes slow machine changes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from tfmon.analysis import statistics
from tfmon.analysis.history import center_of
from tfmon.analysis.intervals import AT_THE_END, Center, Looks, Shift, shift
from tfmon.analysis.others import contention
from tfmon.analysis.verdict import find_verdict
from tfmon.model import codec
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import LaneState
from tfmon.model.race import CONCURRENT, BetweenProcesses, Machine
from tfmon.model.readings import NOT_SAMPLED, Reading
from tfmon.model.readings import known as known_value
from tfmon.model.session import Snapshot
from tfmon.recordings.header import SCHEMA, Header, RecordingError
from tfmon.recordings.library import run_id
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import guard

LEAST_RACES = 3
"""Races with a known throughput that each side needs if it has several. Others may have too few slices."""
BETWEEN_RACES_SD = 0.01
"""Assumed standard deviation of the log ratio of two equal races, one soon after the other. A judgement: three
races on an idle machine differed by 0.005, on virtual machines with busy neighbours by 0.03 to 0.08."""


@dataclass(frozen=True, slots=True)
class MeasuredLane:
    """The figures of one lane that a race is compared by."""

    center: Center | None
    """Mean logarithm of the throughput in examples/s; `None` if there were too few slices."""
    others_cores: Reading
    """Cores that other programs kept busy in the slices."""
    stolen_share: Reading
    """Share of one core's time that the hypervisor gave to other machines in the slices."""
    peak_bytes: Reading = NOT_SAMPLED
    """Peak of the memory that its processes share with no other process."""
    gpu_peak_bytes: Reading = NOT_SAMPLED
    """Peak of the GPU memory that the framework allocated, or the memory in use at the end if no peak is
    reported."""

    @classmethod
    def of(cls, lane: LaneState, known: Snapshot) -> MeasuredLane:
        """Return the statistics of its slices; of a lane that is alone in its race, those of its windows."""
        sliced = len(known.lanes) > 1
        center, use = center_of(lane, sliced=sliced), lane.gpu_use
        memory = lane.tree.peak_private_bytes, use.used_bytes if use.peak_bytes is None else float(use.peak_bytes)
        if sliced:
            took = contention([lane.slices])
            return cls(center, took.others_cores, took.stolen_share, *memory)
        hosts = known.place_of(lane).history
        return cls(
            center,
            _mean_cores([one.others_cpu_pct for one in hosts]),
            _mean_cores([one.steal_pct for one in hosts]),
            *memory,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of the second race divided by the one of the first."""

    ratio: float
    low: float | None
    high: float | None


def change_of(
    races: Sequence[tuple[MeasuredLane, MeasuredLane]],
    prior: BetweenProcesses | None = None,
    looks: Looks = AT_THE_END,
) -> Change | None:
    """Return the throughput after over that before, with its interval; None from too few slices or races."""
    first = [before.center for before, _ in races if before.center is not None]
    second = [after.center for _, after in races if after.center is not None]
    if len(races) == 1 and first and second:
        # Half the interval is the root of the sum of squares of what the slices leave open, what equal processes
        # differ by, and what a machine's own speed is supposed to change by from one race to the next.
        processes = statistics.between_processes((), (), prior)
        machine = statistics.Between(BETWEEN_RACES_SD, statistics.SUPPOSED_DEGREES)
        reach = math.hypot(*(part.reach(looks) for part in (first[0], second[0], processes, machine)))
        value = second[0].value - first[0].value
        result = Shift(value, value - reach, value + reach)
    elif min(len(first), len(second)) >= LEAST_RACES:
        result = shift([one.value for one in first], [one.value for one in second], looks.error)
    else:
        return None
    return Change(*map(math.exp, result))


def _mean_cores(readings: Sequence[Reading]) -> Reading:
    values = [value for one in readings if (value := known_value(one)) is not None]
    return sum(values) / len(values) / 100 if values else NOT_SAMPLED


LARGEST_BYTES = 64 * 2**20
WRITES_ONE = "tfmon race --json writes one of this version"


@dataclass(frozen=True, slots=True)
class Lead:
    """Which lane of a race is faster, and by what factor."""

    winner: str | None
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """The figures of a lane in several races, or in one."""

    id: str
    title: str
    host: str
    device: str
    place: str
    processor: str
    settings: dict[str, KnobValue]
    versions: dict[str, str]
    """Versions of TensorFlow, Keras, NumPy and Python, or empty if unknown."""
    trouble: str
    examples_per_s: float | None
    measured: MeasuredLane

    @property
    def name(self) -> str:
        """Its id, which never changes, and its name at the end of its race."""
        return f"{self.id} {self.title}".strip()

    @classmethod
    def of(cls, lane: LaneState, end: Snapshot) -> LaneFigures:
        """Return the figures of a lane."""
        return cls(
            id=lane.spec.id or lane.spec.name,
            title=lane.title,
            host=lane.spec.host,
            device=lane.spec.device,
            place=lane.spec.place,
            processor=end.device_name(lane),
            settings=dict(lane.settings),
            versions=lane.process.versions,
            trouble=lane.trouble.message if lane.trouble is not None else "",
            examples_per_s=lane.steady.examples_per_s,
            measured=MeasuredLane.of(lane, end),
        )


@dataclass(frozen=True, slots=True)
class RaceFigures:
    """The compared figures and facts of a race."""

    id: str
    scenario: str
    source: str
    mode: str
    started: str
    tfmon: str
    environment: dict[str, str]
    machines: dict[str, Machine]
    """By host; the key of the monitor's own machine is empty."""
    contended: bool
    between: BetweenProcesses | None
    lanes: tuple[LaneFigures, ...]
    lead: Lead

    @classmethod
    def of(cls, id: str, header: Header, end: Snapshot) -> RaceFigures:
        """Return the figures of a recorded race; `end` is the snapshot at its end."""
        result = find_verdict(end)
        low, high = (result.interval.low, result.interval.high) if result.interval is not None else (None, None)
        return cls(
            id=id,
            scenario=header.scenario,
            source=header.source,
            mode=end.race.mode,
            started=header.started,
            tfmon=header.tfmon,
            environment=dict(header.environment),
            machines={lane.spec.host: end.machine_of(lane) for lane in end.lanes} | {"": end.machine},
            contended=end.race.mode == CONCURRENT and end.machines < len(end.lanes),
            between=end.race.between,
            lanes=tuple(LaneFigures.of(lane, end) for lane in end.lanes),
            lead=Lead(result.winner, result.ratio, low, high),
        )


def read_recorded(path: Path) -> tuple[RaceFigures, bool]:
    """Return the race of a recording, and whether the file is cut off; raises RecordingError."""
    with guard(path):
        opened, end = play_all(path)
    return RaceFigures.of(run_id(path), opened.header, end), opened.torn


def read_race(path: Path) -> tuple[RaceFigures, bool]:
    """Return the race of a recording or JSON result, and whether the file is cut off; raises RecordingError."""
    if _is_result(path):
        return read_json(_load(path), path.name.removesuffix(".json"), str(path)), False
    return read_recorded(path)


def read_races(folder: Path) -> list[tuple[RaceFigures, bool]]:
    """Return every race of a folder as `read_race` does, by the names of their files; raises RecordingError."""
    result = [path for path in sorted(folder.iterdir()) if path.name.endswith((".json", ".jsonl", ".jsonl.gz"))]
    if not result:
        raise RecordingError(
            f"the folder {folder} has no race", "it holds recordings, or results of tfmon race --json"
        )
    return [read_race(path) for path in result]


def read_json(document: Any, id: str, where: str) -> RaceFigures:  # noqa: ANN401 - whatever a file holds
    """Return the race of a JSON result that is read; raises RecordingError, which names `where` it was."""
    if isinstance(document, dict) and isinstance(document.get("result"), dict):
        document = document["result"]
    if not isinstance(document, dict) or "lanes" not in document or "verdict" not in document:
        raise RecordingError(f"{where} is JSON, but no result of a race", WRITES_ONE)
    if document.get("schema") != SCHEMA:
        by = f"schema {document.get('schema')!r}, by tfmon {document.get('tfmon')!r}"
        raise RecordingError(f"{where} has {by}; this tfmon reads schema {SCHEMA}", "race again with this version")
    try:
        result: RaceFigures = codec.read(document.get("figures"), RaceFigures)
        return replace(result, id=id)
    except codec.CodecError as error:
        raise RecordingError(f"{where} is not a result that can be compared: {error}", WRITES_ONE) from None


def _is_result(path: Path) -> bool:
    """Return whether a file is a JSON object over several lines or its name says so, and no recording."""
    if path.name.endswith((".jsonl", ".gz")):
        return False
    try:
        with path.open("rb") as file:
            start = file.read(256).lstrip()
    except OSError:
        return False
    return path.name.endswith(".json") or start.startswith((b"{\n", b"{\r\n"))


def _load(path: Path) -> object:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise RecordingError(f"{path} is too large for a result of tfmon")
        return json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path} is not a JSON result: {error}", "it may be cut off") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a figure")

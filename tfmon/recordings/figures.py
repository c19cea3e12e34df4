"""The figures of a race that another race is compared with: of a recording, or from a JSON result."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from tfmon.analysis.verdict import find_verdict
from tfmon.model import codec
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import LaneState
from tfmon.model.race import CONCURRENT, BetweenProcesses, Machine
from tfmon.model.session import Snapshot
from tfmon.recordings.change import Measured
from tfmon.recordings.header import SCHEMA, Header, RecordingError
from tfmon.recordings.library import run_id
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import guard

LARGEST_BYTES = 64 * 2**20
"""A larger file is not a result."""
WRITES_ONE = "tfmon race --json writes one of this version"


@dataclass(frozen=True, slots=True)
class Lead:
    """Which lane of a race is faster, and by what factor."""

    winner: str | None
    """Its name."""
    ratio: float | None
    low: float | None
    """End of the 95 % interval; None where there is none."""
    high: float | None


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """What is compared of a lane, as it was at the end of its race."""

    id: str
    title: str
    host: str
    device: str
    place: str
    processor: str
    settings: dict[str, KnobValue]
    versions: dict[str, str]
    """Of TensorFlow, Keras, NumPy and Python; "" for unknown."""
    trouble: str
    examples_per_s: float | None
    measured: Measured

    @property
    def name(self) -> str:
        """Its id, which never changes, and its name at the end of its race."""
        return f"{self.id} {self.title}".strip()

    @classmethod
    def of(cls, lane: LaneState, end: Snapshot) -> LaneFigures:
        """Return those of a lane."""
        return cls(
            id=lane.spec.id or lane.spec.name,
            title=lane.title,
            host=lane.spec.host,
            device=lane.spec.device,
            place=lane.spec.place,
            processor=end.device_name(lane),
            settings=dict(lane.settings),
            versions=lane.versions,
            trouble=lane.trouble.message if lane.trouble is not None else "",
            examples_per_s=lane.steady.examples_per_s,
            measured=Measured.of(lane, end),
        )


@dataclass(frozen=True, slots=True)
class RaceFigures:
    """What is compared of a race."""

    id: str
    scenario: str
    source: str
    mode: str
    started: str
    tfmon: str
    environment: dict[str, str]
    machines: dict[str, Machine]
    """By host; the monitor's own is that of ""."""
    contended: bool
    """Whether lanes trained at once on the same cores."""
    between: BetweenProcesses | None
    lanes: tuple[LaneFigures, ...]
    lead: Lead

    @classmethod
    def of(cls, id: str, header: Header, end: Snapshot) -> RaceFigures:
        """Return those of a recorded race.

        Args:
            id: What the race is called.
            header: Of its recording.
            end: What was known at its end.
        """
        found = find_verdict(end)
        low, high = (found.interval.low, found.interval.high) if found.interval is not None else (None, None)
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
            lead=Lead(found.winner, found.ratio, low, high),
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
    found = [path for path in sorted(folder.iterdir()) if path.name.endswith((".json", ".jsonl", ".jsonl.gz"))]
    if not found:
        raise RecordingError(
            f"the folder {folder} has no race", "it holds recordings, or results of tfmon race --json"
        )
    return [read_race(path) for path in found]


def read_json(told: Any, id: str, where: str) -> RaceFigures:  # noqa: ANN401 - whatever a file holds
    """Return the race of a JSON result, or of what `tfmon export --json` wrote, that is read already.

    Args:
        told: The JSON object.
        id: What the race is called.
        where: What it is called where it cannot be used.

    Raises:
        RecordingError: it is not a result.
    """
    if isinstance(told, dict) and isinstance(told.get("result"), dict):
        told = told["result"]
    if not isinstance(told, dict) or "lanes" not in told or "verdict" not in told:
        raise RecordingError(f"{where} is JSON, but no result of a race", WRITES_ONE)
    if told.get("schema") != SCHEMA:
        by = f"schema {told.get('schema')!r}, by tfmon {told.get('tfmon')!r}"
        raise RecordingError(f"{where} has {by}; this tfmon reads schema {SCHEMA}", "race again with this version")
    try:
        found: RaceFigures = codec.read(told.get("figures"), RaceFigures)
        return replace(found, id=id)
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

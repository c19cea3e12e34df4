"""Compares two recorded races: how much faster each lane was, and what was different."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tfmon.analysis import statistics
from tfmon.analysis.means import LEAST_PAIRS, trimmed
from tfmon.analysis.verdict import find_verdict
from tfmon.model.knobs import show
from tfmon.model.lane_state import LaneState
from tfmon.model.race import CONCURRENT, BetweenProcesses, Machine
from tfmon.model.session import Snapshot
from tfmon.recordings.header import Header
from tfmon.recordings.library import run_id
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import Recording, guard

SLICES = "of each race's slices"
_LATE = ("quota_cores", "nice", "python", "tensorflow", "driver", "power_limits_w")
"""Facts of a machine that are not found out for every race, nor in older recordings."""
ENOUGH = f"an interval takes {LEAST_PAIRS} slices in turns"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two races."""

    id: str
    header: Header
    end: Snapshot
    """What was known at its end."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of the second race over that of the first."""

    ratio: float
    low: float | None
    """End of the 95 % interval; None where there is none."""
    high: float | None

    @property
    def sure(self) -> bool:
        """True when the interval excludes 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True)
class LanePair:
    """A lane of both races."""

    first: LaneState
    second: LaneState
    change: Change | None
    """Of the throughput; None where one of them measured nothing."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something besides the figures that was not the same."""

    about: str
    """`scenario`, `lanes`, `knobs`, `versions`, `machine` or `environment`."""
    what: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two races."""

    first: Side
    second: Side
    lanes: tuple[LanePair, ...]
    unpaired: tuple[str, ...]
    """Lanes of only one race, in words."""
    verdict: Change | None
    """Of the ratio between the lanes; None where one of the races has none, or another winner."""
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    """What makes the figures less sure."""


def side_of(path: Path) -> tuple[Side, Recording]:
    """Return the race in a recording as one side of a comparison, and the recording; raises RecordingError."""
    with guard(path):
        opened, end = play_all(path)
    return Side(run_id(path), opened.header, end), opened


def compare(first: Side, second: Side) -> Comparison:
    """Compare two races, the second with the first."""
    pairs, unpaired = _paired(first.end, second.end)
    prior = second.end.race.between
    lanes = tuple(LanePair(one, other, change_of(one, other, prior)) for one, other in pairs)
    return Comparison(
        first=first,
        second=second,
        lanes=lanes,
        unpaired=tuple(unpaired),
        verdict=_verdict(first.end, second.end),
        differences=tuple(_differences(first, second, lanes)),
        notes=tuple(_notes(first, second, lanes)),
    )


def change_of(first: LaneState, second: LaneState, prior: BetweenProcesses | None = None) -> Change | None:
    """Return the throughput of one lane over that of another in another race.

    The slices of two races are not paired, so each race has its own mean of logs with its interval. The interval
    of the difference is the root of the sum of their squares and of the between-process variance.
    """
    logs = [
        trimmed([math.log(one.examples_per_s) for one in lane.slices if one.examples > 0])
        for lane in (first, second)
    ]
    before, after = logs
    if before is not None and after is not None:
        center = after.value - before.value
        between = statistics.between_processes((), (), prior).reach()
        reach = math.hypot(before.reach(), after.reach(), between)
        return Change(math.exp(center), math.exp(center - reach), math.exp(center + reach))
    old, new = first.steady.examples_per_s, second.steady.examples_per_s
    return Change(new / old, None, None) if old and new else None


def _verdict(first: Snapshot, second: Snapshot) -> Change | None:
    one, other = find_verdict(first), find_verdict(second)
    if not one.ratio or not other.ratio or one.winner is None or one.winner != other.winner:
        return None
    ratio = other.ratio / one.ratio
    if one.interval is None or other.interval is None:
        return Change(ratio, None, None)
    low = math.hypot(math.log(other.ratio / other.interval.low), math.log(one.interval.high / one.ratio))
    high = math.hypot(math.log(other.interval.high / other.ratio), math.log(one.ratio / one.interval.low))
    return Change(ratio, ratio * math.exp(-low), ratio * math.exp(high))


def _paired(first: Snapshot, second: Snapshot) -> tuple[list[tuple[LaneState, LaneState]], list[str]]:
    """Pair lanes by their id, and the remaining ones by their place, or else device, in their order."""
    left, right = list(first.lanes), list(second.lanes)
    pairs: list[tuple[LaneState, LaneState]] = []
    for part in ("id", "place", "device"):
        for lane in list(left):
            wanted = getattr(lane.spec, part)
            other = next((one for one in right if wanted and getattr(one.spec, part) == wanted), None)
            if other is not None:
                pairs.append((lane, other))
                left.remove(lane)
                right.remove(other)
    pairs.sort(key=lambda pair: first.lanes.index(pair[0]))
    unpaired = [f"{lane_name(lane)}: only in the first" for lane in left]
    return pairs, unpaired + [f"{lane_name(lane)}: only in the second" for lane in right]


def lane_name(lane: LaneState) -> str:
    """Write a lane's id, which never changes, and its name at the end of its race."""
    return f"{lane.spec.id} {lane.title}".strip()


def _pair_id(pair: LanePair) -> str:
    """Write which lanes a pair is of: one id, or two."""
    return " / ".join(dict.fromkeys(lane.spec.id or lane.spec.name for lane in (pair.first, pair.second)))


def _differences(first: Side, second: Side, lanes: tuple[LanePair, ...]) -> Iterator[Difference]:
    def differ(about: str, what: str, one: object, other: object) -> Iterator[Difference]:
        if one != other:
            yield Difference(about, what, _written(one), _written(other))

    one, other = first.header, second.header
    yield from differ("scenario", "scenario", one.scenario, other.scenario)
    yield from differ("scenario", "source", one.source, other.source)
    yield from differ("scenario", "mode", first.end.race.mode, second.end.race.mode)
    for pair in lanes:
        name = _pair_id(pair)
        yield from differ("lanes", f"{name}: device", pair.first.spec.place, pair.second.spec.place)
        settings = (pair.first.settings, pair.second.settings)
        for knob in sorted({*settings[0], *settings[1]}):
            yield from differ("knobs", f"{name}: {knob}", settings[0].get(knob), settings[1].get(knob))
    yield from differ("versions", "tfmon", one.tfmon, other.tfmon)
    for pair in lanes:
        for part in ("tensorflow", "keras", "numpy", "python"):
            versions = getattr(pair.first, part), getattr(pair.second, part)
            yield from differ("versions", f"{_pair_id(pair)}: {part}", *versions)
        devices = first.end.device_name(pair.first), second.end.device_name(pair.second)
        yield from differ("machine", f"{_pair_id(pair)}: processor", *devices)
        if pair.first.spec.host or pair.second.spec.host:
            machines = first.end.machine_of(pair.first), second.end.machine_of(pair.second)
            for part, values in _machine_parts(*machines):
                yield from differ("machine", f"{_pair_id(pair)}: {part}", *values)
    for part, values in _machine_parts(first.end.machine, second.end.machine):
        yield from differ("machine", part, *values)
    for name in sorted({*one.environment, *other.environment}):
        yield from differ("environment", name, one.environment.get(name), other.environment.get(name))


def _machine_parts(one: Machine, other: Machine) -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield what two machines are compared by: not by what is only known of one, and not by when they started."""
    unknown = Machine()
    for part, value in asdict(one).items():
        values = value, getattr(other, part)
        late = part in _LATE and getattr(unknown, part) in values
        # An empty reason for no GPU lane means only that none was requested: the machine may be the same.
        if part != "boot" and not late and (part != "no_gpu" or all(values)):
            yield part, values


def _notes(first: Side, second: Side, lanes: tuple[LanePair, ...]) -> Iterator[str]:
    one, other = first.header, second.header
    if one.scenario != other.scenario:
        both = f"{one.scenario} and {other.scenario}"
        yield f"these races are of different scenarios, {both}: no ratio of theirs says what is faster"
    elif one.source != other.source:
        yield f"the file of {one.scenario} was changed between the races: a ratio may come from that"
    for side in (first, second):
        if side.end.race.mode == CONCURRENT and side.end.machines < len(side.end.lanes):
            yield f"{side.id} raced all lanes concurrently on the same cores: its figures are contended"
        for lane in side.end.lanes:
            if lane.trouble is not None:
                yield f"{side.id}: {lane_name(lane)}: {lane.trouble.message}"
    for pair in lanes:
        if pair.change is not None and pair.change.low is None:
            yield f"{_pair_id(pair)}: no interval; {ENOUGH}"


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool | int | float | str):
        return show(value) or "none"
    return "none" if value is None else str(value)

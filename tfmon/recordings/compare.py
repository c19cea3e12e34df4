"""Compares two recorded races: how much faster each lane was, and what was different."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tfmon.analysis.means import LEAST_PAIRS
from tfmon.analysis.verdict import find_verdict
from tfmon.errors import UsageError
from tfmon.model.knobs import show
from tfmon.model.lane_state import LaneState
from tfmon.model.race import CONCURRENT, BetweenProcesses, Machine
from tfmon.model.session import Snapshot
from tfmon.recordings.change import Change, Measured, change_of
from tfmon.recordings.header import Header, RecordingError
from tfmon.recordings.library import run_id
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import Recording, guard

SLICES = "of each race's slices"
_LATE = ("quota_cores", "nice", "python", "tensorflow", "driver", "power_limits_w")
"""Facts of a machine that are not found out for every race, nor in older recordings."""
ENOUGH = f"an interval takes {LEAST_PAIRS} slices in turns, or as many seconds of a lane by itself"


@dataclass(frozen=True, slots=True)
class Lead:
    """Which lane of a race is faster, and by what factor."""

    winner: str | None
    ratio: float | None
    low: float | None
    """End of the 95 % interval; None where there is none."""
    high: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two races."""

    id: str
    header: Header
    end: Snapshot
    """What was known at its end; of a JSON result, without its slices."""
    told: Mapping[str, Measured] = field(default_factory=dict)
    """What a JSON result says of its lanes, by their names; empty for a recording, which has the slices."""
    lead: Lead | None = None
    """What a JSON result says of its verdict; None for a recording."""

    def measured(self, lane: LaneState) -> Measured:
        """Return the measurements of one of its lanes."""
        return self.told.get(lane.spec.name) or Measured.of(lane, self.end)

    @property
    def contended(self) -> bool:
        """Whether lanes trained at once on the same cores."""
        return self.end.race.mode == CONCURRENT and self.end.machines < len(self.end.lanes)

    def leads(self) -> Lead:
        """Return which lane was faster."""
        if self.lead is not None:
            return self.lead
        found = find_verdict(self.end)
        low, high = (found.interval.low, found.interval.high) if found.interval is not None else (None, None)
        return Lead(found.winner, found.ratio, low, high)


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


def open_side(path: Path) -> tuple[Side, bool]:
    """Return a race of a recording or of a JSON result, and whether the file is cut off; raises RecordingError."""
    from tfmon.recordings.results import is_result, side_of_result

    if is_result(path):
        return side_of_result(path), False
    side, opened = side_of(path)
    return side, opened.torn


def open_sides(folder: Path) -> list[tuple[Side, bool]]:
    """Return every race of a folder as `open_side` does, by the names of their files; raises RecordingError."""
    found = [path for path in sorted(folder.iterdir()) if path.name.endswith((".json", ".jsonl", ".jsonl.gz"))]
    if not found:
        raise RecordingError(
            f"the folder {folder} has no race", "it holds recordings, or results of tfmon race --json"
        )
    return [open_side(path) for path in found]


def side_of(path: Path) -> tuple[Side, Recording]:
    """Return the race in a recording as one side of a comparison, and the recording; raises RecordingError."""
    with guard(path):
        opened, end = play_all(path)
    return Side(run_id(path), opened.header, end), opened


def compare(first: Side, second: Side) -> Comparison:
    """Compare two races, the second with the first."""
    pairs, unpaired = _paired(first.end, second.end)
    prior = second.end.race.between
    lanes = tuple(LanePair(one, other, _change(first, one, second, other, prior)) for one, other in pairs)
    return Comparison(
        first=first,
        second=second,
        lanes=lanes,
        unpaired=tuple(unpaired),
        verdict=_verdict(first.leads(), second.leads()),
        differences=tuple(_differences(first, second, lanes)),
        notes=tuple(_notes(first, second, lanes)),
    )


def compare_all(first: Sequence[Side], second: Sequence[Side]) -> list[Comparison]:
    """Compare several races, each with that of the other side in the same place.

    Raises:
        UsageError: there are not as many.
    """
    if len(first) != len(second):
        raise UsageError(
            f"{len(first)} and {len(second)} races make no pairs", "race both sides alternately, as often"
        )
    return [compare(one, other) for one, other in zip(first, second, strict=True)]


def _change(
    first: Side, one: LaneState, second: Side, other: LaneState, prior: BetweenProcesses | None
) -> Change | None:
    """Return the throughput of one lane over that of another in another race.

    The slices of two races are not paired, so each race has its own mean of logs with its interval.
    """
    found = change_of([(first.measured(one), second.measured(other))], prior)
    if found is not None:
        return found
    old, new = one.steady.examples_per_s, other.steady.examples_per_s
    return Change(new / old, None, None) if old and new else None


def _verdict(first: Lead, second: Lead) -> Change | None:
    if not first.ratio or not second.ratio or first.winner is None or first.winner != second.winner:
        return None
    ratio = second.ratio / first.ratio
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return Change(ratio, None, None)
    low = math.hypot(math.log(second.ratio / second.low), math.log(first.high / first.ratio))
    high = math.hypot(math.log(second.high / second.ratio), math.log(first.ratio / first.low))
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
        if side.contended:
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

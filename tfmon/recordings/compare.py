"""Compares two races: how much faster each lane was, and what was different."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from tfmon.analysis.intervals import LEAST_PAIRS
from tfmon.errors import UsageError
from tfmon.model.knobs import show
from tfmon.model.race import BetweenProcesses, Machine
from tfmon.model.spec import LaneSpec
from tfmon.recordings.figures import Change, LaneFigures, Lead, RaceFigures, change_of

_LATE = ("quota_cores", "nice", "python", "tensorflow", "driver", "power_limits_w")
"""Facts of a machine that older recordings lack, and that not every race collects."""


@dataclass(frozen=True, slots=True)
class LanePair:
    """A lane of both races."""

    first: LaneFigures
    second: LaneFigures
    change: Change | None
    """Of the throughput; `None` if one of the lanes measured nothing."""

    @property
    def id(self) -> str:
        """The id of its lanes, or both."""
        return " / ".join(dict.fromkeys((self.first.id, self.second.id)))


@dataclass(frozen=True, slots=True)
class Difference:
    """Something besides the figures that was not the same."""

    about: str
    what: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two races."""

    first: RaceFigures
    second: RaceFigures
    lanes: tuple[LanePair, ...]
    unpaired: tuple[str, ...]
    verdict: Change | None
    """Of the ratio between the lanes; `None` if one of the races has none, or another winner."""
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def compare(first: RaceFigures, second: RaceFigures) -> Comparison:
    """Compare two races, the second with the first."""
    pairs, unpaired = _paired(first.lanes, second.lanes)
    lanes = tuple(LanePair(one, other, _change(one, other, second.between)) for one, other in pairs)
    return Comparison(
        first=first,
        second=second,
        lanes=lanes,
        unpaired=tuple(unpaired),
        verdict=_verdict(first.lead, second.lead),
        differences=tuple(_differences(first, second, lanes)),
        notes=tuple(_notes(first, second, lanes)),
    )


def compare_all(first: Sequence[RaceFigures], second: Sequence[RaceFigures]) -> list[Comparison]:
    """Compare several races pair by pair; raises UsageError if one side has more than the other."""
    if len(first) != len(second):
        raise UsageError(
            f"FIRST has {len(first)} and SECOND {len(second)} races", "race both sides alternately, as often"
        )
    return [compare(one, other) for one, other in zip(first, second, strict=True)]


def _change(one: LaneFigures, other: LaneFigures, prior: BetweenProcesses | None) -> Change | None:
    """Return the change of the throughput. Slices of two races are not paired."""
    result = change_of([(one.measured, other.measured)], prior)
    if result is not None:
        return result
    old, new = one.examples_per_s, other.examples_per_s
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


def _paired(
    first: Sequence[LaneFigures], second: Sequence[LaneFigures]
) -> tuple[list[tuple[LaneFigures, LaneFigures]], list[str]]:
    """Pair lanes by id and kind of device, the others by place, the rest by device, in their order."""
    left, right = list(first), list(second)
    pairs: list[tuple[LaneFigures, LaneFigures]] = []
    keys: tuple[Callable[[LaneFigures], object], ...] = (
        lambda lane: (lane.id, LaneSpec(lane.device).kind),
        lambda lane: lane.place,
        lambda lane: lane.device,
    )
    for key in keys:
        for lane in list(left):
            other = next((one for one in right if key(one) == key(lane)), None)
            if other is not None:
                pairs.append((lane, other))
                left.remove(lane)
                right.remove(other)
    pairs.sort(key=lambda pair: first.index(pair[0]))
    unpaired = [f"{lane.name}: only in the first" for lane in left]
    return pairs, unpaired + [f"{lane.name}: only in the second" for lane in right]


def _differences(first: RaceFigures, second: RaceFigures, lanes: tuple[LanePair, ...]) -> Iterator[Difference]:
    def differ(about: str, what: str, one: object, other: object) -> Iterator[Difference]:
        if one != other:
            yield Difference(about, what, _written(one), _written(other))

    for part in ("scenario", "source", "mode"):
        yield from differ("scenario", part, getattr(first, part), getattr(second, part))
    for pair in lanes:
        one, other = pair.first, pair.second
        yield from differ("lanes", f"{pair.id}: device", one.place, other.place)
        for knob in sorted({*one.settings, *other.settings}):
            yield from differ("knobs", f"{pair.id}: {knob}", one.settings.get(knob), other.settings.get(knob))
    yield from differ("versions", "tfmon", first.tfmon, second.tfmon)
    for pair in lanes:
        one, other = pair.first, pair.second
        for part in one.versions:
            yield from differ("versions", f"{pair.id}: {part}", one.versions[part], other.versions.get(part))
        yield from differ("machine", f"{pair.id}: processor", one.processor, other.processor)
        if one.host or other.host:
            for part, values in _machine_parts(first.machines[one.host], second.machines[other.host]):
                yield from differ("machine", f"{pair.id}: {part}", *values)
    for part, values in _machine_parts(first.machines[""], second.machines[""]):
        yield from differ("machine", part, *values)
    for name in sorted({*first.environment, *second.environment}):
        yield from differ("environment", name, first.environment.get(name), second.environment.get(name))


def _machine_parts(one: Machine, other: Machine) -> Iterator[tuple[str, tuple[object, object]]]:
    unknown = Machine()
    for part, value in asdict(one).items():
        values = value, getattr(other, part)
        late = part in _LATE and getattr(unknown, part) in values
        # An empty reason for no GPU lane means only that none was requested: the machine may be the same.
        if part != "boot" and not late and (part != "no_gpu" or all(values)):
            yield part, values


def _notes(first: RaceFigures, second: RaceFigures, lanes: tuple[LanePair, ...]) -> Iterator[str]:
    if first.scenario != second.scenario:
        both = f"{first.scenario} and {second.scenario}"
        yield f"these races are of different scenarios, {both}: no ratio between them says what is faster"
    elif first.source != second.source:
        yield f"the file of {first.scenario} was changed between the races: a ratio may come from that"
    for race in (first, second):
        if race.contended:
            yield f"{race.id} raced all lanes concurrently on the same cores: its figures are contended"
        for lane in race.lanes:
            if lane.trouble:
                yield f"{race.id}: {lane.name}: {lane.trouble}"
    for pair in lanes:
        if pair.change is not None and pair.change.low is None:
            enough = f"{LEAST_PAIRS} slices in turns, or as many seconds of a lane by itself"
            yield f"{pair.id}: no interval; an interval takes {enough}"


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool | int | float | str):
        return show(value) or "none"
    return "none" if value is None else str(value)

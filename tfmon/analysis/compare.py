"""Compares two races, and their conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from tfmon.analysis import statistics
from tfmon.analysis.intervals import AT_THE_END, LEAST_PAIRS, Looks, shift
from tfmon.analysis.result import LaneResult, RaceResult
from tfmon.analysis.verdict import Verdict
from tfmon.errors import UsageError
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import show
from tfmon.model.race import BetweenProcesses, Machine

_LATE = ("quota_cores", "nice", "python", "tensorflow", "driver", "power_limits_w")
"""Facts that older recordings lack."""


LEAST_RACES = 3
"""Minimum races of a side with several."""
BETWEEN_RACES_SD = 0.01
"""Assumed standard deviation of the log ratio of equal successive races. Measured: 0.005 on an idle machine,
0.03 to 0.08 on virtual machines."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of the second race over the first."""

    ratio: float
    ratio_ci95: tuple[float, float] | None


def change_of(
    races: Sequence[tuple[LaneResult, LaneResult]],
    prior: BetweenProcesses | None = None,
    looks: Looks = AT_THE_END,
) -> Change | None:
    """Return the change of the throughput, if known."""
    first = [lane.log_examples_per_s for lane, _ in races if lane.log_examples_per_s is not None]
    second = [lane.log_examples_per_s for _, lane in races if lane.log_examples_per_s is not None]
    if len(races) == 1 and first and second:
        # The slices are not paired.
        processes = statistics.between_processes((), (), prior)
        machine = statistics.Between(BETWEEN_RACES_SD, statistics.SUPPOSED_DEGREES)
        reach = math.hypot(*(part.reach(looks) for part in (first[0], second[0], processes, machine)))
        value = second[0].value - first[0].value
        result: tuple[float, ...] = (value, value - reach, value + reach)
    elif min(len(first), len(second)) >= LEAST_RACES:
        result = shift([speed.value for speed in first], [speed.value for speed in second], looks.error)
    else:
        return None
    ratio, low, high = map(math.exp, result)
    return Change(ratio, (low, high))


@dataclass(frozen=True, slots=True)
class LanePair:
    """A lane of both races."""

    first: LaneResult
    second: LaneResult
    change: Change | None

    @property
    def id(self) -> str:
        """The id of both lanes, or both ids."""
        return " / ".join(dict.fromkeys((self.first.id, self.second.id)))


@dataclass(frozen=True, slots=True)
class Difference:
    """A condition that differs between the races."""

    about: str
    what: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two races."""

    first: RaceResult
    second: RaceResult
    lanes: tuple[LanePair, ...]
    unpaired: tuple[str, ...]
    verdict: Change | None
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def compare(first: RaceResult, second: RaceResult) -> Comparison:
    """Compare the second race with the first."""
    pairs, unpaired = _paired(first.lanes, second.lanes)
    lanes = tuple(LanePair(lane, other, _change(lane, other, second.between_processes)) for lane, other in pairs)
    return Comparison(
        first=first,
        second=second,
        lanes=lanes,
        unpaired=tuple(unpaired),
        verdict=_verdict(first.verdict, second.verdict),
        differences=tuple(
            Difference(about, what, _written(before), _written(now))
            for about, what, before, now in _conditions(first, second, lanes)
            if before != now
        ),
        notes=tuple(_notes(first, second, lanes)),
    )


def compare_all(first: Sequence[RaceResult], second: Sequence[RaceResult]) -> list[Comparison]:
    """Compare races pair by pair; raises UsageError."""
    if len(first) != len(second):
        what = f"FIRST has {len(first)} and SECOND {len(second)} races"
        raise UsageError(what, "race both sides alternately, as often")
    return list(map(compare, first, second))


def _change(first: LaneResult, second: LaneResult, prior: BetweenProcesses | None) -> Change | None:
    old, new = first.examples_per_s, second.examples_per_s
    return change_of([(first, second)], prior) or (Change(new / old, None) if old and new else None)


def _verdict(first: Verdict, second: Verdict) -> Change | None:
    before, now = first.interval, second.interval
    if before is None or now is None or first.winner_id is None or first.winner_id != second.winner_id:
        return None
    ratio = now.value / before.value
    low = math.hypot(math.log(now.value / now.low), math.log(before.high / before.value))
    high = math.hypot(math.log(now.high / now.value), math.log(before.value / before.low))
    return Change(ratio, (ratio * math.exp(-low), ratio * math.exp(high)))


def _paired(
    first: Sequence[LaneResult], second: Sequence[LaneResult]
) -> tuple[list[tuple[LaneResult, LaneResult]], list[str]]:
    """Pair by id and kind, then by host and device, then by device."""
    left, right = list(first), list(second)
    pairs: list[tuple[LaneResult, LaneResult]] = []
    keys: tuple[Callable[[LaneResult], object], ...] = (
        lambda lane: (lane.id, lane.kind),
        lambda lane: lane.place,
        lambda lane: lane.device,
    )
    for key in keys:
        for lane in list(left):
            other = next((candidate for candidate in right if key(candidate) == key(lane)), None)
            if other is not None:
                pairs.append((lane, other))
                left.remove(lane)
                right.remove(other)
    pairs.sort(key=lambda pair: first.index(pair[0]))
    unpaired = [f"{lane.full_name}: only in the first" for lane in left]
    return pairs, unpaired + [f"{lane.full_name}: only in the second" for lane in right]


def _conditions(
    first: RaceResult, second: RaceResult, lanes: tuple[LanePair, ...]
) -> Iterator[tuple[str, str, object, object]]:
    for part in ("scenario", "source", "mode"):
        yield "scenario", part, getattr(first, part), getattr(second, part)
    for pair in lanes:
        left, right = pair.first, pair.second
        yield "lanes", f"{pair.id}: device", left.place, right.place
        for knob in sorted({*left.knobs, *right.knobs}):
            yield "knobs", f"{pair.id}: {knob}", left.knobs.get(knob), right.knobs.get(knob)
    yield "versions", "tfmon", first.tfmon, second.tfmon
    for pair in lanes:
        left, right = pair.first, pair.second
        for part in left.versions:
            yield "versions", f"{pair.id}: {part}", left.versions[part], right.versions.get(part)
        yield "machine", f"{pair.id}: processor", left.device_name, right.device_name
        if left.host or right.host:
            for part, values in _machine_parts(first.machine_of(left), second.machine_of(right)):
                yield "machine", f"{pair.id}: {part}", *values
    for part, values in _machine_parts(first.machine, second.machine):
        yield "machine", part, *values
    variables, other_variables = first.environment or {}, second.environment or {}
    for name in sorted({*variables, *other_variables}):
        yield "environment", name, variables.get(name), other_variables.get(name)


def _machine_parts(machine: Machine, other: Machine) -> Iterator[tuple[str, tuple[object, object]]]:
    unknown = Machine()
    for part, value in asdict(machine).items():
        values = value, getattr(other, part)
        late = part in _LATE and getattr(unknown, part) in values
        # Empty: no GPU was requested.
        if part != "boot" and not late and (part != "no_gpu" or all(values)):
            yield part, values


def _notes(first: RaceResult, second: RaceResult, lanes: tuple[LanePair, ...]) -> Iterator[str]:
    if first.scenario != second.scenario:
        both = f"{first.scenario} and {second.scenario}"
        yield f"these races are of different scenarios, {both}: no ratio between them says what is faster"
    elif first.source != second.source:
        yield f"the file of {first.scenario} was changed between the races: a ratio may come from that"
    for race in (first, second):
        if race.contended:
            yield f"{race.id} raced all lanes concurrently on the same cores: its figures are contended"
        for lane in race.lanes:
            if lane.error:
                yield f"{race.id}: {lane.full_name}: {lane.error}"
    for pair in lanes:
        if pair.change is not None and pair.change.ratio_ci95 is None:
            enough = f"{LEAST_PAIRS} slices in turns, or as many seconds of a lane by itself"
            yield f"{pair.id}: no interval; an interval takes {enough}"


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool | int | float | str):
        return show(value) or "none"
    return "none" if value is None else str(value)

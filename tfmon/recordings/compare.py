"""Compares two races: how much faster each lane was, what was different, and whether that passes a gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from tfmon.analysis.intervals import LEAST_PAIRS, Looks
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_FINE, EXIT_SLOWER, UsageError
from tfmon.model.knobs import show
from tfmon.model.race import BetweenProcesses, Machine
from tfmon.model.readings import FIXED, IntervalKind, Reading, known
from tfmon.model.spec import LaneSpec
from tfmon.recordings.figures import LEAST_RACES, Change, LaneFigures, Lead, MeasuredLane, RaceFigures, change_of

_LATE = ("quota_cores", "nice", "python", "tensorflow", "driver", "power_limits_w")
"""Facts of a machine that are not found out for every race, nor in older recordings."""


@dataclass(frozen=True, slots=True)
class LanePair:
    """A lane of both races."""

    first: LaneFigures
    second: LaneFigures
    change: Change | None
    """Of the throughput; None where one of them measured nothing."""

    @property
    def id(self) -> str:
        """The id of its lanes, or both."""
        return " / ".join(dict.fromkeys((self.first.id, self.second.id)))


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

    first: RaceFigures
    second: RaceFigures
    lanes: tuple[LanePair, ...]
    unpaired: tuple[str, ...]
    verdict: Change | None
    """Of the ratio between the lanes; None where one of the races has none, or another winner."""
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
    """Compare several races pair by pair; raises UsageError where one side has more than the other."""
    if len(first) != len(second):
        raise UsageError(
            f"FIRST has {len(first)} and SECOND {len(second)} races", "race both sides alternately, as often"
        )
    return [compare(one, other) for one, other in zip(first, second, strict=True)]


def _change(one: LaneFigures, other: LaneFigures, prior: BetweenProcesses | None) -> Change | None:
    """Return the throughput of a lane over that of one of another race; slices of two races are not paired."""
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
    """Pair lanes of one kind of device by their id, the others by their place, or else device, in their order."""
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
    """Yield what two machines are compared by: not by what is only known of one, and not by when they started."""
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


# ---------------------------------------------------------------- the gate of `tfmon diff --slower-than`


GateKind: TypeAlias = Literal["slower", "not slower", "cannot tell"]
SLOWER: GateKind = "slower"
NOT_SLOWER: GateKind = "not slower"
CANNOT_TELL: GateKind = "cannot tell"
BESIDE = 0.5
"""Share of its time that a thread loses at most to one other on its core: the scheduler lets them take turns."""
LEAST_EXPLAINED = 1.01
TOO_LITTLE = (
    "too few slices were measured: race for longer",
    f"fewer than {LEAST_RACES} races on each side have a throughput: race more often, or for longer",
)
"""Why there is no interval of one race on each side, and of several."""


@dataclass(frozen=True, slots=True)
class LaneGate:
    """What the gate says of one lane."""

    lane: str
    kind: GateKind
    reason: str
    ratio: float | None = None
    """Throughput of the run over that of the baseline; None where there is none with an interval."""
    low: float | None = None
    high: float | None = None
    needed: float | None = None
    """The smallest limit that races as noisy as these can decide; None where noise is not what is in the way."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate says of a race: the worst of what it says of its lanes."""

    limit: float
    lanes: tuple[LaneGate, ...]

    @property
    def kind(self) -> GateKind:
        """Return `slower` if any lane is, else `cannot tell` if that holds for any lane."""
        kinds = [lane.kind for lane in self.lanes]
        return next((kind for kind in (SLOWER, CANNOT_TELL) if kind in kinds), NOT_SLOWER)

    @property
    def exit_code(self) -> int:
        """Return the exit code of `tfmon diff`."""
        return {SLOWER: EXIT_SLOWER, CANNOT_TELL: EXIT_CANNOT_TELL}.get(self.kind, EXIT_FINE)

    @property
    def text(self) -> str:
        """Return the answer in a line, and a line for each lane."""
        said = {
            SLOWER: f"slower by more than {100 * self.limit:g} %",
            NOT_SLOWER: f"not slower by more than {100 * self.limit:g} %",
            CANNOT_TELL: "cannot tell",
        }
        return "\n".join([said[self.kind], *(f"  {lane.lane}: {lane.reason}" for lane in self.lanes)])

    def __str__(self) -> str:
        """Return the answer, as `tfmon diff` prints it."""
        return self.text


def judge(races: Sequence[Comparison], limit: float, kind: IntervalKind = FIXED) -> Gate:
    """Return whether any lane lost more than a share of its speed; raises UsageError for unlike races.

    Args:
        kind: of the intervals: `ALWAYS_VALID` for a race that is judged again and again.
    """
    for one in races:
        before, after = one.first.scenario, one.second.scenario
        if before != after:
            raise UsageError(
                f"the baseline is of {before} and the run of {after}", "race the same scenario for both"
            )
        if not one.lanes:
            raise UsageError("the baseline and the run have no lane in common", "; ".join(one.unpaired))
    lanes = [
        [(one, pair) for one in races for pair in one.lanes if pair.id == wanted.id] for wanted in races[0].lanes
    ]
    looks = Looks(kind, choices=len(lanes))
    return Gate(limit, tuple(_judge(pairs, len(races), limit, looks) for pairs in lanes))


def _judge(pairs: Sequence[tuple[Comparison, LanePair]], count: int, limit: float, looks: Looks) -> LaneGate:
    """Return the gate's outcome for one lane, which every race should have."""
    measured = [(pair.first.measured, pair.second.measured) for _, pair in pairs]
    obstacles = [] if len(pairs) == count else ["not every race has it"]
    for one, pair in pairs:
        obstacles += _obstacles(one.first, one.second, pair)
    lane, reason = pairs[0][1].second.name, "; ".join(dict.fromkeys(obstacles))
    result = change_of(measured, pairs[0][0].second.between, looks)
    if reason or result is None or result.low is None or result.high is None:
        ratio = result.ratio if result is not None else None
        return LaneGate(lane, CANNOT_TELL, reason or TOO_LITTLE[count > 1], ratio)
    how = "slower" if result.ratio < 1 else "faster"
    said = f"{100 * abs(result.ratio - 1):.1f} % {how}"
    said += f" (95 % CI {100 * (result.low - 1):+.1f} to {100 * (result.high - 1):+.1f} %)"
    said += f", {count} races each" if count > 1 else ""
    cores = pairs[0][0].first.machines[pairs[0][1].first.host].cores
    before, after = ([one[place] for one in measured] for place in (0, 1))
    of_baseline, told_of_baseline = _explained(after, before, cores, "baseline")
    of_run, told_of_run = _explained(before, after, cores, "run")
    said += told_of_baseline + told_of_run
    width = 1 - result.low / of_baseline / result.ratio
    needed = math.ceil(1_000 * max(width, 1 - result.ratio)) / 1_000
    figures = result.ratio, result.low, result.high
    if result.high * of_run < 1 - limit:
        return LaneGate(lane, SLOWER, said, *figures)
    if width <= limit and result.ratio >= 1 - limit:
        return LaneGate(lane, NOT_SLOWER, said, *figures)
    why = "others may explain it" if result.high < 1 - limit else "too noisy" if width > limit else "too close"
    reason = f"{why}: {f'{100 * needed:.1f} %' if needed < 1 else 'nothing'} can be told; {said}"
    return LaneGate(lane, CANNOT_TELL, reason, *figures, needed)


def _explained(
    less: Sequence[MeasuredLane], more: Sequence[MeasuredLane], cores: int, name: str
) -> tuple[float, str]:
    """Return the factor by which others slowed `more` down at most, beyond `less`, and what to say of it, or "".

    What others took alike on both sides slows both down. A thread loses to one program more at most the share
    `BESIDE` of its time, and no more than that one took; all threads together lose what others took of all cores.
    While a core is stolen, it stands still.
    """
    others = max(0.0, _mean([one.others_cores for one in more]) - _mean([one.others_cores for one in less]))
    stolen = max(0.0, _mean([one.stolen_share for one in more]) - _mean([one.stolen_share for one in less]))
    lost = min(others, max(BESIDE, others / max(1, cores))) + stolen
    factor = 1 / (1 - lost) if lost < 1 else math.inf
    if factor < LEAST_EXPLAINED:
        return factor, ""
    took = f"others took {others:.1f} cores more in the {name}"
    if stolen > others / 10:
        took = f"others took {others:.1f} cores and the hypervisor {100 * stolen:.0f} % of one more in the {name}"
    explains = f"which explains a factor of {factor:.2f} at most" if lost < 1 else "which may explain anything"
    return factor, f"; {took}, {explains}"


def _mean(readings: Sequence[Reading]) -> float:
    """Return the mean of what is known; 0 where nothing is."""
    values = [value for one in readings if (value := known(one)) is not None]
    return sum(values) / len(values) if values else 0.0


def _obstacles(first: RaceFigures, second: RaceFigures, pair: LanePair) -> Iterator[str]:
    """Yield why a difference of the figures would say nothing of the program."""
    machines = first.machines[pair.first.host], second.machines[pair.second.host]
    for name in ("hostname", "cpu_name", "cores", "usable_cores"):
        one, other = (getattr(machine, name) for machine in machines)
        if one != other:
            yield f"another machine: {name} was {one or 'unknown'}, now {other or 'unknown'}"
    if pair.first.place != pair.second.place:
        yield f"another device: it was {pair.first.place}, now {pair.second.place}"
    elif (one := pair.first.processor) != (other := pair.second.processor):
        yield f"another processor: it was {one or 'unknown'}, now {other or 'unknown'}"
    for name, race, lane in (("baseline", first, pair.first), ("run", second, pair.second)):
        if race.contended:
            yield f"the {name} raced its lanes concurrently: its figures are contended"
        if lane.trouble:
            yield f"it failed in the {name}: {lane.trouble}"

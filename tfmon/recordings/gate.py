"""The gate of `tfmon diff --slower-than`: whether a race shows that a lane became slower, or cannot tell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfmon.analysis.intervals import Looks
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_FINE, EXIT_SLOWER, UsageError
from tfmon.model.readings import Reading, known
from tfmon.recordings.compare import Comparison, LanePair
from tfmon.recordings.figures import LEAST_RACES, MeasuredLane, RaceFigures, change_of

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
_MACHINE = ("hostname", "cpu_name", "cores", "usable_cores")
"""What makes a machine another one, so that no difference says anything of the program."""


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


def judge(races: Sequence[Comparison], limit: float) -> Gate:
    """Return whether any lane lost more than a share of its speed; raises UsageError for unlike races."""
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
    looks = Looks(choices=len(lanes))
    return Gate(limit, tuple(_judge(pairs, len(races), limit, looks) for pairs in lanes))


def _judge(pairs: Sequence[tuple[Comparison, LanePair]], count: int, limit: float, looks: Looks) -> LaneGate:
    """Return the gate's outcome for one lane, which every race should have."""
    measured = [(pair.first.measured, pair.second.measured) for _, pair in pairs]
    obstacles = [] if len(pairs) == count else ["not every race has it"]
    for one, pair in pairs:
        obstacles += _obstacles(one.first, one.second, pair)
    lane, reason = pairs[0][1].second.name, "; ".join(dict.fromkeys(obstacles))
    found = change_of(measured, pairs[0][0].second.between, looks)
    if reason or found is None or found.low is None or found.high is None:
        ratio = found.ratio if found is not None else None
        return LaneGate(lane, CANNOT_TELL, reason or TOO_LITTLE[count > 1], ratio)
    said = _said(found.ratio, found.low, found.high) + (f", {count} races each" if count > 1 else "")
    cores = pairs[0][0].first.machines[pairs[0][1].first.host].cores
    before, after = ([one[place] for one in measured] for place in (0, 1))
    of_baseline, of_run = _explained(after, before, cores, "baseline"), _explained(before, after, cores, "run")
    said += of_baseline.text + of_run.text
    width = 1 - found.low / of_baseline.factor / found.ratio
    needed = math.ceil(1_000 * max(width, 1 - found.ratio)) / 1_000
    figures = found.ratio, found.low, found.high
    if found.high * of_run.factor < 1 - limit:
        return LaneGate(lane, SLOWER, said, *figures)
    if width <= limit and found.ratio >= 1 - limit:
        return LaneGate(lane, NOT_SLOWER, said, *figures)
    why = "others may explain it" if found.high < 1 - limit else "too noisy" if width > limit else "too close"
    reason = f"{why}: {f'{100 * needed:.1f} %' if needed < 1 else 'nothing'} can be told; {said}"
    return LaneGate(lane, CANNOT_TELL, reason, *figures, needed)


@dataclass(frozen=True, slots=True)
class _Explained:
    """What other programs and machines explain of a difference between races."""

    factor: float
    """By how much they slowed one side down at most, beyond the other side; infinite for without a bound."""
    text: str = ""
    """What follows the figures; empty for too little to be told."""


def _explained(less: Sequence[MeasuredLane], more: Sequence[MeasuredLane], cores: int, name: str) -> _Explained:
    """Return by how much others may have slowed the races `more` down, beyond the races `less`.

    What others took alike on both sides slows both down. A thread loses to one program more at most the share
    `BESIDE` of its time, and no more than that one took; all threads together lose what others took of all cores.
    While a core is stolen, it stands still.
    """
    others = max(0.0, _mean([one.others_cores for one in more]) - _mean([one.others_cores for one in less]))
    stolen = max(0.0, _mean([one.stolen_share for one in more]) - _mean([one.stolen_share for one in less]))
    lost = min(others, max(BESIDE, others / max(1, cores))) + stolen
    factor = 1 / (1 - lost) if lost < 1 else math.inf
    if factor < LEAST_EXPLAINED:
        return _Explained(factor)
    took = f"others took {others:.1f} cores more in the {name}"
    if stolen > others / 10:
        took = f"others took {others:.1f} cores and the hypervisor {100 * stolen:.0f} % of one more in the {name}"
    explains = f"which explains a factor of {factor:.2f} at most" if lost < 1 else "which may explain anything"
    return _Explained(factor, f"; {took}, {explains}")


def _mean(readings: Sequence[Reading]) -> float:
    """Return the mean of what is known; 0 where nothing is."""
    values = [value for one in readings if (value := known(one)) is not None]
    return sum(values) / len(values) if values else 0.0


def _obstacles(first: RaceFigures, second: RaceFigures, pair: LanePair) -> Iterator[str]:
    """Yield why a difference of the figures would say nothing of the program."""
    machines = first.machines[pair.first.host], second.machines[pair.second.host]
    for name in _MACHINE:
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


def _said(ratio: float, low: float, high: float) -> str:
    """Say a change of the throughput with its interval."""
    how = "slower" if ratio < 1 else "faster"
    return f"{100 * abs(ratio - 1):.1f} % {how} (95 % CI {100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %)"

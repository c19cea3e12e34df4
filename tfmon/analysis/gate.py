"""The gate of `tfmon diff`: whether lanes became slower, or take more memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Literal, TypeAlias

from tfmon import units
from tfmon.analysis.compare import LEAST_RACES, Change, Comparison, LanePair, change_of
from tfmon.analysis.intervals import Looks, shift
from tfmon.analysis.result import LaneResult
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_FINE, EXIT_WORSE, UsageError
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.readings import FIXED, IntervalKind

GateKind: TypeAlias = Literal["slower", "not slower", "more memory", "not more memory", "cannot tell"]
SLOWER: GateKind = "slower"
NOT_SLOWER: GateKind = "not slower"
MORE_MEMORY: GateKind = "more memory"
NOT_MORE_MEMORY: GateKind = "not more memory"
CANNOT_TELL: GateKind = "cannot tell"
PASSED: Mapping[GateKind, GateKind] = {SLOWER: NOT_SLOWER, MORE_MEMORY: NOT_MORE_MEMORY}
"""Failures, and the answer if the lane passes."""
Pair: TypeAlias = tuple[Comparison, LanePair]
GPU_MEMORY = "GPU memory"
BESIDE = 0.5
"""Maximum share that a thread loses to another thread on its core."""
LEAST_EXPLAINED = 1.01
TOO_LITTLE = (
    "too few slices were measured: race for longer",
    f"fewer than {LEAST_RACES} races on each side have a throughput: race more often, or for longer",
)
FEW_PROCESSES = f"how much equal processes differ is not known: give {LEAST_RACES} races or more on each side"


@dataclass(frozen=True, slots=True)
class LaneGate:
    """The result for one lane."""

    lane: str
    kind: GateKind
    reason: str
    ratio: float | None = None
    ratio_ci95: tuple[float, float] | None = None
    needed: float | None = None
    """The smallest limit that such races can decide."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The result for a race: the worst of its lanes."""

    watched: GateKind
    limit: float
    lanes: tuple[LaneGate, ...]

    @property
    def kind(self) -> GateKind:
        """Return the worst answer of the lanes."""
        kinds = [lane.kind for lane in self.lanes]
        return next((kind for kind in (self.watched, CANNOT_TELL) if kind in kinds), PASSED[self.watched])

    @property
    def exit_code(self) -> int:
        """Return the exit code of `tfmon diff`."""
        return {self.watched: EXIT_WORSE, CANNOT_TELL: EXIT_CANNOT_TELL}.get(self.kind, EXIT_FINE)

    @property
    def text(self) -> str:
        """Return the answer, and a line for each lane."""
        limit, memory = f"{100 * self.limit:g} %", self.watched == MORE_MEMORY
        answer = {
            SLOWER: f"slower by more than {limit}",
            NOT_SLOWER: f"not slower by more than {limit}",
            MORE_MEMORY: f"it takes over {limit} more memory",
            NOT_MORE_MEMORY: f"it does not take over {limit} more memory",
            CANNOT_TELL: f"cannot tell whether it takes over {limit} more memory" if memory else CANNOT_TELL,
        }[self.kind]
        return "\n".join([answer, *(f"  {lane.lane}: {lane.reason}" for lane in self.lanes)])

    def __str__(self) -> str:
        return self.text


def exit_code(gates: Sequence[Gate]) -> int:
    """Return the worst exit code."""
    codes = [gate.exit_code for gate in gates]
    return next((code for code in (EXIT_WORSE, EXIT_CANNOT_TELL) if code in codes), EXIT_FINE)


def judge(
    races: Sequence[Comparison], limit: float, watched: GateKind = SLOWER, kind: IntervalKind = FIXED
) -> Gate:
    """Return whether any lane became slower, or takes more memory, by more than a share.

    Args:
        races: Comparisons of a run with its baseline.
        limit: The share.
        watched: `slower` or `more memory`.
        kind: `ALWAYS_VALID` for a race that is judged repeatedly.

    Raises:
        UsageError: the races have different scenarios, or no common lane.
    """
    for race in races:
        baseline, run = race.first.scenario, race.second.scenario
        if baseline != run:
            what = f"the baseline is of {baseline} and the run of {run}"
            raise UsageError(what, "race the same scenario for both")
        if not race.lanes:
            raise UsageError("the baseline and the run have no lane in common", "; ".join(race.unpaired))
    every = [(race, pair) for race in races for pair in race.lanes]
    lanes = [[(race, pair) for race, pair in every if pair.id == wanted.id] for wanted in races[0].lanes]
    if watched == SLOWER:
        looks = Looks(kind, choices=len(lanes))
        return Gate(watched, limit, tuple(_judge_speed(pairs, len(races), limit, looks) for pairs in lanes))
    parts = []
    for pairs in lanes:
        on_gpu = any(lane.gpu_memory_peak_bytes for _, pair in pairs for lane in (pair.first, pair.second))
        parts += [(pairs, "memory"), *([(pairs, GPU_MEMORY)] if on_gpu else [])]
    looks = Looks(choices=max(1, len(parts)))
    return Gate(watched, limit, tuple(_judge_memory(*part, len(races), limit, looks) for part in parts))


def _judge_memory(pairs: Sequence[Pair], memory: str, count: int, limit: float, looks: Looks) -> LaneGate:
    """A race is one process of a lane, so one race has no interval."""
    field = "gpu_memory_peak_bytes" if memory == GPU_MEMORY else "peak_private_bytes"
    baseline = [math.log(size) for _, pair in pairs if (size := getattr(pair.first, field))]
    run = [math.log(size) for _, pair in pairs if (size := getattr(pair.second, field))]
    lane, reason = f"{pairs[0][1].second.full_name}, {memory}", _obstacle(pairs, count, contended=False)
    if reason or not baseline or not run:
        side = "run" if baseline else "baseline"
        return LaneGate(lane, CANNOT_TELL, reason or f"it is unknown in the {side}")
    sizes = " → ".join(units.memory(math.exp(median(sizes_of_side))) for sizes_of_side in (baseline, run))
    if min(len(baseline), len(run)) < LEAST_RACES:
        return LaneGate(lane, CANNOT_TELL, f"{sizes}; {FEW_PROCESSES}", math.exp(median(run) - median(baseline)))
    ratio, low, high = map(math.exp, shift(baseline, run, looks.error))
    change, loss = Change(ratio, (low, high)), (ratio - 1, high / ratio - 1, high - 1)
    summary = f"{_change_text(change, 'less', 'more')}, {sizes}, {count} races each"
    return _decide(lane, MORE_MEMORY, summary, change, loss, limit, beyond=low > 1 + limit)


def _judge_speed(pairs: Sequence[Pair], count: int, limit: float, looks: Looks) -> LaneGate:
    lanes = [(pair.first, pair.second) for _, pair in pairs]
    lane, reason = pairs[0][1].second.full_name, _obstacle(pairs, count, contended=True)
    change = change_of(lanes, pairs[0][0].second.between_processes, looks)
    if reason or change is None or change.ratio_ci95 is None:
        known = change.ratio if change is not None else None
        return LaneGate(lane, CANNOT_TELL, reason or TOO_LITTLE[count > 1], known)
    ratio, (low, high) = change.ratio, change.ratio_ci95
    summary = _change_text(change, "slower", "faster") + (f", {count} races each" if count > 1 else "")
    cores = pairs[0][0].first.machine_of(pairs[0][1].first).cores
    baseline, run = zip(*lanes, strict=True)
    of_baseline, baseline_note = _explained(run, baseline, cores, "baseline")
    of_run, run_note = _explained(baseline, run, cores, "run")
    low /= of_baseline
    loss = (1 - ratio, 1 - low / ratio, 1 - low)
    beyond, explained = high * of_run < 1 - limit, high < 1 - limit
    summary += baseline_note + run_note
    return _decide(lane, SLOWER, summary, change, loss, limit, beyond=beyond, explained=explained)


def _decide(
    lane: str,
    watched: GateKind,
    summary: str,
    change: Change,
    loss: tuple[float, float, float],
    limit: float,
    *,
    beyond: bool,
    explained: bool = False,
) -> LaneGate:
    """`loss`: the estimate, its distance to the worst end, and the worst end, as shares of the baseline.

    `explained`: other programs may explain the loss.
    """
    middle, width, worst = loss
    can_tell = min(max(width, middle), worst)
    if beyond or can_tell <= limit:
        kind = watched if beyond else PASSED[watched]
        return LaneGate(lane, kind, summary, change.ratio, change.ratio_ci95)
    needed = math.ceil(1_000 * can_tell) / 1_000
    why = "others may explain it" if explained else "too noisy" if width > limit else "too close"
    can = f"{100 * needed:.1f} %" if needed < 1 else "nothing"
    reason = f"{why}: {can} can be told; {summary}"
    return LaneGate(lane, CANNOT_TELL, reason, change.ratio, change.ratio_ci95, needed)


def _change_text(change: Change, less: str, more: str) -> str:
    interval = " to ".join(f"{100 * (end - 1):+.1f}" for end in change.ratio_ci95 or ())
    return f"{100 * abs(change.ratio - 1):.1f} % {less if change.ratio < 1 else more} (95 % CI {interval} %)"


def _explained(less: Sequence[LaneResult], more: Sequence[LaneResult], cores: int, name: str) -> tuple[float, str]:
    """Return the largest factor by which others slowed `more` down beyond `less`, and the explanation.

    A thread loses at most the share `BESIDE` to another program, and all threads at most the use by others.
    A stolen core stands still.
    """
    taken = _increase([lane.others_cpu_pct for lane in less], [lane.others_cpu_pct for lane in more])
    stolen = _increase([lane.stolen_pct for lane in less], [lane.stolen_pct for lane in more])
    lost = min(taken, max(BESIDE, taken / max(1, cores))) + stolen
    factor = 1 / (1 - lost) if lost < 1 else math.inf
    if factor < LEAST_EXPLAINED:
        return factor, ""
    took = f"others took {taken:.1f} cores more in the {name}"
    if stolen > taken / 10:
        took = f"others took {taken:.1f} cores and the hypervisor {100 * stolen:.0f} % of one more in the {name}"
    explains = f"which explains a factor of {factor:.2f} at most" if lost < 1 else "which may explain anything"
    return factor, f"; {took}, {explains}"


def _increase(first: Sequence[float | None], second: Sequence[float | None]) -> float:
    known = [[percent for percent in side if percent is not None] for side in (first, second)]
    means = [fmean(percents) / 100 if percents else 0.0 for percents in known]
    return max(0.0, means[1] - means[0])


def _obstacle(pairs: Sequence[Pair], count: int, *, contended: bool) -> str:
    reasons = [] if len(pairs) == count else ["not every race has it"]
    for races, pair in pairs:
        sides = (("baseline", races.first, pair.first), ("run", races.second, pair.second))
        machines = [race.machine_of(lane) for _, race, lane in sides]
        for name in ("hostname", "cpu_name", "cores", "usable_cores"):
            before, now = (getattr(machine, name) for machine in machines)
            if before != now:
                reasons.append(f"another machine: {name} was {before or 'unknown'}, now {now or 'unknown'}")
        if pair.first.place != pair.second.place:
            reasons.append(f"another device: it was {pair.first.place}, now {pair.second.place}")
        elif (before := pair.first.device_name) != (now := pair.second.device_name):
            reasons.append(f"another processor: it was {before or 'unknown'}, now {now or 'unknown'}")
        for name, race, lane in sides:
            if contended and race.contended:
                reasons.append(f"the {name} raced its lanes concurrently: its figures are contended")
            if lane.error:
                reasons.append(f"it failed in the {name}: {lane.error}")
    return "; ".join(dict.fromkeys(reasons))

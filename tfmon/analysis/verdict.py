"""The verdict: which lane is faster, by what factor, and what limits that figure. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.analysis import statistics
from tfmon.analysis.statistics import LEAST_PAIRS, Throughput
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.race import CONCURRENT
from tfmon.model.readings import Estimate, known
from tfmon.model.session import GPU_THROTTLED, SWAPPING, THROTTLED, Snapshot

CONTENDED = "contended: all train at once and share the cores (t: take turns)"

FALLEN = 0.75
"""A GPU clock below this share of its highest in the last minute has fallen: the GPU rested between slices."""
MANY_OUTLIERS = 0.1
"""Share of outlying pairs from which on they are reported."""
_CONSTANT = {
    SWAPPING: "this machine swaps most of the time",
    THROTTLED: "the container's CPU quota is used up most of the time",
    GPU_THROTTLED: "the GPU is throttled most of the time",
}


@dataclass(frozen=True, slots=True)
class Rank:
    """The throughput of one lane over that of the slowest."""

    lane: str
    ratio: Estimate


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which lane is faster, or why that cannot be said."""

    text: str
    """One line: which lane is faster and by what factor, or why that cannot be said."""
    short: str = ""
    """The same with the lanes' ids for their names; empty where no lane is named."""
    winner: str | None = None
    """Name of the fastest lane, if the interval of its lead is above 1 or the race is concurrent; else None."""
    ratio: float | None = None
    """Throughput of the fastest lane over that of the slowest."""
    interval: Estimate | None = None
    """The same with its 95 % interval; None in a concurrent race."""
    ranking: tuple[Rank, ...] = ()
    """Every lane but the slowest, the fastest first; empty in a concurrent race."""
    note: str = ""
    """What limits the figure; empty if nothing does."""


def find_verdict(snapshot: Snapshot, throughputs: Mapping[str, Throughput] | None = None) -> Verdict:
    """Compare the lanes that trained, by examples/s in steady state since each one's last knob change.

    `throughputs` are those of the lanes by name, where they are computed already.

    Units: ratios are examples/s over examples/s; interleaved, of slices of the same round.
    """
    lanes = [lane for lane in snapshot.lanes if lane.phase not in (FAILED, ABSENT)]
    if len(snapshot.lanes) == 1:
        return Verdict("one lane: nothing to compare it with")
    if len(lanes) < 2:
        return Verdict(f"no verdict: {len(lanes)} of {len(snapshot.lanes)} lanes can train")
    if any(lane.steady.examples_per_s is None for lane in lanes):
        waiting = any(not lane.over for lane in lanes)
        return Verdict(
            "no verdict yet: the lanes are getting ready" if waiting else "no verdict: nothing was measured"
        )
    if snapshot.race.mode == CONCURRENT:
        return _concurrent(lanes)
    known_ones = throughputs or {lane.spec.name: Throughput.of(lane.slices) for lane in lanes}
    return _interleaved(snapshot, [(lane, known_ones[lane.spec.name]) for lane in lanes])


def _concurrent(lanes: Sequence[LaneState]) -> Verdict:
    ordered = sorted(lanes, key=lambda lane: lane.steady.examples_per_s or 0.0, reverse=True)
    winner, loser = ordered[0], ordered[-1]
    best, worst = winner.steady.examples_per_s, loser.steady.examples_per_s
    if not best or not worst:
        return Verdict("no verdict: nothing was measured")
    ratio = best / worst
    text = f"{{}} is {units.ratio(ratio)} faster than {{}}"
    return Verdict(*_named(text, winner, loser), winner.spec.name, ratio, note=CONTENDED)


def _interleaved(snapshot: Snapshot, lanes: Sequence[tuple[LaneState, Throughput]]) -> Verdict:
    lanes = sorted(lanes, key=_pace, reverse=True)
    (fastest, first), (next_fastest, second), (slowest, last) = lanes[0], lanes[1], lanes[-1]
    ratios = [(lane.spec.name, statistics.ratio(one.logs, last.logs)) for lane, one in lanes[:-1]]
    ranking = tuple(Rank(name, ratio) for name, ratio in ratios if ratio is not None)
    if len(ranking) < len(ratios):
        rounds = len(set.intersection(*({one.round for one in lane.slices} for lane, _ in lanes)))
        yet = "" if all(lane.over for lane, _ in lanes) else " yet"
        return Verdict(f"no verdict{yet}: measured {rounds} of {LEAST_PAIRS} rounds")
    best = ranking[0].ratio
    lead = statistics.ratio(first.logs, second.logs) if len(lanes) > 2 else best
    note = "; ".join([*_notes(lanes), *_fallen_clocks(snapshot)])
    if lead is None or lead.low <= 1:
        text = f"too close to call: {{}} over {{}} ({_written(lead or best)[1]})"
        return Verdict(*_named(text, fastest, next_fastest), None, best.value, best, ranking, note)
    factor, interval = _written(best)
    text = f"{{}} is {factor} faster than {{}} ({interval})"
    return Verdict(*_named(text, fastest, slowest), fastest.spec.name, best.value, best, ranking, note)


def _pace(lane: tuple[LaneState, Throughput]) -> float:
    """Return the throughput that the pairs are about, which one disturbed slice hardly moves."""
    state, throughput = lane
    return throughput.speed.value if throughput.speed else state.steady.examples_per_s or 0.0


def _named(text: str, first: LaneState, second: LaneState) -> tuple[str, str]:
    return text.format(first.title, second.title), text.format(first.spec.id, second.spec.id)


def _written(estimate: Estimate) -> tuple[str, str]:
    factor, interval = units.ratio_in(estimate.value, estimate.low, estimate.high)
    return factor, f"95 % CI {interval}, {estimate.pairs} pairs"


def _notes(lanes: Sequence[tuple[LaneState, Throughput]]) -> list[str]:
    """Return what makes the figure less sure: drift, outlying pairs, and what disturbs most of the time."""
    notes = []
    for lane, throughput in lanes:
        if throughput.drift is not None:
            change = "sped up" if throughput.drift > 1 else "slowed"
            percent = 100 * abs(throughput.drift - 1)
            notes.append(f"{lane.title} {change} by {percent:.0f} % during this measurement")
    (fastest, first), (_, last) = lanes[0], lanes[-1]
    outliers = statistics.outliers(first.logs, last.logs)
    if outliers > max(1, MANY_OUTLIERS * len(fastest.slices)):
        notes.append(f"{outliers} outlying pairs: something else disturbs the lanes")
    reasons = sorted({reason for lane, _ in lanes for reason in lane.measurements.constant})
    told = [_CONSTANT.get(reason, f"{reason} most of the time") for reason in reasons]
    return notes + [f"{one}; the figures include that" for one in told]


def _fallen_clocks(snapshot: Snapshot) -> list[str]:
    """Name the GPUs whose clocks fall between slices, so that they have to speed up in each."""
    notes = []
    for lane in snapshot.lanes:
        gpu = snapshot.gpu_of(lane)
        samples = snapshot.gpu_history.get(gpu.key, ()) if gpu is not None else ()
        clocks = [clock for clock in (known(sample.sm_clock_mhz) for sample in samples) if clock]
        if len(clocks) > 1 and min(clocks) < FALLEN * max(clocks):
            span = f"{min(clocks):.0f} to {max(clocks):.0f} MHz"
            notes.append(f"the GPU clock of {lane.title} falls between slices ({span}); a longer --slice hides it")
    return notes

"""The verdict as it stands: who is ahead, by what factor, and what that figure is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.analysis import statistics
from tfmon.analysis.statistics import LEAST_PAIRS
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.readings import Estimate, known
from tfmon.model.session import CONCURRENT, Snapshot

CONTENDED = "contended: all train at once and share the cores (t: take turns)"

SUNK = 0.75
"""A GPU whose clocks fell below this share of their highest in the last minute has rested between turns."""
MANY_ODD = 0.1
"""Share of pairs out of line from which on that is worth a word."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One lane against the slowest."""

    lane: str
    ratio: Estimate


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict as it stands."""

    text: str
    """One line: who is ahead and by what factor, or why that cannot be said."""
    short: str = ""
    """The same with the lanes' ids for their names; empty where no lane is named."""
    winner: str | None = None
    """Name of the lane that is ahead beyond doubt; in a contended race, of the one that is ahead."""
    ratio: float | None = None
    """Throughput of the fastest lane over that of the slowest."""
    interval: Estimate | None = None
    """The same with its 95 % interval; None in a contended race."""
    ranking: tuple[Rank, ...] = ()
    """Every lane but the slowest, the fastest first; empty in a contended race."""
    note: str = ""
    """What limits the figure; empty if nothing does."""


def find_verdict(snapshot: Snapshot) -> Verdict:
    """Compare the lanes that trained, by examples/s in steady state since each one's last knob change.

    Units: ratios are examples/s over examples/s; in turns, of slices of the same round.
    """
    lanes = [lane for lane in snapshot.lanes if lane.phase not in (FAILED, ABSENT)]
    if len(snapshot.lanes) == 1:
        return Verdict("one lane: nothing to compare it with")
    if len(lanes) < 2:
        trained = len(lanes)
        return Verdict(f"no verdict: {trained} of {len(snapshot.lanes)} lanes can train")
    if any(lane.steady.examples_per_s is None for lane in lanes):
        waiting = any(not lane.over for lane in lanes)
        return Verdict(
            "no verdict yet: the lanes are getting ready" if waiting else "no verdict: nothing was measured"
        )
    lanes.sort(key=lambda lane: lane.steady.examples_per_s or 0.0, reverse=True)
    if snapshot.race.mode == CONCURRENT:
        return _contended(lanes)
    return _in_turns(lanes, _sinking_clocks(snapshot))


def _contended(lanes: Sequence[LaneState]) -> Verdict:
    winner, loser = lanes[0], lanes[-1]
    best, worst = winner.steady.examples_per_s, loser.steady.examples_per_s
    if not best or not worst:
        return Verdict("no verdict: nothing was measured")
    ratio = best / worst
    said = f"{{}} is {units.ratio(ratio)} faster than {{}}"
    return Verdict(*_named(said, winner, loser), winner.spec.name, ratio, note=CONTENDED)


def _in_turns(lanes: Sequence[LaneState], clocks: Sequence[str]) -> Verdict:
    lanes = sorted(lanes, key=_pace, reverse=True)
    slowest = lanes[-1]
    estimates = [(lane, statistics.ratio(lane.slices, slowest.slices)) for lane in lanes[:-1]]
    ranking = tuple(Rank(lane.spec.name, estimate) for lane, estimate in estimates if estimate is not None)
    if len(ranking) < len(estimates):
        pairs = len(set.intersection(*({one.round for one in lane.slices} for lane in lanes)))
        yet = "" if all(lane.over for lane in lanes) else " yet"
        return Verdict(f"no verdict{yet}: {pairs} of the {LEAST_PAIRS} pairs that an interval takes")
    best = ranking[0].ratio
    note = "; ".join([*_notes(lanes), *clocks])
    second = statistics.ratio(lanes[0].slices, lanes[1].slices)
    if second is None or second.low <= 1:
        said = f"too close to call: {{}} over {{}} ({_written(second or best)[1]})"
        return Verdict(*_named(said, lanes[0], lanes[1]), None, best.value, best, ranking, note)
    factor, interval = _written(best)
    said = f"{{}} is {factor} faster than {{}} ({interval})"
    return Verdict(*_named(said, lanes[0], slowest), lanes[0].spec.name, best.value, best, ranking, note)


def _named(said: str, first: LaneState, second: LaneState) -> tuple[str, str]:
    return said.format(first.title, second.title), said.format(first.spec.id, second.spec.id)


def _pace(lane: LaneState) -> float:
    """Return the throughput that the pairs are about, which one disturbed slice hardly moves."""
    pace = statistics.speed(lane.slices)
    return pace.value if pace else lane.steady.examples_per_s or 0.0


def _written(estimate: Estimate) -> tuple[str, str]:
    factor, interval = units.ratio_in(estimate.value, estimate.low, estimate.high)
    return factor, f"95 % CI {interval}, {estimate.pairs} pairs"


def _sinking_clocks(snapshot: Snapshot) -> list[str]:
    """Say which GPUs slow down while they wait for their turn, and have to speed up in it."""
    words = []
    for lane in snapshot.lanes:
        gpu = snapshot.gpu_of(lane)
        samples = snapshot.gpu_history.get(gpu.key, ()) if gpu is not None else ()
        clocks = [clock for clock in (known(sample.sm_clock_mhz) for sample in samples) if clock]
        if len(clocks) > 1 and min(clocks) < SUNK * max(clocks):
            span = f"{min(clocks):.0f} to {max(clocks):.0f} MHz"
            words.append(f"{lane.title}'s clocks sink between its turns ({span}); a longer --slice hides it")
    return words


def _notes(lanes: Sequence[LaneState]) -> list[str]:
    """Say what makes the figure less sure: drift, pairs that stand out, and what disturbs all the time."""
    words = []
    for lane in lanes:
        drift = statistics.drift(lane.slices)
        if drift is not None:
            how = "faster" if drift > 1 else "slower"
            words.append(f"{lane.title} has become {100 * abs(drift - 1):.0f} % {how} meanwhile")
    odd = statistics.outliers(lanes[0].slices, lanes[-1].slices)
    if odd > max(1, MANY_ODD * len(lanes[0].slices)):
        words.append(f"{odd} pairs out of line: something else disturbs the lanes")
    constant = sorted({reason for lane in lanes for reason in lane.measured.constant})
    words += [f"{reason} most of the time: the figures are those of such a machine" for reason in constant]
    return words

"""The verdict: which lane is faster, by what factor, and what limits that figure. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tfmon import units
from tfmon.analysis import statistics
from tfmon.analysis.intervals import NONE, Looks
from tfmon.analysis.prediction import more_pairs
from tfmon.analysis.statistics import LEAST_PAIRS, Comparison, Throughput
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.race import CONCURRENT, Race
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, Estimate, IntervalKind, known
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

VerdictKind = Literal["", "faster", "same", "not known yet", "too close to call"]
FASTER: VerdictKind = "faster"
"""The interval of the lead excludes 1."""
SAME: VerdictKind = "same"
"""It does not, and lies within the margin."""
NOT_YET: VerdictKind = "not known yet"
TOO_CLOSE: VerdictKind = "too close to call"
"""The same at the end of the race."""
KIND_TEXTS: dict[IntervalKind, str] = {
    ALWAYS_VALID: "always valid",
    SPENDING: "valid for this length",
    FIXED: "valid at the end",
}
"""What an interval is made for, beside it."""


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
    kind: VerdictKind = ""
    """Which answer it is; empty before there is an interval, and in a concurrent race."""
    left_s: float | None = None
    """About how much longer until there is an answer, or until the width that ends the race; None if there is
    one, or if more time of this race gives none."""

    @property
    def interval_kind(self) -> IntervalKind | None:
        """What the interval is made for; None without one."""
        return self.interval.kind if self.interval is not None else None


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


def looks_of(snapshot: Snapshot) -> Looks:
    """Return how the intervals of a race are looked at.

    An interval for the end of a race holds only there: while the race goes on (in its replay), or where it was
    interrupted, an always valid one takes its place. A known length is that since the measurement began anew.
    """
    race, lanes = snapshot.race, [lane for lane in snapshot.lanes if lane.phase not in (FAILED, ABSENT)]
    choices = max(1, len(lanes) - 1)
    at_the_end = all(lane.over for lane in lanes) and not race.interrupted
    if race.interval == FIXED and at_the_end:
        return Looks(FIXED, choices=choices)
    slices = [lane.slices for lane in lanes if lane.slices]
    if race.interval == SPENDING and race.seconds is not None and race.started_ns is not None and slices:
        since_ns = min(one[0].at_ns - one[0].span_ns for one in slices)
        until_ns = race.started_ns + round(race.seconds * 1e9)
        passed_ns = max(one[-1].at_ns for one in slices) - since_ns
        return Looks(SPENDING, max(0.0, min(1.0, passed_ns / max(1, until_ns - since_ns))), choices)
    return Looks(ALWAYS_VALID, choices=choices)


def least_rounds(snapshot: Snapshot) -> int:
    """Return after how many rounds there is a first interval."""
    looks = looks_of(snapshot)
    if looks.kind == SPENDING:
        return LEAST_PAIRS
    return next(pairs for pairs in range(LEAST_PAIRS, 10_000) if looks.errors(pairs, pairs - 1) < NONE)


def _concurrent(lanes: Sequence[LaneState]) -> Verdict:
    ordered = sorted(lanes, key=lambda lane: lane.steady.examples_per_s or 0.0, reverse=True)
    winner, loser = ordered[0], ordered[-1]
    best, worst = winner.steady.examples_per_s, loser.steady.examples_per_s
    if not best or not worst:
        return Verdict("no verdict: nothing was measured")
    ratio = best / worst
    text, short = (
        f"{first} is {units.ratio(ratio)} faster than {second}"
        for first, second in ((winner.title, loser.title), (winner.spec.id, loser.spec.id))
    )
    return Verdict(text, short, winner.spec.name, ratio, note=CONTENDED)


def _interleaved(snapshot: Snapshot, lanes: Sequence[tuple[LaneState, Throughput]]) -> Verdict:
    race, looks = snapshot.race, looks_of(snapshot)
    lanes = sorted(lanes, key=_pace, reverse=True)
    (fastest, first), (next_fastest, second), (slowest, last) = lanes[0], lanes[1], lanes[-1]
    found = [(lane, statistics.compare(one.logs, last.logs, race.between)) for lane, one in lanes[:-1]]
    estimates = [(lane.spec.name, one.estimate(looks) if one is not None else None) for lane, one in found]
    ranking = tuple(Rank(name, ratio) for name, ratio in estimates if ratio is not None)
    if len(ranking) < len(lanes) - 1:
        return _without_interval(snapshot, [lane for lane, _ in lanes])
    best = ranking[0].ratio
    comparison = statistics.compare(first.logs, second.logs, race.between) if len(lanes) > 2 else found[0][1]
    lead = comparison.estimate(looks) if comparison is not None else None
    if comparison is None or lead is None:
        return _without_interval(snapshot, [lane for lane, _ in lanes])
    note = "; ".join([*_notes(lanes), *_fallen_clocks(snapshot)])
    over = all(lane.over for lane, _ in lanes)
    left_s = None if over and race.until_ci else _left_s(race, lanes, comparison, looks)
    within = 1 / (1 + race.margin) <= lead.low and lead.high <= 1 + race.margin
    margin = f"±{100 * race.margin:g} %"
    other, shown = next_fastest, lead
    kind: VerdictKind
    if lead.low > 1:
        kind, other, shown = FASTER, slowest, best
        less = f", by less than the margin of {margin}" if within and len(lanes) == 2 else ""
        text = f"{{first}} is {{factor}} faster than {{second}}{less} ({{interval}})"
    elif within:
        kind = SAME
        text = f"{{first}} and {{second}} are the same within {margin} ({{factor}}, {{interval}})"
    else:
        kind = TOO_CLOSE if over else NOT_YET
        text = f"{kind}: {{first}} over {{second}} {{factor}} ({{interval}})"
        text += _longer_text(left_s, snapshot, comparison, looks, over=over)
    return Verdict(
        *_named(text, fastest, other, shown),
        winner=fastest.spec.name if kind == FASTER else None,
        ratio=best.value,
        interval=best,
        ranking=ranking,
        note=note,
        kind=kind,
        left_s=left_s,
    )


def _without_interval(snapshot: Snapshot, lanes: Sequence[LaneState]) -> Verdict:
    rounds = len(set.intersection(*({one.round for one in lane.slices} for lane in lanes)))
    yet = "" if all(lane.over for lane in lanes) else " yet"
    least = least_rounds(snapshot)
    if rounds < least:
        return Verdict(f"no verdict{yet}: measured {rounds} of {least} rounds")
    return Verdict(f"no verdict{yet}: the {rounds} rounds so far scatter too much")


def _left_s(
    race: Race, lanes: Sequence[tuple[LaneState, Throughput]], comparison: Comparison, looks: Looks
) -> float | None:
    """Return about how many seconds more give an answer, or the width that ends the race."""
    value, margin = abs(comparison.center.value), math.log1p(race.margin)

    def enough(reach: float) -> bool:
        if race.until_ci is not None:
            return math.sinh(min(reach, statistics.WIDEST)) <= race.until_ci
        return reach < max(value, margin - value)

    if enough(comparison.reach(looks)):
        return None
    pairs = more_pairs(comparison, looks, enough, fresh=race.fresh)
    ends = [one.slices[-1].at_ns - one.slices[0].at_ns for _, one in lanes if len(one.slices) > 1]
    if pairs is None or not ends:
        return None
    return pairs * max(ends) / 1e9 / (comparison.center.count - 1)


def _longer_text(
    left_s: float | None, snapshot: Snapshot, comparison: Comparison, looks: Looks, *, over: bool
) -> str:
    """Say how much longer it takes, or that no time of this race is enough."""
    if left_s is not None:
        about = f"; about {units.about(left_s)} more"
        return f"{about} would settle it" if over else about
    between = comparison.between
    limited = between is not None and between.reach(looks) > comparison.center.reach(looks)
    if snapshot.race.fresh or not limited:
        return ""
    script = any(lane.command for lane in snapshot.lanes)
    return "; these two processes cannot tell" + ("" if script else ", fresh ones would (--fresh)")


def _pace(lane: tuple[LaneState, Throughput]) -> float:
    """Return the throughput that the pairs are about, which one disturbed slice hardly moves."""
    state, throughput = lane
    return throughput.speed.value if throughput.speed else state.steady.examples_per_s or 0.0


def _named(text: str, first: LaneState, second: LaneState, ratio: Estimate) -> tuple[str, str]:
    """Return the text with the lanes' titles, and with their ids and no more than the interval."""
    factor, interval = units.ratio_in(ratio.value, ratio.low, ratio.high)
    interval = f"95 % CI {interval}"
    more = f"{interval}, {KIND_TEXTS[ratio.kind]}, {ratio.pairs} pairs"
    return (
        text.format(first=first.title, second=second.title, factor=factor, interval=more),
        text.format(first=first.spec.id, second=second.spec.id, factor=factor, interval=interval),
    )


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

"""The verdict: which lane is faster, by what factor, and what limits that figure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from tfmon import units
from tfmon.analysis import prediction, statistics, verdict_notes
from tfmon.analysis.bottleneck import find_bottleneck, loss_text
from tfmon.analysis.finish import ended_itself, went_on_notes
from tfmon.analysis.health import trained_texts
from tfmon.analysis.intervals import AT_THE_END, Looks
from tfmon.analysis.others import others_notes
from tfmon.analysis.statistics import LogRatio, Throughput
from tfmon.analysis.verdict_notes import MachineDifference, Ratio, Scaling
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_relations import also_differing, collisions
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.race import CONCURRENT
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, Estimate, IntervalKind
from tfmon.model.series import Pair
from tfmon.model.session import Snapshot
from tfmon.model.windows import concurrent_slices

CONTENDED = "contended: all train at once and share the cores"
TAKE_TURNS = " (t: take turns)"

VerdictKind = Literal["faster", "same", "not known yet", "too close to call"]
FASTER: VerdictKind = "faster"
"""The interval of the lead excludes 1."""
SAME: VerdictKind = "same"
"""The interval includes 1, and is within the margin."""
NOT_YET: VerdictKind = "not known yet"
TOO_CLOSE: VerdictKind = "too close to call"
KIND_TEXTS: dict[IntervalKind, str] = {
    ALWAYS_VALID: "always valid",
    SPENDING: "valid for this length",
    FIXED: "valid at the end",
}


@dataclass(frozen=True, slots=True)
class Rank:
    """A lane's throughput over the slowest lane's."""

    id: str
    lane: str
    ratio: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which lane is faster, or why that is unknown.

    `summarise` adds `text` and the last four fields.
    """

    kind: VerdictKind | None = None
    winner_id: str | None = None
    """Set if the interval of the lead is above 1."""
    winner: str | None = None
    ratio: float | None = None
    """Fastest lane over slowest."""
    ratio_ci95: tuple[float, float] | None = None
    pairs: int | None = None
    interval_kind: IntervalKind | None = None
    text: str = ""
    """The answer with its limits."""
    answer: str
    """The answer without the limits."""
    note: str = ""
    ranked: tuple[str, ...] = ()
    ranking: tuple[Rank, ...] = ()
    """All lanes without the slowest. Empty in a concurrent race."""
    also_differs: tuple[str, ...] = ()
    machines_differ: tuple[MachineDifference, ...] = ()
    scaling: tuple[Scaling, ...] = ()
    """Set if lanes differ only in their devices."""
    margin: float = 0.0
    left_s: float | None = None
    at_least: float | None = None
    cpu_time_ratio: float | None = None
    contention: str = ""
    earlier: str | None = None
    """The last verdict, if the final settings have none."""
    finish: tuple[str, ...] = ()
    short: str = field(default="", compare=False, metadata={"json": False})
    """The answer with the lanes' ids, what it waits for, or the worst fault of a single lane."""
    slowest_id: str | None = field(default=None, compare=False, metadata={"json": False})
    looks: Looks = field(default=AT_THE_END, compare=False, metadata={"json": False})

    @property
    def interval(self) -> Estimate | None:
        """`ratio` with its interval."""
        if self.ratio is None or self.ratio_ci95 is None or self.pairs is None or self.interval_kind is None:
            return None
        return Estimate(self.ratio, *self.ratio_ci95, self.pairs, self.interval_kind)

    def __str__(self) -> str:
        return self.text


def find_verdict(snapshot: Snapshot, throughputs: Mapping[str, Throughput] | None = None) -> Verdict:
    """Compare the lanes by examples/s in steady state since the last knob changes, reusing `throughputs`."""
    throughputs = throughputs or {lane.spec.name: Throughput.from_slices(lane.slices) for lane in snapshot.lanes}
    result = replace(_find_verdict(snapshot, throughputs), margin=snapshot.race.margin)
    notes = [
        *went_on_notes(snapshot.lanes),
        *(collision.text for collision in collisions(snapshot.lanes, snapshot.race.views)[:1]),
        *verdict_notes.concern_notes(snapshot),
        *verdict_notes.resolved_notes(snapshot),
        *others_notes(snapshot),
        result.note,
    ]
    if result.ratio is None:
        return replace(result, note="; ".join(filter(None, notes)))
    also, machines = also_differing(snapshot.lanes), verdict_notes.machine_differences(snapshot, snapshot.lanes)
    names = ", ".join([*map(short_name, also), *(machine.what for machine in machines)])
    differs = f"; also differs: {names}" if names else ""
    silent = [verdict_notes.hangs(lane, snapshot.at_ns) for lane in verdict_notes.hung(snapshot)]
    return replace(
        result,
        answer=result.answer + differs,
        short=result.short + differs,
        note="; ".join(filter(None, (*silent, *(machine.text for machine in machines), *notes))),
        also_differs=also,
        machines_differ=machines,
    )


def _find_verdict(snapshot: Snapshot, throughputs: Mapping[str, Throughput]) -> Verdict:
    silent = verdict_notes.hung(snapshot)
    lanes = [lane for lane in snapshot.lanes if lane.phase not in (FAILED, ABSENT) and lane not in silent]
    if len(snapshot.lanes) == 1:
        lane = snapshot.lanes[0]
        answer, short = trained_texts(snapshot, lane, loss_text(lane, find_bottleneck(snapshot, lane)))
        return Verdict(answer=answer, short=short)
    if len(lanes) >= 2:
        return _compared(snapshot, lanes, throughputs)
    trained = [lane for lane in snapshot.lanes if lane.phase != ABSENT and lane.steady.examples_per_s is not None]
    result = _compared(snapshot, trained, throughputs) if len(trained) >= 2 else None
    if result is not None and result.ratio is not None:
        lost = min((lane for lane in trained if lane not in lanes), key=_lost_ns)
        how = "hung" if lost in silent else "failed"
        clock = units.clock((_lost_ns(lost) - (snapshot.race.started_ns or 0)) / 1e9)
        until = f"; until {clock}, when {lost.title} {how}"
        return replace(result, answer=result.answer + until, short=result.short + until, left_s=None)
    if silent:
        hang = "; ".join(verdict_notes.hangs(lane, snapshot.at_ns) for lane in silent)
        return Verdict(answer=f"no verdict: {hang}")
    return Verdict(answer=f"no verdict: {len(lanes)} of {len(snapshot.lanes)} lanes can train")


def _lost_ns(lane: LaneState) -> int:
    return lane.heartbeat.stalled_since_ns or lane.phase_since_ns


Compared = Sequence[tuple[LaneState, Throughput]]


def _settled(lanes: Sequence[LaneState]) -> bool:
    return sum(not lane.over for lane in lanes) < 2


def _compared(snapshot: Snapshot, lanes: Sequence[LaneState], throughputs: Mapping[str, Throughput]) -> Verdict:
    """In a concurrent race, compare only stretches in which all lanes trained: a lane alone is faster."""
    race, over = snapshot.race, _settled(lanes)
    no_verdict = "no verdict" if over else "no verdict yet"
    if phases := verdict_notes.unlike_phases(lanes):
        return Verdict(answer=f"{no_verdict}: {phases}")
    running, at_least = prediction.unfinished(lanes, snapshot.at_ns)

    def unknown(answer: str, at_least: float | None = None) -> Verdict:
        short = "" if any(lane.over for lane in lanes) else prediction.waiting(snapshot, lanes, running)
        return Verdict(answer=answer, short=short, at_least=at_least)

    if any(lane.steady.examples_per_s is None for lane in lanes):
        waiting = any(not lane.over for lane in lanes)
        nothing = "no verdict yet: the lanes are getting ready" if waiting else "no verdict: nothing was measured"
        return unknown(running or nothing, at_least)
    together, known = race.mode == CONCURRENT, [throughputs[lane.spec.name] for lane in lanes]
    length_ns, stretches = concurrent_slices([lane.measurements for lane in lanes]) if together else (0, [])
    if together:
        known = list(map(Throughput.from_slices, stretches))
    if result := _judged(snapshot, list(zip(lanes, known, strict=True))):
        return result
    least, stopped = prediction.least_rounds(race, over=over), over and not ended_itself(lanes)
    if together:
        trained_s, least_s = (count * length_ns / 1e9 for count in (len(stretches[0]), least))
        more = f"; stopped {least_s - trained_s:.0f} s before a verdict" if stopped and trained_s < least_s else ""
        return unknown(f"{no_verdict}: all trained at the same time for {trained_s:.0f} of {least_s:.0f} s{more}")
    rounds = len(prediction.rounds_of(lanes))
    if rounds >= least:
        return unknown(f"{no_verdict}: the {rounds} rounds so far scatter too much")
    more = prediction.more_rounds(snapshot, lanes, least - rounds) if stopped else ""
    phase = " in the same phase of the script" if any(len(lane.script.places) > 1 for lane in lanes) else ""
    return unknown((running or f"{no_verdict}: measured {rounds} of {least} rounds{phase}") + more)


def _judged(snapshot: Snapshot, compared: Compared) -> Verdict | None:
    race, slices = snapshot.race, [throughput.slices for _, throughput in compared]
    together = race.mode == CONCURRENT
    over = _settled([lane for lane, _ in compared])
    looks = prediction.looks_of(race, slices, over=over)
    lost = any(lane.phase == FAILED or lane in verdict_notes.hung(snapshot) for lane, _ in compared)

    def pace(lane: tuple[LaneState, Throughput]) -> float:
        state, throughput = lane  # one disturbed slice hardly moves the ratio of the pairs
        return math.exp(throughput.center.value) if throughput.center else state.steady.examples_per_s or 0.0

    by_name = {lane.spec.name: throughput for lane, throughput in compared}
    known_pairs: dict[tuple[str, str], Sequence[Pair]] = {}

    def pairs_of(lane: LaneState, other: LaneState) -> Sequence[Pair]:
        names = lane.spec.name, other.spec.name
        if names not in known_pairs:
            known_pairs[names] = statistics.pairs_of(*(by_name[name].slices for name in names))
        return known_pairs[names]

    def compared_with(lane: LaneState, other: LaneState) -> LogRatio | None:
        pairs = pairs_of(lane, other)
        two_machines = snapshot.machine_key(lane) != snapshot.machine_key(other)
        return statistics.compare(pairs, race.between, in_turns=not together, two_machines=two_machines)

    def ratio(lane: LaneState, other: LaneState) -> Estimate | None:
        result = compared_with(lane, other)
        return result.estimate(looks) if result is not None else None

    lanes = sorted(compared, key=pace, reverse=True)
    (fastest, _), (next_fastest, _), (slowest, _) = lanes[0], lanes[1], lanes[-1]
    over_slowest = [compared_with(lane, slowest) for lane, _ in lanes[:-1]]
    lead = over_slowest[0] if len(lanes) == 2 else compared_with(fastest, next_fastest)
    shown = lead.estimate(looks) if lead is not None else None
    known = [(lane, result, estimate) for (lane, _), result in zip(lanes, over_slowest, strict=False)
             if result is not None and (estimate := result.estimate(looks)) is not None]  # fmt: skip
    if lead is None or shown is None or len(known) < len(over_slowest):
        return None
    ranking = tuple(Rank(lane.spec.id, lane.title, estimate) for lane, _, estimate in known)
    widest = max((result for _, result, _ in known), key=lambda result: result.reach(looks))
    awaited = lead if race.until_ci is None else widest
    left_s = None if over and race.until_ci else prediction.seconds_left(race, slices, awaited, looks)
    if left_s is not None and not over:
        measured_ns = max(lane[-1].at_ns for lane in slices)
        left_s = max(0.0, left_s - max(0, snapshot.at_ns - measured_ns) / 1e9)
    within = 1 / (1 + race.margin) <= shown.low and shown.high <= 1 + race.margin
    margin, best, other = f"±{100 * race.margin:g} %", ranking[0].ratio, next_fastest
    kind: VerdictKind
    if shown.low > 1:
        kind, other, shown = FASTER, slowest, best
        less = f", by less than the margin of {margin}" if within and len(lanes) == 2 else ""
        text = f"{{first}} is {{factor}} faster than {{second}}{less} ({{interval}})"
    elif within:
        kind = SAME
        text = f"{{first}} and {{second}} are the same within {margin} ({{factor}}, {{interval}})"
    else:
        kind = TOO_CLOSE if over else NOT_YET
        so_far = "too close so far" if shown.is_narrow else "not known yet"
        text = f"{kind if over else so_far}: {{first}} over {{second}} {{factor}} ({{interval}})"
        if len(lanes) == 2 and not over:
            text = f"{so_far} ({units.ratio_in(shown.value, shown.low, shown.high)[1]}×)"
        text += "" if lost else prediction.longer_text(left_s, snapshot, lead, looks, over=over)
    several, limits = len(lanes) > 2 and not together, ""
    if not together:
        undecided = not lost and kind in (NOT_YET, TOO_CLOSE)
        limits = verdict_notes.note(snapshot, lanes, pairs_of(fastest, slowest), undecided=undecided)
    elif snapshot.machines < len(snapshot.lanes):
        limits = CONTENDED + ("" if snapshot.over else TAKE_TURNS)
    factor, interval = units.ratio_in(shown.value, shown.low, shown.high)
    measured = {"factor": factor, "interval": f"95 % CI {interval}, {shown.pairs} pairs"}
    names = (snapshot.called(fastest), snapshot.called(other)), (fastest.spec.id, other.spec.id)
    answer, short = (text.format(first=first, second=second, **measured) for first, second in names)
    judged = Verdict(
        answer=answer,
        short=short,
        winner_id=fastest.spec.id if kind == FASTER else None,
        winner=fastest.title if kind == FASTER else None,
        slowest_id=slowest.spec.id,
        ratio=best.value,
        ratio_ci95=(best.low, best.high),
        pairs=best.pairs,
        interval_kind=best.kind,
        ranking=() if together else ranking,
        ranked=_ranked([lane for lane, _ in lanes], ranking, ratio) if several else (),
        note=limits,
        looks=looks,
        kind=kind,
        left_s=left_s,
    )
    scaling = verdict_notes.scaling_of(snapshot, [lane for lane, _ in compared], ratio)
    if not scaling:
        return judged
    answer = "; ".join(lane_scaling.text(f", {lane_scaling.ratio.pairs} pairs") for lane_scaling in scaling)
    brief = "; ".join(lane_scaling.text() for lane_scaling in scaling)
    if judged.winner_id != scaling[-1].lane:  # if most devices win, the growth is the whole verdict
        answer, brief = f"{judged.answer}; {brief}", f"{judged.short}; {brief}"
    return replace(judged, answer=answer, short=brief, scaling=scaling)


def ahead(who: str, ratio: Estimate) -> str:
    """Return text such as "B 14× (13 to 15)"."""
    return "{} {} ({})".format(who, *units.ratio_in(ratio.value, ratio.low, ratio.high))


def _ranked(lanes: Sequence[LaneState], ranking: Sequence[Rank], ratio: Ratio) -> tuple[str, ...]:
    ranks = [ahead(lane.spec.id, rank.ratio) for lane, rank in zip(lanes, ranking, strict=False)]
    parts = [f"{', '.join(ranks)} over {lanes[-1].spec.id}"]
    for lane, other in itertools.combinations(lanes, 2):
        knobs = [knob for knob in lane.differs or () if lane.in_effect.get(knob) != other.in_effect.get(knob)]
        result = ratio(lane, other) if len(knobs) == 1 and lane.spec.place == other.spec.place else None
        if result is not None:
            first, second = (show(side.in_effect[knobs[0]]) for side in (lane, other))
            who = f"{short_name(knobs[0])} {first} over {second}: {lane.spec.id}/{other.spec.id}"
            parts.append(ahead(who, result))
    return tuple(parts)

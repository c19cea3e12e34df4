"""The verdict: which lane is faster, by what factor, and what limits that figure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tfmon import units
from tfmon.analysis import statistics
from tfmon.analysis.bottleneck import find_bottleneck, loss_text
from tfmon.analysis.finish import ended_itself, went_on_notes
from tfmon.analysis.health import trained_text
from tfmon.analysis.intervals import AT_THE_END, Looks
from tfmon.analysis.others import others_notes
from tfmon.analysis.prediction import (
    least_rounds,
    longer_text,
    looks_of,
    more_rounds,
    seconds_left,
    unfinished,
)
from tfmon.analysis.statistics import LogRatio, Throughput
from tfmon.analysis.verdict_notes import (
    MachineDifference,
    Ratio,
    Scaling,
    concern_notes,
    hangs,
    hung,
    machine_differences,
    note,
    resolved_notes,
    scaling_of,
    unlike_phases,
)
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_relations import also_differing, collisions
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.race import CONCURRENT
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, Estimate, IntervalKind
from tfmon.model.session import Snapshot
from tfmon.model.windows import concurrent_slices

CONTENDED = "contended: all train at once and share the cores"
TAKE_TURNS = " (t: take turns)"

VerdictKind = Literal["", "faster", "same", "not known yet", "too close to call"]
FASTER: VerdictKind = "faster"
"""The interval of the lead excludes 1."""
SAME: VerdictKind = "same"
"""It includes 1, and lies within the margin."""
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

    lane: str
    ratio: Estimate


@dataclass(frozen=True, slots=True)
class Verdict:
    """The faster lane, or why it is not known."""

    text: str
    short: str = ""
    """With the lanes' ids, or of one lane its worst fault."""
    winner: str | None = None
    """If the interval of its lead is above 1."""
    slowest: str | None = None
    ratio: float | None = None
    """Fastest lane over slowest."""
    interval: Estimate | None = None
    at_least: float | None = None
    """Lower bound of the ratio, from a running step."""
    ranking: tuple[Rank, ...] = ()
    """Without the slowest, the fastest first. Empty in a concurrent race."""
    ranked: tuple[str, ...] = ()
    note: str = ""
    looks: Looks = AT_THE_END
    kind: VerdictKind = ""
    left_s: float | None = None
    """Time until there is an answer."""
    also: tuple[str, ...] = ()
    """Other knobs in which the lanes differ."""
    machines: tuple[MachineDifference, ...] = ()
    scaling: tuple[Scaling, ...] = ()
    """If the lanes differ only in the number of devices."""

    @property
    def interval_kind(self) -> IntervalKind | None:
        """Use of the interval."""
        return self.interval.kind if self.interval is not None else None


def find_verdict(snapshot: Snapshot, throughputs: Mapping[str, Throughput] | None = None) -> Verdict:
    """Compare the lanes by examples/s in steady state since their last knob changes.

    `throughputs` has known throughputs by lane.
    """
    result = _find_verdict(snapshot, throughputs)
    notes = [
        *went_on_notes(snapshot.lanes),
        *(one.text for one in collisions(snapshot.lanes, snapshot.race.views)[:1]),
        *concern_notes(snapshot),
        *resolved_notes(snapshot),
        *others_notes(snapshot),
        result.note,
    ]
    if result.ratio is None:
        return replace(result, note="; ".join(filter(None, notes)))
    also, machines = also_differing(snapshot.lanes), machine_differences(snapshot, snapshot.lanes)
    names = ", ".join([*map(short_name, also), *(machine.what for machine in machines)])
    differs = f"; also differs: {names}" if names else ""
    silent = [hangs(lane, snapshot.at_ns) for lane in hung(snapshot)]
    return replace(
        result,
        text=result.text + differs,
        short=result.short + differs,
        note="; ".join(filter(None, (*silent, *(machine.text for machine in machines), *notes))),
        also=also,
        machines=machines,
    )


def _find_verdict(snapshot: Snapshot, throughputs: Mapping[str, Throughput] | None) -> Verdict:
    silent = hung(snapshot)
    lanes = [lane for lane in snapshot.lanes if lane.phase not in (FAILED, ABSENT) and lane not in silent]
    if len(snapshot.lanes) == 1:
        lane = snapshot.lanes[0]
        loss = loss_text(lane, find_bottleneck(snapshot, lane))
        return Verdict(trained_text(snapshot, lane, loss), trained_text(snapshot, lane, loss, brief=True))
    if len(lanes) >= 2:
        return _compared(snapshot, lanes, throughputs)
    trained = [lane for lane in snapshot.lanes if lane.phase != ABSENT and lane.steady.examples_per_s is not None]
    result = _compared(snapshot, trained, throughputs) if len(trained) >= 2 else None
    if result is not None and result.ratio is not None:
        lost = min((lane for lane in trained if lane not in lanes), key=_lost_ns)
        how = "hung" if lost in silent else "failed"
        clock = units.clock((_lost_ns(lost) - (snapshot.race.started_ns or 0)) / 1e9)
        until = f"; until {clock}, when {lost.title} {how}"
        return replace(result, text=result.text + until, short=result.short + until, left_s=None)
    if silent:
        return Verdict(f"no verdict: {'; '.join(hangs(lane, snapshot.at_ns) for lane in silent)}")
    return Verdict(f"no verdict: {len(lanes)} of {len(snapshot.lanes)} lanes can train")


def _lost_ns(lane: LaneState) -> int:
    return lane.heartbeat.stalled_since_ns or lane.phase_since_ns


Compared = Sequence[tuple[LaneState, Throughput]]


def _settled(lanes: Sequence[LaneState]) -> bool:
    """Return whether the lanes have trained together for the last time."""
    return sum(not lane.over for lane in lanes) < 2


def _compared(
    snapshot: Snapshot, lanes: Sequence[LaneState], throughputs: Mapping[str, Throughput] | None
) -> Verdict:
    """Compare slices, or in a concurrent race the stretches in which all trained: a lane alone is faster."""
    race, over = snapshot.race, _settled(lanes)
    no_verdict = "no verdict" if over else "no verdict yet"
    if phases := unlike_phases(lanes):
        return Verdict(f"{no_verdict}: {phases}")
    running, at_least = unfinished(lanes, snapshot.at_ns)
    if any(lane.steady.examples_per_s is None for lane in lanes):
        waiting = any(not lane.over for lane in lanes)
        nothing = "no verdict yet: the lanes are getting ready" if waiting else "no verdict: nothing was measured"
        return Verdict(running or nothing, at_least=at_least)
    together = race.mode == CONCURRENT
    length_ns, stretches = concurrent_slices([lane.measurements for lane in lanes]) if together else (0, [])
    if together:
        known = list(map(Throughput.of, stretches))
    else:
        known = [throughputs[lane.spec.name] if throughputs else Throughput.of(lane.slices) for lane in lanes]
    if result := _judged(snapshot, list(zip(lanes, known, strict=True))):
        return result
    least, stopped = least_rounds(race, over=over), over and not ended_itself(lanes)
    if together:
        trained_s, least_s = (count * length_ns / 1e9 for count in (len(stretches[0]), least))
        more = f"; stopped {least_s - trained_s:.0f} s before a verdict" if stopped and trained_s < least_s else ""
        return Verdict(f"{no_verdict}: all trained at the same time for {trained_s:.0f} of {least_s:.0f} s{more}")
    rounds = len(set.intersection(*({part.round for part in lane.slices} for lane in lanes)))
    if rounds >= least:
        return Verdict(f"{no_verdict}: the {rounds} rounds so far scatter too much")
    more = more_rounds(snapshot, lanes, least - rounds) if stopped else ""
    phase = " in the same phase of the script" if any(len(lane.script.places) > 1 for lane in lanes) else ""
    return Verdict((running or f"{no_verdict}: measured {rounds} of {least} rounds{phase}") + more)


def _judged(snapshot: Snapshot, compared: Compared) -> Verdict | None:
    race, slices, together = snapshot.race, [one.slices for _, one in compared], snapshot.race.mode == CONCURRENT
    over = _settled([lane for lane, _ in compared])
    looks = looks_of(race, slices, over=over)
    lost = any(lane.phase == FAILED or lane in hung(snapshot) for lane, _ in compared)

    def pace(lane: tuple[LaneState, Throughput]) -> float:
        state, throughput = lane  # one disturbed slice hardly moves the ratio of the pairs
        return math.exp(throughput.center.value) if throughput.center else state.steady.examples_per_s or 0.0

    by_name = {lane.spec.name: throughput for lane, throughput in compared}

    def compared_with(one: LaneState, other: LaneState) -> LogRatio | None:
        first, second = by_name[one.spec.name].logs, by_name[other.spec.name].logs
        apart = snapshot.machine_key(one) != snapshot.machine_key(other)
        return statistics.compare(first, second, race.between, in_turns=not together, apart=apart)

    def ratio(one: LaneState, other: LaneState) -> Estimate | None:
        result = compared_with(one, other)
        return result.estimate(looks) if result is not None else None

    lanes = sorted(compared, key=pace, reverse=True)
    (fastest, _), (next_fastest, _), (slowest, _) = lanes[0], lanes[1], lanes[-1]
    over_slowest = [compared_with(one, slowest) for one, _ in lanes[:-1]]
    lead = over_slowest[0] if len(lanes) == 2 else compared_with(fastest, next_fastest)
    shown = lead.estimate(looks) if lead is not None else None
    known = [(one, found, estimate) for (one, _), found in zip(lanes, over_slowest, strict=False)
             if found is not None and (estimate := found.estimate(looks)) is not None]  # fmt: skip
    if lead is None or shown is None or len(known) < len(over_slowest):
        return None
    ranking = tuple(Rank(one.spec.name, estimate) for one, _, estimate in known)
    # `until_ci` waits for the widest interval.
    awaited = (
        lead if race.until_ci is None else max((found for _, found, _ in known), key=lambda one: one.reach(looks))
    )
    left_s = None if over and race.until_ci else seconds_left(race, slices, awaited, looks)
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
        text += "" if lost else longer_text(left_s, snapshot, lead, looks, over=over)
    if together:
        limits = (
            CONTENDED + ("" if snapshot.over else TAKE_TURNS) if snapshot.machines < len(snapshot.lanes) else ""
        )
    else:
        limits = note(snapshot, lanes, undecided=not lost and kind in (NOT_YET, TOO_CLOSE))
    several = len(lanes) > 2 and not together
    judged = Verdict(
        *_named(snapshot, text, fastest, other, shown),
        winner=fastest.spec.name if kind == FASTER else None,
        slowest=slowest.spec.name,
        ratio=best.value,
        interval=best,
        ranking=() if together else ranking,
        ranked=_ranked([lane for lane, _ in lanes], ranking, ratio) if several else (),
        note=limits,
        looks=looks,
        kind=kind,
        left_s=left_s,
    )
    scaling = scaling_of(snapshot, [lane for lane, _ in compared], ratio)
    if not scaling:
        return judged
    answer, brief = ("; ".join(one.text(_interval_words(one.ratio)[n]) for one in scaling) for n in (0, 1))
    if judged.winner != scaling[-1].lane:  # if most devices win, the growth is the whole verdict
        answer, brief = f"{judged.text}; {brief}", f"{judged.short}; {brief}"
    return replace(judged, text=answer, short=brief, scaling=scaling)


def ahead(who: str, ratio: Estimate) -> str:
    """Return such as `B 14× (13 to 15)`."""
    return "{} {} ({})".format(who, *units.ratio_in(ratio.value, ratio.low, ratio.high))


def _ranked(lanes: Sequence[LaneState], ranking: Sequence[Rank], ratio: Ratio) -> tuple[str, ...]:
    """Return each lane over the slowest, then pairs that differ in one knob."""
    ranks = [ahead(lane.spec.id, rank.ratio) for lane, rank in zip(lanes, ranking, strict=False)]
    parts = [f"{', '.join(ranks)} over {lanes[-1].spec.id}"]
    for one, other in itertools.combinations(lanes, 2):
        knobs = [knob for knob in one.differs or () if one.in_effect.get(knob) != other.in_effect.get(knob)]
        result = ratio(one, other) if len(knobs) == 1 and one.spec.place == other.spec.place else None
        if result is not None:
            first, second = (show(lane.in_effect[knobs[0]]) for lane in (one, other))
            who = f"{short_name(knobs[0])} {first} over {second}: {one.spec.id}/{other.spec.id}"
            parts.append(ahead(who, result))
    return tuple(parts)


def _interval_words(ratio: Estimate) -> tuple[str, str]:
    _, interval = units.ratio_in(ratio.value, ratio.low, ratio.high)
    interval = f"95 % CI {interval}"
    return f"{interval}, {ratio.pairs} pairs", interval


def _named(snapshot: Snapshot, text: str, first: LaneState, second: LaneState, ratio: Estimate) -> tuple[str, str]:
    factor, _ = units.ratio_in(ratio.value, ratio.low, ratio.high)
    text = text.replace("{factor}", factor).replace("{interval}", _interval_words(ratio)[0])
    titles, ids = (snapshot.called(first), snapshot.called(second)), (first.spec.id, second.spec.id)
    full, short = (text.format(first=one, second=other) for one, other in (titles, ids))
    return full, short

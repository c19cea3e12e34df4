"""The looks at a race's intervals, and the time until there is an answer.

Between-process variance does not shrink with more pairs, so there may never be an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from tfmon import units
from tfmon.analysis.finish import ended_itself
from tfmon.analysis.intervals import FEW, FEWEST, UNTRIMMED, Looks
from tfmon.analysis.others import contention
from tfmon.analysis.statistics import Between, LogRatio
from tfmon.model.knobs import BATCH_SIZE
from tfmon.model.lane_events import PAUSED, READY
from tfmon.model.lane_state import STAGES, LaneState
from tfmon.model.race import MODE_MARKS, TURNS, Race
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, known
from tfmon.model.session import Snapshot
from tfmon.model.windows import SliceSpeed

SUPPOSED_SCATTER, SUPPOSED_DEGREES = 0.03, 4
"""Assumed scatter: few pairs may have a small scatter by chance."""
MOST_SLICES = 0.5
"""Share of contended slices of a busy machine.

There, 5 of 40 races of equal lanes had a winner by 3 to 7 pairs at one look, and with an always valid
interval none.
"""
MOST_PAIRS, LONGER = 20_000, 1.02
"""About five hours, and the ratio of the lengths that are tried."""
Slices = Sequence[Sequence[SliceSpeed]]


def looks_of(race: Race, slices: Slices, *, over: bool) -> Looks:
    """Return the looks at a race's intervals.

    Before the end, and for few pairs of a busy machine, an always valid interval replaces an interval for the end.
    """
    choices = max(1, math.comb(len(slices), 2))
    few = min(map(len, slices), default=0) < UNTRIMMED
    if few and (known(contention(slices).slices_share) or 0.0) >= MOST_SLICES:
        return Looks(ALWAYS_VALID, choices=choices)
    if race.interval == FIXED and over and not race.interrupted:
        return Looks(FIXED, choices=choices)
    measured = [lane for lane in slices if lane]
    if race.interval == SPENDING and race.seconds is not None and race.started_ns is not None and measured:
        since_ns = min(lane[0].at_ns - lane[0].span_ns for lane in measured)
        until_ns = race.started_ns + round(race.seconds * 1e9)
        passed_ns = max(lane[-1].at_ns for lane in measured) - since_ns
        return Looks(SPENDING, max(0.0, min(1.0, passed_ns / max(1, until_ns - since_ns))), choices)
    return Looks(ALWAYS_VALID, choices=choices)


def least_rounds(race: Race, *, over: bool = False) -> int:
    """Return the rounds before the first interval."""
    return FEWEST if over and race.interval != ALWAYS_VALID and not race.interrupted else FEW


def round_s(slices: Slices) -> float | None:
    """Return the mean duration of a round, if known."""
    ends = [(lane[0], lane[-1]) for lane in slices if lane and lane[-1].round > lane[0].round]
    paces = [(last.at_ns - first.at_ns) / (last.round - first.round) / 1e9 for first, last in ends]
    return fmean(paces) if paces else None


def seconds_left(race: Race, slices: Slices, comparison: LogRatio, looks: Looks) -> float | None:
    """Return the seconds until an answer, if one is expected."""
    center, between = comparison.center, comparison.between
    value, margin = abs(center.value), math.log1p(race.margin)
    goal = max(value, margin - value) if race.until_ci is None else math.asinh(race.until_ci)
    if comparison.reach(looks) <= goal:
        return None
    supposed = center.degrees * center.error**2 + SUPPOSED_DEGREES * SUPPOSED_SCATTER**2 / center.count
    error = max(center.error, math.sqrt(supposed / (center.degrees + SUPPOSED_DEGREES)))
    pair_s = max((lane[-1].at_ns - lane[0].at_ns for lane in slices if lane), default=0) / 1e9 / (center.count - 1)
    pairs = center.count
    while (pairs := math.ceil(pairs * LONGER)) < MOST_PAIRS:
        longer = pairs / center.count
        later = replace(looks, share=min(1.0, looks.share * longer))
        errors = later.errors(pairs - center.estimated, round(center.degrees * longer))
        more = between.processes * (longer - 1) if race.fresh else 0.0
        then = Between(between.sd, round(between.degrees + more, 1), between.processes + more)
        if math.hypot(errors * error / math.sqrt(longer), then.reach(looks)) <= goal:
            return (pairs - center.count) * pair_s
    return None


LEAST = 1.5
LONG_ROUND_S = 5.0
LONG_STEP_S = 1.0


def unfinished(lanes: Sequence[LaneState], now_ns: int) -> tuple[str, float | None]:
    """Return the ratio from running steps as text, and its lower bound."""
    if len(lanes) != 2:
        return "", None
    fast, slow = sorted(lanes, key=lambda lane: lane.steady.examples_per_s or 0.0, reverse=True)
    ahead, behind = fast.steady.examples_per_s, slow.steady.examples_per_s
    if ahead is None:
        return "", None
    if behind is not None:
        steps = slow.steady.steps
        if not steps or slow.steady.span_ns < LONG_STEP_S * 1e9 * steps:
            return "", None
        progress = f"{steps} {'step' if steps == 1 else 'steps'} of {slow.title} so far"
        return f"{fast.title} about {units.ratio(ahead / behind)} faster ({progress})", None
    runs_s, batch = slow.step_runs_s(now_ns), _batch(slow) or _batch(fast)
    at_least = ahead * runs_s / batch if batch else 0.0
    if at_least < LEAST or runs_s < LONG_STEP_S or slow.end.killed:
        return "", None
    step = "step" if slow.changes.marks else "first step"
    state = f"{slow.title}'s {step} is still running, {runs_s:.0f} s"
    if slow.over:
        state = f"{slow.title} did not end its {step} in {runs_s:.0f} s"
    return f"{fast.title} at least {units.ratio(at_least)} faster ({state})", at_least


def _batch(lane: LaneState) -> float | None:
    if lane.totals.examples and lane.totals.steps:
        return lane.totals.examples / lane.totals.steps
    size = lane.in_effect.get(BATCH_SIZE.name)
    return float(size) if isinstance(size, int | float) else None


def longer_text(
    left_s: float | None, snapshot: Snapshot, comparison: LogRatio, looks: Looks, *, over: bool
) -> str:
    """Return the remaining time as text, or the obstacle."""
    if left_s is not None and not (over and ended_itself(snapshot.lanes)):
        about = f"; about {units.about(left_s)}"
        pace_s = round_s([lane.slices for lane in snapshot.lanes])
        if pace_s is not None and pace_s > LONG_ROUND_S:
            about += f" ({max(1, round(left_s / pace_s))} rounds)"
        return f"{about} more would settle it" if over else about
    limited = comparison.between.reach(looks) > comparison.center.reach(looks)
    if snapshot.race.fresh or not limited:
        return ""
    script = any(lane.script.command for lane in snapshot.lanes)
    return "; between-process variance is too large" + ("" if script else "; use --fresh")


def rounds_of(lanes: Sequence[LaneState]) -> set[int]:
    """Return the rounds in which all lanes trained."""
    return set.intersection(*({part.round for part in lane.slices} for lane in lanes))


def waiting(snapshot: Snapshot, lanes: Sequence[LaneState], running: str) -> str:
    """Return what a verdict on lanes that train waits for, and when it is due."""
    race = snapshot.race
    if any(lane.phase in STAGES and lane.phase != READY and not lane.points for lane in lanes):
        return "no verdict yet: the lanes are getting ready"
    changed = _changed(snapshot, lanes)
    if race.mode != TURNS:
        measured = all(lane.steady.windows for lane in lanes)
        return f"measuring again: {changed}" if changed and not measured else ""
    rounds, least = len(rounds_of(lanes)), least_rounds(race)
    progress = f"measuring again: {changed}" if changed else f"measured {rounds} of {least} rounds"
    if any(lane.phase == PAUSED for lane in lanes):
        return f"{progress}; no verdict while a lane is paused"
    if race.exclusive:
        return f"{progress}; the race continues after the experiment"
    left_s = _seconds_to_verdict(snapshot, lanes)
    due = "" if left_s is None else f"; verdict in about {max(1, math.ceil(left_s))} s"
    return (running or progress) + due


def _seconds_to_verdict(snapshot: Snapshot, lanes: Sequence[LaneState]) -> float | None:
    complete, pace_s = rounds_of(lanes), round_s([lane.slices for lane in lanes])
    if pace_s is None:
        if snapshot.race.slice_s is None or any(lane.step_runs_s(snapshot.at_ns) > LONG_STEP_S for lane in lanes):
            return None
        took_s = (lane.points[-1].span_ns / 1e9 if lane.points else 0 for lane in lanes)
        pace_s = sum(max(snapshot.race.slice_s, slice_took_s) for slice_took_s in took_s)
    latest = max(complete, default=0)
    ends = [part.at_ns for lane in lanes for part in lane.slices if part.round == latest]
    begun_ns = max(ends, default=snapshot.race.started_ns or snapshot.at_ns)
    spent_s = min(pace_s, max(0, snapshot.at_ns - begun_ns) / 1e9)
    return max(0, least_rounds(snapshot.race) - len(complete)) * pace_s - spent_s


def _changed(snapshot: Snapshot, lanes: Sequence[LaneState]) -> str:
    marks = [(mark, lane) for lane in lanes for mark in lane.changes.marks[-1:]]
    latest = max((mark for mark, _ in marks), key=lambda mark: mark.at_ns, default=None)
    if latest is not None and latest.text == MODE_MARKS[snapshot.race.mode]:
        return f"now {latest.text}"
    lanes_by_knob: dict[str, list[str]] = {}
    for mark, lane in marks:
        knob, since_start = mark.text.partition(" ")[0], mark.at_ns > (snapshot.race.started_ns or 0)
        if knob in lane.settings and since_start and len(lane.slices) < least_rounds(snapshot.race):
            lanes_by_knob.setdefault(knob, []).append(lane.spec.id)
    changes = [f"{knob.replace('_', ' ')} of {' and '.join(ids)}" for knob, ids in lanes_by_knob.items()]
    return f"{', '.join(changes)} changed" if changes else ""


def more_rounds(snapshot: Snapshot, lanes: Sequence[LaneState], missing: int) -> str:
    """Return the time of `missing` more rounds as text."""
    ends = [lane.slices[-1].at_ns for lane in lanes if lane.slices]
    pace_s = round_s([lane.slices for lane in lanes])
    if pace_s is None and ends and snapshot.race.started_ns is not None:
        pace_s = (max(ends) - snapshot.race.started_ns) / 1e9
    if pace_s is None or missing < 1:
        return ""
    return f"; stopped {max(1, math.ceil(missing * pace_s))} s before a verdict"

"""The verdict, or the time until then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePath

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.finish import loss_warnings
from tfmon.analysis.prediction import LONG_STEP_S, least_rounds, round_s, unfinished
from tfmon.analysis.verdict_notes import unlike_phases
from tfmon.model.lane_events import PAUSED, READY
from tfmon.model.lane_state import ABSENT, FAILED, STAGES, LaneState
from tfmon.model.race import MODE_MARKS, TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import DIM, TEXT, Row, styled_lines, wrap
from tfmon.ui.render.style import STRONG, WARN, lane_style, strong
from tfmon.ui.source import Display, news_line, shows


def awaited(analysis: Analysis) -> str:
    """Return when the next verdict is due. Empty after a verdict."""
    snapshot, curve = analysis.snapshot, analysis.curve
    if curve is not None and snapshot.experiment is not None and not snapshot.experiment.over:
        return f"crossover: {curve.text}"
    lanes = [lane for lane in snapshot.lanes if lane.phase not in (FAILED, ABSENT)]
    answered = analysis.verdict.ratio is not None or unlike_phases(lanes)
    if answered or len(lanes) < 2 or any(lane.over for lane in lanes):
        return ""
    if any(lane.phase in STAGES and lane.phase != READY and not lane.points for lane in lanes):
        return "no verdict yet: the lanes are getting ready"
    changed = _changed(snapshot, lanes)
    if snapshot.race.mode != TURNS:
        measured = all(lane.steady.windows for lane in lanes)
        return f"measuring again: {changed}" if changed and not measured else ""
    rounds, least = len(_rounds(lanes)), least_rounds(snapshot.race)
    progress = f"measuring again: {changed}" if changed else f"measured {rounds} of {least} rounds"
    if any(lane.phase == PAUSED for lane in lanes):
        return f"{progress}; no verdict while a lane is paused"
    if snapshot.race.exclusive:
        return f"{progress}; the race continues after the experiment"
    if text := unfinished(lanes, snapshot.at_ns)[0]:
        progress = text
    left_s = _seconds_to_verdict(snapshot, lanes)
    return progress if left_s is None else f"{progress}; verdict in about {max(1, math.ceil(left_s))} s"


def _rounds(lanes: Sequence[LaneState]) -> set[int]:
    return set.intersection(*({part.round for part in lane.slices} for lane in lanes))


def _seconds_to_verdict(snapshot: Snapshot, lanes: Sequence[LaneState]) -> float | None:
    complete, pace_s = _rounds(lanes), round_s([lane.slices for lane in lanes])
    if pace_s is None:
        if snapshot.race.slice_s is None or any(lane.step_runs_s(snapshot.at_ns) > LONG_STEP_S for lane in lanes):
            return None
        took_s = (lane.points[-1].span_ns / 1e9 if lane.points else 0 for lane in lanes)
        pace_s = sum(max(snapshot.race.slice_s, slice_took_s) for slice_took_s in took_s)
    ends = [part.at_ns for lane in lanes for part in lane.slices if part.round == max(complete, default=0)]
    begun_ns = max(ends, default=snapshot.race.started_ns or snapshot.at_ns)
    spent_s = min(pace_s, max(0, snapshot.at_ns - begun_ns) / 1e9)
    return max(0, least_rounds(snapshot.race) - len(complete)) * pace_s - spent_s


def _changed(snapshot: Snapshot, lanes: Sequence[LaneState]) -> str:
    started_ns = snapshot.race.started_ns or 0
    latest = max(
        (mark for lane in lanes for mark in lane.changes.marks[-1:]), key=lambda mark: mark.at_ns, default=None
    )
    if latest is not None and latest.text == MODE_MARKS[snapshot.race.mode]:
        return f"now {latest.text}"
    lanes_by_knob: dict[str, list[str]] = {}
    least = least_rounds(snapshot.race)
    for lane in lanes:
        for mark in lane.changes.marks[-1:]:
            knob = mark.text.partition(" ")[0]
            if knob in lane.settings and mark.at_ns > started_ns and len(lane.slices) < least:
                lanes_by_knob.setdefault(knob, []).append(lane.spec.id)
    changes = [f"{knob.replace('_', ' ')} of {' and '.join(ids)}" for knob, ids in lanes_by_knob.items()]
    return f"{', '.join(changes)} changed" if changes else ""


def elapsed(snapshot: Snapshot) -> str:
    """Return the duration of the race."""
    started_ns, now_ns = snapshot.race.started_ns, snapshot.at_ns
    if snapshot.over:
        if snapshot.raced_s is not None:
            return units.clock(snapshot.raced_s)
        now_ns = max(lane.phase_since_ns for lane in snapshot.lanes)
        started_ns = started_ns or min(lane.process.started_ns for lane in snapshot.lanes)
    return units.clock(0.0 if started_ns is None else (now_ns - started_ns) / 1e9)


_LEAD_CELLS = 4


def verdict_rows(analysis: Analysis, view: Display, width: int, height: int) -> list[Row]:
    """Return the verdict and the explanations that fit."""
    snapshot, verdict, over = analysis.snapshot, analysis.verdict, shows(analysis.snapshot, view)
    if not snapshot.lanes:
        return []
    alone = len(snapshot.lanes) == 1 and snapshot.lanes[0].phase not in (FAILED, ABSENT)
    no_gpu = f"no GPU lane: {snapshot.machine.no_gpu}" if snapshot.machine.no_gpu and not over else ""
    texts = [
        *((line, strong(WARN)) for line in loss_warnings(snapshot) if over),
        (analysis.finish() if over else "", TEXT),
        ("" if alone else news_line(analysis, view), STRONG),
        (analysis.earlier or ("" if over else "; ".join(verdict.ranked)), TEXT),
        (snapshot.race.interrupted if over else "", strong(WARN)),
        *((line, strong(WARN)) for line in snapshot.race.differs),
        (verdict.note, TEXT if over else DIM),
        ("" if alone else no_gpu, TEXT),
        (_discarded(analysis) if over else "", DIM),
        (_recorded(snapshot) if over and not view.replay else "", DIM),
    ]
    rows = [] if alone else verdict_lines(analysis, view, width, height if over else min(2, height))
    for text, style in texts:
        rows += styled_lines(text, width - 1, min(2, height - len(rows)), style, "   ")
    return rows


def verdict_lines(analysis: Analysis, view: Display, width: int, most: int) -> list[Row]:
    """Return the leading lane, or the time until the first verdict."""
    verdict, lanes, room = analysis.verdict, analysis.snapshot.lanes, width - _LEAD_CELLS
    if waits := "" if view.stopping else awaited(analysis):
        return styled_lines(waits, width - 1, most, lead="   ")
    text = verdict.answer
    if verdict.short and (len(lanes) > 1 or len(wrap(text, room, most + 1)) > most):
        text = verdict.short
    leads = next((index for index, lane in enumerate(lanes) if lane.spec.id == verdict.winner_id), None)
    style = STRONG if verdict.winner_id or shows(analysis.snapshot, view) else TEXT
    rows = styled_lines(text, width - 1, most, style, "   ")
    if rows and leads is not None:
        rows[0] = ((" ▲ ", strong(lane_style(leads))), (rows[0][0][0][3:], style))
    return rows


def _discarded(analysis: Analysis) -> str:
    measured = [lane for lane in analysis.snapshot.lanes if lane.measurements.windows]
    by_lane = {lane.spec.id: units.discarded(lane.discarded_shares) for lane in measured}
    if len(set(by_lane.values())) < 2:
        return next(iter(by_lane.values()), "")
    parts = [f"{id} {text.removeprefix('discarded ')}" for id, text in by_lane.items()]
    return f"discarded: {'; '.join(parts)}"


def _recorded(snapshot: Snapshot) -> str:
    recording = snapshot.recording
    if recording is None or not recording.path:
        return f"not recorded: {recording.reason}" if recording is not None and recording.reason else ""
    again = "; `tfmon replay last` shows it again" if snapshot.has_result else ""
    return f"recorded as {PurePath(recording.path).name}{again}"

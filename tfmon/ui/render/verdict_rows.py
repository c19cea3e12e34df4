"""The verdict, or the time until then."""

from __future__ import annotations

from pathlib import PurePath

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.finish import loss_warnings
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import DIM, TEXT, Row, styled_lines, wrap
from tfmon.ui.render.style import STRONG, WARN, lane_style, strong
from tfmon.ui.source import Display, news_line, shows


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
    experiment, curve = analysis.snapshot.experiment, analysis.curve
    if curve is not None and experiment is not None and not experiment.over and not view.stopping:
        return styled_lines(f"crossover: {curve.text}", width - 1, most, lead="   ")
    text = verdict.answer
    waits = verdict.ratio is None and len(lanes) > 1
    if verdict.short and not (waits and view.stopping):
        text = verdict.short if len(lanes) > 1 or len(wrap(text, room, most + 1)) > most else text
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

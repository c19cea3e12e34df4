"""What is left when the race is over: the result above the lanes, and each lane's last figures. Pure.

Nothing here depends on the time, on keys or on what the machine does afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis, trained_text
from tfmon.analysis.bottleneck import Bottleneck
from tfmon.analysis.finish import loss_warnings, time_to_finish
from tfmon.model.session import Snapshot
from tfmon.ui.render import readings
from tfmon.ui.render.rows import Row, fit, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, WARN, lane_style, strong
from tfmon.ui.view import View

FRAME_ROWS = 2
LEAST_RESULT = 3
"""Rows of the smallest result, its frame included."""


def shows(snapshot: Snapshot, view: View) -> bool:
    """Return whether the race is over by itself, so that its result is shown."""
    return snapshot.over and not view.stopping


def elapsed(snapshot: Snapshot) -> str:
    """Return the time since the start signal; it stops once every lane is over."""
    started_ns = snapshot.race.started_ns
    if started_ns is None and not snapshot.over:
        return "0:00"
    started_ns = min(lane.started_ns for lane in snapshot.lanes) if started_ns is None else started_ns
    now_ns = max(lane.phase_since_ns for lane in snapshot.lanes) if snapshot.over else snapshot.at_ns
    return units.clock((now_ns - started_ns) / 1e9)


# ---------------------------------------------------------------- the result


def result_height(analysis: Analysis, view: View, width: int, most: int) -> int:
    """Return how many rows the result takes, its frame included, at most so many."""
    return max(LEAST_RESULT, min(most, len(_result(analysis, view, width - 6, 99)) + FRAME_ROWS))


def result_rows(analysis: Analysis, view: View, width: int, height: int) -> list[Row]:
    """Return the framed result: the verdict, what limits it, what was discarded and where it is recorded."""
    inner = width - 4
    started = analysis.snapshot.race.started_ns is not None
    head, time = " Result ", f" after {elapsed(analysis.snapshot)} " if started else ""
    flat = "─" * max(0, width - len(head) - len(time) - 4)
    rows: list[Row] = [(("╭─", DIM), (head, STRONG), (flat, DIM), (time, TEXT), ("─╮", DIM))]
    for row in _result(analysis, view, width - 6, height - FRAME_ROWS):
        rows.append((("│ ", DIM), *fit(row, inner), (" │", DIM)))
    return [*rows, (("╰" + "─" * (width - 2) + "╯", DIM),)]


def _result(analysis: Analysis, view: View, width: int, height: int) -> list[Row]:
    """Return the lines that fit, the verdict first."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    winner = next((n for n, lane in enumerate(snapshot.lanes) if lane.spec.name == verdict.winner), None)
    lead: Row = (("  ", TEXT),)
    if winner is not None:
        lead = (("▲ ", strong(lane_style(winner))),)
    text = verdict.text if len(snapshot.lanes) > 1 else trained_text(snapshot.lanes[0])
    lines: list[tuple[str, str]] = [(line, STRONG) for line in wrap(text, width, max(1, min(3, height)))]
    for text, style in (
        *((line, strong(WARN)) for line in loss_warnings(snapshot)), (time_to_finish(snapshot), TEXT),
        (analysis.earlier, STRONG), (analysis.news, STRONG),
        (snapshot.race.interrupted, strong(WARN)), (verdict.note, TEXT),
        (_discarded(analysis), DIM), ("" if view.replay else _recorded(snapshot), DIM),
    ):  # fmt: skip
        lines += [(line, style) for line in wrap(text, width, max(0, min(2, height - len(lines))))]
    return [(*(lead if place == 0 else (("  ", TEXT),)), line) for place, line in enumerate(lines)]


def _discarded(analysis: Analysis) -> str:
    """Return what was discarded of each lane's time; of one lane, or where all tell the same, once."""
    told = {one.lane.spec.id: one.discarded_text for one in analysis.lanes if one.windows}
    if len(set(told.values())) < 2:
        return next(iter(told.values()), "")
    parts = [f"{id} {text.removeprefix('discarded ')}" for id, text in told.items()]
    return f"discarded: {'; '.join(parts)}"


def _recorded(snapshot: Snapshot) -> str:
    recording = snapshot.recording
    if recording is None or not recording.path:
        return f"not recorded: {recording.reason}" if recording is not None and recording.reason else ""
    again = "; `tfmon replay last` shows it again" if snapshot.has_result else ""
    return f"recorded as {PurePath(recording.path).name}{again}"


# ---------------------------------------------------------------- one lane


def lane_rows(
    found: LaneAnalysis, width: int, height: int, accent: str, least_chart: int
) -> tuple[list[Row], int]:
    """Return the last figures of a lane that fit below its throughput, and the rows that a chart may take."""
    lane, bottleneck = found.lane, found.bottleneck
    parts: list[tuple[int, Callable[[int], list[Row]]]] = [
        (3, lambda most: _lines(_interval(found), width, most, DIM)),
        (0, lambda most: _lines(bottleneck.text if bottleneck else "", width, most, TEXT)),
        (1, lambda most: _lines(_advice(bottleneck), width, most, STRONG)),
        (2, lambda _: [readings.step_row(lane, width)]),
        (7, lambda _: [readings.time_row(bottleneck.shares if bottleneck else None, width, accent)]),
        (5, lambda _: [readings.loss_row(lane)]),
        (4, lambda _: [readings.done_row(lane, width, discarded=False)]),
        (6, lambda most: _lines(_told(found, width * most), width, most, DIM)),
        (8, lambda most: readings.knobs_rows(lane, width, most)),
    ]
    kept: dict[int, list[Row]] = {}
    left = height
    for place in sorted(range(len(parts)), key=lambda place: parts[place][0]):
        rows = parts[place][1](min(3, left))
        if rows and len(rows) <= left:
            kept[place] = rows
            left -= len(rows)
    rows = [row for place in range(len(parts)) for row in kept.get(place, ())]
    return rows, left if left >= least_chart else 0


def _lines(text: str, width: int, most: int, style: str) -> list[Row]:
    return [((line, style),) for line in wrap(text, width, most)]


def _interval(found: LaneAnalysis) -> str:
    speed = found.speed
    if speed is None:
        return ""
    return f"95 % CI {units.rate(speed.low)} to {units.rate(speed.high)} examples/s"


def _advice(bottleneck: Bottleneck | None) -> str:
    if bottleneck is None or not bottleneck.advice:
        return ""
    best = bottleneck.advice[0]
    return f"may help: {best.text} ({best.purpose})"


def _told(found: LaneAnalysis, room: int) -> str:
    """Return for how long the lane was measured, and, where so many cells hold it, what was discarded."""
    told = f"{found.measured_text}; {found.discarded_text}"
    return told if len(told) < room * 0.9 else found.measured_text

"""The rows of a pane that only a single lane has. Pure."""

from __future__ import annotations

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.health import faults_of
from tfmon.analysis.shares import PAUSED_PARTS, REST, TRAINING, wall_parts
from tfmon.model.account import BETWEEN, CALLBACKS, SAVING, VALIDATION
from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.render.reading_rows import LABEL_CELLS, labelled, loss_row
from tfmon.ui.render.rows import DIM, NO_BREAK, TEXT, Row, cells, wrap
from tfmon.ui.render.style import STRONG, WARN, strong
from tfmon.ui.source import Display, news_line

_GLYPHS = {
    TRAINING: "▓", "input": "█", VALIDATION: "▒", BETWEEN: "▚", CALLBACKS: "▞", SAVING: "═", "start": "░",
    PAUSED_PARTS: "·", REST: "-",
}  # fmt: skip
_AVOIDABLE = ("input", VALIDATION, BETWEEN, CALLBACKS, SAVING)
"""Parts of which the largest is coloured."""
MOST_HEADLINE, MOST_ALSO = 2, 3


def losses(lane: LaneState, width: int) -> list[Row]:
    """Return the loss, and beside it or below it the loss of validation."""
    validation, row = lane.script.validation, loss_row(lane)
    if validation.first is None or validation.last is None:
        return [row]
    ends: Row = ((units.loss(validation.first), TEXT), (" → ", DIM), (units.loss(validation.last), TEXT))
    beside: Row = (*row, ("   validation ", DIM), *ends)
    return [beside] if cells(beside) <= width else [row, labelled("val.", *ends)]


def summary(analysis: Analysis, view: Display, width: int) -> dict[str, list[Row]]:
    """Return the headline (the worst fault, the costliest cause, or the limit) and what else is known."""
    (found,), (worse, lesser) = analysis.lanes, faults_of(analysis.snapshot, analysis.lanes[0].lane)
    cause = next((cause for cause in found.causes if cause.count), None)
    limit, help = (found.bottleneck.limit, found.bottleneck.help) if found.bottleneck is not None else ("", "")
    of_cause: list[Row] = []
    if cause is not None:
        gain = "" if cause.gain_s is None else f"mending it gives back about {units.duration(cause.gain_s)}"
        gain += "" if cause.gain_pct is None else f", {units.percent(cause.gain_pct)} of the time"
        of_cause = [*_lines(cause.brief, width, STRONG, MOST_HEADLINE), *_lines(gain, width, TEXT, 1)]
        of_cause += _lines(cause.advice, width, TEXT, MOST_HEADLINE)
    else:
        of_cause = [*_lines(limit, width, STRONG, MOST_HEADLINE), *_lines(help, width, TEXT, MOST_HEADLINE)]
        limit = ""
    healthy = analysis.verdict.short.removeprefix(f"{found.lane.title}: ")
    rows = _lines(news_line(analysis, view), width, STRONG, MOST_ALSO)
    rows += _lines(healthy, width, TEXT, 1) if healthy.startswith("healthy") else []
    rows += of_cause if worse else []
    for text in (*worse[1:], *lesser, limit):
        rows += _lines(text, width, DIM, MOST_ALSO)
    return {"headline": _lines(worse[0], width, strong(WARN), MOST_ALSO) if worse else of_cause, "also": rows}


def no_gpu_rows(snapshot: Snapshot, width: int) -> list[Row]:
    """Return why there is no GPU."""
    reason = "" if snapshot.over else snapshot.machine.no_gpu
    return [labelled("no gpu", (line, DIM)) for line in wrap(reason, width - LABEL_CELLS, MOST_HEADLINE)]


def run_rows(lane: LaneState, width: int) -> list[Row]:
    """Return the wall time as a bar of its parts, and their names. The largest avoidable part is coloured."""
    parts = wall_parts(lane)
    if not parts:
        return []
    room = width - LABEL_CELLS
    largest = max((part for part in parts if part[0] in _AVOIDABLE), key=lambda part: part[1], default=("", 0))[0]
    spans, drawn, total = [], 0, 0
    for name, share in parts:
        total += share
        end = round(total / 100 * room)
        style = WARN if name == largest else TEXT if name == TRAINING else DIM
        spans.append((_GLYPHS[name] * (end - drawn), style))
        drawn = end
    words = "  ".join(f"{_GLYPHS[name]}{name} {share} %".replace(" ", NO_BREAK) for name, share in parts)
    return [labelled("run", *spans), *(labelled("", (line, TEXT)) for line in wrap(words, room, MOST_HEADLINE))]


def _lines(text: str, width: int, style: str, most: int) -> list[Row]:
    return [((line, style),) for line in wrap(text, width, most)]

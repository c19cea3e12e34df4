"""The race screen as the rows of its parts. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.model.session import Snapshot
from tfmon.ui.render import chart, chart_data, machine_rows
from tfmon.ui.render.bars import header_row, message_of, status_row
from tfmon.ui.render.lane_table import lane_table
from tfmon.ui.render.layout import Layout, arrange, keys_row, tab_row
from tfmon.ui.render.pane import chart_width, heights_of, pane_rows, phase_text
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cells, fit, fitting_name, whole_words, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style, strong
from tfmon.ui.render.verdict_rows import verdict_lines, verdict_rows
from tfmon.ui.source import OWN, Display, Scale, focused_index, shows

Rows: TypeAlias = Sequence[Row]


@dataclass(frozen=True, slots=True)
class RaceFrame:
    """The content of the screen."""

    layout: Layout
    parts: Mapping[str, Rows]
    panes: Mapping[int, Rows]
    scales: Mapping[str, Scale]


PARTS = ("tabs", "header", "verdict", "lines", "status", "keys")


def draw(analysis: Analysis, view: Display, width: int, height: int) -> RaceFrame:
    """Draw the race for a terminal of that size."""
    layout = layout_of(analysis, view, width, height)
    panes: dict[int, Rows] = {}
    if layout.kind == "tiny":
        parts: dict[str, Rows] = {"lines": [((line, WARN),) for line in wrap("terminal too small", width, height)]}
    elif layout.kind == "lines":
        parts = _lines(analysis, view, layout)
    else:
        if layout.lanes:
            cells = chart_width(layout.pane_widths[0])
            scaled = replace(view, scale=OWN) if view.zoomed else view
            scales = chart_data.scales(analysis.snapshot, scaled, cells, chart.PER_CELL)
            view = replace(view, scales=scales)
        parts = _parts(analysis, view, layout)
        heights = {width: heights_of(analysis, view, width) for width in set(layout.pane_widths)}
        sizes = itertools.product(layout.pane_heights, layout.pane_widths)
        for lane, (high, wide) in zip(layout.lanes, sizes, strict=False):
            panes[lane] = pane_rows(analysis, lane, view, wide, high, heights[wide])
    if "lines" in parts:
        parts["lines"] = [*parts["lines"], *[BLANK] * layout.body][: layout.body]
    fitted = {name: [fit(row, width) for row in rows] for name, rows in parts.items()}
    return RaceFrame(layout, fitted, panes, view.scales)


def layout_of(analysis: Analysis, view: Display, width: int, height: int) -> Layout:
    """Return the layout of the race."""
    snapshot = analysis.snapshot
    result = len(verdict_rows(analysis, view, width, height // 2)) if shows(snapshot, view) else 0
    focused = focused_index(view, snapshot)
    layout = arrange(width, height, len(snapshot.lanes), focused, result)
    if focused is None or not view.zoomed or not layout.lanes:
        return layout
    return replace(layout, lanes=range(focused, focused + 1), columns=1, per_page=1)


def in_sight(snapshot: Snapshot, layout: Layout) -> tuple[str, ...]:
    """Return the names of the lanes that the screen shows."""
    every = range(len(snapshot.lanes) if layout.kind in ("lines", "table") else 0)
    shown = layout.lanes if layout.kind == "panes" else every
    return tuple(snapshot.lanes[lane].spec.name for lane in shown)


def _parts(analysis: Analysis, view: Display, layout: Layout) -> dict[str, Rows]:
    snapshot, width = analysis.snapshot, layout.width
    parts: dict[str, Rows] = {"header": [header_row(analysis, width)]}
    if layout.tabs:
        parts["tabs"] = [tab_row(view.tabs, "race", view.keys, width, alone=len(snapshot.lanes) == 1)]
    verdict = verdict_rows(analysis, view, width, layout.verdict)
    parts["verdict"] = [*verdict, *[BLANK] * layout.verdict][: layout.verdict]
    if layout.kind == "table":
        parts["lines"] = lane_table(analysis, view, width, layout.body)
    elif not layout.lanes:
        parts["lines"] = _no_lanes(view, width, layout.body)
    message = message_of(view, snapshot)
    hides = not layout.status and 0 < len(layout.lanes) < len(snapshot.lanes) and not view.stopping
    parts["keys"] = [keys_row(snapshot, view, width, hides=hides)]
    if layout.status:
        parts["status"] = [status_row(snapshot, view, layout.per_page if layout.lanes else 0, width)]
    elif message:
        parts["keys"] = [_message(message)]
    return parts


def _message(text: str) -> Row:
    return ((f" {text}", strong(WARN)),)


def _no_lanes(view: Display, width: int, height: int) -> list[Row]:
    if not view.no_race:
        return [BLANK, (("   examining the machine and its devices…", TEXT),)]
    reason: list[Row] = [((f"   {line}", strong(TROUBLE)),) for line in wrap(view.no_race, width - 6, height - 3)]
    return [BLANK, *reason, (("   another scenario may work; see the keys below", TEXT),)]


def _lines(analysis: Analysis, view: Display, layout: Layout) -> dict[str, Rows]:
    snapshot, width, room = analysis.snapshot, layout.width, layout.body
    message = message_of(view, snapshot)
    if room <= len(snapshot.lanes):
        rows = [one_line(analysis)]
        return {"lines": [*rows, _message(message)] if message and room > 1 else rows}
    rows = [_lane_line(index, found, snapshot, width) for index, found in enumerate(analysis.lanes)]
    lines = verdict_lines(analysis, view, width, 2 if room > len(rows) + 2 else 1)
    parts: dict[str, Rows] = {"lines": [*rows, *lines]}
    if layout.keys:
        parts["keys"] = [_message(message) if message else keys_row(snapshot, view, width)]
    return parts


def _lane_line(index: int, analysis: LaneAnalysis, snapshot: Snapshot, width: int) -> Row:
    lane = analysis.lane
    spans: Row = (
        (f" {lane.spec.id} ", strong(lane_style(index))),
        (_short_speed(analysis, snapshot), STRONG),
        (f"  {phase_text(lane, snapshot)}  ", TEXT),
    )
    room = width - cells(spans)
    if lane.trouble is not None:
        text = whole_words(lane.trouble.message, room)
    else:
        text = fitting_name(machine_rows.lane_names(snapshot, lane), room)
    return (*spans, (text, DIM))


def one_line(analysis: Analysis) -> Row:
    """Return the race in one line: `C 7.7k ex/s  G 2.4k ex/s  C 3.2×`."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    spans: list[tuple[str, str]] = []
    lead: list[tuple[str, str]] = []
    for index, (lane, result) in enumerate(zip(snapshot.lanes, analysis.lanes, strict=True)):
        id = f" {lane.spec.id} " if len(snapshot.lanes) > 1 else " "
        spans += [(id, strong(lane_style(index))), (f"{_short_speed(result, snapshot)} ", TEXT)]
        if lane.spec.name == verdict.winner and verdict.ratio is not None:
            lead.append((f" ▲ {lane.spec.id} {units.ratio(verdict.ratio)}", strong(lane_style(index))))
    return (*spans, *lead)


def _short_speed(analysis: LaneAnalysis, snapshot: Snapshot) -> str:
    speed = analysis.recent.examples_per_s
    if speed is None:
        return phase_text(analysis.lane, snapshot)
    return f"{units.short_count(speed)} ex/s"

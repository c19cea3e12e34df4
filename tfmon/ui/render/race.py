"""The race screen as the rows of its parts: a pure function of the snapshot, the view and the size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.model.session import Snapshot
from tfmon.ui.render import chart, hosts, series
from tfmon.ui.render.bars import header_row, message_of, status_row
from tfmon.ui.render.layout import Layout, arrange, keys_row, tab_row
from tfmon.ui.render.pane import chart_width, common_of, pane_rows
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cells, fit, fitting_name, whole_words, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style, strong, to_ascii
from tfmon.ui.render.verdict import comparison, result_height, result_rows, shows, verdict_lines, verdict_rows
from tfmon.ui.source import Display, Scale, focused_index

Rows: TypeAlias = Sequence[Row]


@dataclass(frozen=True, slots=True)
class RaceFrame:
    """The content of the screen."""

    layout: Layout
    parts: Mapping[str, Rows]
    """Rows of each part by its name in `PARTS`. A part without room is missing."""
    panes: Mapping[int, Rows]
    """Rows of each pane by the index of its lane."""
    scales: Mapping[str, Scale]


PARTS = ("tabs", "header", "lead", "result", "lines", "verdict", "status", "keys")
"""Parts from top to bottom. The panes stand between "lines" and "verdict"."""


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
            scales = series.scales(analysis.snapshot, view, cells, chart.parts_per_cell(view.charset))
            view = replace(view, scales=scales)
        parts = _parts(analysis, view, layout)
        commons = {width: common_of(analysis, width) for width in set(layout.pane_widths if layout.lanes else ())}
        sizes = itertools.product(layout.pane_heights, layout.pane_widths)
        for lane, (high, wide) in zip(layout.lanes, sizes, strict=False):
            panes[lane] = _fitted(pane_rows(analysis, lane, view, wide, high, commons[wide]), view, wide)
    if "lines" in parts:
        parts["lines"] = [*parts["lines"], *[BLANK] * layout.body][: layout.body]
    fitted = {name: _fitted(rows, view, width) for name, rows in parts.items()}
    return RaceFrame(layout, fitted, panes, view.scales)


def _fitted(rows: Rows, view: Display, width: int) -> list[Row]:
    fitted = [fit(row, width) for row in rows]
    return [to_ascii(row) for row in fitted] if view.charset == "ascii" else fitted


def layout_of(analysis: Analysis, view: Display, width: int, height: int) -> Layout:
    """Return the parts of a terminal of that size, for a race that runs or is over."""
    snapshot = analysis.snapshot
    result = result_height(analysis, view, width, height // 2) if shows(snapshot, view) else 0
    focused = focused_index(view, snapshot)
    layout = arrange(width, height, len(snapshot.lanes), focused, result)
    if focused is None or not view.zoomed or not layout.lanes:
        return layout
    return replace(layout, lanes=range(focused, focused + 1), columns=1, per_page=1)


def in_sight(snapshot: Snapshot, layout: Layout) -> tuple[str, ...]:
    """Return the names of the lanes that the screen shows."""
    shown = layout.lanes if layout.kind == "panes" else range(len(snapshot.lanes) if layout.kind == "lines" else 0)
    return tuple(snapshot.lanes[lane].spec.name for lane in shown)


def _parts(analysis: Analysis, view: Display, layout: Layout) -> dict[str, Rows]:
    """Return the rows above and below the panes."""
    snapshot, width = analysis.snapshot, layout.width
    parts: dict[str, Rows] = {"header": [header_row(snapshot, width)]}
    if layout.tabs:
        parts["tabs"] = [tab_row(view.tabs, "race", view.keys, width)]
    if layout.lead:
        parts["lead"] = [((f" {whole_words(comparison(snapshot, width - 2), width - 2)}", TEXT),)]
    if shows(snapshot, view):
        parts["result"] = result_rows(analysis, view, width, layout.verdict)
    else:
        parts["verdict"] = verdict_rows(analysis, view, width, layout.verdict)
    if not layout.lanes:
        parts["lines"] = _no_lanes(view, width, layout.body)
    message = message_of(view, snapshot)
    hides = not layout.status and len(layout.lanes) < len(snapshot.lanes) and not view.stopping
    parts["keys"] = [keys_row(snapshot, view, width, hides=hides)]
    if layout.status:
        parts["status"] = [status_row(snapshot, view, layout.per_page, width)]
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
        rows = [one_line(analysis, width)]
        return {"lines": [*rows, _message(message)] if message and room > 1 else rows}
    lines = verdict_lines(analysis, view, width, 2 if room > 2 * len(snapshot.lanes) + 2 else 1)
    rows = []
    named_below = room >= 3 * len(snapshot.lanes) + len(lines)
    for index, lane in enumerate(snapshot.lanes):
        line = _lane_line(index, analysis.lanes[index], snapshot, width)
        names = hosts.lane_names(snapshot, lane)
        if named_below and lane.trouble is None and line[-1][0] not in names:
            rows += [line[:-1], (("    ", TEXT), (fitting_name(names, width - 5), DIM))]
        else:
            rows.append(line)
        bottleneck = analysis.lanes[index].bottleneck
        if room >= 2 * len(snapshot.lanes) + len(lines):
            rows.append((("    ", TEXT), (whole_words(bottleneck.line if bottleneck else "", width - 5), DIM)))
    parts: dict[str, Rows] = {"lines": [*rows, *lines]}
    if layout.keys:
        parts["keys"] = [_message(message) if message else keys_row(snapshot, view, width)]
    return parts


def _lane_line(index: int, analysis: LaneAnalysis, snapshot: Snapshot, width: int) -> Row:
    lane = analysis.lane
    spans: Row = (
        (f" {lane.spec.id} ", strong(lane_style(index))),
        (_short_speed(analysis), STRONG),
        (f"  {lane.phase}  ", TEXT),
    )
    room = width - cells(spans)
    if lane.trouble is not None:
        text = whole_words(lane.trouble.message, room)
    else:
        text = fitting_name(hosts.lane_names(snapshot, lane), room)
    return (*spans, (text, DIM))


def one_line(analysis: Analysis, width: int) -> Row:
    """Return the race in one line: `C 7.7k ex/s  G 2.4k ex/s  C 3.2×`."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    spans: list[tuple[str, str]] = []
    lead: list[tuple[str, str]] = []
    for index, (lane, result) in enumerate(zip(snapshot.lanes, analysis.lanes, strict=True)):
        spans += [(f" {lane.spec.id} ", strong(lane_style(index))), (_short_speed(result) + " ", TEXT)]
        if lane.spec.name == verdict.winner and verdict.ratio is not None:
            lead.append((f" ▲ {lane.spec.id} {units.ratio(verdict.ratio)}", strong(lane_style(index))))
    return fit([*spans, *lead], width)


def _short_speed(analysis: LaneAnalysis) -> str:
    speed = analysis.recent.examples_per_s
    if speed is None:
        return analysis.lane.phase
    return f"{units.short_count(speed)} ex/s"

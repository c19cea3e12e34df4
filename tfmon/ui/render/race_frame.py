"""The race screen as rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.model.ports import ReplayState
from tfmon.ui.render.bars import header_row, message_of, status_row
from tfmon.ui.render.chart_data import charts_of
from tfmon.ui.render.key_rows import keys_row, replay_keys_row, tab_row
from tfmon.ui.render.lane_table import lane_table
from tfmon.ui.render.pane import FRAME_CELLS, PaneRows, chart_width, heights_of, phase_text
from tfmon.ui.render.rows import BLANK, TEXT, Row, fit, styled_lines
from tfmon.ui.render.style import TROUBLE, WARN, lane_style, strong
from tfmon.ui.render.timeline import timeline_row
from tfmon.ui.render.verdict_rows import verdict_lines, verdict_rows
from tfmon.ui.source import OWN, Display, Scale, focused_index, shows

Rows: TypeAlias = Sequence[Row]
MIN_PANE_WIDTH, MIN_PANE_HEIGHT, MIN_HEIGHT_ALONE = 40, 12, 6
HEIGHT_WITH_TABS, HEIGHT_WITH_STATUS = 30, 18
PARTS = ("tabs", "header", "verdict", "lines", "status", "timeline", "keys")


@dataclass(frozen=True, slots=True)
class RaceFrame:
    """The rows of each part of the screen, and the panes in `columns`."""

    parts: Mapping[str, Rows]
    scales: Mapping[str, Scale]
    panes: Mapping[int, Rows]
    columns: int = 1
    per_page: int = 0
    """Lanes that fit as panes."""

    def shown(self, analysis: Analysis) -> tuple[str, ...]:
        """Return the names of the displayed lanes; a table has all lanes."""
        names = [lane.spec.name for lane in analysis.snapshot.lanes]
        return tuple(names[lane] for lane in self.panes or range(len(names)))


def draw(
    analysis: Analysis, view: Display, width: int, height: int, replay: ReplayState | None = None
) -> RaceFrame:
    """Draw the race for a terminal size."""
    snapshot, count = analysis.snapshot, len(analysis.lanes)
    message = message_of(view, snapshot)
    message_row: Row = ((f" {message}", strong(WARN)),)
    if height < count + 4:  # no room for header, verdict, headings and keys
        rows = [
            one_line(analysis),
            *([message_row] if message else []),
            *verdict_lines(analysis, view, width, height),
        ]
        return RaceFrame({"lines": _filled(rows, width, height)}, view.scales, {})
    has_tabs, has_status = height >= HEIGHT_WITH_TABS, height >= HEIGHT_WITH_STATUS
    room = height - 2 - has_tabs - has_status - (replay is not None)
    most = 0 if count == 1 else 1 if height < 20 else 2 if height < 30 else 3
    if shows(snapshot, view):
        most = max(1, min(height // 2, room - MIN_PANE_HEIGHT))
    verdict = verdict_rows(analysis, view, width, most)
    if view.verdict[:2] == (width, height):  # a temporary note must not move the panes
        verdict += [BLANK] * (min(view.verdict[2], most) - len(verdict))
    room -= len(verdict)
    lanes, columns, per_page = _arranged(analysis, view, width, room)
    hides = not has_status and 0 < len(lanes) < count and not view.stopping
    keys = keys_row(snapshot, view, width, hides=hides) if replay is None else replay_keys_row(replay, view, width)
    parts: dict[str, Rows] = {
        "tabs": [tab_row(view.tabs, "race", view.keys, width, alone=count == 1)] if has_tabs else [],
        "header": [header_row(analysis, width)],
        "verdict": verdict,
        "status": [status_row(snapshot, view, per_page if lanes else 0, width)] if has_status else [],
        "timeline": [timeline_row(replay, width)[0]] if replay is not None else [],
        "keys": [message_row if message and not has_status else keys],
    }
    fitted = {name: _filled(rows, width, len(rows)) for name, rows in parts.items()}
    if not lanes:
        rows = lane_table(analysis, view, width, room) if count else _no_lanes(view, width, room)
        return RaceFrame({**fitted, "lines": _filled(rows, width, room)}, view.scales, {}, per_page=per_page)
    sizes = [*itertools.product(_divided(room, -(-len(lanes) // columns)), _divided(width, columns))]
    scaled = replace(view, scale=OWN) if view.zoomed else view
    charts = {wide: charts_of(snapshot, scaled, chart_width(wide)) for _, wide in sizes}
    panes = {
        wide: [PaneRows(analysis, lane, view, wide - FRAME_CELLS) for lane in range(count)] for wide in charts
    }
    drawn = {
        lane: panes[wide][lane].rows(high, heights_of(panes[wide]), charts[wide])
        for lane, (high, wide) in zip(lanes, sizes, strict=False)
    }
    return RaceFrame(fitted, charts[sizes[0][1]].scales, drawn, columns, per_page)


def _filled(rows: Rows, width: int, height: int) -> Rows:
    return [fit(row, width) for row in [*rows, *[BLANK] * height][:height]]


def _divided(cells: int, count: int) -> list[int]:
    """Divide cells as Textual's grid does."""
    ends = [cells * number // count for number in range(count + 1)]
    return [end - start for start, end in itertools.pairwise(ends)]


def _arranged(analysis: Analysis, view: Display, width: int, height: int) -> tuple[range, int, int]:
    """Return the lanes displayed as panes, the columns, and how many lanes fit."""
    count, focused = len(analysis.lanes), focused_index(view, analysis.snapshot)
    most_columns = width // MIN_PANE_WIDTH
    visible = min(count, most_columns * (height // (MIN_HEIGHT_ALONE if count == 1 else MIN_PANE_HEIGHT)))
    if not visible:
        return range(0), 1, 0
    rows = -(-visible // most_columns)
    columns = -(-visible // rows)
    per_page = columns * rows
    if focused is None and per_page < count:
        return range(0), 1, per_page
    if focused is not None and view.zoomed:
        return range(focused, focused + 1), 1, 1
    first = (focused or 0) // per_page * per_page
    lanes = range(first, min(count, first + per_page))
    return lanes, min(columns, len(lanes)), per_page


def _no_lanes(view: Display, width: int, height: int) -> list[Row]:
    if not view.no_race:
        return [BLANK, (("   examining the machine and its devices…", TEXT),)]
    reason = styled_lines(view.no_race, width - 3, height - 3, strong(TROUBLE), "   ")
    return [BLANK, *reason, (("   another scenario may work; see the keys below", TEXT),)]


def one_line(analysis: Analysis) -> Row:
    """Return such as `C 7.7k ex/s  G 2.4k ex/s  C 3.2×`."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    spans: list[tuple[str, str]] = []
    lead: list[tuple[str, str]] = []
    for index, analysed in enumerate(analysis.lanes):
        lane, speed = analysed.lane, analysed.recent.examples_per_s
        id = f" {lane.spec.id} " if len(snapshot.lanes) > 1 else " "
        shown = phase_text(lane, snapshot) if speed is None else f"{units.short_count(speed)} ex/s"
        spans += [(id, strong(lane_style(index))), (f"{shown} ", TEXT)]
        if lane.spec.id == verdict.winner_id and verdict.ratio is not None:
            lead.append((f" ▲ {lane.spec.id} {units.ratio(verdict.ratio)}", strong(lane_style(index))))
    return (*spans, *lead)

"""The whole race screen as rows: a pure function of the snapshot, the view and the size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.model.lane_state import LaneState
from tfmon.model.race import KEPT
from tfmon.model.session import Snapshot
from tfmon.ui.keys import key_of
from tfmon.ui.render import chart, series
from tfmon.ui.render.bars import Zone, header_row, keys_row, message_of, status_row
from tfmon.ui.render.layout import Layout, Rect, arrange
from tfmon.ui.render.pane import chart_rect, chart_width, pane_rows
from tfmon.ui.render.rows import BLANK, Row, fit, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, TROUBLE, WARN, lane_style, strong, to_ascii
from tfmon.ui.view import Scale, View, focused_index


@dataclass(frozen=True, slots=True)
class RaceFrame:
    """What the screen shows, and what a click on it does."""

    rows: tuple[Row, ...]
    """One for each line of the terminal, each exactly as wide."""
    zones: tuple[Zone, ...]
    scales: Mapping[str, Scale]
    """Those of the charts, to be kept for the next page."""
    charts: tuple[Rect, ...] = ()
    """Where the charts are."""


def draw(analysis: Analysis, view: View, width: int, height: int) -> RaceFrame:
    """Draw the race for a terminal of that size."""
    snapshot = analysis.snapshot
    layout = arrange(width, height, len(snapshot.lanes), focused_index(view, snapshot))
    view = replace(view, scales=scales_of(snapshot, view, layout))
    zones: list[Zone] = []
    if layout.kind == "tiny":
        rows: list[Row] = [((line, WARN),) for line in wrap("terminal too small", width, height)]
    elif layout.kind == "lines":
        rows = _lines(analysis, view, layout, zones)
    else:
        rows = _panes(analysis, view, layout, zones)
    fitted = tuple(fit(row, width) for row in (rows + [BLANK] * height)[:height])
    if view.charset == "ascii":
        fitted = tuple(to_ascii(row) for row in fitted)
    found = (chart_rect(snapshot, snapshot.lanes[place.lane], place.rect) for place in layout.panes)
    return RaceFrame(fitted, tuple(zones), view.scales, tuple(rect for rect in found if rect is not None))


def in_sight(snapshot: Snapshot, view: View, width: int, height: int) -> tuple[str, ...]:
    """Return the names of the lanes that the page of that size shows."""
    layout = arrange(width, height, len(snapshot.lanes), focused_index(view, snapshot))
    if layout.kind == "panes":
        return tuple(snapshot.lanes[place.lane].spec.name for place in layout.panes)
    return tuple(lane.spec.name for lane in snapshot.lanes) if layout.kind == "lines" else ()


def scales_of(snapshot: Snapshot, view: View, layout: Layout) -> Mapping[str, Scale]:
    """Return the scales of the charts: the highest column of each fits."""
    if not layout.panes:
        return view.scales
    width = chart_width(layout.panes[0].rect.width)
    return series.scales(snapshot, view, width, chart.parts_per_cell(view.charset))


# ---------------------------------------------------------------- panes


def _panes(analysis: Analysis, view: View, layout: Layout, zones: list[Zone]) -> list[Row]:
    snapshot = analysis.snapshot
    rows = [header_row(snapshot, layout.header.width)]
    rows += _blocks(analysis, view, layout) or _no_lanes(view, layout)
    for place in layout.panes:
        zones.append(Zone(place.rect, f"focus_lane({place.lane})"))
    undo_key = key_of("undo", view.keys)
    rows += verdict_rows(analysis, undo_key, layout.verdict.width, layout.verdict.height)
    message = message_of(view, snapshot)
    if layout.status.height:
        rows.append(status_row(snapshot, view, layout.per_page, layout.status.width))
    if message and not layout.status.height:
        rows.append(((f" {message}", strong(WARN)),))
    else:
        keys, key_zones = keys_row(snapshot, view, layout.keys.width, layout.keys.y)
        rows.append(keys)
        zones += key_zones
    return rows


def _blocks(analysis: Analysis, view: View, layout: Layout) -> list[Row]:
    """Draw the panes and put those of one row side by side."""
    rows: list[Row] = []
    for _, places in itertools.groupby(layout.panes, lambda place: place.rect.y):
        blocks = [pane_rows(analysis, place.lane, view, place.rect.width, place.rect.height) for place in places]
        rows += [tuple(span for row in line for span in row) for line in zip(*blocks, strict=True)]
    return rows


def _no_lanes(view: View, layout: Layout) -> list[Row]:
    """Return what is being done before there are lanes, or why there are none."""
    height, width = layout.verdict.y - layout.header.height, layout.header.width
    rows: list[Row] = [BLANK]
    if view.no_race:
        rows += [((f"   {line}", strong(TROUBLE)),) for line in wrap(view.no_race, width - 6, height - 3)]
        rows.append((("   another scenario may work; see the keys below", TEXT),))
    else:
        rows.append((("   examining the machine and its devices…", TEXT),))
    return (rows + [BLANK] * height)[:height]


# ---------------------------------------------------------------- small terminals


def _lines(analysis: Analysis, view: View, layout: Layout, zones: list[Zone]) -> list[Row]:
    """Draw a line a lane and the verdict, or all in one line where there is not even room for that."""
    snapshot = analysis.snapshot
    width, room = layout.verdict.width, layout.verdict.height
    message = message_of(view, snapshot)
    if room <= len(snapshot.lanes):
        rows = [one_line(analysis, width)]
        if message and room > 1:
            rows.append(((f" {message}", strong(WARN)),))
        return rows
    rows = [_lane_line(index, lane) for index, lane in enumerate(snapshot.lanes)]
    rows.append(verdict_row(analysis, width))
    rows = (rows + [BLANK] * room)[:room]
    if layout.keys.height:
        keys, key_zones = keys_row(snapshot, view, width, layout.keys.y)
        rows.append(((f" {message}", strong(WARN)),) if message else keys)
        zones += [] if message else key_zones
    return rows


def _lane_line(index: int, lane: LaneState) -> Row:
    return (
        (f" {lane.spec.id} ", strong(lane_style(index))),
        (_short_speed(lane), STRONG),
        (f"  {lane.phase}  ", TEXT),
        (lane.trouble.message if lane.trouble is not None else lane.title, DIM),
    )


def one_line(analysis: Analysis, width: int) -> Row:
    """Return the race in one line: `C 7.7k ex/s  G 2.4k ex/s  C 3.2×`."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    spans: list[tuple[str, str]] = []
    lead: list[tuple[str, str]] = []
    for index, lane in enumerate(snapshot.lanes):
        spans += [(f" {lane.spec.id} ", strong(lane_style(index))), (_short_speed(lane) + " ", TEXT)]
        if lane.spec.name == verdict.winner and verdict.ratio is not None:
            lead.append((f" ▲ {lane.spec.id} {units.ratio(verdict.ratio)}", strong(lane_style(index))))
    return fit([*spans, *lead], width)


def _short_speed(lane: LaneState) -> str:
    speed = lane.recent().examples_per_s
    if lane.over or speed is None:
        return lane.phase
    return f"{units.short_count(speed)} ex/s"


# ---------------------------------------------------------------- the verdict

_LEAD_CELLS = 6
"""Cells before the text."""


def verdict_rows(analysis: Analysis, undo_key: str, width: int, height: int) -> list[Row]:
    """Return `height` rows: the verdict, what was tried, the verdict's note, and the line about a missing GPU."""
    snapshot = analysis.snapshot
    if not snapshot.lanes:
        return [BLANK] * height
    rows: list[Row] = [verdict_row(analysis, width)]
    room = height - 1
    spare = 1 if height >= 5 else 0
    room -= spare
    for line in wrap(_tried(analysis, undo_key), width - 4, min(2, room)):
        rows.append((("   " + line, STRONG),))
    room -= len(rows) - 1
    no_gpu = f"no GPU lane: {snapshot.machine.no_gpu}" if snapshot.machine.no_gpu else ""
    for line in wrap(analysis.verdict.note, width - 4, max(0, room - (1 if no_gpu else 0))):
        rows.append((("   " + line, DIM),))
    for line in wrap(no_gpu, width - 4, height - spare - len(rows)):
        rows.append((("   " + line, TEXT),))
    rows = [BLANK] * spare + rows
    return (rows + [BLANK] * height)[:height]


def _tried(analysis: Analysis, undo_key: str) -> str:
    """Return what is tried on a lane, or its result and the key that undoes it."""
    news, state = analysis.news, analysis.snapshot.tuned
    kept = news and state is not None and state.over and state.latest and state.latest.outcome == KEPT
    return f"{news} · {undo_key} to undo" if kept else news


def verdict_row(analysis: Analysis, width: int) -> Row:
    """Return who is ahead in one line, in the winner's accent; by ids where names have no room."""
    verdict = analysis.verdict
    text = verdict.text if len(verdict.text) + _LEAD_CELLS <= width else verdict.short or verdict.text
    for index, lane in enumerate(analysis.snapshot.lanes):
        if lane.spec.name == verdict.winner:
            return (
                (" ▲ ", strong(lane_style(index))),
                (f"{lane.spec.id}  ", strong(lane_style(index))),
                (text, STRONG),
            )
    return (("   ", TEXT), (text, TEXT))

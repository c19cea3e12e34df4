"""The whole race screen as rows: a pure function of the snapshot, the view and the size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.model.session import Snapshot
from tfmon.ui.render import chart, hosts, series
from tfmon.ui.render.bars import header_row, message_of, status_row
from tfmon.ui.render.layout import Layout, Zone, alone, arrange, keys_row, tab_row
from tfmon.ui.render.pane import chart_width, common_of, pane_rows
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cells, fit, fitting_name, whole_words, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style, strong, to_ascii
from tfmon.ui.render.verdict import comparison, result_height, result_rows, shows, verdict_lines, verdict_rows
from tfmon.ui.source import Display, Scale, focused_index


@dataclass(frozen=True, slots=True)
class RaceFrame:
    """What the screen shows, and what a click on it does."""

    rows: tuple[Row, ...]
    """One row for each line of the terminal, each of its full width."""
    zones: tuple[Zone, ...]
    scales: Mapping[str, Scale]


def draw(analysis: Analysis, view: Display, width: int, height: int) -> RaceFrame:
    """Draw the race for a terminal of that size."""
    snapshot = analysis.snapshot
    layout = layout_of(analysis, view, width, height)
    if layout.panes:
        cells = chart_width(layout.panes[0].rect.width)
        scales = series.scales(snapshot, view, cells, chart.parts_per_cell(view.charset))
        view = replace(view, scales=scales)
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
    return RaceFrame(fitted, tuple(zones), view.scales)


def layout_of(analysis: Analysis, view: Display, width: int, height: int) -> Layout:
    """Return where everything is on a terminal of that size, for a race that runs or is over."""
    snapshot = analysis.snapshot
    result = result_height(analysis, view, width, height // 2) if shows(snapshot, view) else 0
    focused = focused_index(view, snapshot)
    layout = arrange(width, height, len(snapshot.lanes), focused, result)
    return layout if focused is None or not view.zoomed else alone(layout, focused)


def in_sight(analysis: Analysis, view: Display, width: int, height: int) -> tuple[str, ...]:
    """Return the names of the lanes that the page of that size shows."""
    snapshot, layout = analysis.snapshot, layout_of(analysis, view, width, height)
    if layout.kind == "panes":
        return tuple(snapshot.lanes[place.lane].spec.name for place in layout.panes)
    return tuple(lane.spec.name for lane in snapshot.lanes) if layout.kind == "lines" else ()


def _panes(analysis: Analysis, view: Display, layout: Layout, zones: list[Zone]) -> list[Row]:
    snapshot = analysis.snapshot
    rows: list[Row] = []
    if layout.tabs.height:
        tabs, tab_zones = tab_row(view.tabs, "race", view.keys, layout.tabs.width)
        rows.append(tabs)
        zones += tab_zones
    rows.append(header_row(snapshot, layout.header.width))
    if layout.lead.height:
        rows.append(
            ((f" {whole_words(comparison(snapshot, layout.lead.width - 2), layout.lead.width - 2)}", TEXT),)
        )
    if layout.result_on_top:
        rows += result_rows(analysis, view, layout.verdict.width, layout.verdict.height)
    commons = {width: common_of(analysis, width) for width in {place.rect.width for place in layout.panes}}
    for _, places in itertools.groupby(layout.panes, lambda place: place.rect.y):
        blocks = [
            pane_rows(analysis, place.lane, view, place.rect.width, place.rect.height, commons[place.rect.width])
            for place in places
        ]
        rows += [tuple(span for row in line for span in row) for line in zip(*blocks, strict=True)]
    if not layout.panes:
        rows += _no_lanes(view, layout)
    for place in () if view.zoomed else layout.panes:
        zones.append(Zone(place.rect, f"focus_lane({place.lane})"))
    if not layout.result_on_top:
        rows += verdict_rows(analysis, view, layout.verdict.width, layout.verdict.height)
    if layout.status.height:
        rows.append(status_row(snapshot, view, layout.per_page, layout.status.width))
    elif message := message_of(view, snapshot):
        return [*rows, ((f" {message}", strong(WARN)),)]
    hides = not layout.status.height and len(layout.panes) < len(snapshot.lanes) and not view.stopping
    keys, key_zones = keys_row(snapshot, view, layout.keys.width, layout.keys.y, hides=hides)
    zones += key_zones
    return [*rows, keys]


def _no_lanes(view: Display, layout: Layout) -> list[Row]:
    height, width = layout.verdict.y - layout.header.y - layout.header.height, layout.header.width
    rows: list[Row] = [BLANK]
    if view.no_race:
        rows += [((f"   {line}", strong(TROUBLE)),) for line in wrap(view.no_race, width - 6, height - 3)]
        rows.append((("   another scenario may work; see the keys below", TEXT),))
    else:
        rows.append((("   examining the machine and its devices…", TEXT),))
    return (rows + [BLANK] * height)[:height]


def _lines(analysis: Analysis, view: Display, layout: Layout, zones: list[Zone]) -> list[Row]:
    snapshot = analysis.snapshot
    width, room = layout.verdict.width, layout.verdict.height
    message = message_of(view, snapshot)
    if room <= len(snapshot.lanes):
        rows = [one_line(analysis, width)]
        if message and room > 1:
            rows.append(((f" {message}", strong(WARN)),))
        return rows
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
    rows = (rows + lines + [BLANK] * room)[:room]
    if layout.keys.height:
        keys, key_zones = keys_row(snapshot, view, width, layout.keys.y)
        rows.append(((f" {message}", strong(WARN)),) if message else keys)
        zones += [] if message else key_zones
    return rows


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

"""The race screen as rows: the verdict, and panes, or a table of lanes that do not fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import PurePath
from typing import TypeAlias

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.finish import loss_warnings
from tfmon.analysis.series_layout import DASH
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_state import ABSENT, FAILED, STAGES
from tfmon.model.ports import ReplayState
from tfmon.model.session import Snapshot
from tfmon.ui.render import reading_rows
from tfmon.ui.render.bars import (
    header_row,
    keys_row,
    message_of,
    replay_keys_row,
    status_row,
    tab_row,
    timeline_row,
)
from tfmon.ui.render.chart import charts_of
from tfmon.ui.render.pane import FRAME_CELLS, PaneRows, chart_width, heights_of, phase_text
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, Span, fit, fitting_name, styled_lines, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style, link, strong
from tfmon.ui.render.table import BAR_HEAD, interval_bar, reach_of
from tfmon.ui.source import OWN, Display, Scale, focused_index, news_line, shows

_ID_CELLS, _GAP, _LEAST_NAME = 5, 2, 8
_DETAILS = ("step", "loss", "knobs", "bottleneck", "help", "time", "cpu", "memory")


def _lane_table(analysis: Analysis, view: Display, width: int, height: int) -> list[Row]:
    verdict, count = analysis.verdict, len(analysis.lanes)
    columns = _columns(analysis, width)
    room = width - _ID_CELLS - sum(len(heading) + _GAP for heading, _ in columns) - 1
    heads = "".join(f"{'':{_GAP}}{heading}" for heading, _ in columns)
    rows: list[Row] = [fit(((" " * _ID_CELLS + "lane".ljust(room) + heads, DIM),), width)]
    each = max(0, (height - 1) // max(1, count) - 1)
    shown = {heading.split()[0] for heading, _ in columns if heading.strip()}
    for index, analysed in enumerate(analysis.lanes):
        lane = analysed.lane
        mark = "▲" if lane.spec.id == verdict.winner_id else " "
        name = fitting_name(reading_rows.lane_names(analysis.snapshot, lane), room)
        row: list[Span] = [
            (f" {mark} {lane.spec.id} ", link(strong(lane_style(index)), f"focus_lane({index})")),
            (name.ljust(room), STRONG if lane.spec.name == view.focused else TEXT),
        ]
        for _, cells in columns:
            row += [(" " * _GAP, TEXT), cells[index]]
        rows.append(fit(row, width))
        details = _details(analysis, index, view, width - _ID_CELLS, shown)[:each]
        rows += [((" " * _ID_CELLS, TEXT), *detail) for detail in details]
    return rows


def _columns(analysis: Analysis, width: int) -> list[tuple[str, list[Span]]]:
    verdict, lanes = analysis.verdict, [analysed.lane for analysed in analysis.lanes]
    ranks, slowest = {rank.id: rank.ratio for rank in verdict.ranking}, verdict.slowest_id
    speeds = [analysed.recent.examples_per_s for analysed in analysis.lanes]
    steps, reach = [lane.steady.step_ms(0.5) for lane in lanes], reach_of(ranks.values())
    ratios = [ranks.get(lane.spec.id) for lane in lanes]
    factors = [
        "1×" if lane.spec.id == slowest else units.ratio(ratio.value) if ratio and ratio.is_narrow else DASH
        for lane, ratio in zip(lanes, ratios, strict=True)
    ]
    phases = [(phase_text(lane, analysis.snapshot).ljust(9), TROUBLE if lane.trouble else DIM) for lane in lanes]
    # The most important columns come first.
    every: list[tuple[int, str, list[Span]]] = [
        (0, "ex/s".rjust(9), [(_known(speed, units.rate, 9), STRONG) for speed in speeds]),
        (3, "step p50".rjust(9), [(_known(step, units.milliseconds, 9), TEXT) for step in steps]),
        (4, "loss".rjust(9), [(_known(lane.totals.losses.last, units.loss, 9), TEXT) for lane in lanes]),
        (1, f"over {slowest}".rjust(8) if slowest else " " * 8, [(factor.rjust(8), TEXT) for factor in factors]),
        (5, "state".ljust(9), phases),
        (2, BAR_HEAD, [(interval_bar(ratio, reach), TEXT) for ratio in ratios]),
    ]
    while (
        len(every) > 1 and _ID_CELLS + _LEAST_NAME + sum(len(heading) + _GAP for _, heading, _ in every) >= width
    ):
        every.pop()
    return [(heading, cells) for _, heading, cells in sorted(every, key=itemgetter(0))]


def _known(value: float | None, write: Callable[[float], str], width: int) -> str:
    return (DASH if value is None else write(value)).rjust(width)


def _details(analysis: Analysis, index: int, view: Display, width: int, shown: Container[str]) -> list[Row]:
    """Return the readings that no column shows."""
    pane = PaneRows(analysis, index, view, width)
    lane, readings = pane.lane, pane.readings
    if lane.trouble is not None:
        return styled_lines(lane.trouble.message, width, 3, TROUBLE)
    if lane.phase in STAGES and not lane.points:
        return [*pane.progress(1), *readings["knobs"][:1]]
    names = [name for name in _DETAILS if name not in shown]
    return [row for name in names for row in (readings[name][:1] if name == "knobs" else readings[name])]


_LEAD_CELLS = 4


def _verdict_rows(analysis: Analysis, view: Display, width: int, height: int) -> list[Row]:
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


Rows: TypeAlias = Sequence[Row]
MIN_PANE_WIDTH, MIN_PANE_HEIGHT, MIN_HEIGHT_ALONE = 40, 12, 6
HEIGHT_WITH_TABS, HEIGHT_WITH_STATUS = 30, 18


@dataclass(frozen=True, slots=True)
class RaceFrame:
    """The rows above and below the panes, and the panes in `columns`."""

    above: Rows
    below: Rows
    scales: Mapping[str, Scale]
    panes: Mapping[int, Rows]
    columns: int = 1
    per_page: int = 0
    """Lanes that fit as panes."""
    verdict: int = 0
    """Rows of the verdict."""

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
        return RaceFrame(_filled(rows, width, height), (), view.scales, {})
    has_tabs, has_status = height >= HEIGHT_WITH_TABS, height >= HEIGHT_WITH_STATUS
    room = height - 2 - has_tabs - has_status - (replay is not None)
    most = 0 if count == 1 else 1 if height < 20 else 2 if height < 30 else 3
    if shows(snapshot, view):
        spare = max(room - MIN_PANE_HEIGHT, min(2, room - count - 1))  # beside panes, or a table of lanes
        most = max(1, min(height // 2, spare))
    verdict = _verdict_rows(analysis, view, width, most)
    if view.verdict[:2] == (width, height):  # a temporary note must not move the panes
        verdict += [BLANK] * (min(view.verdict[2], most) - len(verdict))
    room -= len(verdict)
    lanes, columns, per_page = _arranged(analysis, view, width, room)
    hides = not has_status and 0 < len(lanes) < count and not view.stopping
    keys = keys_row(snapshot, view, width, hides=hides) if replay is None else replay_keys_row(replay, view, width)
    tabs = [tab_row(view.tabs, "race", view.keys, width, alone=count == 1)] if has_tabs else []
    above = _filled([*tabs, header_row(analysis, width), *verdict], width)
    status = [status_row(snapshot, view, per_page if lanes else 0, width)] if has_status else []
    timeline = [timeline_row(replay, width)] if replay is not None else []
    below = _filled([*status, *timeline, message_row if message and not has_status else keys], width)
    if not lanes:
        rows = _lane_table(analysis, view, width, room)
        if not count:
            reason = styled_lines(view.no_race, width - 3, room - 3, strong(TROUBLE), "   ")
            text = "   another scenario may work; see the keys below"
            rows = [BLANK, *reason, ((text if reason else "   examining the machine and its devices…", TEXT),)]
        above += _filled(rows, width, room)
        return RaceFrame(above, below, view.scales, {}, per_page=per_page, verdict=len(verdict))
    sizes = [*itertools.product(_divided(room, -(-len(lanes) // columns)), _divided(width, columns))]
    scaled = replace(view, scale=OWN) if view.zoomed else view
    charts = {wide: charts_of(snapshot, scaled, chart_width(wide)) for wide in {wide for _, wide in sizes}}
    panes = {
        wide: [PaneRows(analysis, lane, view, wide - FRAME_CELLS) for lane in range(count)] for wide in charts
    }
    drawn = {
        lane: panes[wide][lane].rows(high, heights_of(panes[wide]), charts[wide])
        for lane, (high, wide) in zip(lanes, sizes, strict=False)
    }
    return RaceFrame(above, below, charts[sizes[0][1]].scales, drawn, columns, per_page, len(verdict))


def _filled(rows: Rows, width: int, height: int | None = None) -> list[Row]:
    return [fit(row, width) for row in [*rows, *[BLANK] * (height or 0)][:height]]


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

"""The table of lanes that do not fit as panes."""

from __future__ import annotations

from collections.abc import Callable, Container
from operator import itemgetter

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.series_layout import DASH
from tfmon.model.lane_state import STAGES
from tfmon.ui.render import lifecycle, machine_rows
from tfmon.ui.render.pane import PaneRows, phase_text
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, fit, fitting_name, styled_lines
from tfmon.ui.render.style import STRONG, TROUBLE, lane_style, link, strong
from tfmon.ui.render.table import BAR_HEAD, interval_bar, reach_of
from tfmon.ui.source import Display

_ID_CELLS, _GAP, _LEAST_NAME = 5, 2, 8
_DETAILS = ("step", "loss", "knobs", "bottleneck", "help", "time", "cpu", "memory")


def lane_table(analysis: Analysis, view: Display, width: int, height: int) -> list[Row]:
    """Return a heading and the row of each lane, with readings below if they fit."""
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
        name = fitting_name(machine_rows.lane_names(analysis.snapshot, lane), room)
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
    lane, now_ns = analysis.lanes[index].lane, analysis.snapshot.at_ns
    readings = PaneRows(analysis, index, view, width).readings
    if lane.trouble is not None:
        return styled_lines(lane.trouble.message, width, 3, TROUBLE)
    if lane.phase in STAGES and not lane.points:
        return [*lifecycle.progress_rows(lane, now_ns, width, 1, lane_style(index)), *readings["knobs"][:1]]
    names = [name for name in _DETAILS if name not in shown]
    return [row for name in names for row in (readings[name][:1] if name == "knobs" else readings[name])]

"""The table of a race whose lanes do not fit as panes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container
from operator import itemgetter

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.series_layout import DASH
from tfmon.model.lane_state import STAGES
from tfmon.ui.render import lifecycle, machine_rows, reading_rows
from tfmon.ui.render.pane import phase_text
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, fit, fitting_name, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, lane_style, link, strong
from tfmon.ui.render.table import BAR_HEAD, interval_bar, reach_of
from tfmon.ui.source import Display

_ID_CELLS, _GAP, _LEAST_NAME = 5, 2, 8


def lane_table(analysis: Analysis, view: Display, width: int, height: int) -> list[Row]:
    """Return a heading and a row for each lane, with its readings below if there is room."""
    verdict, count = analysis.verdict, len(analysis.lanes)
    columns = _columns(analysis, width)
    room = width - _ID_CELLS - sum(len(head) + _GAP for head, _ in columns) - 1
    heads = "".join(f"{'':{_GAP}}{head}" for head, _ in columns)
    rows: list[Row] = [fit(((" " * _ID_CELLS + "lane".ljust(room) + heads, DIM),), width)]
    each = max(0, (height - 1) // max(1, count) - 1)
    shown = {head.strip() for head, _ in columns}
    for index, found in enumerate(analysis.lanes):
        lane = found.lane
        mark = "▲" if lane.spec.name == verdict.winner else " "
        name = fitting_name(machine_rows.lane_names(analysis.snapshot, lane), room)
        row: list[Span] = [
            (f" {mark} {lane.spec.id} ", link(strong(lane_style(index)), f"focus_lane({index})")),
            (name.ljust(room), STRONG if lane.spec.name == view.focused else TEXT),
        ]
        for _, cells in columns:
            row += [(" " * _GAP, TEXT), cells[index]]
        rows.append(fit(row, width))
        details = _details(analysis, index, width - _ID_CELLS, shown)[:each]
        rows += [((" " * _ID_CELLS, TEXT), *detail) for detail in details]
    return rows


def _columns(analysis: Analysis, width: int) -> list[tuple[str, list[Span]]]:
    """Return the columns that fit, each with its heading and its cells."""
    verdict, lanes = analysis.verdict, [found.lane for found in analysis.lanes]
    ranks = {rank.lane: rank.ratio for rank in verdict.ranking}
    slowest = next((lane.spec.id for lane in lanes if lane.spec.name == verdict.slowest), "")
    speeds = [found.recent.examples_per_s for found in analysis.lanes]
    steps, reach = [lane.steady.step_ms(0.5) for lane in lanes], reach_of(ranks.values())
    ratios = [ranks.get(lane.spec.name) for lane in lanes]
    factors = [
        "1×" if lane.spec.id == slowest else units.ratio(one.value) if one and one.is_narrow else DASH
        for lane, one in zip(lanes, ratios, strict=True)
    ]
    phases = [(phase_text(lane, analysis.snapshot).ljust(9), TROUBLE if lane.trouble else DIM) for lane in lanes]
    # The most important columns come first.
    every: list[tuple[int, str, list[Span]]] = [
        (0, "ex/s".rjust(9), [(_known(speed, units.rate, 9), STRONG) for speed in speeds]),
        (3, "step p50".rjust(9), [(_known(step, units.milliseconds, 9), TEXT) for step in steps]),
        (4, "loss".rjust(9), [(_known(lane.totals.losses.last, units.loss, 9), TEXT) for lane in lanes]),
        (1, f"over {slowest}".rjust(8) if slowest else " " * 8, [(factor.rjust(8), TEXT) for factor in factors]),
        (5, "state".ljust(9), phases),
        (2, BAR_HEAD, [(interval_bar(one, reach), TEXT) for one in ratios]),
    ]
    while len(every) > 1 and _ID_CELLS + _LEAST_NAME + sum(len(head) + _GAP for _, head, _ in every) >= width:
        every.pop()
    return [(head, cells) for _, head, cells in sorted(every, key=itemgetter(0))]


def _known(value: float | None, write: Callable[[float], str], width: int) -> str:
    return (DASH if value is None else write(value)).rjust(width)


def _details(analysis: Analysis, index: int, width: int, shown: Container[str]) -> list[Row]:
    snapshot, found, accent = analysis.snapshot, analysis.lanes[index], lane_style(index)
    lane, shares = found.lane, found.bottleneck.shares if found.bottleneck is not None else None
    help = found.bottleneck.help if found.bottleneck is not None and snapshot.over else ""
    cores = snapshot.machine_of(lane).usable_cores
    if lane.trouble is not None:
        return [((line, TROUBLE),) for line in wrap(lane.trouble.message, width, 3)]
    if lane.phase in STAGES and not lane.points:
        stage = lifecycle.progress_rows(lane, snapshot.at_ns, width, 1, accent)
        return [*stage, *reading_rows.knobs_rows(lane, width, 1)]
    return [
        *([] if "step p50" in shown else [reading_rows.step_row(lane, width)]),
        *([] if "loss" in shown else [reading_rows.loss_row(lane)]),
        *reading_rows.knobs_rows(lane, width, 1),
        *reading_rows.bottleneck_rows(found.bottleneck, width, 2),
        *(((line, STRONG),) for line in wrap(help, width, 2)),
        reading_rows.time_row(shares, width, accent),
        *(
            []
            if snapshot.over
            else [reading_rows.cpu_row(lane, cores, width, accent), reading_rows.memory_row(lane)]
        ),
    ]

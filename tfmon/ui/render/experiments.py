"""What the pages of experiments show: the advice that was tried on a lane, and the curve of a crossover. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.crossover import Curve, CurvePoint, ahead_text, ended_text
from tfmon.analysis.curve_chart import LABEL_CELLS, draw_curve
from tfmon.analysis.history import HEADS
from tfmon.analysis.tuning import ALL_TRIED, best_text, change_text, gain_text, outcome_text
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_state import LaneState
from tfmon.model.race import KEPT, STOPPED, UNDONE, Attempt, CrossoverState, TuneState
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, cell_len, entry, fit, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, lane_style, strong

__all__ = ["LABEL_CELLS", "chart_rows", "crossover_rows", "history_rows", "tune_rows"]

_CHANGE_CELLS, _GAIN_CELLS = 26, 34


def history_rows(analysis: Analysis, width: int) -> list[Row]:
    """Return the history as a table; where that is too wide, each change with what came of it beside its time."""
    heads, *cells = [HEADS, *(row.cells(analysis.snapshot) for row in analysis.history)]
    if not cells:
        return [(("   no setting was changed yet", TEXT),)]
    sizes = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if sum(sizes) + 3 * len(sizes) > width:
        return [row for at, *told in cells for row in entry(at, "   ".join(filter(None, told)), width, STRONG)]
    lines = ["   ".join(map(str.ljust, row, sizes)) for row in (heads, *cells)]
    return [((f" {line}", TEXT if place else DIM),) for place, line in enumerate(lines)]


def tune_rows(analysis: Analysis, lane: LaneState, width: int) -> list[Row]:
    """Return what bounds a lane, the table of what was tried on it, the best settings and their code."""
    found, state = analysis.lane(lane.spec.name).bottleneck, analysis.snapshot.tuned
    rows: list[Row] = []
    if found is not None:
        rows += [((f" {line}", STRONG),) for line in wrap(f"now {found.text}", width - 2, 2)]
        if found.advice and (state is None or state.over):
            advice = "may help: " + ", ".join(f"{one.text} ({one.purpose})" for one in found.advice)
            rows += [((f" {line}", TEXT),) for line in wrap(advice, width - 2, 4)]
    if state is None:
        return [fit(row, width) for row in rows]
    if state.lane == lane.spec.name:
        rows += [((f" {line}", TEXT),) for line in wrap(_tuning_progress(analysis, state), width - 2, 2)]
    attempts = [one for one in state.attempts if one.lane == lane.spec.name]
    if attempts:
        head = f" {'tried':<{_CHANGE_CELLS}}{'throughput':<{_GAIN_CELLS}}{'pairs':>5}   outcome"
        rows += [BLANK, ((head, DIM),), *(_attempt_row(analysis, one) for one in attempts)]
    if analysis.tuning is not None and state.lane == lane.spec.name and state.over:
        best = analysis.tuning.best
        rows += [BLANK, ((f" {best_text(best)}", STRONG),), *(((f"   {line}", TEXT),) for line in best.code)]
    return [fit(row, width) for row in rows]


def _tuning_progress(analysis: Analysis, state: TuneState) -> str:
    if not state.over:
        return analysis.news
    if state.ended:
        return f"ended early: {state.ended}"
    return ALL_TRIED if state.everything else ""


def _attempt_row(analysis: Analysis, attempt: Attempt) -> Row:
    running = analysis.tuning if not attempt.outcome else None
    estimate = running.gain if running is not None else attempt.gain
    gained = gain_text(estimate) if estimate is not None else "–"
    pairs = estimate.pairs if estimate is not None else running.pairs if running is not None else 0
    kept = attempt.outcome == KEPT
    return (
        (f" {change_text(attempt):<{_CHANGE_CELLS}}", STRONG if kept else TEXT),
        (f"{gained:<{_GAIN_CELLS}}{pairs:>5}   ", TEXT if attempt.outcome not in (UNDONE, STOPPED) else DIM),
        (outcome_text(attempt), STRONG if kept else DIM),
    )


# ---------------------------------------------------------------- crossover


def lane_rows(snapshot: Snapshot, titles: Mapping[str, str], width: int) -> list[Row]:
    """Return a row for each lane of these names: its id, and what it is called."""
    places = [place for place, lane in enumerate(snapshot.lanes) if lane.spec.name in titles]
    lanes = [(snapshot.lanes[place].spec, strong(lane_style(place))) for place in places]
    return [fit(((f"   {lane.id}  ", style), (titles[lane.name], TEXT)), width) for lane, style in lanes]


def crossover_rows(analysis: Analysis, width: int, height: int) -> list[Row]:
    """Return the answer, how far it is, the chart and the table, as far as they have room."""
    snapshot, curve, experiment = analysis.snapshot, analysis.curve, analysis.snapshot.experiment
    if curve is None or not isinstance(experiment, CrossoverState):
        return []
    names = [lane.spec.name for lane in snapshot.lanes]
    places = [names.index(name) for name in experiment.lanes]
    ids = (snapshot.lanes[places[0]].spec.id, snapshot.lanes[places[1]].spec.id)
    styles = (lane_style(places[0]), lane_style(places[1]))
    rows = [*lane_rows(snapshot, dict(zip(experiment.lanes, curve.titles, strict=True)), width), BLANK]
    rows += [((f" {line}", STRONG),) for line in wrap(curve.text, width - 2, 3)]
    rows += [((f" {ended_text(experiment)}", DIM),), BLANK] if experiment.over else [BLANK]
    table = _table(curve, ids, styles)
    chart_height = min(16, height - len(rows) - len(table) - 1)
    if chart_height >= 6:
        chart = chart_rows(curve, ids, styles, min(width - 2, 100), chart_height)
        rows += [*chart, BLANK] if chart else []
    return [fit(row, width) for row in (*rows, *table)]


def _table(curve: Curve, ids: tuple[str, str], styles: tuple[str, str]) -> list[Row]:
    head: Row = (
        (f" {short_name(curve.knob):>12}", DIM),
        (f"{ids[0]} ex/s".rjust(14), strong(styles[0])),
        (f"{ids[1]} ex/s".rjust(14), strong(styles[1])),
        ("   ahead", DIM),
    )
    return [head, *(_table_row(place, ids) for place in curve.places)]


def _table_row(place: CurvePoint, ids: tuple[str, str]) -> Row:
    value: tuple[str, str] = (f" {show(place.value):>12}", TEXT)
    if place.refused:
        return (value, (f"   {place.refused}", DIM))
    speeds = [units.rate(one.value) if one else "–" for one in (place.first, place.second)]
    ahead = ("   " + ahead_text(place, ids), STRONG if place.sure else DIM)
    return (value, (f"{speeds[0]:>14}{speeds[1]:>14}", TEXT), ahead)


def chart_rows(curve: Curve, ids: tuple[str, str], styles: tuple[str, str], width: int, height: int) -> list[Row]:
    """Return the chart with its axes: `height` rows of at most `width` cells; none where there is no room."""
    chart = draw_curve(curve, ids, width, height)
    if chart is None:
        return []

    def style(cell: tuple[str, int | None]) -> str:
        character, lane = cell
        if lane is None:
            return TEXT
        return strong(styles[lane]) if character.isalpha() else styles[lane]

    rows: list[Row] = []
    for label, line in zip(chart.labels, chart.grid, strict=True):
        runs = [("".join(text for text, _ in cells), name) for name, cells in itertools.groupby(line, style)]
        rows.append(((label, DIM), *runs))
    return [*rows, *(((text, DIM),) for text in chart.foot)]

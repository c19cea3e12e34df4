"""The sections of series: the table and the curves of any, and what a race says of a crossover and a tuning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.series import SeriesCurve, SeriesTable, draw_curve
from tfmon.analysis.series_tables import crossover_table, tuning_table
from tfmon.reports import charts
from tfmon.reports.charts import Series
from tfmon.reports.sections import VERDICT, Block, Chart, Code, Lines, Note, NoteKind, Table

CHART = (90, 16)
"""Cells and rows of a chart in characters."""


def table_of(table: SeriesTable, about: str = "") -> Table:
    """Return the table of a series."""
    left = [place for place, column in enumerate(table.columns) if not column.right]
    rows = [[text for text, _ in row.cells] for row in table.rows]
    values = [[_number(value) for _, value in row.cells] for row in table.rows]
    return Table([[column.name for column in table.columns], *rows], about, left=left, values=values)


def _number(value: object) -> float | None:
    """Return what a page sorts by; None for words."""
    if isinstance(value, tuple):
        value = value[1] if value[0] == 0 else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def charts_of(table: SeriesTable) -> Iterator[Chart]:
    """Yield the curves of a series that have a point."""
    for curve in table.curves:
        if any(point is not None for line in curve.lines for point in line.points):
            yield _chart(curve)


def _chart(curve: SeriesCurve) -> Chart:
    series, spans = [], []
    for line in curve.lines:
        known = [(float(at), one) for at, one in zip(curve.values, line.points, strict=True) if one is not None]
        points = [(at, one.value, *curve.texts(one)) for at, one in known]
        series.append(Series(line.id if line.name else "", line.name, line.place, points))
        spans += [(series[-1].key, at, one.low, one.high) for at, one in known]
    legend = "; ".join(f"{line.id}: {line.name}" for line in curve.lines if line.name)
    about = f"{curve.about} {legend}." if legend else curve.about
    knob = curve.knob.replace("_", " ")
    spec = charts.curve(series, curve.axis, knob, f"{curve.title}. {about}", crossings=curve.marks, spans=spans)
    drawn = draw_curve(curve, *CHART)
    return Chart(curve.title, about, spec, drawn=drawn.lines if drawn else ())


# ---------------------------------------------------------------- of a race


def is_all(found: Analysis) -> bool:
    """Return whether a race was there for its experiment: it answers no other question."""
    snapshot = found.snapshot
    if found.curve is not None:
        began = [one.experiment is not None for one in snapshot.periods]
        return not any(began) or began[-1]
    return found.tuning is not None and len(snapshot.lanes) == 1


def answer(found: Analysis) -> Iterator[Note | Code]:
    """Yield what came of the crossover or the tuning of a race; nothing where it answers another question, too."""
    table = (crossover_table(found) or tuning_table(found)) if is_all(found) else None
    if table is not None:
        yield from _told(table, VERDICT)


def crossover(found: Analysis) -> tuple[Block, ...]:
    """Return the curve of the last crossover with its table; nothing where there was none."""
    table = crossover_table(found)
    if table is None:
        return ()
    rows = table_of(table)
    drawn: list[Block] = [replace(chart, about=table.curves[0].about, table=rows) for chart in charts_of(table)]
    return (*(drawn or [rows]), Lines([f"{line.id}: {line.name}" for line in table.curves[0].lines]))


def tuning(found: Analysis) -> tuple[Block, ...]:
    """Return the changes that were tried, what each gained, and the best; nothing where there were none."""
    table = tuning_table(found)
    if table is None:
        return ()
    tried = (table_of(table),) if table.rows else ()
    return (*tried, *([] if is_all(found) else _told(table)))


def _told(table: SeriesTable, kind: NoteKind = "") -> Iterator[Note | Code]:
    """Yield the answer of a series, the code that does the same, and why it ended."""
    yield from (Note(line, kind) for line in table.answer)
    if table.code:
        yield Code("\n".join(table.code))
    yield from map(Note, table.notes)

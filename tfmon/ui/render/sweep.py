"""The table and the curve of a sweep, as entries and rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tfmon import units
from tfmon.analysis.curve_chart import draw_series
from tfmon.analysis.sweep import BASELINE, BEATEN, FAILED, MEASURED, OPEN, OUTCOMES, REFUSED, Found
from tfmon.analysis.sweep import Row as Ranked
from tfmon.analysis.sweep_text import SweepCurve, answer, curves_of, learns_text, settings_text, troubles
from tfmon.model.knobs import short_name, show
from tfmon.ui.render.rows import Row, Span, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, TROUBLE, WARN, lane_style
from tfmon.ui.render.table import Column, Entry

MOST_SERIES = 4
"""Series of a curve that are drawn; the others are in the table."""
IDS = "ABCD"
MOST_TROUBLES = 3
_NONE = "–"
_MEASURED = {"ratio": 8, "95 % interval": 14, "ex/s": 9, "memory": 9, "limited by": 11, "place": 16}
"""The columns of what is measured, and how many cells each takes at most."""
_DROPPED = ("place", "limited by", "memory")
_STATE_CELLS = 24


def columns_of(found: Found, width: int) -> tuple[Column, ...]:
    """Return the columns that have room: the knobs, then what was measured; the least useful ones go first."""
    plan = found.state.plan
    knobs = [Column(short_name(knob), 16) for knob in plan.over]
    kinds = [Column("device", 8)] if len(plan.kinds) > 1 else []
    taken = sum(max(len(column.name) + 1, 8) + 2 for column in (*knobs, *kinds))
    shown = dict(_MEASURED)
    for name in _DROPPED:
        if taken + sum(most + 2 for most in shown.values()) + _STATE_CELLS > width:
            del shown[name]
    return (*knobs, *kinds, *(Column(name, most) for name, most in shown.items()), Column("state"))


def entry_of(row: Ranked, found: Found, columns: Sequence[Column], *, best: bool) -> Entry:
    """Return a combination as an entry of the list, with these columns."""
    known, figures, ratio = row.combination, row.combination.figures, row.ratio
    speed, memory = (figures.examples_per_s, figures.memory_bytes) if figures else (None, None)
    place = row.place or (figures.place if figures else "")
    limited = figures.bottleneck if figures else ""
    factor, interval = _NONE, _NONE
    if row.outcome == BASELINE:
        factor, interval = "1×", ""
    elif ratio is not None:
        factor, interval = units.ratio_in(ratio.value, ratio.low, ratio.high)
    style = STRONG if best else TEXT if ratio is not None and ratio.low > 1 else DIM
    measured: dict[str, tuple[Span, object]] = {
        "ratio": ((f"{factor:>6}{'*' if row.learns and ratio else ' '}", style), ratio.value if ratio else None),
        "95 % interval": ((interval, style), ratio.high - ratio.low if ratio else None),
        "ex/s": ((f"{units.rate(speed) if speed else _NONE:>7}", TEXT), speed),
        "memory": ((f"{units.memory(memory) if memory else _NONE:>8}", DIM), memory),
        "limited by": ((limited or _NONE, DIM), limited or None),
        "place": ((place or _NONE, DIM), place or None),
    }
    outcome = OUTCOMES.index(row.outcome) if row.outcome != OPEN else -2 if row.place else -1
    cells: list[tuple[Span, object]] = [
        *(((show(value), STRONG if best else TEXT), _rank(value)) for value in known.settings.values()),
        *([((known.kind, TEXT), known.kind)] if len(found.state.plan.kinds) > 1 else []),
        *(measured[column.name] for column in columns if column.name in measured),
        ((_state_text(row), _style_of(row)), (outcome, row.state)),
    ]
    mark = "✗" if row.outcome == FAILED else "•" if row.place else " "
    texts, ranks = tuple(text for text, _ in cells), tuple(rank for _, rank in cells)
    return Entry(known.number, texts, ranks, whole=_about(row), mark=mark)


class Entries:
    """The entries of a sweep, made again only for what has changed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Ranked, bool, Entry]] = {}
        self._columns: Sequence[Column] = ()

    def of(self, found: Found, columns: Sequence[Column]) -> list[Entry]:
        """Return the entries, the best first."""
        if columns != self._columns:
            self._known, self._columns = {}, columns
        bests = {id(found.best(kind)) for kind in found.state.plan.kinds}
        entries = []
        for row in found.ranked:
            best = id(row) in bests and row.outcome != BASELINE
            known = self._known.get(row.number)
            if known is None or known[0] is not row or known[1] != best:
                known = self._known[row.number] = (row, best, entry_of(row, found, columns, best=best))
            entries.append(known[2])
        return entries


def _rank(value: object) -> tuple[int, float, str]:
    """Return what a value sorts by: numbers by their size, before words."""
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))


def _state_text(row: Ranked) -> str:
    if row.reason and row.outcome in (REFUSED, FAILED):
        return f"{row.state}: {row.reason}"
    pairs = len(row.combination.pairs)
    return f"{row.state}, {units.several(pairs, 'pair')}" if row.outcome == OPEN and pairs else row.state


def _style_of(row: Ranked) -> str:
    styles = {FAILED: TROUBLE, REFUSED: WARN, MEASURED: TEXT, BEATEN: DIM}
    return styles.get(row.outcome, STRONG if row.place else DIM)


def _about(row: Ranked) -> str:
    """Say all that there is to say about a combination."""
    known, figures = row.combination, row.combination.figures
    said = [settings_text(known.settings)]
    if row.outcome == BASELINE:
        said.append("the baseline: 1× by definition")
    if known.pairs:
        pairs, visits = units.several(len(known.pairs), "pair"), units.several(known.visits, "visit")
        said.append(f"{pairs} in {visits}, raced for {units.about(known.measured_s)}")
    if row.learns:
        said.append(f"* {learns_text(row)}")
    if figures is not None and figures.baseline_examples_per_s:
        said.append(f"the baseline there {units.rate(figures.baseline_examples_per_s)} ex/s")
    if figures is not None and figures.bottleneck_text:
        said.append(figures.bottleneck_text)
    if figures is not None and figures.memory_missing:
        said.append(f"memory n/a ({figures.memory_missing})")
    if row.reason:
        said.append(row.reason)
    return " · ".join(said)


def answer_rows(found: Found, unsaved: str, width: int) -> list[Row]:
    """Return what went wrong, that nothing is saved for one, and the best combination in words."""
    rows: list[Row] = [((f" {line}", WARN),) for line in [unsaved, *troubles(found)[-MOST_TROUBLES:]] if line]
    for line in answer(found):
        rows += [((f" {part}", STRONG),) for part in wrap(line, width - 2, 2)]
    return rows


def curve_rows(found: Found, chosen: int, width: int, height: int) -> list[Row]:
    """Return the ratio over the values of a knob, with what its series are; nothing where there is no room."""
    curves = curves_of(found)
    if not curves:
        return []
    curve = curves[chosen % len(curves)]
    series = curve.series[:MOST_SERIES]
    legend = _legend(curve, width, several=len(found.state.plan.kinds) > 1)
    chart = draw_series(curve.values, [points for _, points in series], IDS, width - 2, height - len(legend))
    if chart is None:
        return legend
    rows = list(legend)
    for label, cells in zip(chart.labels, chart.grid, strict=True):
        spans: list[Span] = [(f" {label}", DIM)]
        spans += [(character, TEXT if lane is None else lane_style(lane)) for character, lane in cells]
        rows.append(tuple(spans))
    return [*rows, *(((f" {line}", DIM),) for line in chart.foot)]


def _legend(curve: SweepCurve, width: int, *, several: bool) -> list[Row]:
    """Return what is drawn and which letter is which series, in one row if there is room."""
    where = f" on {curve.kind}" if several else ""
    title: Row = ((f" ratio to the baseline over {curve.knob.replace('_', ' ')}{where}", STRONG),)
    series: list[Span] = []
    for number, (others, _) in enumerate(curve.series[:MOST_SERIES]):
        if others:
            series += [("   ", TEXT), (f"{IDS[number]} {settings_text(others)}", lane_style(number))]
    more = len(curve.series) - MOST_SERIES
    if more > 0:
        series.append((f"   and {more} more in the table", DIM))
    whole: Row = (*title, *series)
    return [whole] if sum(len(text) for text, _ in whole) <= width else [title, tuple(series)]

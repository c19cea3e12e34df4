"""The chart of a lane: its scale, the area and the time axis; and that the display does not follow. Pure."""

from __future__ import annotations

import functools

from tfmon import units
from tfmon.model.lane_state import DONE, PAUSED, LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.keys import key_of
from tfmon.ui.render import chart, series
from tfmon.ui.render.rows import BLANK, Row, crop, cut
from tfmon.ui.render.series import metric_of
from tfmon.ui.render.style import DIM, KEY, WARN, faint, strong
from tfmon.ui.view import LOG, OWN, SHARED, SPANS_S, Scale, View
from tfmon.units import Charset

FLAT = 0.12
"""A chart that stays below this share of a shared scale offers a scale of its own."""
_MIDDLE_HEIGHT = 9
"""From so many rows on, the scale says the value half way up, too."""
_SCALE_WORDS = {SHARED: "", OWN: " · own scale", LOG: " · log scale"}


def chart_rows(
    lane: LaneState, snapshot: Snapshot, view: View, width: int, height: int, accent: str
) -> tuple[Row, ...]:
    """Return what the view chose over time: `height` rows with the time axis, `width` cells with the scale."""
    cells = width - chart.LABEL_CELLS
    metric, axis = metric_of(view), series.axis_of(snapshot, view, cells)
    scale = series.of_lanes(view.scales, lane)
    low = series.scale_words(metric, scale.low) if scale.high > scale.low else "0"
    plain = (metric.id, view.scale, view.span_s) == ("throughput", SHARED, SPANS_S[0])
    span = "" if view.span_s == SPANS_S[0] else f" · {view.span_s // 60} min"
    about = "" if plain else crop(f" {metric.words}{_SCALE_WORDS[view.scale]}{span} ", cells)
    foot = chart.axis_row(lane.knob_marks, axis, time_words(snapshot, view))
    if reason := series.absent(lane, metric):
        area = _said(f"n/a ({reason})", cells, height - 1)
    else:
        per_cell = chart.parts_per_cell(view.charset)
        values = series.values(lane, metric, series.end_ns(snapshot), axis, per_cell)
        shares = _shares(scale, values)
        if plain and _flat(shares):
            about = crop(f" press {key_of('chart.scale', view.keys)} for its own scale ", cells)
        top = series.scale_words(metric, scale.high) if scale.high > scale.low else ""
        half = series.scale_words(metric, series.middle(scale)) if top and height > _MIDDLE_HEIGHT else ""
        edge = faint(accent) if lane.phase in (PAUSED, DONE) else accent
        area = _area(shares, (top, half), height - 1, view.charset, (edge, faint(accent)), about)
    return (*area, ((f"{low} ┴".rjust(chart.LABEL_CELLS), DIM), (foot, DIM)))


@functools.lru_cache(maxsize=64)
def _flat(shares: tuple[float | None, ...]) -> bool:
    """Return whether all columns are so low that their changes cannot be seen."""
    known = [share for share in shares if share is not None]
    return bool(known) and max(known) < FLAT


@functools.lru_cache(maxsize=64)
def _shares(scale: Scale, values: tuple[float | None, ...]) -> tuple[float | None, ...]:
    """Return how high each column is; cached until a value changes."""
    return tuple(series.share(scale, value) for value in values)


@functools.lru_cache(maxsize=64)
def _area(
    shares: tuple[float | None, ...],
    labels: tuple[str, str],
    height: int,
    charset: Charset,
    colours: tuple[str, str],
    about: str,
) -> tuple[Row, ...]:
    """Return the area under the values, with the scale at its left; cached until a value changes.

    Args:
        shares: How high each column is.
        labels: The values at the top of the scale and half way up.
        height: Rows.
        charset: What it is drawn with.
        colours: Styles of the tops of the columns, and of what is below.
        about: What is drawn, written over the beginning of the top row; "" for nothing.
    """
    edge, inside = colours
    lines = chart.clipped(chart.plot(shares, 1.0, height, charset), shares)
    blank_label = " " * (chart.LABEL_CELLS - 1) + "│"
    rows: list[Row] = []
    for place, line in enumerate(lines):
        above = lines[place - 1] if place else " " * len(line)
        label = labels[0] if place == 0 else labels[1] if place == height // 2 else ""
        tick = chart.scale_label(label) if label or place == 0 else blank_label
        runs = tuple((text, edge if at_top else inside) for text, at_top in chart.edge_runs(line, above))
        if place == 0 and about:
            runs = ((about, DIM), *cut(runs, len(about), len(line)))
        rows.append(((tick, DIM), *runs))
    return tuple(rows)


def _said(words: str, cells: int, height: int) -> tuple[Row, ...]:
    """Return rows that say why there is no chart."""
    label = " " * (chart.LABEL_CELLS - 1) + "│"
    rows: list[Row] = [((label, DIM),) for _ in range(height)]
    if rows:
        rows[height // 2] = ((label, DIM), (crop(f" {words}", cells), DIM))
    return tuple(rows)


def time_words(snapshot: Snapshot, view: View) -> tuple[str, str]:
    """Return what is written at the two ends of the time axis: how long ago, or the time of the race."""
    if not view.frozen:
        span = f"{view.span_s} s" if view.span_s < 120 else f"{view.span_s // 60} min"
        return (f"{span} before", "end") if snapshot.over else (f"{span} ago", "now")
    end_ns = series.end_ns(snapshot)
    return _clock(snapshot, end_ns - view.span_s * 1_000_000_000), _clock(snapshot, end_ns)


def _clock(snapshot: Snapshot, at_ns: int) -> str:
    """Write a moment as the time since the start signal."""
    return units.signed_clock((at_ns - (snapshot.race.started_ns or snapshot.at_ns)) / 1e9)


def frozen_row(view: View) -> Row:
    """Return that the display does not follow, and the key that goes back to now; blank where it follows."""
    if not view.frozen:
        return BLANK
    state = (f"not following · {units.clock(view.behind_s)} behind", strong(WARN))
    return (state, (" · ", DIM), (key_of("follow", view.keys), KEY), (" to now", DIM))

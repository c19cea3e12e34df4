"""Charts as Vega-Lite specifications."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tfmon import units
from tfmon.analysis.series_layout import SeriesCurve
from tfmon.model.fast_dataclass import dataclass

Spec = dict[str, Any]
Point = tuple[float, float | None, str, str]
TALL, LOW = 300, 190
COLOURS = 4
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
MOST_TICKS = 12
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 18_000, 36_000)
_SHOWN = {"filter": "indexof(hidden, datum.s) < 0"}
_CLOCK = (
    "(datum.value < 0 ? '-' : '') + (abs(datum.value) >= 3600 ? floor(abs(datum.value) / 3600) + ':' : '')"
    " + (abs(datum.value) >= 3600 ? pad(floor(abs(datum.value) % 3600 / 60), 2, '0', 'left') :"
    " floor(abs(datum.value) / 60)) + ':' + pad(floor(abs(datum.value) % 60), 2, '0', 'left')"
)


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a chart."""

    key: str
    name: str
    index: int
    points: Sequence[Point]


Shade = tuple[str, float, float]
"""A shaded period: key of a series, begin and end in seconds."""
Line = tuple[str, float, str]
"""A marked moment: key of a series, second, and text."""


def number(field: str, title: str | None, *, axis: Spec | None = None, **scale: Any) -> Spec:  # noqa: ANN401
    """Return the encoding of a number."""
    return {"field": field, "type": "quantitative", "title": title, "axis": axis or {}, "scale": scale}


def word(field: str, title: str | None = None, **more: Any) -> Spec:  # noqa: ANN401
    """Return the encoding of a word."""
    return {"field": field, "type": "nominal", "title": title, **more}


def _time(rows: Sequence[Spec]) -> Spec:
    since_s, until_s = (pick((row["t"] for row in rows), default=0.0) for pick in (min, max))
    step_s = next((step for step in _STEPS_S if (until_s - since_s) / step <= MOST_TICKS), _STEPS_S[-1])
    ticks = list(range(math.ceil(since_s / step_s) * step_s, math.floor(until_s) + 1, step_s))
    labels = {"labelExpr": _CLOCK, "labelFlush": False, "labelOverlap": "greedy", "labelSeparation": 8}
    return number("t", "time since the start signal", axis={**labels, "grid": False, "values": ticks}, nice=False)


_RULE = {"type": "rule", "stroke": "currentColor", "strokeDash": [3, 3], "opacity": 0.6}


def over_time(
    series: Sequence[Series],
    title: str,
    about: str,
    *,
    shades: Iterable[Shade] = (),
    lines: Sequence[Line] = (),
    tall: bool = False,
    zero: bool = True,
    labels: bool = True,
) -> Spec:
    """Return a chart over time; `about` is for screen readers."""
    rows = [{**row, "at": units.signed_clock(row["t"])} for row in _rows(series)]
    across = _time(rows)
    tooltip = [word("n", "of"), word("at", "time"), word("w", title), word("d", "note")]
    value = number("v", title, zero=zero, axis=_digits(series))
    layers: list[Spec] = []
    shaded = [{"s": key, "t": round(since_s, 3), "u": round(until_s, 3)} for key, since_s, until_s in shades]
    if shaded:
        mark = {"type": "rect", "fill": "var(--shade)", "aria": False}
        layers.append(layer(shaded, mark, {"x": across, "x2": {"field": "u"}}))
    if lines:
        marked = [
            {"s": key, "t": round(at_s, 3), "l": text, "y": 2 + 13 * (index % 3)}
            for index, (key, at_s, text) in enumerate(lines)
        ]
        layers.append(layer(marked, _RULE, {"x": across}))
        if labels:
            style = {"type": "text", "align": "left", "baseline": "top", "dx": 3, "fill": "currentColor"}
            encoding = {"x": across, "y": {**number("y", None), "scale": None}, "text": word("l")}
            layers.append(layer(marked, {**style, "limit": 160}, encoding))
    layers.append(_lines(rows, series, across, value, tooltip))
    return chart(layers, about, TALL if tall else LOW)


def distribution(series: Sequence[Series], title: str, about: str) -> Spec:
    """Return a chart on a logarithmic axis."""
    axis = {"grid": False, "format": "~g", "labelOverlap": True}
    across = number("t", title, axis=axis, type="log", nice=False)
    tooltip = [word("n", "of"), word("d", "step time"), word("w", "share")]
    value = number("v", "% of the steps")
    lines = _lines(_rows(series), series, across, value, tooltip, mark="step", ends=False)
    return chart([lines], about, TALL - 60)


def curve(curve: SeriesCurve, about: str) -> Spec:
    """Return a chart over a knob's values, with their intervals."""
    series: list[Series] = []
    reaching: list[Spec] = []
    for line in curve.lines:
        key, both = line.id if line.name else "", zip(map(float, curve.values), line.points, strict=True)
        known = [(at, estimate) for at, estimate in both if estimate is not None]
        points = [(at, estimate.value, *curve.texts(estimate)) for at, estimate in known]
        series.append(Series(key, line.name, line.index, points))
        reaching += [{"s": key, "t": at, "v": estimate.low, "u": estimate.high} for at, estimate in known]
    knob, ticks = curve.knob.replace("_", " "), sorted({row["t"] for row in reaching})
    axis = {"format": "~g", "labelOverlap": True, "values": ticks}
    across = number("t", knob, axis=axis, type="log", base=2, nice=False, padding=12)
    tooltip = [word("n", "of"), word("t", knob), word("w", curve.axis), word("d", "95 % CI")]
    crossed = [layer([{"s": "", "t": at} for at in curve.marks], _RULE, {"x": across})] if curve.marks else []
    value = number("v", curve.axis, zero=True, axis=_digits(series))
    encoding = {"x": across, "y": value, "y2": {"field": "u"}, "color": _colour(series)}
    reach = layer(reaching, {"type": "rule", "opacity": 0.5, "strokeWidth": 3}, encoding)
    lines = _lines(_rows(series), series, across, value, tooltip, dots=True)
    return chart([*crossed, reach, lines], f"{curve.title}. {about}", TALL)


Bar = tuple[str, str, str, float]
"""Key, name, part, and its amount."""


def bars(rows: Sequence[Bar], parts: Sequence[str], about: str, *, share: bool = True) -> Spec:
    """Return stacked bars of shares of a step, or of seconds."""
    unit, scale = ("%", {"domain": [0, 100]}) if share else ("s", {})
    title = "% of the time of a step" if share else "s"
    values = [
        {"s": key, "n": name, "p": part, "o": parts.index(part), "v": round(size, 3), "w": f"{size:.1f} {unit}"}
        for key, name, part, size in rows
    ]
    colours = {"domain": list(parts), "range": [f"var(--part{index})" for index in range(len(parts))]}
    encoding = {
        "y": word("s", sort=None, axis={"labelFontWeight": "bold"}),
        "x": {**number("v", title), "scale": scale, "stack": "zero"},
        "color": word("p", legend=None, scale=colours),
        "order": {"field": "o", "type": "quantitative"},
        "tooltip": [word("n", "of"), word("p", "part"), word("w", "share" if share else "time")],
    }
    stacked = layer(values, {"type": "bar", "stroke": "var(--page)", "strokeWidth": 1}, encoding)
    return chart([stacked], about, 40 * len({key for key, *_ in rows}) + 10)


Difference = tuple[str, float, tuple[float, float] | None, str]


def diverging(bars: Sequence[Difference], title: str, about: str) -> Spec:
    """Return bars around zero; values are in ns, the axis in ms."""
    rows = [{"s": "", "p": name, "v": value / 1e6, "w": text} for name, value, _, text in bars]
    intervals = [(name, interval) for name, _, interval, _ in bars if interval is not None]
    spans = [{"s": "", "p": name, "v": low / 1e6, "u": high / 1e6} for name, (low, high) in intervals]
    down = word("p", sort=None, axis={"labelLimit": 240})
    across = number("v", title)
    colour = {"condition": {"test": "datum.v > 0", "value": "var(--lane1)"}, "value": "var(--lane0)"}
    tooltip = [word("p", "part"), word("w", "difference")]
    layers = [layer(rows, {"type": "bar"}, {"y": down, "x": across, "color": colour, "tooltip": tooltip})]
    if spans:
        rule = {"type": "rule", "stroke": "currentColor", "strokeWidth": 2, "opacity": 0.7}
        layers.append(layer(spans, rule, {"y": down, "x": across, "x2": {"field": "u"}}))
    return chart(layers, about, 22 * len(bars) + 40)


def _rows(series: Sequence[Series]) -> list[Spec]:
    return [
        {"s": line.key, "n": line.name, "t": float(f"{at:.9g}"), "v": value, "w": text, "d": note}
        for line in series
        for at, value, text, note in line.points
    ]


def _digits(series: Sequence[Series]) -> Spec:
    values = [abs(value) for line in series for _, value, _, _ in line.points if value is not None]
    return {"format": "~s"} if max(values, default=0.0) >= 1_000 else {}


def _colour(series: Sequence[Series]) -> Spec:
    colours = [f"var(--lane{line.index % COLOURS})" for line in series]
    return word("s", legend=None, scale={"domain": [line.key for line in series], "range": colours})


def layer(values: Sequence[Spec], mark: Spec, encoding: Spec) -> Spec:
    """Return a layer of marks."""
    return {"data": {"values": values}, "transform": [_SHOWN], "mark": mark, "encoding": encoding}


def _lines(
    rows: Sequence[Spec],
    series: Sequence[Series],
    across: Spec,
    value: Spec,
    tooltip: Sequence[Spec],
    *,
    mark: str = "linear",
    dots: bool = False,
    ends: bool = True,
) -> Spec:
    dashes = [_DASHES[(line.index // COLOURS + line.index % 2) % len(_DASHES)] for line in series]
    dash = word("s", legend=None, scale={"domain": [line.key for line in series], "range": dashes})
    shown: Any = {"value": 1}
    if not dots:
        shown = {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0}
    near = {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"}
    line = {"type": "line", "interpolate": mark, "strokeWidth": 1.75, "invalid": "break-paths-show-domains"}
    layers: list[Spec] = [
        {"mark": line, "encoding": {"strokeDash": dash}},
        {
            "params": [{"name": "near", "select": near}],
            "mark": {"type": "point", "filled": True, "size": 45, "invalid": "filter"},
            "encoding": {"opacity": shown, "tooltip": tooltip},
        },
    ]
    if ends:
        order = [{"field": "t", "order": "descending"}]
        last = {"window": [{"op": "row_number", "as": "back"}], "sort": order, "groupby": ["s"]}
        layers.append(
            {
                "transform": [{"filter": "datum.v != null"}, last, {"filter": "datum.back == 1"}],
                "mark": {"type": "text", "align": "left", "dx": 5, "fontWeight": "bold"},
                "encoding": {"text": word("s")},
            }
        )
    encoding = {"x": across, "y": value, "color": _colour(series)}
    return {"data": {"values": rows}, "transform": [_SHOWN], "encoding": encoding, "layer": layers}


def chart(layers: Sequence[Spec], about: str, height: int) -> Spec:
    """Return a chart of layers."""
    label_style = {"labelColor": "currentColor", "titleColor": "currentColor", "titleFontWeight": "normal"}
    lines = {"gridColor": "var(--grid)", "domainColor": "var(--axis)", "tickColor": "var(--axis)"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": about,
        "width": "container",
        "height": height,
        "padding": {"left": 2, "right": 24, "top": 8, "bottom": 2},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": [{"name": "hidden", "value": []}],
        "layer": list(layers),
        "config": {
            "background": "transparent",
            "font": "system-ui, sans-serif",
            "axis": {**label_style, **lines, "labelFontSize": 11, "titleFontSize": 12},
            "view": {"stroke": None},
        },
    }

"""The charts of a sweep besides its curve: a map over two knobs, and throughput against memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfmon.model.readings import Estimate
from tfmon.reports.html.charts import TALL, Spec, chart, layer, number, word


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of the map."""

    across: str
    """Value of the first knob."""
    down: str
    """Value of the second one."""
    ratio: Estimate | None
    text: str
    """What is written in it."""
    name: str
    """The combination that it is of."""
    words: str
    """The ratio with its interval, or why there is none."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the chart."""

    name: str
    at: float
    """Its place on the axis below."""
    value: float
    words: str
    """The value with its interval."""
    best: bool
    """Whether no other one beats it on both axes."""


def heat(cells: Sequence[Cell], knobs: tuple[str, str], about: str) -> Spec:
    """Return a map of ratios over the values of two knobs, the second downwards."""
    values = [
        {"s": "", "x": one.across, "y": one.down, "v": one.ratio and one.ratio.value, "l": one.text, "n": one.name,
         "w": one.words}
        for one in cells
    ]  # fmt: skip
    known = [row for row in values if row["v"] is not None]
    ratios = [one.ratio.value for one in cells if one.ratio is not None] or [1.0]
    orders = [list(dict.fromkeys(row[axis] for row in values)) for axis in ("x", "y")]
    place = {
        "x": word("x", knobs[0], sort=orders[0], axis={"labelAngle": 0, "labelOverlap": True}),
        "y": word("y", knobs[1], sort=orders[1]),
        "tooltip": [word("n", "of"), word("w", "ratio")],
    }
    shade = {**number("v", None, type="log", scheme="cividis", nice=False), "legend": None}
    on_dark = {
        "test": f"datum.v != null && datum.v <= {math.sqrt(min(ratios) * max(ratios)):.9g}",
        "value": "#ffffff",
    }
    on_light = {"test": "datum.v != null", "value": "#000000"}
    written = {"condition": [on_dark, on_light], "value": "currentColor"}
    mark = {"type": "text", "limit": 60}
    layers = [
        layer(known, {"type": "rect"}, {**place, "fill": shade}),
        layer(values, mark, {**place, "text": word("l"), "fill": written}),
    ]
    return chart(layers, about, 36 * len(orders[1]) + 20)


def scatter(points: Sequence[Point], across: str, title: str, about: str) -> Spec:
    """Return a chart of points, with a line through those that no other one beats on both axes."""
    values = [
        {"s": "", "n": one.name, "t": one.at, "v": one.value, "w": one.words, "f": one.best} for one in points
    ]
    place = {
        "x": number("t", across, zero=False, axis={"labelOverlap": True}, padding=20),
        "y": number("v", title, zero=False, axis={"format": "~g"}, padding=12),
    }
    line = {"type": "line", "interpolate": "step-after", "stroke": "var(--lane0)", "strokeDash": [4, 3]}
    dot = {"type": "point", "size": 80, "stroke": "var(--lane0)", "strokeWidth": 1.5, "opacity": 1}
    fill = {"condition": {"test": "datum.f", "value": "var(--lane0)"}, "value": "transparent"}
    tooltip = [word("n", "of"), word("w", title), word("t", across)]
    layers = [
        layer([row for row in values if row["f"]], line, place),
        layer(values, dot, {**place, "fill": fill, "tooltip": tooltip}),
    ]
    return chart(layers, about, TALL)

"""One lane on the whole width: a larger chart, and beside it all the readings that explain it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.bottleneck import Bottleneck
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import GpuSample, Missing
from tfmon.ui.keys import key_of
from tfmon.ui.render import chart, hosts, lane_gpus, plots, readings
from tfmon.ui.render.layout import Layout, PanePosition, Rect
from tfmon.ui.render.pane import (
    FRAME_CELLS,
    Pane,
    figure_height,
    figure_rows,
    framed,
    has_no_chart,
    pane_of,
    pane_rows,
)
from tfmon.ui.render.readings import labelled, time_parts
from tfmon.ui.render.rows import BLANK, Row, Span, cells, fit, wrap
from tfmon.ui.render.series import metric_of
from tfmon.ui.render.style import DIM, KEY, STRONG, TEXT, WARN
from tfmon.ui.view import SCALES, View

_GAP = 3
"""Cells between the chart and the readings."""
_LEAST_READINGS, _MOST_READINGS = 36, 62
_PART_CELLS = 17
"""Cells of a part of the step time with its number."""
_LEAST_CHART_ROWS = 5
_SCALES = dict(zip(SCALES, ("one axis for all lanes", "an axis of its own", "logarithmic axis"), strict=True))


def alone(layout: Layout, lane: int) -> Layout:
    """Return a layout in which one lane has the room of all panes."""
    if not layout.panes:
        return layout
    rects = [place.rect for place in layout.panes]
    top, bottom = rects[0].y, max(rect.y + rect.height for rect in rects)
    rect = Rect(0, top, layout.header.width, bottom - top)
    return replace(layout, panes=(PanePosition(lane, rect),), per_page=1)


def zoomed_rows(analysis: Analysis, index: int, view: View, width: int, height: int) -> list[Row]:
    """Return the lane at that place on the whole width: `height` rows of `width` cells."""
    pane = pane_of(analysis, index, view, width - FRAME_CELLS)
    if has_no_chart(pane.lane):
        return pane_rows(analysis, index, view, width, height)
    head = _head(pane, width - FRAME_CELLS, height - 2)
    left, right = _columns(width)
    room = height - 2 - len(head)
    beside = _readings(pane, right, room)
    drawn = [_chart_title(pane, left), *_chart(pane, left, room - 1)]
    rows = [
        (*fit(one, left), (" " * _GAP, TEXT), *fit(other, right))
        for one, other in zip(drawn, (beside + [BLANK] * room)[:room], strict=True)
    ]
    return framed(pane, [*head, *rows], width, height)


def zoomed_chart(analysis: Analysis, index: int, view: View, rect: Rect) -> Rect | None:
    """Return where the chart is in a rectangle of the screen, without its scale and its time axis."""
    pane = pane_of(analysis, index, view, rect.width - FRAME_CELLS)
    if has_no_chart(pane.lane):
        return None
    top = 1 + len(_head(pane, rect.width - FRAME_CELLS, rect.height - 2)) + 1
    height = rect.height - 2 - top
    x = rect.x + FRAME_CELLS // 2 + chart.LABEL_CELLS
    return Rect(x, rect.y + top, chart_cells(rect.width), height) if height > 0 else None


def chart_cells(width: int) -> int:
    """Return how many cells of time the chart shows on a screen of that width."""
    return _columns(width)[0] - chart.LABEL_CELLS


def _columns(width: int) -> tuple[int, int]:
    """Return how wide the chart with its scale is, and how wide the readings."""
    inner = width - FRAME_CELLS
    right = max(_LEAST_READINGS, min(_MOST_READINGS, inner * 2 // 5))
    return inner - right - _GAP, right


def _head(pane: Pane, width: int, height: int) -> list[Row]:
    """Return throughput, and the bottleneck in full with what may help and what disturbs the lane."""
    large = figure_height(height)
    rows = figure_rows(pane, width, large)
    if pane.bottleneck is None:
        return rows
    room = max(1, height - large - _LEAST_CHART_ROWS - 2)
    said = [(pane.bottleneck.text, STRONG), *((one, WARN) for one in pane.bottleneck.also)]
    if pane.bottleneck.advice and height >= 20:
        said.append((f"may help: {_advice(pane.bottleneck)}", TEXT))
    lines: list[Row] = [((line, style),) for text, style in said for line in wrap(text, width, 6)]
    return [*rows, *([BLANK] if height >= 20 else []), *lines[:room], *([BLANK] if height >= 20 else [])]


def _advice(bottleneck: Bottleneck) -> str:
    purposes = {one.text: one.purpose for one in reversed(bottleneck.advice)}
    return "; ".join(f"{text} ({purpose})" for text, purpose in list(reversed(purposes.items()))[:2])


# ---------------------------------------------------------------- the chart


def _chart_title(pane: Pane, width: int) -> Row:
    """Return what the chart shows, and the keys that change it."""
    view = pane.view
    parts: list[tuple[str, str]] = [
        ("chart.metric", metric_of(view).words),
        ("chart.scale", _SCALES[view.scale]),
        ("chart.span", f"{view.span_s // 60} min"),
    ]
    for words in (parts, parts[:1]):
        spans: list[Span] = []
        for binding, text in words:
            spans += [
                (key_of(binding, view.keys), KEY),
                (f" {text}  ", TEXT if binding == "chart.metric" else DIM),
            ]
        if cells(spans) <= width:
            break
    return tuple(spans)


def _chart(pane: Pane, width: int, height: int) -> Sequence[Row]:
    return plots.chart_rows(pane.lane, pane.snapshot, pane.view, width, height, pane.accent)


# ---------------------------------------------------------------- the readings beside it

_ORDER = ("step", "time", "loss", "done", "cpu", "memory", "gpu", "gpu details", "others", "knobs", "note")
_PRIORITY = ("time", "step", "cpu", "knobs", "gpu", "gpu details", "note", "memory", "others", "done", "loss")


def _readings(pane: Pane, width: int, height: int) -> list[Row]:
    """Return the readings that fit, in a fixed order; one line names what is left, and the key that shows all."""
    groups = {name: [row for row in rows if row] for name, rows in _groups(pane, width).items()}
    left, shown = height, set()
    several = pane.lane.spec.devices > 1
    total = sum(map(len, groups.values()))
    if total > height:
        left -= 1
        groups["knobs"] = readings.knobs_rows(pane.lane, width) if several else groups["knobs"]
    first = ("gpu", "step", "time", "knobs") if several else ()
    for name in dict.fromkeys((*first, *_PRIORITY)):
        if groups[name] and len(groups[name]) <= left:
            left -= len(groups[name])
            shown.add(name)
    rows = [row for name in _ORDER if name in shown for row in groups[name]]
    missing = [name for name in _ORDER if name not in shown and groups[name]]
    if missing:
        key, names = key_of("lane.detail", pane.view.keys), f" shows all: {', '.join(missing)}"
        words = names if len(key) + len(names) <= width else f" shows {len(missing)} more readings"
        rows.append(((key, KEY), (words, DIM)))
    return rows


def _groups(pane: Pane, width: int) -> dict[str, list[Row]]:
    lane, snapshot = pane.lane, pane.snapshot
    load, memory = (
        lane_gpus.load_row(lane, snapshot, width, pane.accent),
        lane_gpus.memory_row(lane, snapshot, width),
    )
    several = lane.spec.devices > 1
    details = [] if several else [memory]
    for gpu in snapshot.gpus_of(lane):
        name = [f"gpu:{gpu.index}"] if several else []
        details += _wrapped("", [*name, *_of_gpu(gpu)], width)
    return {
        "step": [readings.step_row(lane, width)],
        "time": list(_time(pane, width)),
        "loss": [readings.loss_row(lane)],
        "done": [readings.done_row(lane, width, discarded=False), *_discarded(lane, width)],
        "cpu": [readings.cpu_row(lane, snapshot.machine_of(lane).usable_cores, width, pane.accent)],
        "memory": [readings.memory_row(lane)],
        "gpu": [load, memory] if several else [load],
        "gpu details": details,
        "others": _others(pane, width),
        "knobs": _wrapped("knobs", readings.knob_words(lane), width),
        "note": [readings.note_row(lane, snapshot.at_ns, hosts.silent_s(snapshot, lane))],
    }


def _of_gpu(gpu: GpuSample) -> list[str]:
    """Return power, temperature and clocks, where they are read; for an instance (MIG) they are its GPU's."""
    said = []
    for name, unit in (("power_w", "W"), ("temperature_c", "°C"), ("sm_clock_mhz", "MHz")):
        value = getattr(gpu, name)
        if not isinstance(value, Missing):
            said.append(f"{value:.0f} {unit}")
    return [*said, "of the whole GPU"] if said and gpu.part_of else said


def _time(pane: Pane, width: int) -> Iterator[Row]:
    """Yield where the time of a step goes: the bar, then every part with its number, in two columns if needed."""
    shares = pane.bottleneck.shares if pane.bottleneck else None
    if shares is None:
        yield readings.time_row(None, width, pane.accent)
        return
    room = width - readings.LABEL_CELLS
    (_, *bar) = readings.time_row(shares, width, pane.accent)
    yield labelled("time", *_stretched(tuple(bar[:-1]), room))
    parts = time_parts(shares)
    if room >= 2 * _PART_CELLS + 2:
        said = [f"{glyph} {name:<8}{value:5.1f} %" for name, value, glyph in parts]
        for place in range(0, len(said), 2):
            yield labelled("", ("  ".join(said[place : place + 2]), TEXT))
    else:
        large = sorted(parts, key=lambda part: -part[1])
        yield from _wrapped("", [f"{glyph}{name} {value:.0f} %" for name, value, glyph in large], width, "  ")


def _stretched(bar: Row, room: int) -> Row:
    """Return the bar of the pane, each cell drawn twice where there is room."""
    times = 2 if 2 * cells(bar) <= room else 1
    return tuple((text[0] * (times * len(text)), style) for text, style in bar if text)


def _discarded(lane: LaneState, width: int) -> list[Row]:
    """Return which share of the lane's time is discarded, with every reason."""
    share, reasons = units.discarded_parts(lane.discarded_shares)
    return _wrapped("", [f"discarded {share}", *reasons], width)


def _others(pane: Pane, width: int) -> list[Row]:
    """Return what disturbs the lane all the time, and what other programs take."""
    host = pane.snapshot.host_of(pane.lane)
    said = [*pane.lane.unlike, *(f"{reason} most of the time" for reason in pane.lane.measurements.constant)]
    if host is not None:
        for words, value in (("other programs", host.others_cpu_pct), ("stolen", host.steal_pct)):
            if not isinstance(value, Missing):
                said.append(f"{words} {value:.0f} % of a core")
    return _wrapped("others", said, width) if said else []


def _wrapped(label: str, parts: Sequence[str], width: int, between: str = " · ") -> list[Row]:
    """Return a label and parts between which `between` stands; a part that fits in a line is not torn."""
    room = width - readings.LABEL_CELLS
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(between) + len(part) <= room:
            lines[-1] += between + part
        else:
            lines += wrap(part, room, 3) or [part]
    return [labelled(label if place == 0 else "", (line, TEXT)) for place, line in enumerate(lines)]

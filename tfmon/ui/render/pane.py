"""One lane's pane: a framed block of rows, each exactly as wide as the pane. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tfmon import units
from tfmon.analysis.bottleneck import Bottleneck
from tfmon.model.lane_state import ABSENT, DONE, FAILED, PAUSED, RACING, LaneState
from tfmon.model.race import Machine
from tfmon.model.readings import GpuSample
from tfmon.ui.render import chart, lifecycle, readings
from tfmon.ui.render.rows import BLANK, Row, cells, crop, fit
from tfmon.ui.render.style import DIM, STRONG, TEXT, TROUBLE, WARN, Charset, faint, lane_style, strong

# ---------------------------------------------------------------- large figures

HEIGHT = 3
"""Rows of a large figure. It is drawn with half blocks: a dot is half a cell high, about square."""
_DOTS = {
    "0": "### #.# #.# #.# ###",
    "1": ".#. ##. .#. .#. ###",
    "2": "### ..# ### #.. ###",
    "3": "### ..# ### ..# ###",
    "4": "#.# #.# ### ..# ..#",
    "5": "### #.. ### ..# ###",
    "6": "### #.. ### #.# ###",
    "7": "### ..# ..# ..# ..#",
    "8": "### #.# ### #.# ###",
    "9": "### #.# ### ..# ###",
    ".": ". . . . #",
    "-": "... ... ### ... ...",
    " ": ". . . . .",
}
_HALVES = {("#", "#"): "█", ("#", "."): "▀", (".", "#"): "▄", (".", "."): " "}


def large(text: str) -> tuple[str, str, str]:
    """Return three rows of equal width that show the text; it may contain digits, points, dashes and blanks."""
    rows = ["", "", ""]
    for place, character in enumerate(text):
        dots = _DOTS[character].split()
        dots.insert(0, "." * len(dots[0]))
        for y in range(HEIGHT):
            cells = "".join(_HALVES[pair] for pair in zip(dots[2 * y], dots[2 * y + 1], strict=True))
            rows[y] += (" " if place else "") + cells
    return rows[0], rows[1], rows[2]


# ---------------------------------------------------------------- the pane

PLAIN_FRAME = ("╭", "╮", "╰", "╯", "─", "│")
_FRAME_CELLS = 4
"""Cells of a line for its frame and the space inside."""
FOCUS_FRAME = ("┏", "┓", "┗", "┛", "━", "┃")


@dataclass(frozen=True, slots=True)
class PaneView:
    """What a pane shows besides its lane."""

    index: int
    """Place of the lane; its accent follows from it."""
    now_ns: int
    machine: Machine
    device: str = ""
    """Model of the lane's processor."""
    gpu: GpuSample | None = None
    gpu_stale_s: float | None = None
    """Age of its readings, if they are stale."""
    any_gpu: bool = False
    """True if some lane of the race has a GPU: every pane then keeps a line for GPU memory."""
    bottleneck: Bottleneck | None = None
    """What limits the lane; None while that is not known."""
    lead: str = ""
    """Such as "3.2× ahead" for the lane that is; empty for the others."""
    focused: bool = False
    in_turns: bool = False
    """True where the lanes take turns."""
    training: bool = False
    """True for the one of them that trains now."""
    top: float = 1.0
    until_ns: int = 0
    """Right end of the charts' time axis."""
    charset: Charset = "braille"

    @property
    def accent(self) -> str:
        """Name of the lane's style."""
        return lane_style(self.index)


def chart_width(pane_width: int) -> int:
    """Return how many cells of time the chart of a pane shows."""
    return pane_width - _FRAME_CELLS - chart.LABEL_CELLS


def pane_rows(lane: LaneState, view: PaneView, width: int, height: int) -> list[Row]:
    """Return the pane: `height` rows of `width` cells."""
    inner_width, inner_height = width - _FRAME_CELLS, height - 2
    if lane.phase in (FAILED, ABSENT):
        body = lifecycle.trouble_rows(lane, inner_width, inner_height)
    else:
        body = _body(lane, view, inner_width, inner_height)
    body = (body + [BLANK] * inner_height)[:inner_height]
    frame, edge = _frame(lane, view)
    _, _, low_left, low_right, flat, upright = frame
    side = (upright, edge)
    return [
        _title(lane, view, width),
        *((side, (" ", TEXT), *fit(_trimmed(row, inner_width), inner_width), (" ", TEXT), side) for row in body),
        ((low_left + flat * (width - 2) + low_right, edge),),
    ]


def _trimmed(row: Row, width: int) -> Row:
    return row if cells(row) <= width else fit(row, width)


def _frame(lane: LaneState, view: PaneView) -> tuple[tuple[str, ...], str]:
    if lane.phase == FAILED:
        return (FOCUS_FRAME if view.focused else PLAIN_FRAME), TROUBLE
    return (FOCUS_FRAME, view.accent) if view.focused else (PLAIN_FRAME, faint(view.accent))


def _title(lane: LaneState, view: PaneView, width: int) -> Row:
    (left, right, _, _, flat, _), edge = _frame(lane, view)
    state = _state(lane, view)
    warns = lane.phase == PAUSED or lifecycle.stalled_s(lane, view.now_ns) is not None
    style = strong(TROUBLE) if lane.phase == FAILED else strong(WARN) if warns else STRONG
    room = width - 7 - len(state)
    id = lane.spec.id or "?"
    name = crop(lane.title, max(0, room - 4 - len(id)))
    rest = room - len(id) - 4 - cells([(name, "")])
    device = crop(view.device, rest - 1) if rest > 6 else ""
    spans: list[tuple[str, str]] = [
        (left + flat, edge), (f" {id} ", strong(view.accent)), (f" {name} ", STRONG),
    ]  # fmt: skip
    if device:
        spans.append((f" {device} ", DIM))
    end: Row = ((f" {state} ", style), (flat + right, edge))
    fill = width - cells(spans) - cells(end)
    return fit((*spans, (flat * fill, edge), *end), width)


def _state(lane: LaneState, view: PaneView) -> str:
    if lane.over:
        after = max(0, lane.phase_since_ns - lane.started_ns) / 1e9
        return lane.phase if lane.phase == ABSENT else f"{lane.phase} after {units.clock(after)}"
    hung_s = lifecycle.stalled_s(lane, view.now_ns)
    if hung_s is not None:
        return f"stalled {units.clock(hung_s)}"
    since = units.clock((view.now_ns - lane.phase_since_ns) / 1e9)
    if view.in_turns and lane.phase == RACING:
        return f"▸ training {since}" if view.training else f"waiting {since}"
    return f"{lane.phase} {since}"


# ---------------------------------------------------------------- the body


def _body(lane: LaneState, view: PaneView, width: int, height: int) -> list[Row]:
    """Return the lines that fit, the most important ones first and in a fixed order."""
    large = 3 if height >= 14 else 1
    makers = _makers(lane, view, width)
    shown, chart_height = _plan(height - large, view.any_gpu)
    rows = _figure(lane, view, width, large)
    for name in _ORDER:
        if name not in shown:
            continue
        rows.append(BLANK if name.startswith("gap") else makers[name]())
    if chart_height:
        rows += _chart(lane, view, width, chart_height)
    return rows


_ORDER = (
    "gap1", "step", "time", "bottleneck", "loss", "done", "knobs", "cpu", "memory", "gpu", "gpu memory", "note", "gap2",
)  # fmt: skip
_PRIORITY = (
    "step",
    "cpu",
    "gpu",
    "bottleneck",
    "knobs",
    "time",
    "loss",
    "chart",
    "memory",
    "done",
    "gpu memory",
    "note",
)
_LEAST_CHART = 3


def _plan(height: int, any_gpu: bool) -> tuple[set[str], int]:
    """Choose the lines that fit, and how high the chart becomes with its axis; 0 for none."""
    shown: set[str] = set()
    left, chart_height = height, 0
    for name in _PRIORITY:
        if name == "gpu memory" and not any_gpu:
            continue
        need = _LEAST_CHART if name == "chart" else 1
        if left < need:
            continue
        left -= need
        if name == "chart":
            chart_height = need
        else:
            shown.add(name)
    if chart_height and left:
        chart_height, left = chart_height + 1, left - 1
    for gap in ("gap1", "gap2"):
        if left:
            shown.add(gap)
            left -= 1
    return shown, chart_height + left if chart_height else 0


def _makers(lane: LaneState, view: PaneView, width: int) -> dict[str, Callable[[], Row]]:
    accent = view.accent
    return {
        "step": lambda: readings.step_row(lane, width),
        "time": lambda: readings.time_row(view.bottleneck.shares if view.bottleneck else None, width, accent),
        "bottleneck": lambda: readings.bottleneck_row(view.bottleneck),
        "loss": lambda: readings.loss_row(lane),
        "done": lambda: readings.done_row(lane, width),
        "cpu": lambda: readings.cpu_row(lane, view.machine.usable_cores, width, accent),
        "memory": lambda: readings.memory_row(lane),
        "gpu": lambda: readings.gpu_row(lane, view.gpu, width, accent, view.gpu_stale_s),
        "gpu memory": lambda: readings.gpu_memory_row(lane, view.gpu, width),
        "knobs": lambda: readings.knobs_row(lane, width),
        "note": lambda: readings.note_row(lane),
    }


_FIGURE_CELLS = len(large("8 888")[0])
"""Least width of the large figure, so that the words beside it keep their place."""


def _figure(lane: LaneState, view: PaneView, width: int, height: int) -> list[Row]:
    """Return the throughput as the largest thing in the pane, or how far a lane is that gets ready."""
    if lifecycle.getting_ready(lane):
        return lifecycle.progress_rows(lane, view.now_ns, width, height, view.accent)
    recent = lane.recent()
    speed, steps = recent.examples_per_s, recent.steps_per_s
    resting = lane.phase in (PAUSED, DONE) or lifecycle.stalled_s(lane, view.now_ns) is not None
    style = DIM if resting else strong(view.accent)
    number = units.rate(speed) if speed is not None else "---"
    per_step = f"{units.rate(steps)} steps/s" if steps is not None else _no_speed(lane)
    lead = (("▲ " + view.lead, strong(view.accent)),) if view.lead else ()
    unit = ("examples/s", DIM if resting else STRONG)
    if height < HEIGHT:
        return [_short_figure([((number, style), (" ", TEXT), unit), lead, ((per_step, DIM),)], width)]
    figure = [row.ljust(_FIGURE_CELLS) for row in large(number)]
    beside = max(len(unit[0]), len(per_step), cells(lead)) + 2
    if view.charset == "ascii" or len(figure[0]) + beside > width:
        return [((number, style), (" ", TEXT), unit), ((per_step, DIM),), lead]
    return [
        ((figure[0], style), ("  ", TEXT), *lead),
        ((figure[1], style), ("  ", TEXT), unit),
        ((figure[2], style), ("  ", TEXT), (per_step, DIM)),
    ]


def _short_figure(parts: list[Row], width: int) -> Row:
    """Put the parts that fit side by side; the first always does."""
    row: Row = ()
    for part in parts:
        if part and (not row or cells(row) + 2 + cells(part) <= width):
            row = (*row, ("  ", TEXT), *part) if row else part
    return row


def _no_speed(lane: LaneState) -> str:
    return "measuring" if not lane.over else "not measured"


def _chart(lane: LaneState, view: PaneView, width: int, height: int) -> tuple[Row, ...]:
    """Return throughput over the last minute, `height` rows with the time axis."""
    axis = chart.time_axis(view.until_ns, chart_width(width + _FRAME_CELLS))
    values = chart.past_throughput(lane.points, view.until_ns, axis, chart.parts_per_cell(view.charset))
    edge = faint(view.accent) if lane.phase in (PAUSED, DONE) else view.accent
    foot: Row = (("0 ┴".rjust(chart.LABEL_CELLS), DIM), (chart.axis_row(lane.knob_marks, axis), DIM))
    return (*_area(values, view.top, height - 1, view.charset, edge, faint(view.accent)), foot)


@functools.lru_cache(maxsize=64)
def _area(
    values: tuple[float | None, ...], top: float, height: int, charset: Charset, edge: str, inside: str
) -> tuple[Row, ...]:
    """Return the area under the values, with the scale at its left; cached until a value changes."""
    lines = chart.plot(values, top, height, charset)
    blank_label = " " * (chart.LABEL_CELLS - 1) + "│"
    rows: list[Row] = []
    for place, line in enumerate(lines):
        above = lines[place - 1] if place else " " * len(line)
        runs = ((text, edge if at_top else inside) for text, at_top in chart.edge_runs(line, above))
        rows.append(((chart.scale_label(top) if place == 0 else blank_label, DIM), *runs))
    return tuple(rows)

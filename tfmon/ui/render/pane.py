"""One lane's pane: a framed block of rows, each exactly as wide as the pane. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.model.lane_state import ABSENT, DONE, FAILED, PAUSED, RACING, STAGES, LaneState
from tfmon.model.race import TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.render import chart, hosts, lifecycle, readings
from tfmon.ui.render.rows import (
    BLANK,
    DIM,
    LARGE_ROWS,
    TEXT,
    Row,
    cell_len,
    cells,
    fit,
    fitting_device,
    fitting_name,
    large,
    wrap,
)
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, faint, lane_style, strong
from tfmon.ui.render.verdict import last_figures
from tfmon.ui.source import Display

PLAIN_FRAME = ("╭", "╮", "╰", "╯", "─", "│")
FRAME_CELLS = 4
TRAINING, WAITING = "▸ training", "waiting"
FOCUS_FRAME = ("┏", "┓", "┗", "┛", "━", "┃")


@dataclass(frozen=True, slots=True)
class Common:
    """Sizes that all panes of a width share, so that each line has the same place in every pane."""

    figure_cells: int
    """Width of the widest large throughput, so that all lanes draw it at one size."""
    bottleneck_rows: int
    knob_rows: int


@dataclass(frozen=True, slots=True)
class Pane:
    """The input of a pane's drawing."""

    lane: LaneState
    snapshot: Snapshot
    view: Display
    accent: str
    lead: str
    analysis: LaneAnalysis
    common: Common

    @property
    def focused(self) -> bool:
        """Whether keys act on this lane only."""
        return self.lane.spec.name == self.view.focused


def chart_width(pane_width: int) -> int:
    """Return how many cells of time the chart of a pane shows."""
    return pane_width - FRAME_CELLS - chart.LABEL_CELLS


def figure_height(height: int) -> int:
    """Return the rows of the throughput in a pane of that inner height."""
    return LARGE_ROWS if height >= 14 else 1


def common_of(analysis: Analysis, width: int) -> Common:
    """Return the values that all panes of a width share."""
    room = width - FRAME_CELLS
    rows = (len(readings.bottleneck_rows(one.bottleneck, room, _MOST_BOTTLENECK)) for one in analysis.lanes)
    knobs = (len(readings.knobs_rows(one.lane, room, _MOST_KNOBS)) for one in analysis.lanes)
    speeds = [one.recent.examples_per_s or 0.0 for one in analysis.lanes]
    figure_cells = max(len(large(units.rate(speed))[0]) for speed in speeds)
    return Common(figure_cells, max(rows, default=1), max(knobs, default=1))


def pane_rows(analysis: Analysis, index: int, view: Display, width: int, height: int, common: Common) -> list[Row]:
    """Return the pane of the lane at that place: `height` rows of `width` cells; `view` has the chart's scale."""
    inner_width, inner_height = width - FRAME_CELLS, height - 2
    pane = _pane_of(analysis, index, view, common)
    lane = pane.lane
    if lane.phase in (FAILED, ABSENT):
        again = hosts.again_words(pane.snapshot, lane)
        body = lifecycle.trouble_rows(lane, inner_width, inner_height, again, keys=not view.replay)
    elif lane.phase in STAGES and not lane.points:
        body = _preparing(pane, inner_width, inner_height)
    else:
        large = figure_height(inner_height)
        body = figure_rows(pane, inner_width, large)
        if pane.snapshot.over:
            room = inner_height - large
            rows, chart_height = last_figures(pane.analysis, inner_width, room, pane.accent, _LEAST_CHART + 2)
        else:
            rows, chart_height = _rows_and_chart(pane, inner_width, inner_height)
        body += rows
        if chart_height:
            body += [BLANK] * (inner_height - chart_height - len(body))
            body += chart.chart_rows(lane, pane.snapshot, view, inner_width, chart_height, pane.accent)
    return framed(pane, body, width, height)


def _pane_of(analysis: Analysis, index: int, view: Display, common: Common) -> Pane:
    result, verdict = analysis.lanes[index], analysis.verdict
    leads = result.lane.spec.name == verdict.winner and verdict.ratio is not None
    return Pane(
        lane=result.lane,
        snapshot=analysis.snapshot,
        view=view,
        accent=lane_style(index),
        lead=f"{units.ratio(verdict.ratio)} ahead" if leads and verdict.ratio else "",
        analysis=result,
        common=common,
    )


def framed(pane: Pane, body: list[Row], width: int, height: int) -> list[Row]:
    """Return rows with the frame and the title of a pane around them: `height` rows of `width` cells."""
    inner_width, inner_height = width - FRAME_CELLS, height - 2
    body = (body + [BLANK] * inner_height)[:inner_height]
    frame, edge = _frame(pane)
    _, _, low_left, low_right, flat, upright = frame
    side = (upright, edge)
    return [
        _title(pane, width),
        *((side, (" ", TEXT), *fit(row, inner_width), (" ", TEXT), side) for row in body),
        ((low_left + flat * (width - 2) + low_right, edge),),
    ]


def _frame(pane: Pane) -> tuple[tuple[str, ...], str]:
    if pane.lane.phase == FAILED:
        return (FOCUS_FRAME if pane.focused else PLAIN_FRAME), TROUBLE
    return (FOCUS_FRAME, pane.accent) if pane.focused else (PLAIN_FRAME, faint(pane.accent))


def _title(pane: Pane, width: int) -> Row:
    lane = pane.lane
    (left, right, _, _, flat, _), edge = _frame(pane)
    state = _state(pane, width)
    silent = hosts.silent_s(pane.snapshot, lane) is not None
    warns = lane.phase == PAUSED or silent or lifecycle.stalled_s(lane, pane.snapshot.at_ns) is not None
    style = strong(TROUBLE) if lane.phase == FAILED else strong(WARN) if warns else STRONG
    names, id = hosts.lane_names(pane.snapshot, lane), lane.spec.id or "?"
    room = width - 7 - max(len(state), len(state.replace(WAITING, TRAINING)))
    if state in (TRAINING, WAITING) and min(map(cell_len, names)) > room - 4 - len(id):
        state, room = TRAINING[0] if state == TRAINING else "·", width - 8
    name = fitting_name(names, max(0, room - 4 - len(id)))
    rest = room - len(id) - 4 - cell_len(name)
    device = fitting_device(pane.snapshot.device_name(pane.lane), rest - 1)
    spans: list[tuple[str, str]] = [
        (left + flat, edge), (f" {id} ", strong(pane.accent)), (f" {name} ", STRONG),
    ]  # fmt: skip
    if device:
        spans.append((f" {device} ", DIM))
    end: Row = ((f" {state} ", style), (flat + right, edge))
    fill = width - cells(spans) - cells(end)
    return fit((*spans, (flat * fill, edge), *end), width)


def _state(pane: Pane, width: int) -> str:
    lane = pane.lane
    if lane.over:
        began_ns = pane.snapshot.race.started_ns
        trained_ns = lane.measurements.until_ns if lane.phase == DONE else None
        until_ns = lane.phase_since_ns if trained_ns is None else trained_ns
        after = max(0, until_ns - (lane.process.started_ns if began_ns is None else began_ns)) / 1e9
        return lane.phase if lane.phase == ABSENT else f"{lane.state} after {units.clock(after)}"
    if pane.view.stopping:
        return "ending"
    hung_s = lifecycle.stalled_s(lane, pane.snapshot.at_ns)
    if hung_s is not None:
        return f"stalled {units.clock(hung_s)}"
    silent_s = hosts.silent_s(pane.snapshot, lane)
    if silent_s is not None:
        return f"link silent {units.clock(silent_s)}"
    race, since_ns, doing = pane.snapshot.race, lane.phase_since_ns, lane.phase
    in_turns = lane.phase == RACING and race.mode == TURNS and len(pane.snapshot.lanes) > 1
    if in_turns:
        since_ns, doing = (
            max(since_ns, lane.turn_since_ns),
            TRAINING if lane.spec.name in race.training else WAITING,
        )
    since = units.clock((pane.snapshot.at_ns - since_ns) / 1e9)
    return f"{doing} {since}" if width >= 56 or not in_turns else doing


def _rows_and_chart(pane: Pane, width: int, height: int) -> tuple[list[Row], int]:
    """Return the rows between throughput and chart, and the height of the chart with its axis."""
    makers = _makers(pane, width)
    rows: list[Row] = []
    shown, chart_height, bottleneck_rows, knob_rows = _planned(pane, height)
    for name in _ORDER:
        if name == "bottleneck" and name in shown:
            wrapped = readings.bottleneck_rows(pane.analysis.bottleneck, width, bottleneck_rows)
            rows += (wrapped + [BLANK] * bottleneck_rows)[:bottleneck_rows]
        elif name == "knobs" and name in shown:
            rows += (readings.knobs_rows(pane.lane, width, knob_rows) + [BLANK] * knob_rows)[:knob_rows]
        elif name in shown:
            rows.append(BLANK if name.startswith("gap") else makers[name]())
    return rows, chart_height


def _planned(pane: Pane, height: int) -> tuple[set[str], int, int, int]:
    """Return the displayed lines, the height of the chart, and the rows of bottleneck and knobs."""
    any_gpu = any(lane.spec.kind == "gpu" for lane in pane.snapshot.lanes)
    several = any(lane.spec.kind == "gpu" and lane.spec.devices > 1 for lane in pane.snapshot.lanes)
    shown, chart_height = _plan(height - figure_height(height), any_gpu, several=several)
    more = max(0, min(pane.common.bottleneck_rows - 1, chart_height - _COMFORTABLE_CHART))
    knobs = max(0, min(pane.common.knob_rows - 1, chart_height - more - _COMFORTABLE_CHART))
    return shown, chart_height - more - knobs, 1 + more, 1 + knobs


def _preparing(pane: Pane, width: int, height: int) -> list[Row]:
    lane, makers = pane.lane, _makers(pane, width)
    room = height if height >= lifecycle.LIST_ROWS + 4 else min(height, 3)
    first = f"starting Python on {lane.spec.host}" if lane.spec.host else "starting Python"
    if hosts.connecting(pane.snapshot, lane):
        first = f"connecting to {lane.spec.host}"
    rows = lifecycle.progress_rows(lane, pane.snapshot.at_ns, width, room, pane.accent, first)
    names = ["knobs", "cpu", "memory", *(["gpu", "gpu memory"] if lane.spec.kind == "gpu" else []), "note"]
    why = wrap(lane.spec.chosen, width - readings.LABEL_CELLS, 2)
    chosen = [readings.labelled("" if place else "device", (line, TEXT)) for place, line in enumerate(why)]
    return [*rows, BLANK, *chosen, *(makers[name]() for name in names)][:height]


_ORDER = (
    "gap1", "step", "time", "bottleneck", "loss", "done", "knobs", "cpu", "memory", "gpu", "gpu memory", "note",
    "gap2",
)  # fmt: skip
_PRIORITY = (
    "step", "cpu", "gpu", "bottleneck", "knobs", "time", "loss", "chart", "memory", "done", "gpu memory", "note",
)  # fmt: skip
_OF_SEVERAL = {"memory": "gpu memory", "gpu memory": "memory"}
"""A lane on several GPUs shows the memory of each GPU instead of the process's memory."""
_LEAST_CHART = 3
_COMFORTABLE_CHART = 6
"""Above this height in rows, the chart gives rows to the text of the bottleneck."""
_MOST_BOTTLENECK, _MOST_KNOBS = 3, 4


def _plan(height: int, any_gpu: bool, *, several: bool) -> tuple[set[str], int]:
    """Choose the lines that fit, and the height of the chart with its axis (0 if it does not fit)."""
    shown: set[str] = set()
    left, chart_height = height, 0
    for name in (_OF_SEVERAL.get(one, one) if several else one for one in _PRIORITY):
        if name.startswith("gpu") and not any_gpu:
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


def _makers(pane: Pane, width: int) -> dict[str, Callable[[], Row]]:
    lane, accent, bottleneck = pane.lane, pane.accent, pane.analysis.bottleneck
    return {
        "step": lambda: readings.running_row(lane, pane.snapshot.at_ns, width),
        "time": lambda: readings.time_row(bottleneck.shares if bottleneck else None, width, accent),
        "loss": lambda: readings.loss_row(lane),
        "done": lambda: readings.done_row(lane, width),
        "cpu": lambda: readings.cpu_row(lane, pane.snapshot.machine_of(lane).usable_cores, width, accent),
        "memory": lambda: readings.memory_row(lane),
        "gpu": lambda: hosts.load_row(lane, pane.snapshot, width, accent),
        "gpu memory": lambda: hosts.memory_row(lane, pane.snapshot, width),
        "knobs": lambda: readings.knobs_rows(lane, width)[0],
        "note": lambda: readings.note_row(
            lane, pane.snapshot.at_ns, hosts.silent_s(pane.snapshot, lane), keys=not pane.view.fixed
        ),
    }


_FIGURE_CELLS = len(large("8 888")[0])
"""Minimum width of the large figure, so that the words beside it keep their place."""


def figure_rows(pane: Pane, width: int, height: int) -> list[Row]:
    """Return the throughput as the largest thing in the pane. For an ended lane, return its total."""
    lane, recent = pane.lane, pane.analysis.recent
    speed, steps = recent.examples_per_s, recent.steps_per_s if "steps" not in lane.script.not_measured else None
    still_s = lifecycle.stalled_s(lane, pane.snapshot.at_ns) or lane.stands_still_s(pane.snapshot.at_ns)
    resting = (lane.phase in (PAUSED, DONE) and not pane.snapshot.over) or still_s is not None
    style = DIM if resting else strong(pane.accent)
    number = units.rate(speed) if speed is not None and still_s is None else "---"
    unknown = "not measured" if lane.over else "measuring"
    per_step = f"{units.rate(steps)} steps/s" if steps is not None else unknown
    per_step = per_step if still_s is None else f"no step for {units.duration(still_s)}"
    lead = (("▲ " + pane.lead, strong(pane.accent)),) if pane.lead else ()
    unit = ("examples/s", DIM if resting else STRONG)
    if height < LARGE_ROWS:
        row: Row = ((number, style), (" ", TEXT), unit)
        for part in (lead, ((per_step, DIM),)):
            if part and cells(row) + 2 + cells(part) <= width:
                row = (*row, ("  ", TEXT), *part)
        return [row]
    figure = [row.ljust(max(_FIGURE_CELLS, pane.common.figure_cells)) for row in large(number)]
    beside = max(len(unit[0]), len("99 999 steps/s")) + 2
    if pane.view.charset == "ascii" or len(figure[0]) + beside > width:
        return [((number, style), (" ", TEXT), unit), ((per_step, DIM),), lead]
    return [
        ((figure[0], style), ("  ", TEXT), *lead),
        ((figure[1], style), ("  ", TEXT), unit),
        ((figure[2], style), ("  ", TEXT), (per_step, DIM)),
    ]

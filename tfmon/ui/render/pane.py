"""The pane of a lane. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.model.lane_state import ABSENT, DONE, FAILED, PAUSED, RACING, STAGES, LaneState
from tfmon.model.race import TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.render import chart, chart_data, lifecycle, machine_rows, reading_rows, watch_rows
from tfmon.ui.render.layout import parts_of
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cell_len, cells, fit, fitting_device, fitting_name, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, faint, lane_style, strong
from tfmon.ui.source import Display

PLAIN_FRAME = ("╭", "╮", "╰", "╯", "─", "│")
FOCUS_FRAME = ("┏", "┓", "┗", "┛", "━", "┃")
FRAME_CELLS = 4
TRAINING, WAITING = "▸ training", "waiting"
LEAST_CHART = 3
_TWO_CHARTS, _GAP = 90, 2
_MOST = 3
_ORDER = (
    "speed", "interval", "bottleneck", "help", "step", "time", "loss", "done", "knobs", "cpu", "memory", "gpu",
    "gpu memory", "measured", "note",
)  # fmt: skip
_PRIORITY = (
    "speed", "step", "loss", "knobs", "bottleneck", "help", "note", "gpu", "cpu", "time", "chart", "done",
    "gpu memory", "memory", "interval", "measured",
)  # fmt: skip
_WATCHED_ORDER = (
    "done", "loss", "gap 1", "headline", "also", "gap 2", "run", "gap 3", "speed", "step", "time", "interval",
    "knobs", "cpu", "memory", "gpu", "gpu memory", "no gpu", "measured", "note",
)  # fmt: skip
_WATCHED_PRIORITY = (
    "done", "loss", "headline", "run", "speed", "step", "note", "gpu", "gap 1", "gap 2", "cpu", "memory", "also",
    "knobs", "time", "gpu memory", "gap 3", "chart", "no gpu", "interval", "measured",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pane:
    """The input of a pane's drawing."""

    lane: LaneState
    snapshot: Snapshot
    view: Display
    accent: str
    lead: str
    analysis: LaneAnalysis
    whole: Analysis

    @property
    def focused(self) -> bool:
        """Whether keys act on this lane only."""
        return self.lane.spec.name == self.view.focused

    @property
    def alone(self) -> bool:
        """Whether there is no other lane."""
        return len(self.snapshot.lanes) == 1


def chart_width(pane_width: int) -> int:
    """Return how many cells of time the chart of a pane shows."""
    return _chart_widths(pane_width - FRAME_CELLS)[0] - chart.LABEL_CELLS


def _chart_widths(width: int) -> list[int]:
    return [width] if width < _TWO_CHARTS else parts_of(width - _GAP, 2)


def heights_of(analysis: Analysis, view: Display, width: int) -> dict[str, int]:
    """Return the height of each reading, which is equal in all panes. A single pane knows its own."""
    if len(analysis.lanes) == 1:
        return {}
    every = [_readings(_pane_of(analysis, at, view), width - FRAME_CELLS) for at in range(len(analysis.lanes))]
    return {name: max(len(rows[name]) for rows in every) for name in every[0]} if every else {}


def pane_rows(
    analysis: Analysis, index: int, view: Display, width: int, height: int, heights: Mapping[str, int]
) -> list[Row]:
    """Return the pane of a lane."""
    pane = _pane_of(analysis, index, view)
    return _framed(pane, _body(pane, heights, width - FRAME_CELLS, height - 2), width, height)


def _body(pane: Pane, heights: Mapping[str, int], inner_width: int, inner_height: int) -> list[Row]:
    lane, view = pane.lane, pane.view
    if lane.phase in (FAILED, ABSENT):
        again = machine_rows.again_words(pane.snapshot, lane)
        body = lifecycle.trouble_rows(lane, inner_width, inner_height, again, keys=not view.replay)
    elif lane.phase in STAGES and not lane.points:
        body = _preparing(pane, inner_width, inner_height)
    else:
        readings = _readings(pane, inner_width)
        heights = heights or {name: len(rows) for name, rows in readings.items()}
        shown, chart_height = _plan(heights, inner_height, alone=pane.alone)
        body = [
            row for name in shown for row in (*readings[name], *[BLANK] * (heights[name] - len(readings[name])))
        ]
        if chart_height:
            body += _charts(pane, inner_width, chart_height)
    return body


def _charts(pane: Pane, width: int, height: int) -> list[Row]:
    """Return the chart, in a wide pane with a second one beside it."""
    view, snapshot, (first, *others) = pane.view, pane.snapshot, _chart_widths(width)
    rows = chart.chart_rows(pane.lane, snapshot, view, first, height, pane.accent)
    for size in others:
        has_loss = view.metric != "loss" and not chart_data.absent(pane.lane, chart_data.BY_ID["loss"])
        beside = replace(view, metric="loss" if has_loss else "p50", scale="", scales={})
        scales = chart_data.scales(snapshot, beside, size - chart.LABEL_CELLS, chart.PER_CELL)
        more = chart.chart_rows(pane.lane, snapshot, replace(beside, scales=scales), size, height, pane.accent)
        rows = tuple((*fit(row, first + _GAP), *other) for row, other in zip(rows, more, strict=True))
    return list(rows)


def _pane_of(analysis: Analysis, index: int, view: Display) -> Pane:
    result, verdict = analysis.lanes[index], analysis.verdict
    leads = result.lane.spec.name == verdict.winner and verdict.ratio is not None
    return Pane(
        lane=result.lane,
        snapshot=analysis.snapshot,
        view=view,
        accent=lane_style(index),
        lead=f"{units.ratio(verdict.ratio)} ahead" if leads and verdict.ratio else "",
        analysis=result,
        whole=analysis,
    )


def _framed(pane: Pane, body: list[Row], width: int, height: int) -> list[Row]:
    body = (body + [BLANK] * height)[: height - 2]
    (_, _, low_left, low_right, flat, upright), edge = _frame(pane)
    side = (upright, edge)
    return [
        _title(pane, width),
        *((side, (" ", TEXT), *fit(row, width - FRAME_CELLS), (" ", TEXT), side) for row in body),
        ((low_left + flat * (width - 2) + low_right, edge),),
    ]


def _frame(pane: Pane) -> tuple[tuple[str, ...], str]:
    frame = FOCUS_FRAME if pane.focused else PLAIN_FRAME
    if pane.lane.phase == FAILED:
        return frame, TROUBLE
    return frame, pane.accent if pane.focused else faint(pane.accent)


def _title(pane: Pane, width: int) -> Row:
    lane = pane.lane
    (left, right, _, _, flat, _), edge = _frame(pane)
    state = _state(pane, width)
    silent = machine_rows.silent_s(pane.snapshot, lane) is not None
    warns = lane.phase == PAUSED or silent or lifecycle.stalled_s(lane, pane.snapshot.at_ns) is not None
    style = strong(TROUBLE) if lane.phase == FAILED else strong(WARN) if warns else STRONG
    names, id = machine_rows.lane_names(pane.snapshot, lane), "" if pane.alone else lane.spec.id or "?"
    room = width - 7 - max(len(state), len(state.replace(WAITING, TRAINING)))
    if state in (TRAINING, WAITING) and min(map(cell_len, names)) > room - 4 - len(id):
        state, room = TRAINING[0] if state == TRAINING else "·", width - 8
    name = fitting_name(names, max(0, room - 4 - len(id)))
    rest = room - len(id) - 4 - cell_len(name)
    device = fitting_device(pane.snapshot.device_name(pane.lane), rest - 1)
    spans: list[tuple[str, str]] = [
        (left + flat, edge), (f" {id} " if id else "", strong(pane.accent)), (f" {name} ", STRONG),
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
    silent_s = machine_rows.silent_s(pane.snapshot, lane)
    if silent_s is not None:
        return f"link silent {units.clock(silent_s)}"
    race, since_ns, doing = pane.snapshot.race, lane.phase_since_ns, phase_text(lane, pane.snapshot)
    in_turns = lane.phase == RACING and race.mode == TURNS and len(pane.snapshot.lanes) > 1
    if in_turns:
        since_ns = max(since_ns, lane.turn_since_ns)
        doing = TRAINING if lane.spec.name in race.training else WAITING
    since = units.clock((pane.snapshot.at_ns - since_ns) / 1e9)
    return f"{doing} {since}" if width >= 56 or not in_turns else doing


def phase_text(lane: LaneState, snapshot: Snapshot) -> str:
    """Return the phase of a lane; a single lane does not race."""
    return "training" if lane.phase == RACING and len(snapshot.lanes) == 1 else lane.phase


def _plan(heights: Mapping[str, int], height: int, *, alone: bool) -> tuple[list[str], int]:
    order, priority = (_WATCHED_ORDER, _WATCHED_PRIORITY) if alone else (_ORDER, _PRIORITY)
    shown: set[str] = set()
    left, chart_height = height, 0
    for name in priority:
        rows = LEAST_CHART if name == "chart" else heights.get(name, 0)
        if rows > left:
            continue
        left -= rows
        if name == "chart":
            chart_height = rows
        else:
            shown.add(name)
    return [name for name in order if name in shown], chart_height + left if chart_height else 0


def _preparing(pane: Pane, width: int, height: int) -> list[Row]:
    lane, rows_of = pane.lane, _readings(pane, width)
    room = height if height >= lifecycle.LIST_ROWS + 4 else min(height, 3)
    first = f"starting Python on {lane.spec.host}" if lane.spec.host else "starting Python"
    if machine_rows.connecting(pane.snapshot, lane):
        first = f"connecting to {lane.spec.host}"
    rows = lifecycle.progress_rows(lane, pane.snapshot.at_ns, width, room, pane.accent, first)
    names = ["knobs", "cpu", "memory", *(["gpu", "gpu memory"] if lane.spec.kind == "gpu" else []), "note"]
    why = wrap(lane.spec.chosen, width - reading_rows.LABEL_CELLS, 2)
    chosen = [reading_rows.labelled("" if place else "device", (line, TEXT)) for place, line in enumerate(why)]
    return [*rows, BLANK, *chosen, *(row for name in names for row in rows_of[name])][:height]


def _readings(pane: Pane, width: int) -> dict[str, list[Row]]:
    lane, accent, snapshot, found = pane.lane, pane.accent, pane.snapshot, pane.analysis.bottleneck
    over, silent_s = snapshot.over, machine_rows.silent_s(snapshot, lane)
    any_gpu = not over and any(one.spec.kind == "gpu" for one in snapshot.lanes)
    speed = pane.analysis.speed
    interval = f"95 % CI {units.rate(speed.low)} to {units.rate(speed.high)} examples/s" if speed and over else ""
    cores = snapshot.machine_of(lane).usable_cores
    note = reading_rows.note_row(lane, snapshot.at_ns, silent_s, keys=not pane.view.fixed)
    return {
        "speed": [_speed_row(pane, width)],
        **(_of_a_watch(pane, width) if pane.alone else {}),
        "interval": _lines(interval, width, DIM),
        "bottleneck": [] if pane.alone else reading_rows.bottleneck_rows(found, width, _MOST),
        "help": _lines(found.help if found and over else "", width, STRONG),
        "step": [reading_rows.running_row(lane, snapshot.at_ns, width)],
        "time": [reading_rows.time_row(found.shares if found else None, width, accent)],
        "loss": watch_rows.losses(lane, width) if pane.alone else [reading_rows.loss_row(lane)],
        "done": [reading_rows.done_row(lane, width, discarded=not over)],
        "knobs": reading_rows.knobs_rows(lane, width, _MOST),
        "cpu": [] if over else [reading_rows.cpu_row(lane, cores, width, accent)],
        "memory": [] if over else [reading_rows.memory_row(lane)],
        "gpu": [machine_rows.load_row(lane, snapshot, width, accent)] if any_gpu else [],
        "gpu memory": [machine_rows.memory_row(lane, snapshot, width)] if any_gpu else [],
        "measured": _lines(pane.analysis.measured_text if over else "", width, DIM),
        "note": [note] if note else [],
    }


def _of_a_watch(pane: Pane, width: int) -> dict[str, list[Row]]:
    return {
        **watch_rows.summary(pane.whole, pane.view, width),
        "run": watch_rows.run_rows(pane.lane, width),
        "no gpu": watch_rows.no_gpu_rows(pane.snapshot, width),
        **{f"gap {number}": [BLANK] for number in (1, 2, 3)},
    }


def _lines(text: str, width: int, style: str) -> list[Row]:
    return [((line, style),) for line in wrap(text, width, _MOST)]


def _speed_row(pane: Pane, width: int) -> Row:
    lane, recent = pane.lane, pane.analysis.recent
    speed, steps = recent.examples_per_s, recent.steps_per_s if "steps" not in lane.script.not_measured else None
    still_s = lifecycle.stalled_s(lane, pane.snapshot.at_ns) or lane.stands_still_s(pane.snapshot.at_ns)
    resting = (lane.phase in (PAUSED, DONE) and not pane.snapshot.over) or still_s is not None
    number = units.rate(speed) if speed is not None and still_s is None else "---"
    per_step = (
        f"{units.rate(steps)} steps/s" if steps is not None else "not measured" if lane.over else "measuring"
    )
    per_step = per_step if still_s is None else f"no step for {units.duration(still_s)}"
    row: Row = ((number, DIM if resting else strong(pane.accent)), (" examples/s", DIM if resting else STRONG))
    row = reading_rows.labelled("speed", *row) if pane.alone else row
    lead: Row = ((f"  ▲ {pane.lead}", strong(pane.accent)),) if pane.lead else ()
    steps_done = f"  {units.several(lane.totals.steps, 'step')}" if pane.alone and lane.totals.steps else ""
    for part in (lead, ((f"  {per_step}", DIM),), ((steps_done, DIM),)):
        if cells(row) + cells(part) <= width:
            row = (*row, *part)
    return row

"""A lane's pane."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.bottleneck import MACHINE_BUSY
from tfmon.analysis.health import faults_of
from tfmon.analysis.prediction import LONG_STEP_S
from tfmon.analysis.shares import PAUSED_PARTS, REST, TRAINING, wall_parts
from tfmon.model.account import BETWEEN, CALLBACKS, SAVING, VALIDATION
from tfmon.model.lane_events import PAUSED, RACING, STARTING
from tfmon.model.lane_state import ABSENT, DONE, FAILED, HOST_LOST, NO_STEPS_HINT, STAGES, LaneState
from tfmon.model.race import TURNS
from tfmon.model.readings import Missing
from tfmon.model.session import Snapshot
from tfmon.ui.render import chart, reading_rows
from tfmon.ui.render.chart import Charts
from tfmon.ui.render.reading_rows import LABEL_CELLS, REFUSED_NS, UNKNOWN, WIDE, bar, labelled
from tfmon.ui.render.rows import (
    BLANK,
    DIM,
    NO_BREAK,
    TEXT,
    Row,
    beside,
    cells,
    crop,
    fit,
    fitting_device,
    fitting_name,
    spread,
    stacked,
    styled_lines,
    wrap,
)
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, faint, lane_style, strong
from tfmon.ui.source import Display, news_line

PLAIN_FRAME, FOCUS_FRAME = tuple("╭╮╰╯─│"), tuple("┏┓┗┛━┃")
FRAME_CELLS = 4
AT_WORK, WAITING = "▸ training", "waiting"
LEAST_CHART = 3
_TWO_CHARTS, _GAP = 90, 2
_MOST = 3
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
_GLYPHS = {
    TRAINING: "▓", "input": "█", VALIDATION: "▒", BETWEEN: "▚", CALLBACKS: "▞", SAVING: "═", "start": "░",
    PAUSED_PARTS: "·", REST: "-",
}  # fmt: skip
_AVOIDABLE = ("input", VALIDATION, BETWEEN, CALLBACKS, SAVING)
"""The largest of these parts is coloured."""
_BEHIND_S = 1.0
"""A viewer receives events once a second."""
LIST_ROWS = len(STAGES) + 2
NO_STEPS_NS = 30_000_000_000


def chart_width(pane_width: int) -> int:
    """Return the width of a pane's chart in cells of time."""
    return _chart_widths(pane_width - FRAME_CELLS)[0] - chart.LABEL_CELLS


def _chart_widths(width: int) -> list[int]:
    half = (width - _GAP) // 2
    return [width] if width < _TWO_CHARTS else [half, width - _GAP - half]


def heights_of(panes: Sequence[PaneRows]) -> dict[str, int]:
    """Return each reading's height, equal in all panes."""
    return {name: max(len(pane.readings[name]) for pane in panes) for name in panes[0].readings}


def phase_text(lane: LaneState, snapshot: Snapshot) -> str:
    """Return a lane's phase; a single lane does not race."""
    return "training" if lane.phase == RACING and len(snapshot.lanes) == 1 else lane.phase


class PaneRows:
    """A lane in a frame, which is `FRAME_CELLS` wider than `width`."""

    def __init__(self, analysis: Analysis, index: int, view: Display, width: int) -> None:
        self.width = width
        self.analysis, self.snapshot, self.view = analysis, analysis.snapshot, view
        self.analysed, self.accent = analysis.lanes[index], lane_style(index)
        self.lane = self.analysed.lane
        self.alone = len(self.snapshot.lanes) == 1
        self.focused = self.lane.spec.name == view.focused

    def rows(self, height: int, heights: Mapping[str, int], charts: Charts) -> list[Row]:
        """Return the pane's rows; `heights` are from `heights_of`."""
        lane, width, room = self.lane, self.width, height - 2
        if lane.phase in (FAILED, ABSENT):
            body = self._trouble(room)
        elif lane.phase in STAGES and not lane.points:
            body = self._preparing(room)
        else:
            body = self._training(room, heights, charts)
        frame, edge = self._frame()
        side = (frame[5], edge)
        lines = [fit(row, width) for row in [*body, *[BLANK] * room][:room]]
        return [
            self._title(width + FRAME_CELLS),
            *((side, (" ", TEXT), *line, (" ", TEXT), side) for line in lines),
            ((frame[2] + frame[4] * (width + FRAME_CELLS - 2) + frame[3], edge),),
        ]

    def _training(self, height: int, heights: Mapping[str, int], charts: Charts) -> list[Row]:
        readings = self.readings
        shown: set[str] = set()
        chart_height = 0
        for name in _WATCHED_PRIORITY if self.alone else _PRIORITY:
            rows = LEAST_CHART if name == "chart" else heights.get(name, 0)
            if rows <= height:
                height -= rows
                shown.add(name)
                chart_height = rows if name == "chart" else chart_height
        body: list[Row] = []
        for name in _WATCHED_ORDER if self.alone else readings:
            if name in shown:
                body += [*readings[name], *[BLANK] * (heights[name] - len(readings[name]))]
        return body + (self._charts(chart_height + height, charts) if chart_height else [])

    def _charts(self, height: int, charts: Charts) -> list[Row]:
        """Return the chart, and a second chart if the pane is wide."""
        first, *rest = _chart_widths(self.width)
        rows = chart.chart_rows(self.lane, charts, height, self.accent)
        for size in rest:
            has_loss = self.view.metric != "loss" and not chart.absent(self.lane, chart.BY_ID["loss"])
            beside = replace(self.view, metric="loss" if has_loss else "p50", scale="", scales={})
            more = chart.charts_of(self.snapshot, beside, size - chart.LABEL_CELLS)
            pairs = zip(rows, chart.chart_rows(self.lane, more, height, self.accent), strict=True)
            rows = [(*fit(row, first + _GAP), *other) for row, other in pairs]
        return rows

    def _trouble(self, height: int) -> list[Row]:
        """Return why the lane failed, advice, and the last output."""
        lane, width, trouble = self.lane, self.width, self.lane.trouble
        lost, state = trouble is not None and trouble.kind == HOST_LOST, self.snapshot.place_of(lane)
        again = f"{lane.spec.host} is connected again" if lost and not state.lost else ""
        if again and reading_rows.connecting(self.snapshot, lane):
            again = f"connecting to {lane.spec.host} again…"
        message = trouble.message if trouble is not None else f"the lane is {lane.phase}"
        sign = "–" if lane.phase == ABSENT else "✗"
        rows: list[Row] = [((again, STRONG),)] if again else []
        rows += beside((f"{sign} ", strong(TROUBLE)), message, strong(TROUBLE), width, max(1, height // 2))
        hint = trouble.hint if trouble is not None else ""
        if lost and not self.view.replay and not again:
            hint = hint or "r connects again and restarts it"
        rows += beside(("▸ ", STRONG), hint, TEXT, width, max(1, height // 3))
        if lane.points:
            done = f"it had done {units.count(lane.totals.steps)} steps"
            last = "" if lane.totals.losses.last is None else f", loss {units.loss(lane.totals.losses.last)}"
            rows += [BLANK, ((crop(done + last, width), TEXT),)]
        output = lane.end.event.output_tail if lane.end.event is not None else ()
        room, tail = height - len(rows) - 2, list[str]()
        if lost or not output or room < 1:  # the output does not explain a lost connection
            return rows[:height]
        for line in reversed(output):
            pieces = wrap(line, width, min(4, room)) if line.strip() else []
            if len(pieces) + len(tail) > room:
                break
            tail = [*pieces, *tail]
        return [*rows, BLANK, (("last lines of its output", DIM),), *(((line, DIM),) for line in tail)]

    def progress(self, height: int) -> list[Row]:
        """Return the current stage, or all stages if `LIST_ROWS` rows fit."""
        lane, now_ns, width, accent = self.lane, self.snapshot.at_ns, self.width, self.accent
        connects, for_ns = reading_rows.connecting(self.snapshot, lane), max(0, now_ns - lane.phase_since_ns)
        if lane.script.command and lane.phase == STARTING:
            reason = lane.script.not_measured.get("steps", "")
            late = not connects and (for_ns > NO_STEPS_NS or bool(reason))
            text = "no steps seen" if late else "the script runs, no step seen yet…"
            text = f"connecting to {lane.spec.host}…" if connects else text
            rows: list[Row] = [spread([(text, STRONG)], [(units.seconds(for_ns / 1e9), STRONG)], width)]
            return [*rows, *styled_lines(reason or NO_STEPS_HINT if late else "", width, height - 1)]
        first = f"connecting to {lane.spec.host}" if connects else STAGES[STARTING]
        first += f" on {lane.spec.host}" if lane.spec.host and not connects else ""
        current, texts = [*STAGES].index(lane.phase), (first, *[*STAGES.values()][1:])
        stage = f"{texts[current]} · {for_ns // 1_000_000_000} s"
        numbered = f"stage {current + 1} of {len(STAGES)}: {stage}"
        headline: Row = ((numbered if len(numbered) <= width else stage, STRONG),)
        foot: Row = ((f"{max(0, now_ns - lane.process.started_ns) // 1_000_000_000} s since its start", DIM),)
        if height < LIST_ROWS:
            return [headline, foot][: max(1, height)]
        rows = [headline]
        for index, text in enumerate(texts):
            mark, style = ("✓", accent) if index < current else ("·", DIM)
            mark, style = ("▸", strong(accent)) if index == current else (mark, style)
            rows.append(((f"  {mark} ", style), (text, TEXT if index == current else DIM)))
        return [*rows, foot]

    def _preparing(self, height: int) -> list[Row]:
        lane, width = self.lane, self.width
        rows = self.progress(height if height >= LIST_ROWS + 4 else min(height, 3))
        names = ["knobs", "cpu", "memory", *(["gpu", "gpu memory"] if lane.spec.kind == "gpu" else []), "note"]
        reasons = wrap(lane.spec.chosen, width - LABEL_CELLS, 2)
        chosen = [labelled("" if index else "device", (line, TEXT)) for index, line in enumerate(reasons)]
        return [*rows, BLANK, *chosen, *(row for name in names for row in self.readings[name])][:height]

    def _frame(self) -> tuple[tuple[str, ...], str]:
        frame = FOCUS_FRAME if self.focused else PLAIN_FRAME
        if self.lane.phase == FAILED:
            return frame, TROUBLE
        return frame, self.accent if self.focused else faint(self.accent)

    def _title(self, width: int) -> Row:
        lane = self.lane
        (left, right, _, _, flat, _), edge = self._frame()
        state = self._state(width)
        silent = self.snapshot.silent_s(lane) is not None
        warns = lane.phase == PAUSED or silent or lane.stalled_s(self.snapshot.at_ns) is not None
        style = strong(TROUBLE) if lane.phase == FAILED else strong(WARN) if warns else STRONG
        names, id = reading_rows.lane_names(self.snapshot, lane), "" if self.alone else lane.spec.id or "?"
        room = width - 7 - max(len(state), len(state.replace(WAITING, AT_WORK)))
        if state in (AT_WORK, WAITING) and min(map(cell_len, names)) > room - 4 - len(id):
            state, room = AT_WORK[0] if state == AT_WORK else "·", width - 8
        name = fitting_name(names, max(0, room - 4 - len(id)))
        rest = room - len(id) - 4 - cell_len(name)
        device = fitting_device(self.snapshot.device_name(lane), rest - 1)
        spans: list[tuple[str, str]] = [
            (left + flat, edge), (f" {id} " if id else "", strong(self.accent)), (f" {name} ", STRONG),
            (f" {device} " if device else "", DIM),
        ]  # fmt: skip
        end: Row = ((f" {state} ", style), (flat + right, edge))
        return fit((*spans, (flat * (width - cells(spans) - cells(end)), edge), *end), width)

    def _state(self, width: int) -> str:
        lane, now_ns, race = self.lane, self.snapshot.at_ns, self.snapshot.race
        if lane.over:
            trained_ns = lane.measurements.until_ns if lane.phase == DONE else None
            until_ns = lane.phase_since_ns if trained_ns is None else trained_ns
            began_ns = lane.process.started_ns if race.started_ns is None else race.started_ns
            elapsed = units.clock(max(0, until_ns - began_ns) / 1e9)
            return lane.phase if lane.phase == ABSENT else f"{lane.state} after {elapsed}"
        if self.view.stopping:
            return "ending"
        if (hung_s := lane.stalled_s(now_ns)) is not None:
            return f"stalled {units.clock(hung_s)}"
        if (silent_s := self.snapshot.silent_s(lane)) is not None:
            return f"link silent {units.clock(silent_s)}"
        since_ns, doing = lane.phase_since_ns, phase_text(lane, self.snapshot)
        in_turns = lane.phase == RACING and race.mode == TURNS and not self.alone
        if in_turns:
            since_ns = max(since_ns, lane.turn_since_ns)
            doing = AT_WORK if lane.spec.name in race.training else WAITING
        return f"{doing} {units.clock((now_ns - since_ns) / 1e9)}" if width >= 56 or not in_turns else doing

    @functools.cached_property
    def readings(self) -> dict[str, list[Row]]:
        """The rows of each reading, in display order."""
        width = self.width
        lane, accent, snapshot, bottleneck = self.lane, self.accent, self.snapshot, self.analysed.bottleneck
        over, times = snapshot.over, (lane.steady.span_ns / 1e9, lane.measurements.ran_ns / 1e9)
        measured = units.measured(*times, lane.discarded_shares)
        any_gpu = not over and any(lane.spec.kind == "gpu" for lane in snapshot.lanes)
        speed, interval = self.analysed.speed, ""
        if speed and over:
            interval = f"95 % CI {units.rate(speed.low)} to {units.rate(speed.high)} examples/s"
        return {
            "speed": [self._speed_row(width)],
            "interval": styled_lines(interval, width, _MOST, DIM),
            "bottleneck": [] if self.alone else self._bottleneck(),
            "help": styled_lines(bottleneck.help if bottleneck and over else "", width, _MOST, STRONG),
            "step": [self._step()],
            "time": [reading_rows.time_row(bottleneck.shares if bottleneck else None, width, accent)],
            "loss": self._losses(),
            "done": [reading_rows.done_row(lane, width, discarded=not over)],
            "knobs": [] if self.alone and not snapshot.race.knobs else reading_rows.knobs_rows(lane, width, _MOST),
            "cpu": [] if over else [self._cpu()],
            "memory": [] if over else [self._memory()],
            "gpu": [reading_rows.gpu_load_row(lane, snapshot, width, accent)] if any_gpu else [],
            "gpu memory": [reading_rows.gpu_memory_row(lane, snapshot, width)] if any_gpu else [],
            "measured": styled_lines(measured if over else "", width, _MOST, DIM),
            "note": self._note(),
            **(self._single_lane_rows(width) if self.alone else {}),
        }

    def _speed_row(self, width: int) -> Row:
        lane, recent, verdict = self.lane, self.analysed.recent, self.analysis.verdict
        speed, now_ns = recent.examples_per_s, self.snapshot.at_ns
        steps = recent.steps_per_s if "steps" not in lane.script.not_measured else None
        still_s = lane.stalled_s(now_ns) or self.snapshot.stands_still_s(lane)
        resting = (lane.phase in (PAUSED, DONE) and not self.snapshot.over) or still_s is not None
        number = units.rate(speed) if speed is not None and still_s is None else "---"
        per_step = "not measured" if lane.over else "measuring"
        if still_s is not None:
            per_step = f"no step for {units.duration(still_s)}"
        elif steps is not None:
            per_step = f"{units.rate(steps)} steps/s"
        row: Row = ((number, DIM if resting else strong(self.accent)), (" examples/s", DIM if resting else STRONG))
        row = labelled("speed", *row) if self.alone else row
        leads = lane.spec.id == verdict.winner_id and verdict.ratio
        counted = self.alone and lane.script.progress is not None and lane.script.progress.epochs  # beside epochs
        steps_done = f"  {units.several(lane.totals.steps, 'step')}" if counted and lane.totals.steps else ""
        for part in (
            (f"  ▲ {units.ratio(leads)} ahead" if leads else "", strong(self.accent)),
            (f"  {per_step}", DIM),
            (steps_done, DIM),
        ):
            if cells((*row, part)) <= width:
                row = (*row, part)
        return row

    def _step(self) -> Row:
        """Return the running step if it is long, else quantiles since the last knob change."""
        lane, now_ns, wide = self.lane, self.snapshot.at_ns, self.width >= WIDE
        runs_s, last = lane.step_runs_s(now_ns), lane.points[-1] if lane.points else None
        ended = lane.over and lane.totals.steps > 0
        if ended or runs_s < LONG_STEP_S + _BEHIND_S or lane.stalled_s(now_ns) is not None:
            p50, p95, p99 = (lane.steady.step_ms(fraction) for fraction in (0.5, 0.95, 0.99))
            if p50 is None or p95 is None or p99 is None:
                return labelled("step", (UNKNOWN, DIM))
            spans = [("p50 " if wide else "", DIM), (units.milliseconds(p50).ljust(9), TEXT)]
            for name, value, width in (("p95 ", p95, 6), ("p99 ", p99, 0)):
                spans += [(name, DIM), (units.milliseconds(value).removesuffix(" ms").ljust(width), TEXT)]
            return labelled("step", *spans)
        number = f"{'step ' if wide else ''}{units.count(lane.totals.steps + 1)}"
        took_s = last.span_ns / last.steps / 1e9 if last is not None and last.steps else None
        if lane.changes.requested and last is not None and took_s is not None:
            asked_ns = max(request.at_ns for request in lane.changes.requested.values())
            soon = f"change in effect in {units.about(max(1.0, took_s - runs_s))}"
            soon = soon if last.at_ns < asked_ns else "the change is being prepared"
            return labelled("step", (f"{number} runs; " if wide else "", TEXT), (soon, STRONG))
        before = f", {'the last took' if wide else 'last'} {units.duration(took_s)}" if took_s else ""
        runs = " runs for " if wide else " runs "
        return labelled("step", (number, TEXT), (runs, DIM), (units.seconds(runs_s), TEXT), (before, DIM))

    def _bottleneck(self) -> list[Row]:
        """Return the bottleneck; a cause precedes figures."""
        bottleneck, width = self.analysed.bottleneck, self.width
        if bottleneck is None:
            return []
        badge = bottleneck.taken_by_others == MACHINE_BUSY  # in the header
        limit, cause = bottleneck.limit if badge else bottleneck.text, bottleneck.cause
        text = f"{limit}; {cause}" if cause else limit
        if cause and len(wrap(text, width, _MOST + 1)) > _MOST:
            text = f"{limit.partition(':')[0]}; {cause}"
        return styled_lines(text, width, _MOST)

    def _cpu(self) -> Row:
        lane, cores = self.lane, self.snapshot.machine_of(self.lane).usable_cores
        value = lane.tree.cpu_pct
        if lane.over or isinstance(value, Missing):
            return labelled("cpu", (units.absent(value) if isinstance(value, Missing) else UNKNOWN, DIM))
        text = f"{value:4.0f} % of {units.cores(round(100 * cores))}" if cores else f"{value:4.0f} %"
        share = value / (100 * cores) if cores else None
        return labelled("cpu", *bar(share, text, self.width - LABEL_CELLS, self.accent))

    def _memory(self) -> Row:
        value = self.lane.tree.private_bytes
        text = units.reading(value, lambda size: f"{units.memory(size)} private")
        unknown = self.lane.over or isinstance(value, Missing)
        return labelled("memory", (UNKNOWN if self.lane.over else text, DIM if unknown else TEXT))

    def _note(self) -> list[Row]:
        lane, silent_s = self.lane, self.snapshot.silent_s(self.lane)
        stalled = "no message comes" if self.view.fixed else "Enter, then S shows its stacks, K ends it"
        lines, changes = units.several(lane.process.bad_lines, "unreadable line"), lane.changes
        problems = (
            ("link", f"nothing came for {units.seconds(silent_s)}" if silent_s is not None else ""),
            ("stopped", lane.script.not_measured.get("stopped", "")),
            ("stalled", stalled if lane.heartbeat.stalled_since_ns is not None else ""),
            ("refused", changes.refused if self.snapshot.at_ns - changes.refused_ns < REFUSED_NS else ""),
            ("note", f"{lines} skipped: {lane.process.last_bad_line}" if lane.process.bad_lines else ""),
        )
        return [labelled(label, (text, WARN)) for label, text in problems if text][:1]

    def _losses(self) -> list[Row]:
        losses, validation = self.lane.totals.losses, self.lane.script.validation
        if losses.first is None or losses.last is None:
            row = labelled("loss", (f"{UNKNOWN} {self.lane.script.not_measured.get('loss', '')}".rstrip(), DIM))
        else:
            lost = f" by step {units.count(losses.lost)}" if losses.lost else ""
            last = (units.loss(losses.last) + lost, WARN if lost else TEXT)
            row = labelled("loss", (units.loss(losses.first), TEXT), (" → ", DIM), last)
        if not self.alone or validation.first is None or validation.last is None:
            return [row]
        ends: Row = ((units.loss(validation.first), TEXT), (" → ", DIM), (units.loss(validation.last), TEXT))
        beside: Row = (*row, ("   validation ", DIM), *ends)
        return [beside] if cells(beside) <= self.width else [row, labelled("val.", *ends)]

    def _single_lane_rows(self, width: int) -> dict[str, list[Row]]:
        """Return additional rows of a single lane. The headline is the worst fault, costliest cause or limit."""
        (analysed,), (worse, lesser) = self.analysis.lanes, faults_of(self.snapshot, self.lane)
        limit, help = (
            (analysed.bottleneck.limit, analysed.bottleneck.help) if analysed.bottleneck is not None else ("", "")
        )
        cause = next((cause for cause in analysed.causes if cause.count), None)
        if cause is not None:
            gain = "" if cause.gain_s is None else f"fixing it saves about {units.duration(cause.gain_s)}"
            gain += "" if cause.gain_pct is None else f", {units.percent(cause.gain_pct)} of the time"
            brief = styled_lines(cause.brief, width, 2, STRONG)
            of_cause = [*brief, *styled_lines(gain, width, 1), *styled_lines(cause.advice, width, 2)]
        else:
            of_cause = [*styled_lines(limit, width, 2, STRONG), *styled_lines(help, width, 2)]
            limit = ""
        healthy = self.analysis.verdict.short.removeprefix(f"{self.lane.title}: ")
        also = styled_lines(news_line(self.analysis, self.view), width, _MOST, STRONG)
        also += styled_lines(healthy, width, 1) if healthy.startswith("healthy") else []
        also += of_cause if worse else []
        for text in (*worse[1:], *lesser, limit):
            also += styled_lines(text, width, _MOST, DIM)
        no_gpu = "" if self.snapshot.over else self.snapshot.machine.no_gpu
        return {
            "headline": styled_lines(worse[0], width, _MOST, strong(WARN)) if worse else of_cause,
            "also": also,
            "run": self._wall_time(width),
            "no gpu": [labelled("no gpu", (line, DIM)) for line in wrap(no_gpu, width - LABEL_CELLS, 2)],
            **{f"gap {number}": [BLANK] for number in (1, 2, 3)},
        }

    def _wall_time(self, width: int) -> list[Row]:
        parts, room = wall_parts(self.lane), width - LABEL_CELLS
        avoidable = (part for part in parts if part[0] in _AVOIDABLE)
        largest = max(avoidable, key=lambda part: part[1], default=("", 0))[0]
        styles = {largest: WARN, TRAINING: TEXT}
        spans = stacked(((share, _GLYPHS[name], styles.get(name, DIM)) for name, share in parts), room)
        legend = "  ".join(f"{_GLYPHS[name]}{name} {share} %".replace(" ", NO_BREAK) for name, share in parts)
        bar = [labelled("run", *spans)] if parts else []
        return [*bar, *(labelled("", (line, TEXT)) for line in wrap(legend, room, 2))]

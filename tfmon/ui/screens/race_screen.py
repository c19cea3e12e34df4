"""The race screen."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from tfmon.model.control_messages import ChangeLanes, ChangeMode
from tfmon.model.lane_state import FAILED, RACING, LaneState
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.keys import RACE_KEYS
from tfmon.ui.lines import Lines
from tfmon.ui.messages import LaneClicked
from tfmon.ui.monitor import Monitor
from tfmon.ui.render import chart_data, machine_rows
from tfmon.ui.render.layout import arrange
from tfmon.ui.render.race_frame import PARTS, RaceFrame, draw, in_sight, layout_of
from tfmon.ui.screens.page import MonitorScreen, bound
from tfmon.ui.source import (
    OWN,
    SHARED,
    SPANS_S,
    acknowledged,
    focused_index,
    pause_or_resume,
    targets,
    titles,
    with_failures,
)

_SCALE_WORDS = {SHARED: "one axis for all lanes", OWN: "an axis for each lane"}


class Pane(Lines):
    """A lane. A click focuses it, and a double click zooms."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = 0

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(LaneClicked(self.lane, event.chain > 1))


class RaceScreen(MonitorScreen):
    """Shows the race. Thread: the app's only."""

    DEFAULT_CSS = """
    RaceScreen {
        overflow: hidden;
        & > #panes { layout: grid; height: 1fr; }
        & Pane { height: 100%; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [bound(key.id) for key in RACE_KEYS]

    parts: tuple[str, ...] = PARTS
    foot = 0

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.lines = {name: self.part(name) for name in self.parts}
        self.grid = Container(id="panes")

    def compose(self) -> ComposeResult:
        for name, lines in self.lines.items():
            if name == "status":
                yield self.grid
            yield lines

    def part(self, name: str) -> Lines:
        return Lines(id=name)

    def draw(self) -> RaceFrame:
        monitor, known = self.monitor, self.monitor.analysis
        width, height = self.app.size.width, max(1, self.app.size.height - self.foot)
        layout = layout_of(known, monitor.view, width, height)
        view = with_failures(monitor.view, known.snapshot, in_sight(known.snapshot, layout))
        frame = draw(known, view, width, height)
        monitor.view = replace(view, scales=frame.scales)
        return frame

    def redraw(self) -> None:
        if not self.grid.is_attached:
            return
        frame = self.draw()
        for name, lines in self.lines.items():
            rows = frame.parts.get(name, ())
            lines.display = bool(rows)
            lines.show(rows)
        self._show_panes(frame)

    def _show_panes(self, frame: RaceFrame) -> None:
        self.grid.display = bool(frame.panes)
        self.grid.styles.grid_size_columns = frame.layout.columns
        panes = [*self.grid.query(Pane)]
        new = [Pane() for _ in range(len(frame.panes) - len(panes))]
        if new:
            self.grid.mount(*new)
        for pane, lane in zip_longest((*panes, *new), frame.panes):
            pane.display = lane is not None
            if lane is not None:
                pane.lane = lane
                pane.show(frame.panes[lane])

    def on_click(self, event: events.Click) -> None:
        if event.chain > 1 and self.monitor.view.zoomed and not event.style.meta.get("@click"):
            self.action_toggle_zoom()

    def on_lane_clicked(self, message: LaneClicked) -> None:
        if message.twice:
            self.action_toggle_zoom(message.lane)
        else:
            self.action_focus_lane(message.lane)

    def on_mouse_scroll_down(self) -> None:
        self.action_move_page(1)

    def on_mouse_scroll_up(self) -> None:
        self.action_move_page(-1)

    def action_pause_or_resume(self) -> None:
        if not self.may_act():
            return
        pause, resume = pause_or_resume(self._targets())
        if pause:
            names = tuple(lane.spec.name for lane in pause)
            self.monitor.source.send(ChangeLanes("pause", names))

            def paused(now: Snapshot) -> bool:
                return not any(lane.phase == RACING for lane in now.lanes if lane.spec.name in names)

            self.monitor.say(f"pause requested: {titles(pause)}", paused)
        elif resume:
            self.monitor.source.send(ChangeLanes("resume", tuple(lane.spec.name for lane in resume)))
            self.monitor.say(f"resumed: {titles(resume)}")
        else:
            self.monitor.say("no lane is training, so there is nothing to pause")

    def action_switch_mode(self) -> None:
        if not self.may_act():
            return
        if why := why_mode_stays(self.monitor.snapshot.lanes):
            self.monitor.say(why)
            return
        mode = CONCURRENT if self.monitor.snapshot.race.mode == TURNS else TURNS
        self.monitor.source.send(ChangeMode(mode))
        self.monitor.say(machine_rows.mode_said(self.monitor.snapshot, mode))

    def action_restart(self) -> None:
        if not self.may_act():
            return
        chosen, name = self._targets(), self.monitor.snapshot.race.scenario
        lost = [lane for lane in chosen if lane.phase == FAILED]
        lanes = lost if any(not lane.over for lane in chosen) and lost else chosen
        if not self.monitor.confirmed("restart", lanes, f"start {name} again from its beginning"):
            return
        self.monitor.source.send(ChangeLanes("restart", tuple(lane.spec.name for lane in lanes)))
        began = {lane.spec.name: lane.process.started_ns for lane in lanes}

        def started(now: Snapshot) -> bool:
            return all(lane.process.started_ns > began.get(lane.spec.name, -1) for lane in now.lanes)

        self.monitor.say(f"restarting {titles(lanes)}", started)

    def action_save_picture(self) -> None:
        self.monitor.save_picture(self.monitor.source.table() or self.plain_text())

    def action_try_advice(self) -> None:
        self.try_advice(self._targets())

    def _targets(self) -> list[LaneState]:
        return targets(self.monitor.snapshot.lanes, self.monitor.view.focused)

    def action_move_focus(self, direction: int) -> None:
        lanes = self.monitor.snapshot.lanes
        at = focused_index(self.monitor.view, self.monitor.snapshot)
        ring = [*([] if self.monitor.view.zoomed else [None]), *range(len(lanes))]
        self._focus(ring[(ring.index(at) + direction) % len(ring)])

    def action_focus_all(self) -> None:
        if self.monitor.view.zoomed:
            self.action_toggle_zoom()
            return
        self.monitor.view = acknowledged(self.monitor.view)
        self._focus(None)

    def action_focus_lane(self, index: int) -> None:
        if self.monitor.view.zoomed:
            return
        self._focus(None if focused_index(self.monitor.view, self.monitor.snapshot) == index else index)

    def action_move_page(self, direction: int) -> None:
        lanes = self.monitor.snapshot.lanes
        at = focused_index(self.monitor.view, self.monitor.snapshot) or 0
        per_page = arrange(*self.app.size, len(lanes)).per_page
        if not per_page or per_page >= len(lanes):
            return
        pages = -(-len(lanes) // per_page)
        self._focus((at // per_page + direction) % pages * per_page)

    def _focus(self, index: int | None) -> None:
        lanes = self.monitor.snapshot.lanes
        focused = None if index is None or index >= len(lanes) else lanes[index].spec.name
        self.monitor.view = replace(self.monitor.view, focused=focused, message_until_ns=0)
        self.monitor.pull()

    def action_toggle_zoom(self, lane: int | None = None) -> None:
        view, lanes = self.monitor.view, self.monitor.snapshot.lanes
        if view.zoomed:
            self._look(zoomed=False, focused=view.zoomed_from, zoomed_from=None)
        elif not lanes:
            self.monitor.say("there is no lane yet to zoom in on")
        elif arrange(*self.app.size, len(lanes), 0).kind != "panes":
            self.monitor.say("there is no room to zoom: the terminal is too small")
        else:
            at = lane if lane is not None else focused_index(view, self.monitor.snapshot) or 0
            self._look(zoomed=True, zoomed_from=view.focused, focused=lanes[at].spec.name)

    def action_next_metric(self) -> None:
        view, snapshot = self.monitor.view, self.monitor.snapshot
        metric = chart_data.next_metric(snapshot, view.metric)
        self._look(metric=metric, scales={})
        chosen = chart_data.BY_ID[metric]
        lacking = [f"{lane.spec.id}: {chart_data.absent(lane, chosen)}" for lane in snapshot.lanes]
        missing = [one for one in lacking if not one.endswith(": ")]
        self.monitor.say(" · ".join([f"the charts show {chosen.label}", *missing]))

    def action_next_scale(self) -> None:
        scale = OWN if SHARED in self.monitor.view.scales else SHARED
        self._look(scale=scale, scales={})
        self.monitor.say(f"the charts have {_SCALE_WORDS[scale]}")

    def action_next_span(self) -> None:
        span_s = SPANS_S[(SPANS_S.index(self.monitor.view.span_s) + 1) % len(SPANS_S)]
        self._look(span_s=span_s, scales={})
        self.monitor.say(f"the charts show the last {span_s // 60} min")

    def _look(self, **changes: object) -> None:
        self.monitor.view = replace(self.monitor.view, **changes)  # type: ignore[arg-type]
        self.monitor.pull()

    def action_show_crossover(self) -> None:
        if self.monitor.analysis.curve is not None:
            self.monitor.open("crossover")
        elif self.monitor.refusal:
            self.monitor.say("no crossover was measured up to this moment of the race")
        else:
            self.monitor.open("new crossover")

    def action_pick_scenario(self) -> None:
        if not self.monitor.may_change():
            return
        training = [lane for lane in self.monitor.snapshot.lanes if not lane.over]
        what = f"end {self.monitor.snapshot.race.scenario} and choose a scenario"
        if self.monitor.confirmed("scenario", training, what):
            self.monitor.open("scenarios")

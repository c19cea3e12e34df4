"""The main screen: it draws the race and turns key presses into requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from tfmon.model.lane_state import FAILED, RACING, LaneState
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.keys import RACE_KEYS
from tfmon.ui.render import hosts, series
from tfmon.ui.render.layout import Zone, arrange
from tfmon.ui.render.race import RaceFrame, draw, in_sight
from tfmon.ui.render.rows import Row
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
from tfmon.ui.textual_compat import text_of

RIGHT_BUTTON = 3
_SCALE_WORDS = {SHARED: "one axis for all lanes", OWN: "an axis for each lane"}


class RaceScreen(MonitorScreen):
    """Shows the race. Thread: the app's only."""

    CSS = "RaceScreen { overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [bound(key.id) for key in RACE_KEYS]

    _clicked_at = (-1, -1)
    """Position of the last click. Textual reports two quick clicks as double even if their places differ."""

    foot = 0

    def redraw(self) -> None:
        """Draw the latest snapshot, and keep what the next key press and frame need; only changes are painted."""
        monitor, known = self.monitor, self.monitor.analysis
        width, height = self.app.size.width, max(1, self.app.size.height - self.foot)
        view = with_failures(monitor.view, known.snapshot, in_sight(known, monitor.view, width, height))
        page = draw(known, view, width, height)
        self.zones = page.zones
        monitor.view = replace(view, scales=page.scales)
        self.canvas.show(self.finished(page))

    def finished(self, page: RaceFrame) -> Sequence[Row]:
        return page.rows

    def on_click(self, event: events.Click) -> None:
        """Do what was clicked: a pane takes the focus, a key at the bottom acts; twice: the pane is zoomed."""
        zone = self.zone_at(event)
        if self._double_clicked(event, zone):
            return
        if zone is not None and zone.knob and event.button == RIGHT_BUTTON:
            self.action_step_knob(zone.knob, -1)
        elif zone is not None:
            self.call_next(self.run_action, zone.action)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        zone = self.zone_at(event)
        if zone is not None and zone.knob:
            self.action_step_knob(zone.knob, -direction)
        else:
            self.action_move_page(direction)

    def action_pause_or_resume(self) -> None:
        if not self.may_act():
            return
        pause, resume = pause_or_resume(self._targets())
        if pause:
            self.monitor.controls.pause([lane.spec.name for lane in pause])
            names = {lane.spec.name for lane in pause}

            def paused(now: Snapshot) -> bool:
                return not any(lane.phase == RACING for lane in now.lanes if lane.spec.name in names)

            self.monitor.say(f"pause requested: {titles(pause)}", paused)
        elif resume:
            self.monitor.controls.resume([lane.spec.name for lane in resume])
            self.monitor.say(f"resumed: {titles(resume)}")
        else:
            self.monitor.say("no lane is racing, so there is nothing to pause")

    def action_switch_mode(self) -> None:
        if not self.may_act():
            return
        if why := why_mode_stays(self.monitor.snapshot.lanes):
            self.monitor.say(why)
            return
        mode = CONCURRENT if self.monitor.snapshot.race.mode == TURNS else TURNS
        self.monitor.controls.set_mode(mode)
        self.monitor.say(hosts.mode_said(self.monitor.snapshot, mode))

    def action_restart(self) -> None:
        if not self.may_act():
            return
        chosen, name = self._targets(), self.monitor.snapshot.race.scenario
        lost = [lane for lane in chosen if lane.phase == FAILED]
        lanes = lost if any(not lane.over for lane in chosen) and lost else chosen
        if not self.monitor.confirmed("restart", lanes, f"start {name} again from its beginning"):
            return
        self.monitor.controls.restart([lane.spec.name for lane in lanes])
        began = {lane.spec.name: lane.process.started_ns for lane in lanes}

        def started(now: Snapshot) -> bool:
            return all(lane.process.started_ns > began.get(lane.spec.name, -1) for lane in now.lanes)

        self.monitor.say(f"restarting {titles(lanes)}", started)

    def action_save_picture(self) -> None:
        self.monitor.save_picture(self.monitor.source.table() or text_of(self))

    def action_try_advice(self) -> None:
        self.try_advice(self._targets())

    def _targets(self) -> list[LaneState]:
        return targets(self.monitor.snapshot.lanes, self.monitor.view.focused)

    def action_move_focus(self, direction: int) -> None:
        """Focus the next lane; after the last one keys act on all lanes again."""
        lanes = self.monitor.snapshot.lanes
        at = focused_index(self.monitor.view, self.monitor.snapshot)
        ring = [*([] if self.monitor.view.zoomed else [None]), *range(len(lanes))]
        self._focus(ring[(ring.index(at) + direction) % len(ring)])

    def action_focus_all(self) -> None:
        """End the zoom, or let keys act on all lanes and acknowledge hidden failures."""
        if self.monitor.view.zoomed:
            self.action_toggle_zoom()
            return
        self.monitor.view = acknowledged(self.monitor.view)
        self._focus(None)

    def action_focus_lane(self, index: int) -> None:
        """Focus one lane, or all lanes if it already has the focus."""
        self._focus(None if focused_index(self.monitor.view, self.monitor.snapshot) == index else index)

    def action_move_page(self, direction: int) -> None:
        """Focus the first lane of the next page of panes."""
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
        """Give a lane the whole width, by default the focused one or else the first; or show all again."""
        view, lanes = self.monitor.view, self.monitor.snapshot.lanes
        if view.zoomed:
            self._look(zoomed=False, focused=view.zoomed_from, zoomed_from=None)
        elif not lanes:
            self.monitor.say("there is no lane yet to zoom in on")
        elif arrange(*self.app.size, len(lanes)).kind != "panes":
            self.monitor.say("there is no room to zoom: the terminal is too small")
        else:
            at = lane if lane is not None else focused_index(view, self.monitor.snapshot) or 0
            self._look(zoomed=True, zoomed_from=view.focused, focused=lanes[at].spec.name)

    def _double_clicked(self, event: events.Click, zone: Zone | None) -> bool:
        before, self._clicked_at = self._clicked_at, (event.screen_x, event.screen_y)
        if event.chain < 2 or before != self._clicked_at:
            return False
        if self.monitor.view.zoomed and zone is None:
            self.action_toggle_zoom()
        elif zone is not None and zone.action.startswith("focus_lane("):
            self.action_toggle_zoom(int(zone.action.removeprefix("focus_lane(").rstrip(")")))
        else:
            return zone is not None and not zone.knob
        return True

    def action_next_metric(self) -> None:
        view, snapshot = self.monitor.view, self.monitor.snapshot
        metric = series.next_metric(snapshot, view.metric)
        self._look(metric=metric, scales={})
        chosen = series.BY_ID[metric]
        lacking = [f"{lane.spec.id}: {series.absent(lane, chosen)}" for lane in snapshot.lanes]
        missing = [one for one in lacking if not one.endswith(": ")]
        self.monitor.say(" · ".join([f"the charts show {chosen.label}", *missing]))

    def action_next_scale(self) -> None:
        scale = OWN if self.monitor.view.scale == SHARED else SHARED
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
        """Open the page of the crossover, or ask for one if there is none up to now."""
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

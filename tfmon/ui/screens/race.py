"""The main screen: it draws the race and turns key presses into requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from tfmon.model.lane_state import FAILED, RACING, LaneState
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.session import Snapshot
from tfmon.ui import requests
from tfmon.ui.keys import RACE_KEYS
from tfmon.ui.monitor import Monitor
from tfmon.ui.render import hosts
from tfmon.ui.render.bars import message_of
from tfmon.ui.render.layout import Rect, arrange
from tfmon.ui.render.race import RaceFrame, draw, in_sight
from tfmon.ui.screens.looking import Looking
from tfmon.ui.screens.page import MonitorScreen
from tfmon.ui.view import acknowledged, focused_index, standing_still, with_failures

RIGHT_BUTTON = 3


def _racing(snapshot: Snapshot, names: Collection[str]) -> bool:
    return any(lane.phase == RACING for lane in snapshot.lanes if lane.spec.name in names)


def _started_since(snapshot: Snapshot, began_ns: Mapping[str, int]) -> bool:
    """Return whether each of the lanes has started since, or is gone."""
    return all(lane.started_ns > began_ns.get(lane.spec.name, -1) for lane in snapshot.lanes)


class RaceScreen(Looking, MonitorScreen):
    """Shows the race. Thread: the app's only."""

    CSS = "RaceScreen { overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, id=key.id, show=False) for key in RACE_KEYS
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.charts: tuple[Rect, ...] = ()
        """Where the charts are."""

    def redraw(self) -> None:
        """Draw the latest snapshot; only what changed is painted."""
        width, height = self.app.size
        page = self.draw_race(width, height)
        self.canvas.show(page.rows)

    def draw_race(self, width: int, height: int) -> RaceFrame:
        """Return the race for that size, and keep what the next key press and the next frame need to know."""
        monitor, live, shown = self.monitor, self.monitor.snapshot, self.monitor.shown
        seen = () if monitor.view.frozen else in_sight(shown, monitor.view, width, height)
        view = with_failures(monitor.view, live, seen)
        drawn = standing_still(view, shown.snapshot, live, message_of(view, live)) if view.frozen else view
        page = draw(shown, drawn, width, height)
        self.zones = page.zones
        self.charts = page.charts
        monitor.view = replace(view, scales=page.scales)
        return page

    def on_click(self, event: events.Click) -> None:
        """Do what was clicked: a pane takes the focus, a key at the bottom acts; twice: the pane is zoomed."""
        zone = self.zone_at(event)
        if self.double_clicked(event, zone):
            return
        if zone is not None and zone.knob and event.button == RIGHT_BUTTON:
            self.action_step_knob(zone.knob, -1)
        elif zone is not None:
            self.call_next(self.run_action, zone.action)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Step the knob below the pointer up; elsewhere show the lanes before."""
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Step the knob below the pointer down; elsewhere show hidden lanes."""
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        zone = self.zone_at(event)
        if zone is not None and zone.knob:
            self.action_step_knob(zone.knob, -direction)
        else:
            self.action_move_page(direction)

    # ------------------------------------------------------------ knobs

    def action_pause_or_resume(self) -> None:
        """Pause the lanes that race, or resume those that are paused."""
        if not self.may_act():
            return
        pause, resume = requests.pause_or_resume(self._targets())
        if pause:
            self.monitor.controls.pause([lane.spec.name for lane in pause])
            names = {lane.spec.name for lane in pause}
            self.monitor.say(f"pause requested: {requests.titles(pause)}", lambda now: not _racing(now, names))
        elif resume:
            self.monitor.controls.resume([lane.spec.name for lane in resume])
            self.monitor.say(f"resumed: {requests.titles(resume)}")
        else:
            self.monitor.say("no lane is racing, so there is nothing to pause")

    def action_switch_mode(self) -> None:
        """Change from taking turns to training all at once, or back."""
        if not self.may_act():
            return
        if why := why_mode_stays(self.monitor.snapshot.lanes):
            self.monitor.say(why)
            return
        mode = CONCURRENT if self.monitor.snapshot.race.mode == TURNS else TURNS
        self.monitor.controls.set_mode(mode)
        self.monitor.say(hosts.mode_said(self.monitor.snapshot, mode))

    def action_restart(self) -> None:
        """Start the lanes again: the focused one, or those that failed, or all."""
        if not self.may_act():
            return
        chosen, name = self._targets(), self.monitor.snapshot.race.scenario
        lost = [lane for lane in chosen if lane.phase == FAILED]
        lanes = lost if any(not lane.over for lane in chosen) and lost else chosen
        if not self.monitor.confirmed("restart", lanes, f"start {name} again from its beginning"):
            return
        self.monitor.controls.restart([lane.spec.name for lane in lanes])
        began = {lane.spec.name: lane.started_ns for lane in lanes}
        self.monitor.say(f"restarting {requests.titles(lanes)}", lambda now: _started_since(now, began))

    def action_save_picture(self) -> None:
        """Save the screen as an SVG file and the race as a table."""
        self.monitor.save_picture(self.monitor.source.table() or self.canvas.text())

    def action_try_advice(self) -> None:
        """Try on a lane what may help it most."""
        self.try_advice(self._targets())

    def _targets(self) -> list[LaneState]:
        return requests.targets(self.monitor.snapshot.lanes, self.monitor.view.focused)

    # ------------------------------------------------------------ focus

    def action_move_focus(self, direction: int) -> None:
        """Focus the next lane; after the last one keys act on all lanes again."""
        lanes = self.monitor.snapshot.lanes
        at = focused_index(self.monitor.view, self.monitor.snapshot)
        ring = [*([] if self.monitor.view.zoomed else [None]), *range(len(lanes))]
        self._focus(ring[(ring.index(at) + direction) % len(ring)])

    def action_focus_all(self) -> None:
        """End the cursor, else the zoom, else let keys act on all lanes and acknowledge hidden failures."""
        if self.stop_looking():
            return
        self.monitor.view = acknowledged(self.monitor.view)
        self._focus(None)

    def action_focus_lane(self, index: int) -> None:
        """Focus one lane, or all again if it has the focus already."""
        self._focus(None if focused_index(self.monitor.view, self.monitor.snapshot) == index else index)

    def action_move_page(self, direction: int) -> None:
        """Focus the first lane of the next page of panes, or scroll charts that do not follow."""
        if self.scroll_page(direction):
            return
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

    # ------------------------------------------------------------ pages

    def action_show_crossover(self) -> None:
        """Open the page of the crossover, or ask for one if there is none up to now."""
        if self.monitor.analysis.curve is not None:
            self.monitor.open("crossover")
        elif self.monitor.refusal:
            self.monitor.say("no crossover was measured up to this moment of the race")
        else:
            self.monitor.open("new crossover")

    def action_pick_scenario(self) -> None:
        """Let the user choose another scenario, and race it."""
        if not self.monitor.may_change():
            return
        training = [lane for lane in self.monitor.snapshot.lanes if not lane.over]
        what = f"end {self.monitor.snapshot.race.scenario} and choose a scenario"
        if self.monitor.confirmed("scenario", training, what):
            self.monitor.open("scenarios")

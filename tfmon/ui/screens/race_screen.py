"""The screens of a race and a replay."""

from __future__ import annotations

from itertools import zip_longest
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from tfmon.model.lane_events import PAUSED, RACING
from tfmon.model.lane_state import FAILED, LaneState
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.requests import Command
from tfmon.ui.keys import RACE_KEYS, REPLAY_KEYS, watches
from tfmon.ui.lines import Lines
from tfmon.ui.monitor import Monitor
from tfmon.ui.render import chart, reading_rows
from tfmon.ui.render.race_frame import draw
from tfmon.ui.screens.page import MonitorScreen, bound
from tfmon.ui.source import OWN, SHARED, SPANS_S, focused_index, targets, titles

REPLAY_PULL_S = 0.1
TAKEN = "pause"
"""Id of the race key that a replay replaces."""
_SCALE_WORDS = {SHARED: "one axis for all lanes", OWN: "an axis for each lane"}


class Pane(Lines):
    """A lane. A click focuses, and a double click zooms."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = 0

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        await self.run_action(f"screen.{'toggle_zoom' if event.chain > 1 else 'focus_lane'}({self.lane})")


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

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.above, self.grid, self.below = Lines(), Container(id="panes"), Lines()
        self.per_page = 0

    def compose(self) -> ComposeResult:
        yield self.above
        yield self.grid
        yield self.below

    def redraw(self) -> None:
        if not self.grid.is_attached:
            return
        monitor, playback = self.monitor, self.monitor.source.playback
        known, size = monitor.analysis, (*self.app.size, playback.state() if playback is not None else None)
        frame = draw(known, monitor.view, *size)
        if monitor.view.note_failures(known.snapshot, frame.shown(known)):
            frame = draw(known, monitor.view, *size)
        monitor.view.scales, self.per_page = frame.scales, frame.per_page
        monitor.view.verdict = (*self.app.size, frame.verdict)
        self.above.show(frame.above)
        self.below.show(frame.below)
        self.grid.display = bool(frame.panes)
        self.grid.styles.grid_size_columns = frame.columns
        panes = [*self.grid.query(Pane)]
        if new := [Pane() for _ in range(len(frame.panes) - len(panes))]:
            self.grid.mount(*new)
        for pane, lane in zip_longest((*panes, *new), frame.panes):
            pane.display = lane is not None
            if lane is not None:
                pane.lane = lane
                pane.show(frame.panes[lane])

    def on_click(self, event: events.Click) -> None:
        if event.chain > 1 and self.monitor.view.zoomed and not event.style.meta.get("@click"):
            self.action_toggle_zoom()

    def on_mouse_scroll_down(self) -> None:
        self.action_move_page(1)

    def on_mouse_scroll_up(self) -> None:
        self.action_move_page(-1)

    def action_pause_or_resume(self) -> None:
        if not self.may_act():
            return
        racing = [lane for lane in self._targets() if lane.phase == RACING]
        paused = [lane for lane in self._targets() if lane.phase == PAUSED]
        names = tuple(lane.spec.name for lane in racing or paused)
        if not names:
            self.monitor.say("no lane is training, so there is nothing to pause")
            return
        self.monitor.source.send(Command("pause" if racing else "resume", names))
        self.monitor.say(f"pause requested: {titles(racing)}" if racing else f"resumed: {titles(paused)}")

    def action_switch_mode(self) -> None:
        if not self.may_act():
            return
        if why := why_mode_stays(self.monitor.snapshot.lanes):
            self.monitor.say(why)
            return
        mode = CONCURRENT if self.monitor.snapshot.race.mode == TURNS else TURNS
        self.monitor.source.send(Command("change mode", name=mode))
        self.monitor.say(reading_rows.mode_message(self.monitor.snapshot, mode))

    def action_restart(self) -> None:
        if not self.may_act():
            return
        chosen, name = self._targets(), self.monitor.snapshot.race.scenario
        lost = [lane for lane in chosen if lane.phase == FAILED]
        lanes = lost if any(not lane.over for lane in chosen) and lost else chosen
        if not self.monitor.confirmed("restart", lanes, f"start {name} again from its beginning"):
            return
        self.monitor.source.send(Command("restart", tuple(lane.spec.name for lane in lanes)))
        self.monitor.say(f"restarting {titles(lanes)}")

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
        view = self.monitor.view
        if view.zoomed:
            self.action_toggle_zoom()
            return
        view.failures = dict.fromkeys(view.failures, False)
        self._focus(None)

    def action_focus_lane(self, index: int) -> None:
        if self.monitor.view.zoomed:
            return
        self._focus(None if focused_index(self.monitor.view, self.monitor.snapshot) == index else index)

    def action_move_page(self, direction: int) -> None:
        lanes = self.monitor.snapshot.lanes
        at = focused_index(self.monitor.view, self.monitor.snapshot) or 0
        if 0 < self.per_page < len(lanes):
            pages = -(-len(lanes) // self.per_page)
            self._focus((at // self.per_page + direction) % pages * self.per_page)

    def _focus(self, index: int | None) -> None:
        lanes = self.monitor.snapshot.lanes
        focused = None if index is None or index >= len(lanes) else lanes[index].spec.name
        self.monitor.view.focused, self.monitor.view.message = focused, ""
        self.monitor.app.draw(self.monitor)

    def action_toggle_zoom(self, lane: int | None = None) -> None:
        view, lanes = self.monitor.view, self.monitor.snapshot.lanes
        if view.zoomed:
            view.zoomed, view.focused, view.zoomed_from = False, view.zoomed_from, None
        elif not lanes:
            self.monitor.say("there is no lane yet to zoom in on")
        elif not self.per_page:
            self.monitor.say("there is no room to zoom: the terminal is too small")
        else:
            at = lane if lane is not None else focused_index(view, self.monitor.snapshot) or 0
            view.zoomed, view.focused, view.zoomed_from = True, lanes[at].spec.name, view.focused
        self.monitor.app.draw(self.monitor)

    def action_next_metric(self) -> None:
        view, snapshot = self.monitor.view, self.monitor.snapshot
        view.metric, view.scales = chart.next_metric(snapshot, view.metric), {}
        chosen = chart.BY_ID[view.metric]
        lacking = [f"{lane.spec.id}: {chart.absent(lane, chosen)}" for lane in snapshot.lanes]
        missing = [reading for reading in lacking if not reading.endswith(": ")]
        self.monitor.say(" · ".join([f"the charts show {chosen.label}", *missing]))

    def action_next_scale(self) -> None:
        view = self.monitor.view
        view.scale, view.scales = OWN if SHARED in view.scales else SHARED, {}
        self.monitor.say(f"the charts have {_SCALE_WORDS[view.scale]}")

    def action_next_span(self) -> None:
        view = self.monitor.view
        view.span_s, view.scales = SPANS_S[(SPANS_S.index(view.span_s) + 1) % len(SPANS_S)], {}
        self.monitor.say(f"the charts show the last {view.span_s // 60} min")

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
        action = f"end {self.monitor.snapshot.race.scenario} and choose a scenario"
        if self.monitor.confirmed("scenario", training, action):
            self.monitor.open("scenarios")


class ReplayScreen(RaceScreen, inherit_bindings=False):
    """Shows a replay. Thread: the app's only."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(bound(key.id, "" if watches(key.action) else "refuse") for key in RACE_KEYS if key.id != TAKEN),
        *(bound(key.id) for key in REPLAY_KEYS),
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        assert monitor.source.playback is not None, "nothing is played"
        self._playback = monitor.source.playback

    def on_mount(self) -> None:
        self.set_interval(REPLAY_PULL_S, self._play)

    def _play(self) -> None:
        if self._playback.state().playing:
            self.monitor.pull()

    def on_unmount(self) -> None:
        if self.monitor.below is not None:
            self.monitor.close()

    def action_playback(self, method: str, *amount: int) -> None:
        getattr(self._playback, method)(*amount)
        self.monitor.pull()

    def action_go_to(self, at_ns: int) -> None:
        self.action_playback("go_to", at_ns)

    def action_go_to_end(self, direction: int) -> None:
        playback = self._playback.state()
        self.action_go_to(playback.to_ns if direction > 0 else playback.from_ns)

    def action_refuse(self) -> None:
        self.monitor.may_change()

    def action_show_tab(self, name: str) -> None:
        if name == "runs" and self.monitor.below is not None:
            self.monitor.quit()
        else:
            super().action_show_tab(name)

    def action_focus_all(self) -> None:
        view = self.monitor.view
        if self.monitor.below is not None and view.focused is None and not view.zoomed:
            self.monitor.quit()
        else:
            super().action_focus_all()

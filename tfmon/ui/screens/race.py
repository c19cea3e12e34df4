"""The main screen: it draws the race and turns key presses into wishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tfmon.model.knobs import KnobError, find
from tfmon.model.lane_state import LaneState
from tfmon.model.ports import ExperimentError
from tfmon.model.race import TuneState
from tfmon.model.session import CONCURRENT, TURNS, Snapshot
from tfmon.ui.keys import RACE_KEYS, key_of
from tfmon.ui.render.bars import Zone
from tfmon.ui.render.layout import arrange
from tfmon.ui.render.race import draw, in_sight
from tfmon.ui.render.verdict import acknowledged, watched
from tfmon.ui.requests import (
    failed,
    living,
    no_knob,
    pause_or_run,
    reachable,
    short_name,
    steps_of,
    targets,
    to_improve,
)
from tfmon.ui.view import Shell, focused_index, may_change, undo_advice
from tfmon.ui.widgets.canvas import Canvas

RIGHT_BUTTON = 3


class RaceScreen(Screen[None]):
    """Shows the race. Thread: the app's only."""

    CSS = "RaceScreen { overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, id=key.id, show=False) for key in RACE_KEYS
    ]

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.shell = shell
        self._zones: tuple[Zone, ...] = ()

    def compose(self) -> ComposeResult:
        """Give Textual the one widget of the screen."""
        yield Canvas(self.shell.palette)

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size."""
        self.follow(self.shell.snapshot)

    def on_screen_resume(self) -> None:
        """Draw what happened meanwhile: a page was closed."""
        self.follow(self.shell.snapshot)

    def follow(self, snapshot: Snapshot) -> None:
        """Draw a snapshot; only what changed is repainted."""
        width, height = self.app.size
        self.shell.view = watched(self.shell.view, snapshot, in_sight(snapshot, self.shell.view, width, height))
        page = draw(snapshot, self.shell.view, width, height)
        self._zones = page.zones
        self.shell.view = replace(self.shell.view, top=page.top)
        self.query_one(Canvas).show(page.rows)

    def dress(self, styles: Mapping[str, Style]) -> None:
        """Take the styles of another theme."""
        self.query_one(Canvas).dress(styles)

    def on_click(self, event: events.Click) -> None:
        """Do what was clicked: a pane takes the focus, a key at the bottom acts."""
        zone = self._zone_at(event)
        if zone is not None and zone.knob and event.button == RIGHT_BUTTON:
            self.action_step_knob(zone.knob, -1)
        elif zone is not None:
            self.call_next(self.run_action, zone.action)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Step the knob below the pointer up; elsewhere show the lanes before."""
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Step the knob below the pointer down; elsewhere show the lanes that found no room."""
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        zone = self._zone_at(event)
        if zone is not None and zone.knob:
            self.action_step_knob(zone.knob, -direction)
        else:
            self.action_move_page(direction)

    def _zone_at(self, event: events.MouseEvent) -> Zone | None:
        return next((zone for zone in self._zones if zone.rect.holds(event.screen_x, event.screen_y)), None)

    # ------------------------------------------------------------ knobs

    def action_step_knob(self, name: str, direction: int) -> None:
        """Ask the lanes for the next value of a knob."""
        if self._busy():
            return
        snapshot = self.shell.snapshot
        try:
            knob = find(snapshot.race.knobs, name)
        except KnobError:
            self.shell.say(no_knob(snapshot, name))
            return
        focused = self.shell.view.focused is not None
        lanes = reachable(self._targets(), knob, direction, focused=focused)
        again = [lane for lane in lanes if failed(lane)]
        wishes, stuck = steps_of(lanes, knob, direction)
        for wish in wishes:
            self.shell.controls.set_knob(wish.lane, name, wish.value)
        if stuck:
            self.shell.say(stuck)
        elif again:
            self.shell.say(f"starting again with another {short_name(name)}: {_names(again)}")
        elif wishes and knob.kind == "restart":
            self.shell.say(f"{short_name(name)} takes effect with a restart: {_names(self._targets())}")
        else:
            self.shell.pull()

    def action_pause_or_run(self) -> None:
        """Hold the lanes that race, or let those that pause run on."""
        if self._busy():
            return
        hold, run = pause_or_run(self._targets())
        if hold:
            self.shell.controls.hold([lane.spec.name for lane in hold])
            self.shell.say(f"pause asked: {_names(hold)}")
        elif run:
            self.shell.controls.run([lane.spec.name for lane in run])
            self.shell.say(f"going on: {_names(run)}")
        else:
            self.shell.say("no lane is racing, so there is nothing to pause")

    def action_switch_mode(self) -> None:
        """Go over from turns to training at once, or back."""
        if self._busy():
            return
        mode = CONCURRENT if self.shell.snapshot.race.mode == TURNS else TURNS
        self.shell.controls.set_mode(mode)
        self.shell.say("all lanes train at once: they share the cores" if mode == CONCURRENT else "taking turns")

    def action_restart(self) -> None:
        """Start the lanes again."""
        if self._busy():
            return
        lanes = self._targets()
        self.shell.controls.restart([lane.spec.name for lane in lanes])
        self.shell.say(f"restarting {_names(lanes)}")

    def action_save_picture(self) -> None:
        """Save the screen as an SVG file and the race as a table in the working directory, and say where."""
        from tfmon.ui.app import save

        self.shell.say(save(self.app, self.shell.snapshot.race.scenario, self.shell.table()))

    def action_try_advice(self) -> None:
        """Try on a lane what may help it most."""
        lane = None if self._busy() else to_improve(self.shell.snapshot, self._targets())
        if lane is None:
            return
        try:
            self.shell.experiments.start_tuning(lane, everything=False)
        except ExperimentError as error:
            self.shell.say(str(error))
        self.shell.pull()

    def action_undo_advice(self) -> None:
        """Take back the change that was kept last."""
        undo_advice(self.shell)

    def _busy(self) -> bool:
        """Say so, and return True, while nothing may be changed or a experiment has the lanes."""
        if not may_change(self.shell):
            return True
        experiment = self.shell.snapshot.experiment
        if experiment is None or experiment.over:
            return False
        if isinstance(experiment, TuneState):
            key = key_of("tune", self.shell.view.keys)
            self.shell.say(f"advice is tried on {experiment.lane}: {key} shows it, and stops it")
        else:
            key = key_of("crossover", self.shell.view.keys)
            self.shell.say(
                f"a crossover over {short_name(experiment.knob)} is under way: {key} shows it, and stops it"
            )
        return True

    def _targets(self) -> list[LaneState]:
        return targets(self.shell.snapshot.lanes, self.shell.view.focused)

    # ------------------------------------------------------------ focus

    def action_move_focus(self, direction: int) -> None:
        """Focus the next lane; after the last one keys act on all lanes again."""
        lanes = self.shell.snapshot.lanes
        at = focused_index(self.shell.view, self.shell.snapshot)
        ring = [None, *range(len(lanes))]
        self._focus(ring[(ring.index(at) + direction) % len(ring)])

    def action_focus_all(self) -> None:
        """Let keys act on all lanes, and take note of what was lost sight of."""
        self.shell.view = acknowledged(self.shell.view)
        self._focus(None)

    def action_focus_lane(self, index: int) -> None:
        """Focus one lane, or all again if it has the focus already."""
        self._focus(None if focused_index(self.shell.view, self.shell.snapshot) == index else index)

    def action_move_page(self, direction: int) -> None:
        """Focus the first lane of the next page of panes."""
        lanes = self.shell.snapshot.lanes
        at = focused_index(self.shell.view, self.shell.snapshot) or 0
        per_page = arrange(*self.app.size, len(lanes)).per_page
        if not per_page or per_page >= len(lanes):
            return
        pages = -(-len(lanes) // per_page)
        self._focus((at // per_page + direction) % pages * per_page)

    def _focus(self, index: int | None) -> None:
        lanes = self.shell.snapshot.lanes
        focused = None if index is None or index >= len(lanes) else lanes[index].spec.name
        self.shell.view = replace(self.shell.view, focused=focused, message_until_ns=0)
        self.shell.pull()

    # ------------------------------------------------------------ other pages, loaded when first asked for

    def action_show_help(self) -> None:
        """Open the help."""
        from tfmon.ui.screens.help import HelpPage

        self.app.push_screen(HelpPage(self.shell))

    def action_show_crossover(self) -> None:
        """Open the page of the crossover."""
        from tfmon.ui.screens.crossover import CrossoverPage

        self.app.push_screen(CrossoverPage(self.shell))

    def action_show_tuning(self) -> None:
        """Open the page of what was tried, for the focused lane or the one that most likely needs it."""
        from tfmon.ui.screens.tune import TunePage

        self.app.push_screen(TunePage(self.shell, to_improve(self.shell.snapshot, self._targets())))

    def action_show_lane(self) -> None:
        """Open the page of the focused lane, or of the first."""
        from tfmon.ui.screens.lane import LanePage

        if self.shell.snapshot.lanes:
            index = focused_index(self.shell.view, self.shell.snapshot) or 0
            self.app.push_screen(LanePage(self.shell, index))

    def action_show_log(self) -> None:
        """Open the log of the focused lane, or of the first."""
        from tfmon.ui.screens.log import LogPage

        self.app.push_screen(LogPage(self.shell, focused_index(self.shell.view, self.shell.snapshot) or 0))

    def action_show_palette(self) -> None:
        """Open the command palette."""
        from tfmon.ui.screens.palette import open_palette

        open_palette(self, self.shell.view.keys, self.shell.view.charset)

    def action_show_doctor(self) -> None:
        """Open the page of the doctor."""
        from tfmon.ui.screens.report import doctor_page

        self.app.push_screen(doctor_page(self.shell))

    def action_profile_lane(self) -> None:
        """Profile the focused lane, or the first, and show the report."""
        from tfmon.ui.screens.report import profile_page

        if not may_change(self.shell):
            return
        lanes = living(self._targets())
        if lanes:
            self.app.push_screen(profile_page(self.shell, lanes[0]))
        else:
            self.shell.say("no lane trains, so there is nothing to profile")

    def action_show_knobs(self) -> None:
        """Open the page of all knobs."""
        from tfmon.ui.screens.knobs import KnobPage

        self.app.push_screen(KnobPage(self.shell, self))

    def action_pick_scenario(self) -> None:
        """Let the user choose another scenario, and race it."""
        from tfmon.ui.screens.picker import Picker

        if not may_change(self.shell):
            return
        self.app.push_screen(Picker(self.shell), self._race)

    def _race(self, scenario: str | None) -> None:
        if scenario is not None:
            self.shell.start_race(scenario)


def _names(lanes: list[LaneState]) -> str:
    return ", ".join(lane.title for lane in lanes)

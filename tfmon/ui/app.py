"""The app: it pulls a snapshot twice a second, hands it to the screen on top, and ends the race."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from tfmon import units
from tfmon.analysis.analysis import analyse
from tfmon.errors import TfmonError
from tfmon.model.lane_state import PAUSED, LaneState
from tfmon.model.ports import Controls, Experiments, Runs
from tfmon.model.session import Session, Snapshot
from tfmon.model.threads import start_thread
from tfmon.ui.display import Display
from tfmon.ui.keys import PAGE_KEYS, RACE_KEYS, STOP, Key, key_of
from tfmon.ui.picture import save_picture
from tfmon.ui.render.style import LANE_COLOURS, Charset, Look, charset, palette
from tfmon.ui.render.tabs import TAB_NAMES
from tfmon.ui.screens.choices import ScenarioRow
from tfmon.ui.screens.page import Page
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.screens.tabs import Pages
from tfmon.ui.textual_compat import TerminalApp
from tfmon.ui.theme import look_of, without_colour
from tfmon.ui.view import View

PULL_S = 0.5
SECOND_NS = 1_000_000_000
MESSAGE_NS = 5 * SECOND_NS
STILL_TICKS = 10
"""A page that does not move is drawn once in so many ticks."""

Found = TypeVar("Found")
Ending: TypeAlias = Literal["quit", "forced", "signal"]
"""How the app ended: the lanes are gone; the user did not wait for that; or a signal came."""


class MonitorApp(Display, TerminalApp[Ending]):
    """The race on the screen. `run()` returns how it ended, and None if the screen failed; see `broken`.

    `controls.stop` has been called when it ends with "quit" or "signal"; after "forced" the caller must make sure
    that no lane is left.
    Thread: the app's only, except for `request_quit`.
    """

    CSS = "App { background: $background; }"
    TITLE = "tfmon"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "quit", "end the lanes and leave", id="quit.now", priority=True, show=False),
        Binding("ctrl+z", "stop", "suspend tfmon and the lanes until fg", id="stop", priority=True, show=False),
    ]

    def __init__(
        self,
        session: Session,
        controls: Controls,
        experiments: Experiments,
        *,
        scenarios: Callable[[], Sequence[ScenarioRow]] = tuple,
        examine: Callable[[], str] = str,
        profile: Callable[[str], str] = str,
        watch_gpus: Callable[[], str] = str,
        runs: Runs | None = None,
        table: Callable[[], str] = str,
        repeat: Callable[[], str] = str,
        on_ready: Callable[[], None] | None = None,
        on_terminal: Callable[[], object] | None = None,
        suspend: Callable[[], None] | None = None,
        theme: str = "textual-dark",
        lane_colours: str = LANE_COLOURS[0],
        readonly: bool = False,
        keymap: Mapping[str, str] | None = None,
        characters: Charset | None = None,
    ) -> None:
        """Prepare the screen.

        Args:
            session: Where the snapshots come from.
            controls: What keys do to the lanes.
            experiments: The measurements that keys start.
            scenarios: Returns what the picker lists; called when it opens.
            examine: Returns the doctor's report; called in a thread.
            profile: Profiles the lane of that name and returns the report; called in a thread.
            watch_gpus: Has all GPUs read from now on, and returns why there are none, or ""; called in a thread.
            runs: The recorded runs; None where there is no list of them.
            table: Returns the race as text.
            repeat: Returns the command that repeats the race with the settings in effect; "" for none.
            on_ready: Starts the lanes; called in a thread once the first paint is done.
            on_terminal: Called in the main thread when the terminal is taken.
            suspend: Suspends the process until `fg`; None where no shell could continue it.
            theme: Name of a Textual theme.
            lane_colours: One of `tfmon.ui.render.style.LANE_COLOURS`.
            readonly: Whether keys may change nothing.
            keymap: Other keys, by the ids of `tfmon.ui.keys`.
            characters: What the terminal can show; None for what the locale says.
        """
        colourless = without_colour()
        super().__init__(ansi_color=True if colourless else None)
        self.session = session
        self.controls = controls
        self.experiments = experiments
        self.scenarios = scenarios
        self.runs = runs
        self.table = table
        self.repeat = repeat
        self.pages = Pages(self)
        self.analysis = analyse(session.snapshot())
        chosen = characters or charset(sys.stdout.encoding or "", os.environ)
        self.view = View(
            charset=chosen,
            keys=dict(keymap or {}),
            readonly=readonly,
            race=self.snapshot.race.number,
            tabs=self.tabs,
        )
        self._examine = examine
        self._watch_gpus = watch_gpus
        self._profile_lane = profile
        self._on_ready = on_ready
        self._on_terminal = on_terminal
        self._suspend = suspend
        self._lane_colours = lane_colours
        self._loop_of_app: asyncio.AbstractEventLoop | None = None
        self._quit_was_requested = False
        self._question = ("", "")
        """The key that asked before it ends a user's training, and what it asked."""
        self._ticks = self._said = 0
        self.broken: Exception | None = None
        """The error that ended the app; None if there was none."""
        self.theme = "ansi-dark" if colourless else theme
        self.palette: Mapping[str, Style] = palette(Look(colours=lane_colours))
        self.set_keymap(dict(keymap or {}))

    def get_default_screen(self) -> Screen[None]:
        """Return the race."""
        return RaceScreen(self)

    def on_mount(self) -> None:
        """Draw what is known, then start the lanes."""
        self._loop_of_app = asyncio.get_running_loop()
        if self._on_terminal is not None:
            self._on_terminal()
        self.theme_changed_signal.subscribe(self, self._dress)
        # After `fg` the terminal shows nothing of what was painted before.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self._dress(self.current_theme)
        self.set_interval(PULL_S, self._tick)
        self.call_after_refresh(self._on_first_paint)

    def _on_first_paint(self) -> None:
        if self._quit_was_requested:
            self._quit("signal")
        elif self._on_ready is not None:
            self.work(self._on_ready, failed=self._show_no_race)

    def _show_no_race(self, reason: str) -> None:
        self.view = replace(self.view, no_race=reason)
        self.pull()

    def _dress(self, theme: Theme) -> None:
        self.palette = palette(look_of(theme, self.theme_variables, self._lane_colours))
        for screen in dict.fromkeys((*self.screen_stack, *self.pages.kept)):
            if isinstance(screen, RaceScreen | Page):
                screen.dress(self.palette)

    # ------------------------------------------------------------ what the screens use

    def _tick(self) -> None:
        """Draw: at every tick while a lane may train, once a second when only clocks change.

        A page that shows nothing that moves is left alone, but for a failure of a lane every 5 s.
        """
        self._ticks += 1
        if not self.screen_stack:
            return  # the app is closing
        if isinstance(self.screen, Page) and self.screen.still and self._ticks % STILL_TICKS:
            return
        snapshot = self.session.snapshot()
        new_second = snapshot.at_ns // SECOND_NS != self.snapshot.at_ns // SECOND_NS
        if new_second:
            self.view = replace(self.view, sent_bytes_per_s=self.sent_bytes_per_s())
        if new_second or any(not lane.over and lane.phase != PAUSED for lane in snapshot.lanes):
            self.pull()

    @property
    def help_keys(self) -> tuple[Key, ...]:
        """The keys that the help lists after those of a page."""
        return (*RACE_KEYS, *PAGE_KEYS, STOP)

    @property
    def tabs(self) -> tuple[str, ...]:
        """The pages that this screen has beside the race."""
        return tuple(name for name in TAB_NAMES if name != "runs" or self.runs is not None)

    @property
    def may_change_lanes(self) -> bool:
        """Whether keys may change the race; says nothing."""
        return not self.view.readonly

    def pull(self) -> None:
        """Read the session and draw what changed."""
        self.analysis = analyse(self.session.snapshot(), self.analysis)
        if self.view.race != self.snapshot.race.number:
            self.view = self._of_another_race()
        if not self.may_paint():
            return
        self.paint_skipped()
        screen = self.screen
        if isinstance(screen, RaceScreen | Page) and screen.is_mounted:
            screen.redraw()

    def _of_another_race(self) -> View:
        """Return the view for a race that began since: without focus, scales and failures of the one before."""
        self._frozen = None
        fresh = replace(self.view, zoomed=False, cursor=None, frozen=False, back_ns=0)
        return replace(fresh, race=self.snapshot.race.number, focused=None, scales={}, seen=(), unseen=())

    def say(self, message: str, done: Callable[[Snapshot], bool] | None = None) -> None:
        """Show a line for a few seconds, or until what it announces is done; and whatever else changed."""
        self._said += 1
        until_ns = self.session.snapshot().at_ns + MESSAGE_NS
        self.view = replace(self.view, message=message, message_until_ns=until_ns, message_done=done)
        self.pull()

    async def run_action(self, *call: Any, **more: Any) -> bool:  # noqa: ANN401 - as Textual declares it
        """Run what a key does; the message of the key before goes."""
        before = self._said
        found = await super().run_action(*call, **more)
        if self._said == before:
            self.view = replace(self.view, message_until_ns=0)
        return found

    def may_change(self) -> bool:
        """Return whether keys may change the race; if not, say so."""
        if self.view.readonly:
            self.say("read only: this screen shows the race and changes nothing (--readonly)")
        return not self.view.readonly

    def action_set_theme(self, name: str) -> None:
        """Show everything in the colours of another theme."""
        self.theme = name

    def save_picture(self, table: str) -> None:
        """Save the screen as a picture and a table as text, and say where."""
        self.say(save_picture(self, self.snapshot.race.scenario, table))

    # ------------------------------------------------------------ what takes long, in threads

    def save_report(self) -> None:
        """Save a report of what is recorded of the race, and say where."""
        recording = self.snapshot.recording
        self.report_of(recording.path if recording is not None else "", self.say)

    def report_of(self, path: str, say: Callable[[str], object]) -> None:
        """Write a report of what is recorded in a file, and say where; say that there is none of an empty path."""
        runs = self.runs
        if runs is None or not path:
            say("no report: this is not recorded")
            return
        say("writing a report of what is recorded up to now…")
        self.work(lambda: runs.report(path), say, say)

    def examine(self, then: Callable[[str], object]) -> None:
        """Have the doctor examine the machine, and pass on its report."""
        self.work(self._examine, then)

    def watch_gpus(self, then: Callable[[str], object]) -> None:
        """Have all GPUs read from now on, and pass on why there are none; empty where there are some."""
        self.work(self._watch_gpus, then)

    def profile(self, lane: str, then: Callable[[str], object]) -> None:
        """Profile a lane, and pass on the report or why there is none."""
        self.work(lambda: self._profile_lane(lane), then, then)

    def start_race(self, scenario: str) -> None:
        """Start the race of another scenario."""
        before = self.snapshot.race.number
        self.say(f"starting the race of {scenario}…", lambda snapshot: snapshot.race.number != before)
        self.work(lambda: self._change_race(scenario))

    def _change_race(self, scenario: str) -> None:
        self.experiments.stop()
        self.controls.race(scenario)

    def work(
        self,
        do: Callable[[], Found],
        then: Callable[[Found], object] | None = None,
        failed: Callable[[str], object] | None = None,
    ) -> None:
        """Do what may take long in a thread; the screen stays responsive.

        Args:
            do: Is called in the thread.
            then: Takes what it returns; by default the screen is drawn.
            failed: Takes the line of a TfmonError; by default it is said.
        """

        def run() -> None:
            try:
                found = do()
            except TfmonError as error:
                self.call_later(failed or self.say, error.line)
            except Exception as error:  # noqa: BLE001 - a thread's top frame: the app ends and shows it
                self.call_later(self.fail, error)
            else:
                if then is None:
                    self.call_later(self.pull)
                else:
                    self.call_later(then, found)

        start_thread("tfmon-ui", run, lambda reason: self.call_later(self.fail, RuntimeError(reason)))

    # ------------------------------------------------------------ the end

    def take_error(self, error: Exception) -> bool:
        """End the app, and let the caller report the error in a line; without a terminal, raise it there."""
        self.broken = self.broken or error
        if self.is_headless:
            return False
        self.exit()
        return True

    def request_quit(self) -> None:
        """End the race and leave, as for a signal. Thread: any, and any signal handler."""
        self._quit_was_requested = True
        if self._loop_of_app is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the app has ended
                self._loop_of_app.call_soon_threadsafe(self._quit, "signal")

    def request_leave(self) -> None:
        """Leave, and let the lanes train on: `run()` returns None. Thread: any, and any signal handler."""
        if self._loop_of_app is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the app has ended
                self._loop_of_app.call_soon_threadsafe(self.exit)

    async def action_quit(self) -> None:
        """End the lanes and leave; the second time, leave at once."""
        self._quit("quit")

    def action_stop(self) -> None:
        """Suspend this process and the lanes until `fg`."""
        if self._suspend is None:
            self.say("tfmon was started by no shell that could continue it, so it is not suspended")
        else:
            self._suspend()

    def confirmed(self, key: str, lanes: Sequence[LaneState], what: str) -> bool:
        """Return whether a key may act on these lanes: on those of a user's command, it asks the first time.

        Args:
            key: The id of the key.
            lanes: The lanes that it would end or start again.
            what: The question; the time that the command has run follows.
        """
        own = [lane for lane in lanes if lane.command]
        if not own:
            return True
        now_ns = self.session.snapshot().at_ns
        asked = self._question == (key, self.view.message) and now_ns < self.view.message_until_ns
        ran_s = max((now_ns if lane.ended is None else lane.ended.at_ns) - lane.started_ns for lane in own) / 1e9
        if not asked:
            self.say(f"{what} ({units.clock(ran_s)} of training)? {key_of(key, self.view.keys)} again: yes")
        self._question = (key, "" if asked else self.view.message)
        return asked

    def _quit(self, ending: Ending) -> None:
        if self.view.stopping:
            if ending == "quit":
                self.controls.end_now()
                self.exit("forced")
            return
        training = [lane for lane in self.snapshot.lanes if not lane.over]
        if ending == "quit" and not self.confirmed("quit", training, f"end {self.snapshot.race.scenario}"):
            return
        self.view = replace(self.view, stopping=True)
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.pull()
        self.work(self.controls.stop, lambda _: self.exit(ending))

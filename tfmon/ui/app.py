"""The app: it pulls a snapshot twice a second, hands it to the screen on top, and ends the race."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, TypeVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.color import Color, ColorParseError
from textual.screen import Screen
from textual.theme import Theme

from tfmon.analysis.analysis import Analysis, analyse
from tfmon.errors import TfmonError
from tfmon.model.lane_state import PAUSED
from tfmon.model.ports import Controls, Experiments, Runs
from tfmon.model.session import Session, Snapshot
from tfmon.ui.keys import PAGE_KEYS, RACE_KEYS, STOP, Key
from tfmon.ui.render.style import LANE_COLOURS, Charset, Look, charset, palette
from tfmon.ui.screens.choices import ScenarioRow
from tfmon.ui.screens.page import Page
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.screens.tabs import TAB_NAMES, Pages
from tfmon.ui.textual_compat import TerminalApp
from tfmon.ui.view import View

PULL_S = 0.5
SECOND_NS = 1_000_000_000
MESSAGE_NS = 5 * SECOND_NS
STILL_TICKS = 10
"""A page that does not move is drawn once in so many ticks."""

Found = TypeVar("Found")
Ending: TypeAlias = Literal["quit", "forced", "signal"]
"""How the app ended: the lanes are gone; the user did not wait for that; or a signal came."""


def _nothing_known(_: Snapshot) -> Mapping[str, Mapping[str, float]]:
    return {}


class MonitorApp(TerminalApp[Ending]):
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
        runs: Runs | None = None,
        table: Callable[[], str] = str,
        repeat: Callable[[], str] = str,
        usual: Callable[[Snapshot], Mapping[str, Mapping[str, float]]] = _nothing_known,
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
            runs: The recorded runs; None where there is no list of them.
            table: Returns the race as text.
            repeat: Returns the command that repeats the race with the settings in effect; "" for none.
            usual: Returns the seconds that the stages of getting ready took before, by lane and phase.
            on_ready: Starts the lanes; called in a thread once the first paint is done.
            on_terminal: Called in the main thread when the terminal is taken.
            suspend: Suspends the process until `fg`; None where no shell could continue it.
            theme: Name of a Textual theme.
            lane_colours: One of `tfmon.ui.render.style.LANE_COLOURS`.
            readonly: Whether keys may change nothing.
            keymap: Other keys, by the ids of `tfmon.ui.keys`.
            characters: What the terminal can show; None for what the locale says.
        """
        colourless = _without_colour()
        super().__init__(ansi_color=True if colourless else None)
        self.session = session
        self.controls = controls
        self.experiments = experiments
        self.scenarios = scenarios
        self.runs = runs
        self.table = table
        self.repeat = repeat
        self._usual = usual
        self.pages = Pages(self)
        self.analysis = analyse(session.snapshot())
        """What is on the screen, and what follows from it; computed once for each snapshot."""
        self._frozen: Analysis | None = None
        chosen = characters or charset(sys.stdout.encoding or "", os.environ)
        began = self.snapshot.race.number
        self.view = View(
            charset=chosen,
            keys=dict(keymap or {}),
            readonly=readonly,
            race=began,
            usual=usual(self.snapshot),
            tabs=self.tabs,
        )
        self._examine = examine
        self._profile_lane = profile
        self._on_ready = on_ready
        self._on_terminal = on_terminal
        self._suspend = suspend
        self._lane_colours = lane_colours
        self._loop_of_app: asyncio.AbstractEventLoop | None = None
        self._quit_was_requested = False
        self._ticks = 0
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
        self.app_resume_signal.subscribe(self, self._paint_whole)
        self._dress(self.current_theme)
        self.set_interval(PULL_S, self._tick)
        self.call_after_refresh(self._on_first_paint)

    def _on_first_paint(self) -> None:
        if self._quit_was_requested:
            self._quit("signal")
        elif self._on_ready is not None:
            self._in_thread(self._on_ready, failed=self._show_no_race)

    def _show_no_race(self, reason: str) -> None:
        self.view = replace(self.view, no_race=reason)
        self.pull()

    def _paint_whole(self, _: object) -> None:
        """Paint every cell: after `fg` the terminal shows nothing of what was painted before."""
        self.refresh(layout=True)

    def _dress(self, theme: Theme) -> None:
        variables = self.theme_variables
        self.palette = palette(
            Look(
                theme.dark,
                theme.ansi,
                _hex(variables.get("foreground", ""), "#e0e0e0"),
                _hex(variables.get("background", ""), "#121212"),
                self._lane_colours,
            )
        )
        for screen in dict.fromkeys((*self.screen_stack, *self.pages.kept)):
            if isinstance(screen, RaceScreen | Page):
                screen.dress(self.palette)

    # ------------------------------------------------------------ what the screens use

    def _tick(self) -> None:
        """Draw: at every tick while a lane may train, once a second when only clocks change.

        A page that shows nothing that moves is left alone, but for a failure of a lane every 5 s.
        """
        self._ticks += 1
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

    @property
    def snapshot(self) -> Snapshot:
        """What is on the screen."""
        return self.analysis.snapshot

    @property
    def shown(self) -> Analysis:
        """What the race screen draws: what is known, or what was when the display ceased to follow."""
        return self._frozen or self.analysis

    def freeze(self) -> None:
        """Let the race screen show this moment from now on; the lanes train on."""
        self._frozen = self.analysis
        self.view = replace(self.view, frozen=True, back_ns=0)
        self.pull()

    def unfreeze(self) -> None:
        """Let the race screen follow the race again."""
        self._frozen = None
        self.view = replace(self.view, frozen=False, back_ns=0)
        self.pull()

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
        began, usual = self.snapshot.race.number, self._usual(self.snapshot)
        self._frozen = None
        fresh = replace(self.view, zoomed=False, cursor=None, frozen=False, back_ns=0)
        return replace(fresh, race=began, usual=usual, focused=None, scales={}, seen=(), unseen=())

    def say(self, message: str, done: Callable[[Snapshot], bool] | None = None) -> None:
        """Show a line for a few seconds, or until what it announces is done; and whatever else changed."""
        until_ns = self.session.snapshot().at_ns + MESSAGE_NS
        self.view = replace(self.view, message=message, message_until_ns=until_ns, message_done=done)
        self.pull()

    def unsay(self) -> None:
        """Take back the line that is shown."""
        self.view = replace(self.view, message="", message_until_ns=0)

    def may_change(self) -> bool:
        """Return whether keys may change the race; if not, say so."""
        if self.view.readonly:
            self.say("read only: this screen shows the race and changes nothing (--readonly)")
        return not self.view.readonly

    def action_set_theme(self, name: str) -> None:
        """Show everything in the colours of another theme."""
        self.theme = name

    def examine(self, then: Callable[[str], None]) -> None:
        """Have the doctor examine the machine, and pass on its report; the screen stays responsive."""
        found: list[str] = []
        self._in_thread(lambda: found.append(self._examine()), lambda: then(found[0]))

    def profile(self, lane: str, then: Callable[[str], None]) -> None:
        """Profile a lane, and pass on the report or why there is none; the screen stays responsive."""
        found: list[str] = []
        self._in_thread(lambda: found.append(self._profile_lane(lane)), lambda: then(found[0]), then)

    def start_race(self, scenario: str) -> None:
        """Start the race of another scenario; the screen stays responsive."""
        self.view = replace(self.view, focused=None, scales={})
        before = self.snapshot.race.number
        self.say(f"starting the race of {scenario}…", lambda snapshot: snapshot.race.number != before)
        self._in_thread(lambda: self._change_race(scenario))

    def _change_race(self, scenario: str) -> None:
        self.experiments.stop()
        self.controls.race(scenario)

    def work(self, do: Callable[[], Found], then: Callable[[Found], object]) -> None:
        """Do what may take long in a thread, and pass on what it returns; why it cannot be done is said."""
        found: list[Found] = []
        self._in_thread(lambda: found.append(do()), lambda: then(found[0]))

    def _in_thread(
        self,
        work: Callable[[], object],
        then: Callable[[], object] | None = None,
        failed: Callable[[str], None] | None = None,
    ) -> None:
        """Do what may take long in a thread; a TfmonError goes to `failed`, or else to the message line."""

        def run() -> None:
            try:
                work()
            except TfmonError as error:
                line = " · ".join(part for part in (error.message, error.hint) if part)
                self.call_later(failed or self.say, line)
            except Exception as error:  # noqa: BLE001 - a thread's top frame: the app ends and shows it
                self.call_later(self.fail, error)
            else:
                self.call_later(then or self.pull)

        threading.Thread(target=run, name="tfmon-ui", daemon=True).start()

    def save_picture(self, table: str) -> None:
        """Save the screen as SVG and a table as text in the working directory, and say where."""
        stem = f"tfmon-{self.snapshot.race.scenario or 'screen'}-{time.strftime('%Y%m%d-%H%M%S')}"
        try:
            said = f"saved {self.save_screenshot(f'{stem}.svg', str(Path.cwd()))}"
            if table:
                Path(f"{stem}.txt").write_text(table + "\n", encoding="utf-8")
                said += " and .txt"
        except OSError as error:
            said = f"{stem} could not be saved: {error.strerror or error}"
        self.say(said)

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

    async def action_quit(self) -> None:
        """End the lanes and leave; the second time, leave at once."""
        self._quit("quit")

    def action_stop(self) -> None:
        """Suspend this process and the lanes until `fg`."""
        if self._suspend is None:
            self.say("tfmon was started by no shell that could continue it, so it is not suspended")
        else:
            self._suspend()

    def _quit(self, ending: Ending) -> None:
        if self.view.stopping:
            if ending == "quit":
                self.exit("forced")
            return
        self.view = replace(self.view, stopping=True)
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.pull()
        self._in_thread(self.controls.stop, lambda: self.exit(ending))


def _without_colour() -> bool:
    """Return whether the user wants no colour; an empty NO_COLOR does not count, and Textual must not see it."""
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]
    return "NO_COLOR" in os.environ


def _hex(colour: str, default: str) -> str:
    """Return a theme's colour as #rrggbb."""
    try:
        return Color.parse(colour).hex6.lower()
    except ColorParseError:
        return default

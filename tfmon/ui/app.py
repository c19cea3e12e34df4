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
from typing import Any, ClassVar, Literal, TypeAlias, cast

from rich.console import RenderableType
from rich.style import Style
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color, ColorParseError
from textual.driver import Driver
from textual.screen import Screen
from textual.theme import Theme

from tfmon.errors import TfmonError
from tfmon.model.lane_state import PAUSED
from tfmon.model.ports import Controls, Experiments
from tfmon.model.session import Session
from tfmon.ui.render.style import LANE_COLOURS, Charset, Look, charset, palette
from tfmon.ui.screens.page import Page
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.textual_compat import ByteRate, Output, watch
from tfmon.ui.view import ScenarioRow, View

PULL_S = 0.5
SECOND_NS = 1_000_000_000
MESSAGE_NS = 5 * SECOND_NS

Ending: TypeAlias = Literal["quit", "forced", "signal"]
"""How the app ended: the lanes are gone; the user would not wait for that; or a signal asked for it."""


class MonitorApp(App[Ending]):
    """The race on the screen. `run()` returns how it ended, and None if Textual itself failed.

    `controls.stop` has been called when it ends with "quit" or "signal"; after "forced" the caller must see to
    it that no lane is left.
    Thread: the app's only, but for `request_quit`.
    """

    CSS = "App { background: $background; }"
    TITLE = "tfmon"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "quit", "end the lanes and leave", id="quit.now", priority=True, show=False),
        Binding("ctrl+z", "stop", "stop tfmon and the lanes until fg", id="stop", priority=True, show=False),
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
        table: Callable[[], str] = str,
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

        `scenarios` is called when the picker opens; in a thread, `examine` when the doctor is asked, and `profile`
        with the name of a lane when that is profiled: both return a report.
        `table` returns the race as text. `lane_colours` is one of `tfmon.ui.render.style.LANE_COLOURS`.
        `on_ready` is called in a thread of its own once the first paint is done: it starts the lanes.
        `on_terminal` is called in the main thread when the terminal is taken; `suspend` stops the process until
        `fg`, and None says that nobody could say that.
        `keymap` gives other keys by the ids of `tfmon.ui.keys`.
        `characters` overrides what the locale says the terminal can show.
        """
        colourless = _without_colour()
        super().__init__(ansi_color=True if colourless else None)
        self.output: Output | None = None
        self._sent_rate = ByteRate()
        self._repaint_all = False
        self.session = session
        self.controls = controls
        self.experiments = experiments
        self.snapshot = session.snapshot()
        chosen = characters or charset(sys.stdout.encoding or "", os.environ)
        self.view = View(charset=chosen, keys=dict(keymap or {}), readonly=readonly)
        self._scenarios = scenarios
        self._examine = examine
        self._profile = profile
        self._table = table
        self._on_ready = on_ready
        self._lane_colours = lane_colours
        self._on_terminal = on_terminal
        self._suspend = suspend
        self._loop_of_app: asyncio.AbstractEventLoop | None = None
        self._quit_was_requested = False
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
        self._dress(self.current_theme)
        self.set_interval(PULL_S, self._tick)
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        if self._quit_was_requested:
            self._quit("signal")
        elif self._on_ready is not None:
            self._in_thread(self._on_ready, failed=self._tell_no_race)

    def _tell_no_race(self, why: str) -> None:
        self.view = replace(self.view, no_race=why)
        self.pull()

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
        for screen in self.screen_stack:
            if isinstance(screen, RaceScreen | Page) and screen.is_mounted:
                screen.dress(self.palette)

    # ------------------------------------------------------------ what the screens use

    def _tick(self) -> None:
        """Draw: at every tick while a lane may train, once a second when only clocks move."""
        snapshot = self.session.snapshot()
        new_second = snapshot.at_ns // SECOND_NS != self.snapshot.at_ns // SECOND_NS
        if new_second and self.output is not None:
            self.view = replace(self.view, sent_bytes_per_s=self._sent_rate.of(self.output.sent_bytes))
        if new_second or any(not lane.over and lane.phase != PAUSED for lane in snapshot.lanes):
            self.pull()

    def pull(self) -> None:
        """Read the session and draw what changed."""
        self.snapshot = self.session.snapshot()
        if not self.may_paint():
            return
        screen = self.screen
        if self._repaint_all:
            self._repaint_all = False
            screen.refresh()
        if isinstance(screen, RaceScreen | Page) and screen.is_mounted:
            screen.follow(self.snapshot)

    def say(self, message: str) -> None:
        """Show a line for a few seconds, and whatever else changed."""
        until_ns = self.session.snapshot().at_ns + MESSAGE_NS
        self.view = replace(self.view, message=message, message_until_ns=until_ns)
        self.pull()

    def table(self) -> str:
        """Return the race as a table."""
        return self._table()

    def action_set_theme(self, name: str) -> None:
        """Show everything in the colours of another theme."""
        self.theme = name

    def infos(self) -> Sequence[ScenarioRow]:
        """Return the scenarios that can be raced."""
        return self._scenarios()

    def examine(self, then: Callable[[str], None]) -> None:
        """Let the doctor look at the machine, and hand over its report; the screen stays awake."""
        found: list[str] = []
        self._in_thread(lambda: found.append(self._examine()), lambda: then(found[0]))

    def profile(self, lane: str, then: Callable[[str], None]) -> None:
        """Profile a lane, and hand over the report or why there is none; the screen stays awake."""
        found: list[str] = []
        self._in_thread(lambda: found.append(self._profile(lane)), lambda: then(found[0]), then)

    def start_race(self, scenario: str) -> None:
        """Start the race of another scenario; it takes a while, and the screen stays awake."""
        self.view = replace(self.view, focused=None, top=0.0)
        self.say(f"starting the race of {scenario}…")
        self._in_thread(lambda: self._change_race(scenario))

    def _change_race(self, scenario: str) -> None:
        self.experiments.stop()
        self.controls.race(scenario)

    def _in_thread(
        self,
        work: Callable[[], None],
        then: Callable[[], None] | None = None,
        failed: Callable[[str], None] | None = None,
    ) -> None:
        """Do what may take long in a thread that nobody waits for; a TfmonError is told on the screen."""

        def run() -> None:
            try:
                work()
            except TfmonError as error:
                line = " · ".join(part for part in (error.message, error.hint) if part)
                self.call_later(failed or self.say, line)
            except Exception as error:  # noqa: BLE001 - a thread's top frame: the app ends and shows it
                self.call_later(self._handle_exception, error)
            else:
                self.call_later(then or self.pull)

        threading.Thread(target=run, name="tfmon-ui", daemon=True).start()

    # ------------------------------------------------------------ the end

    def request_quit(self) -> None:
        """End the race and leave, as for a signal. Thread: any, and any signal handler."""
        self._quit_was_requested = True
        if self._loop_of_app is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the app has ended
                self._loop_of_app.call_soon_threadsafe(self._quit, "signal")

    async def action_quit(self) -> None:
        """End the lanes and leave; asked a second time, leave at once."""
        self._quit("quit")

    def action_stop(self) -> None:
        """Stop this process and the lanes until `fg`."""
        if self._suspend is None:
            self.say("tfmon was started by no shell that could bring it back, so it is not stopped")
        else:
            self._suspend()

    def take_terminal(self) -> None:
        """Set the terminal up again: a shell may have used it while this process stood still.

        Thread: the main thread.
        """
        if self._driver is not None:
            self._driver.suspend_application_mode()
            self._driver.resume_application_mode()
            self.call_later(self.refresh)

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

    # ------------------------------------------------------------ the terminal

    def get_driver_class(self) -> type[Driver]:
        """Return what makes Textual's driver; its output is counted, and held back while the terminal is slow."""
        driver_class = super().get_driver_class()

        def make(app: MonitorApp, **options: Any) -> Driver:  # noqa: ANN401 - whatever Textual passes
            driver = driver_class(app, **options)
            if hasattr(driver, "_file"):
                app.output = watch(driver, app._terminal_is_free)
            return driver

        return cast(type[Driver], make)

    def may_paint(self) -> bool:
        """Tell whether the terminal has taken the frame before; if not, the screen is drawn anew once it has."""
        return self.output is None or self.output.may_draw()

    def paint(self, text: str) -> None:
        """Write text and escape codes to the terminal, as one frame."""
        if self._driver is not None and not self.is_headless:
            self._begin_update()
            self._driver.write(text)
            self._end_update()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Paint what Textual wants painted, unless the terminal has not taken the frame before."""
        if self.may_paint():
            super()._display(screen, renderable)
        else:
            self._repaint_all = self._repaint_all or renderable is not None

    def _set_pointer_shape(self, shape: str) -> None:
        """Leave the pointer as it is: Textual would write for every new page, and hang once 30 writes wait."""

    def _terminal_is_free(self) -> None:
        """Draw what was held back. Thread: the one that writes."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app has ended
            self.call_later(self.pull)


def _without_colour() -> bool:
    """Tell whether the user wants no colour; an empty NO_COLOR does not count, and Textual must not see it."""
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]
    return "NO_COLOR" in os.environ


def _hex(colour: str, otherwise: str) -> str:
    """Return a theme's colour as #rrggbb."""
    try:
        return Color.parse(colour).hex6.lower()
    except ColorParseError:
        return otherwise


# ---------------- files that the user asks for: a picture of the screen, and the table of the race


def save(app: App[object], scenario: str, table: str) -> str:
    """Save the screen as SVG and the table as text in the working directory; return what is to be said of it."""
    stem = f"tfmon-{scenario or 'screen'}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        picture = app.save_screenshot(f"{stem}.svg", str(Path.cwd()))
        if not table:
            return f"saved {picture}"
        Path(f"{stem}.txt").write_text(table + "\n", encoding="utf-8")
    except OSError as error:
        return f"{stem} could not be saved: {error.strerror or error}"
    return f"saved {picture} and .txt"

"""The Textual application."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.screen import Screen
from textual.timer import Timer

from tfmon.errors import described
from tfmon.model.ports import Source
from tfmon.ui.keys import without_arrows
from tfmon.ui.lines import CharacterFilter
from tfmon.ui.monitor import Ending, Monitor
from tfmon.ui.render.style import theme_variables, to_ascii, to_blocks
from tfmon.ui.screens.page import MonitorScreen
from tfmon.ui.terminal import TerminalApp
from tfmon.units import Charset, charset

TICK_S, CALM_S, STILL_S = 0.5, 2.0, 5.0
"""Time between refreshes after a key press, without one, and on a page that only keys change."""
MOST_ERRORS, REPEATED_S = 3, 30.0
"""Errors without a key press, within `REPEATED_S` seconds, after which the screen closes."""


class MonitorApp(TerminalApp[Ending]):
    """Displays a source. `run()` returns the ending, or `None` if the screen failed (see `broken`).

    After "forced" the caller must end the lanes; after `None` they still train. Thread: the app's.
    """

    CSS = """
    App { background: $background; }
    Page { overflow: hidden; }
    Page .foot { dock: bottom; }
    Page .body { height: 1fr; }
    Page .gpus { max-height: 50%; margin-bottom: 1; }
    Page .body, Page .gpus {
        overflow-x: hidden; overflow-y: auto;
        background: $background; background-tint: $background 0%;
        scrollbar-size-vertical: 1; scrollbar-color: $foreground 30%; scrollbar-background: $background;
    }
    Page Input { padding: 0 1; background: $background; background-tint: $background 0%; }
    Page Input > .input--cursor { text-style: reverse; }
    EntryTable > .datatable--header { background: $background; background-tint: $background 0%; text-style: none; }
    EntryTable > .datatable--cursor { background: $foreground 15%; color: $foreground; text-style: bold; }
    EntryTable > .datatable--hover { background: $foreground 7%; }
    EntryTable > .datatable--header-hover { text-style: underline; }
    EntryTable:ansi > .datatable--header { background: ansi_default; }
    EntryTable:ansi > .datatable--cursor { background: ansi_default; text-style: bold reverse; }
    EntryTable:ansi > .datatable--hover { background: ansi_default; }
    """
    TITLE = "tfmon"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "quit", "end the lanes and leave", id="quit.now", priority=True, show=False),
        Binding("ctrl+z", "stop", "suspend tfmon and the lanes until fg", id="stop", priority=True, show=False),
    ]

    def __init__(
        self,
        source: Source,
        *,
        on_terminal: Callable[[], object] | None = None,
        suspend: Callable[[], None] | None = None,
        theme: str = "textual-dark",
        readonly: bool = False,
        characters: Charset | None = None,
        keymap: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the screen. `suspend` stops the process until `fg`; `keymap` maps ids to keys."""
        if os.environ.get("NO_COLOR") == "":  # an empty value has no effect, but Textual would obey it
            del os.environ["NO_COLOR"]
        colourless = "NO_COLOR" in os.environ
        characters = characters or charset(sys.stdout.encoding or "", os.environ)
        super().__init__(ansi_color=True if colourless else None)
        self.monitor = Monitor(
            self,
            source,
            charset=characters,
            keys={**(without_arrows() if characters == "ascii" else {}), **(keymap or {})},
            readonly=readonly,
        )
        self.set_keymap(dict(keymap or {}))
        translate = {"ascii": to_ascii, "block": to_blocks}.get(characters)
        self._characters = [CharacterFilter(translate)] if translate else []
        self._on_terminal = on_terminal
        self._suspend = suspend
        self._loop_of_app: asyncio.AbstractEventLoop | None = None
        self._quit_was_requested = False
        self._next_tick: Timer | None = None
        self._tick_s = TICK_S
        self.broken: Exception | None = None
        self._errors_s: list[float] = []
        self.theme = "ansi-dark" if colourless else theme

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the colours of lanes and warnings."""
        return theme_variables(dark=self.current_theme.dark, ansi=self.current_theme.ansi)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Replace characters that the terminal lacks."""
        return [*super().get_line_filters(), *self._characters]

    def get_default_screen(self) -> Screen[Any]:
        """Return the source's screen."""
        return self.monitor.screen

    def on_mount(self) -> None:
        """Draw the current state, then start the lanes."""
        self._loop_of_app = asyncio.get_running_loop()
        if self._on_terminal is not None:
            self._on_terminal()
        # After `fg` the terminal is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self._wait()
        self.call_after_refresh(self._on_first_paint)

    def on_resize(self) -> None:
        """Draw the whole screen, because a terminal loses cells when it shrinks."""
        self.forget()

    async def on_event(self, event: events.Event) -> None:
        """Note a key or click, and split a key with Alt: Esc and a letter sent at once arrive as one."""
        self.hold()
        if isinstance(event, events.Key) and event.key.startswith("alt+") and event.character:
            self.call_after_refresh(self.post_message, events.Key(event.character, event.character))
            event = events.Key("escape", "\x1b")
        if isinstance(event, events.Key | events.MouseDown):
            next(self._monitors()).touched()
            self._errors_s = []
            if self._tick_s > TICK_S and self.screen_stack:
                self._wait()
        await super().on_event(event)

    def _on_first_paint(self) -> None:
        monitor = self.monitor
        if self._quit_was_requested:
            monitor.quit("signal")
            return

        def show_no_race(reason: str) -> None:
            monitor.view.no_race = reason
            monitor.pull()

        say = partial(self.request, monitor.say)
        monitor.work(partial(monitor.source.start, say), failed=show_no_race)

    def action_set_theme(self, name: str) -> None:
        """Change the colour theme."""
        self.theme = name

    def _monitors(self) -> Iterator[Monitor]:
        shown = (screen.monitor for screen in reversed(self.screen_stack) if isinstance(screen, MonitorScreen))
        monitor: Monitor | None = next(shown, self.monitor)
        while monitor is not None:
            yield monitor
            monitor = monitor.below

    def refresh_s(self) -> float:
        """Return the time between refreshes."""
        if isinstance(self.screen, MonitorScreen) and self.screen.still:
            return STILL_S
        return TICK_S if next(self._monitors()).lively() else CALM_S

    def _wait(self) -> None:
        if self._next_tick is not None:
            self._next_tick.stop()
        self._tick_s = self.refresh_s()
        self._next_tick = self.set_timer(self._tick_s, self._tick)

    def _tick(self) -> None:
        if not self.screen_stack:
            return  # the app is closing
        self._wait()  # first, because drawing may fail
        for monitor in reversed(list(self._monitors())):
            monitor.pull()

    def pull(self) -> None:
        """Read the newest figures and draw them."""
        next(self._monitors()).pull()

    def draw(self, owner: object) -> None:
        """Draw a monitor's screen unless the terminal still receives the previous frame."""
        self.hold()
        screen = self.screen
        if self.held or not isinstance(screen, MonitorScreen):
            return
        if screen.monitor is owner and screen.is_mounted:
            screen.redraw()

    async def run_action(self, *call: Any, **more: Any) -> bool:  # noqa: ANN401 - as Textual declares it
        """Run a key's action and remove the previous message."""
        monitor = next(self._monitors())
        count_before = monitor.message_count
        handled = await super().run_action(*call, **more)
        if monitor.message_count == count_before:
            monitor.unsay()
        return handled

    def take_error(self, error: Exception) -> None:
        """Close the page and display the error. Repeated errors of the race screen close the screen."""
        message = "the page failed"
        if len(self.screen_stack) > 1:
            page = self.screen
            self.pop_screen()
            for monitor in self._monitors():
                monitor.forget(page)
        else:
            now_s, message = time.monotonic(), "the screen failed"
            self._errors_s = [*(at_s for at_s in self._errors_s if now_s - at_s < REPEATED_S), now_s]
            if len(self._errors_s) == MOST_ERRORS or not self.screen_stack:
                self.broken = error
                self.exit()
                return
        next(self._monitors()).notify(f"{message}: {described(error)}")

    def request_quit(self) -> None:
        """End the race and close the screen after a signal. Thread: any, and any signal handler."""
        self._quit_was_requested = True
        self.request(self.monitor.quit, "signal")

    def request(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a method in the app's thread. Thread: any, and any signal handler."""
        if self._loop_of_app is not None:
            with contextlib.suppress(RuntimeError):  # the app has ended
                self._loop_of_app.call_soon_threadsafe(self.call_later, call, *arguments)

    async def action_quit(self) -> None:
        """End the lanes and close the screen; the second time, at once."""
        shown = next(self._monitors())
        self.monitor.quit()
        if shown is not self.monitor and not self.monitor.view.stopping:
            shown.say(self.monitor.view.message)

    def action_stop(self) -> None:
        """Suspend this process and the lanes until `fg`."""
        if self._suspend is None:
            self.monitor.say("not suspended: tfmon was not started by a shell that could continue it")
        else:
            self._suspend()

"""Contains every use of Textual's private names. `tests/ui/test_textual_compat.py` checks them all."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import types
from collections.abc import Callable
from typing import IO, Any, TypeVar, cast

from rich.console import RenderableType
from textual._context import active_message_pump
from textual.app import App, ScreenStackError
from textual.command import CommandPalette
from textual.dom import DOMNode, NoScreen
from textual.driver import Driver
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import WorkerFailed

from tfmon.errors import TfmonError
from tfmon.model.threads import start_thread

BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronised output: the terminal displays everything between them at once."""
Result = TypeVar("Result")
Value = TypeVar("Value")


class TerminalOutput:
    """Replaces the file of Textual's driver. A frame is only drawn after the terminal has taken the last one.

    Thread: `write` and `flush` belong to the writing thread and may block. The rest is the app's.
    """

    def __init__(self, file: IO[str], on_free: Callable[[], None]) -> None:
        self._file = file
        self._on_free = on_free
        self._lock = threading.Lock()
        self._busy = False
        self._refused = False

    def may_draw(self) -> bool:
        """Return whether the terminal has taken all it was given; if not, `on_free` is called once it has."""
        with self._lock:
            self._refused = self._busy
            return not self._busy

    def expect(self) -> None:
        """Record that something is about to be handed over."""
        with self._lock:
            self._busy = True

    def write(self, text: str) -> int:
        """Write; blocks while the terminal takes nothing."""
        return self._file.write(text)

    def flush(self) -> None:
        """Record that all was taken: Textual's writer flushes when nothing else waits to be written."""
        self._file.flush()
        with self._lock:
            self._busy = False
            call, self._refused = self._refused, False
        if call:
            self._on_free()

    def fileno(self) -> int:
        """Return the descriptor behind it."""
        return self._file.fileno()


class Surviving(MessagePump):
    """A part of the screen whose message loop continues after an error; the app gets the error."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001 - Textual would end the loop, and nothing would be drawn again
            self.app._handle_exception(error)


class PatientPalette(CommandPalette):
    """A palette that ignores keys for its list before the list has a layout: Textual 8.2 raises KeyError."""

    def _action_command_list(self, action: str) -> None:
        with contextlib.suppress(KeyError):
            super()._action_command_list(action)


class TerminalApp(Surviving, App[Result]):
    """An app whose output is delayed while the terminal is slow. Thread: the app's only."""

    def __init__(self, *, ansi_color: bool | None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.output: TerminalOutput | None = None
        self._frame_skipped = False

    def pull(self) -> None:
        """Read the newest figures and draw them."""
        raise NotImplementedError

    def draw(self, owner: object) -> None:
        """Draw the screen on top if it belongs to `owner` and the terminal has taken the frame before."""
        raise NotImplementedError

    def may_paint(self) -> bool:
        """Return whether the terminal has taken the frame before; if not, `pull` is called once it has."""
        return self.output is None or self.output.may_draw()

    def paint(self, text: str) -> None:
        """Write text and escape codes to the terminal, as one frame."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(f"{BEGIN_FRAME}{text}{END_FRAME}" if self._sync_available else text)

    def paint_skipped(self) -> None:
        """Have Textual paint the whole screen if it wanted to while the terminal was slow."""
        if self._frame_skipped:
            self._frame_skipped = False
            self.screen.refresh()

    def on_resize(self) -> None:
        """Paint the whole screen: a terminal that was smaller for a moment has lost what it could not show."""
        self.screen.refresh()

    def take_terminal(self) -> None:
        """Set the terminal up again after a shell has used it; one that is closed is left alone."""
        if self._driver is not None and self.output is not None and os.isatty(self.output.fileno()):
            self._driver.suspend_application_mode()
            self._driver.resume_application_mode()
            self.call_later(self.refresh)

    def work(
        self, do: Callable[[], Value], then: Callable[[Value], object], failed: Callable[[str], object]
    ) -> None:
        """Call `do` in a thread, then `then` with its result in the app's, or `failed` with the error's line."""

        def run() -> None:
            try:
                result = do()
            except TfmonError as error:
                self.call_later(failed, error.line)
            else:
                self.call_later(then, result)

        start_thread("tfmon-ui", run, lambda reason: self.call_later(failed, reason))

    def take_error(self, error: Exception, failed: Screen[Any] | None) -> None:
        """Handle an error of a screen; `failed` is None if no screen is known to have failed."""
        raise NotImplementedError

    def get_driver_class(self) -> type[Driver]:
        """Return a factory of Textual's driver, with a `TerminalOutput` between it and the terminal."""
        driver_class = super().get_driver_class()
        wait_for_keys()

        def make(app: TerminalApp[Result], **options: Any) -> Driver:  # noqa: ANN401 - whatever Textual passes
            driver = driver_class(app, **options)
            if hasattr(driver, "_file"):
                app.output = watch(driver, app._draw_again)
            return driver

        return cast(type[Driver], make)

    def _draw_again(self) -> None:
        """Draw the delayed frame. Thread: the writing thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app has ended
            self.call_later(self.pull)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Paint what Textual requests, unless the terminal has not taken the previous frame."""
        if self.may_paint():
            super()._display(screen, renderable)
        else:
            self._frame_skipped = self._frame_skipped or renderable is not None

    def _handle_exception(self, error: Exception) -> None:
        """Give an error to `take_error`. Without a terminal, in a test, Textual raises it."""
        if isinstance(error, WorkerFailed):
            error = cast(Exception, error.error)
        if self.is_headless:
            super()._handle_exception(error)
            return
        try:
            failed = cast(DOMNode, active_message_pump.get(self)).screen
        except (NoScreen, ScreenStackError):
            failed = None
        self.take_error(error, failed)

    def _set_pointer_shape(self, shape: str) -> None:
        """Leave the pointer as it is: Textual would write for every new page, and hang once 30 writes wait."""


class PatientSelector(selectors.SelectSelector):
    """Polls less often while nothing is typed. After a key it polls fast: the key may begin a longer sequence.

    Thread: the key-reading thread. Closing waits for it, at most `IDLE_S`.
    """

    _quiet = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the readable input, at once if there is some."""
        result = super().select(IDLE_S if self._quiet > LOOKS and timeout else timeout)
        self._quiet = 0 if result else self._quiet + 1
        return result


IDLE_S = 0.3
LOOKS = 5
"""How often it is looked for more after a key."""


def wait_for_keys() -> None:
    """Let the driver for Linux and macOS wait for keys with `PatientSelector`."""
    from textual.drivers import linux_driver

    patient = types.SimpleNamespace(SelectSelector=PatientSelector, EVENT_READ=selectors.EVENT_READ)
    setattr(linux_driver, "selectors", patient)  # noqa: B010 - it is not declared to be another's


def watch(driver: Driver, on_free: Callable[[], None]) -> TerminalOutput:
    """Put an output between a driver that has not been started and its terminal, and return it."""
    output = TerminalOutput(driver._file, on_free)  # type: ignore[attr-defined]
    hand_over = driver.write

    def write(data: str) -> None:
        output.expect()
        hand_over(data)

    driver._file = output  # type: ignore[attr-defined]
    driver.write = write  # type: ignore[method-assign]
    return output


def is_on_top(widget: Widget) -> bool:
    """Return whether the terminal shows a widget as Textual painted it, with nothing over it or about to be."""
    screen = widget.screen
    if screen is not widget.app.screen or widget.app._batch_count:
        return False
    waits = (
        widget._repaint_required or screen._repaint_required or screen._layout_required or screen._dirty_widgets
    )
    return not waits and screen._compositor.visible_widgets.keys() == {screen, widget}


def text_of(screen: Screen[Any]) -> str:
    """Return the text of a screen without its styles."""
    return "\n".join(strip.text.rstrip() for strip in screen._compositor.render_strips())


def forget_lines() -> None:
    """Drop the lines of widgets that are gone: Textual 8.2 keeps those of the last 1,024, 250 kB for a palette."""
    from textual._styles_cache import StylesCache

    StylesCache.get_inner_outer.cache_clear()

"""An app for slow terminals that survives errors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message_pump import MessagePump
from textual.worker import WorkerFailed

from tfmon.errors import TfmonError
from tfmon.system.threads import start_thread

Result = TypeVar("Result")
Value = TypeVar("Value")
_POINTER_SHAPE = "\x1b]22;"
_SEGMENT = re.compile(r"\x1b\[((?:\d;)*)(38;[\d;]+?);(48;[\d;]+)m([^\x1b]*)\x1b\[0m")
_RUN = re.compile(rf"(?:{_SEGMENT.pattern}){{2,}}")


class TerminalDriver(LinuxDriver):
    """Textual's driver without pointer shapes, which would block a slow terminal."""

    def __init__(self, app: TerminalApp[Any], **options: Any) -> None:  # noqa: ANN401 - the options of Textual's driver
        super().__init__(app, **options)
        app.terminal = self

    def write(self, data: str) -> None:
        """Write text and escape codes."""
        if not data.startswith(_POINTER_SHAPE):
            super().write(_RUN.sub(_without_repeats, data))

    def set_up_again(self) -> None:
        """Set the terminal up after a shell has used it."""
        if os.isatty(_output()):
            self.suspend_application_mode()
            self.resume_application_mode()


def _without_repeats(run: re.Match[str]) -> str:
    """Return coloured texts without codes that change nothing. Saves a quarter of the bytes of a race."""
    parts: list[str] = []
    now = ("", "", "")
    for attributes, colour, ground, text in _SEGMENT.findall(run[0]):
        style = (attributes, colour, ground)
        if attributes != now[0]:
            parts.append(f"\x1b[{'0;' if now[0] else ''}{attributes}{colour};{ground}m")
        elif style != now:
            changed = [code for code, before in zip(style[1:], now[1:], strict=True) if code != before]
            parts.append(f"\x1b[{';'.join(changed)}m")
        parts.append(text)
        now = style
    return "".join([*parts, "\x1b[0m"])


class Pace:
    """Holds drawing back while the terminal takes nothing."""

    def __init__(self, app: TerminalApp[Any]) -> None:
        self.app = app
        self._batch = contextlib.ExitStack()
        self.held = False

    def check(self) -> None:
        """Hold drawing back if the terminal takes nothing."""
        if self.held or self.app.terminal is None or select.select([], [_output()], [], 0)[1]:
            return
        with contextlib.suppress(OSError):  # a device that cannot be waited for
            asyncio.get_running_loop().add_writer(_output(), self._release)
            self._batch.enter_context(self.app.batch_update())
            self.held = True

    def _release(self) -> None:
        """Draw the whole screen, because Textual drops all drawing during a batch."""
        asyncio.get_running_loop().remove_writer(_output())
        self.held = False
        self._batch.close()
        self.app.screen.refresh()
        self.app.pull()


def _output() -> int:
    """Return the descriptor to which Textual writes."""
    assert sys.__stderr__ is not None, "the screen has a terminal"
    return sys.__stderr__.fileno()


class Guarded(MessagePump):
    """A part of the screen that survives an error."""

    async def on_event(self, event: events.Event) -> None:
        """Handle an event, and give an error to the app."""
        try:
            await super().on_event(event)
        except Exception as error:
            if self.app.is_headless:
                raise
            assert isinstance(self.app, TerminalApp)
            self.app.take_error(error, self)


class TerminalApp(Guarded, App[Result]):
    """An app for slow terminals that survives errors. Thread: the app's."""

    def __init__(self, *, ansi_color: bool | None) -> None:
        super().__init__(driver_class=TerminalDriver, ansi_color=ansi_color)
        self.terminal: TerminalDriver | None = None
        self.pace = Pace(self)

    def pull(self) -> None:
        """Read the newest figures and draw them."""
        raise NotImplementedError

    def draw(self, owner: object) -> None:
        """Draw the screen on top if it belongs to a monitor."""
        raise NotImplementedError

    def take_error(self, error: Exception, part: MessagePump) -> None:
        """Handle an error in a part of the screen."""
        raise NotImplementedError

    def _handle_exception(self, error: Exception) -> None:
        """Show an error for which Textual has no hook: https://github.com/Textualize/textual/issues/2818."""
        if self.is_headless:
            super()._handle_exception(error)
        else:
            cause = error.error if isinstance(error, WorkerFailed) else error
            assert isinstance(cause, Exception)
            self.take_error(cause, self)

    def post_display_hook(self) -> None:
        """Hold the next frame back if the terminal takes nothing."""
        self.pace.check()

    def paint(self, text: str) -> None:
        """Write text and escape codes to the terminal."""
        if self.terminal is not None:
            self.terminal.write(text)

    def take_terminal(self) -> None:
        """Set the terminal up again after a shell has used it."""
        if self.terminal is not None:
            self.terminal.set_up_again()
            self.call_later(self.refresh)

    def work(
        self, do: Callable[[], Value], then: Callable[[Value], object], failed: Callable[[str], object]
    ) -> None:
        """Call `do` in a thread, then `then` or `failed` in the app's."""

        def run() -> None:
            try:
                result = do()
            except TfmonError as error:
                self.call_later(failed, error.line)
            else:
                self.call_later(then, result)

        start_thread("tfmon-ui", run, lambda reason: self.call_later(failed, reason))

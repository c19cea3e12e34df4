"""Textual for slow terminals, with error handling."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from rich.cells import cell_len
from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message_pump import MessagePump
from textual.worker import WorkerFailed

Result = TypeVar("Result")
_POINTER_SHAPE, _OTHER_SCREEN = "\x1b]22;", "\x1b[?1049"
_FRAME = re.compile(r"\x1b\[\d+;\d+H")
_STYLE = re.compile(r"((?:\d;)*)(38;[\d;]+?);(48;[\d;]+)")
KEY_S = 0.5
"""Longest time between the parts of a key."""
_PARTS = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|([^\x00-\x1f\x7f]+)")
"""A move of the cursor, a style, or text."""
_CHANGED = re.compile(r"x+(?: {1,3}x+)*")
"""Changed cells to write at once. Up to 3 unchanged cells take fewer bytes than a move."""


class InputEvent(threading.Event):
    """The event that ends Textual's input thread, which looks at it ten times a second.

    In that thread `is_set` returns only when there is input, soon after input (the rest of a key may follow), or
    when the event is set.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd, self._polls_until_s = fd, 0.0
        self._woken, self._wake = socket.socketpair()

    def is_set(self) -> bool:
        """Return whether the thread must end."""
        if threading.current_thread() is not threading.main_thread():
            rest_s = self._polls_until_s - time.monotonic()
            if select.select([self._fd, self._woken.fileno()], [], [], 0 if rest_s > 0 else None)[0]:
                self._polls_until_s = time.monotonic() + KEY_S
        return super().is_set()

    def set(self) -> None:
        """End the thread."""
        super().set()
        self._wake.send(b"x")

    def clear(self) -> None:
        """Let another thread begin."""
        super().clear()
        self._woken.recv(1)


class TerminalDriver(LinuxDriver):
    """A driver without pointer shapes, which would block a slow terminal."""

    def __init__(self, app: TerminalApp[Any], **options: Any) -> None:  # noqa: ANN401 - the options of Textual's driver
        super().__init__(app, **options)
        self.exit_event = InputEvent(self.fileno)
        self.forget()
        app.terminal = self

    def write(self, data: str) -> None:
        """Write text and escape codes."""
        if data.startswith(_POINTER_SHAPE):
            return
        if _OTHER_SCREEN in data:
            self.forget()
        super().write(self._shown.update(data) if _FRAME.match(data) else data)

    def forget(self) -> None:
        """Write all cells in the next frame."""
        self._shown = ShownCells()

    def set_up_again(self) -> None:
        """Set the terminal up after a shell has used it."""
        if os.isatty(_output()):
            self.suspend_application_mode()
            self.resume_application_mode()


class ShownCells:
    """The cells on the terminal. Textual 8.2 writes rows from the left edge of the widget."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[list[str], list[str]]] = {}
        """The characters and the styles of each row; a character is empty if it is unknown."""

    def update(self, frame: str) -> str:
        """Return the part of a frame that changes cells."""
        written: list[str] = []
        x, y, style, pen, cursor = 1, 1, "", "", (0, 0)
        for row, column, codes, text in _PARTS.findall(frame):
            if row:
                x, y = int(column), int(row)
            elif not text:
                style = "" if codes == "0" else codes
            else:
                size = cell_len(text)
                for start, end in self._changed(x, y, text, style, size):
                    move = f"\x1b[{y};{x + start}H" if cursor != (x + start, y) else ""
                    written += move, _codes(pen, style), text[start:end]
                    pen, cursor = style, (x + end, y)
                x += size
        return "".join([*written, _codes(pen, ""), f"\x1b[{y};{x}H" if cursor != (x, y) else ""])

    def _changed(self, x: int, y: int, text: str, style: str, size: int) -> Sequence[tuple[int, int]]:
        """Store a text, and return the ranges that differ."""
        characters, styles = self._rows.setdefault(y, ([], []))
        missing = x + size - len(styles)
        characters += [""] * missing
        styles += [""] * missing
        part = slice(x, x + size)
        if size != len(text):  # wide characters are always written
            characters[part] = [""] * size
            return ((0, len(text)),)
        before, styles_before, now = characters[part], styles[part], [*text]
        if before == now and styles_before == [style] * size:
            return ()
        characters[part], styles[part] = now, [style] * size
        cells = zip(before, styles_before, now, strict=True)
        changes = "".join([" " if old == new and styled == style else "x" for old, styled, new in cells])
        return [run.span() for run in _CHANGED.finditer(changes)]


@functools.lru_cache(maxsize=512)
def _codes(old_style: str, new_style: str) -> str:
    """Return the code that changes one style to another."""
    old, new = _STYLE.fullmatch(old_style), _STYLE.fullmatch(new_style)
    if old_style == new_style:
        return ""
    if old is None or new is None or old[1] != new[1]:
        return f"\x1b[0;{new_style}m" if old_style and new_style else f"\x1b[{new_style or 0}m"
    return f"\x1b[{';'.join(code for code in new.groups()[1:] if code not in old.groups())}m"


def _output() -> int:
    assert sys.__stderr__ is not None, "the screen has a terminal"
    return sys.__stderr__.fileno()


class Guarded(MessagePump):
    """A message pump that passes errors to the app."""

    async def on_event(self, event: events.Event) -> None:
        """Handle an event and its errors."""
        try:
            await super().on_event(event)
        except Exception as error:
            if self.app.is_headless:
                raise
            assert isinstance(self.app, TerminalApp)
            self.app.take_error(error)


class TerminalApp(Guarded, App[Result]):
    """An app for slow terminals that survives errors. Thread: the app's."""

    def __init__(self, *, ansi_color: bool | None) -> None:
        super().__init__(driver_class=TerminalDriver, ansi_color=ansi_color)
        self.terminal: TerminalDriver | None = None
        self.held = False
        """Whether drawing waits for the terminal."""
        self._batch = contextlib.ExitStack()

    def pull(self) -> None:
        """Read the newest figures and draw."""
        raise NotImplementedError

    def draw(self, owner: object) -> None:
        """Draw the top screen if it belongs to a monitor."""
        raise NotImplementedError

    def take_error(self, error: Exception) -> None:
        """Handle an error of a widget or screen."""
        raise NotImplementedError

    def _handle_exception(self, error: Exception) -> None:
        """Catch errors. Textual has no hook: https://github.com/Textualize/textual/issues/2818."""
        if self.is_headless:
            super()._handle_exception(error)
        else:
            cause = error.error if isinstance(error, WorkerFailed) else error
            assert isinstance(cause, Exception)
            self.take_error(cause)

    def post_display_hook(self) -> None:
        """Delay the next frame if the terminal is busy."""
        self.hold()

    def hold(self) -> None:
        """Stop drawing while the terminal accepts no output."""
        if self.held or self.terminal is None or select.select([], [_output()], [], 0)[1]:
            return
        with contextlib.suppress(OSError):  # the device cannot be polled
            asyncio.get_running_loop().add_writer(_output(), self._release)
            self._batch.enter_context(self.batch_update())
            self.held = True

    def _release(self) -> None:
        """Draw the whole screen, because Textual drops drawing during a batch."""
        asyncio.get_running_loop().remove_writer(_output())
        self.held = False
        self._batch.close()
        self.screen.refresh()
        self.pull()

    def paint(self, text: str) -> None:
        """Write text and escape codes to the terminal."""
        if self.terminal is not None:
            self.terminal.write(text)

    def forget(self) -> None:
        """Draw the next frame in full, because the terminal may have lost cells."""
        if self.terminal is not None:
            self.terminal.forget()

    def take_terminal(self) -> None:
        """Set the terminal up after a shell has used it."""
        if self.terminal is not None:
            self.terminal.set_up_again()
            self.call_later(self.refresh)

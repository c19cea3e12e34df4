"""What goes to the terminal: counted, and held back while the terminal has not taken what came before."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import IO

from textual.driver import Driver

RATE_S = 10.0
"""Bytes a second are told over about so long."""


class Output:
    """The terminal's end of Textual's driver, in place of its file.

    A frame is only drawn when the terminal has taken the one before: over a slow link the next one then shows the
    newest figures, and no backlog grows that a key would have to wait behind.
    Thread: `write` and `flush` are the writing thread's, which may block in them; the rest is the app's.
    """

    def __init__(self, file: IO[str], on_free: Callable[[], None]) -> None:
        """Write to `file`; `on_free` is called in the writing thread when a refused frame may be drawn."""
        self._file = file
        self._on_free = on_free
        self._lock = threading.Lock()
        self._busy = False
        self._refused = False
        self.sent_bytes = 0
        """All that the terminal was given."""

    def may_draw(self) -> bool:
        """Tell whether the terminal has taken what it was given; if not, `on_free` is called as soon as it has."""
        with self._lock:
            self._refused = self._busy
            return not self._busy

    def expect(self) -> None:
        """Note that something is about to be handed over."""
        with self._lock:
            self._busy = True

    def write(self, text: str) -> int:
        """Write; blocks while the terminal takes nothing."""
        self.sent_bytes += len(text) if text.isascii() else len(text.encode(errors="replace"))
        return self._file.write(text)

    def flush(self) -> None:
        """Note that all was taken: Textual's writer flushes when nothing else waits to be written."""
        self._file.flush()
        with self._lock:
            self._busy = False
            call, self._refused = self._refused, False
        if call:
            self._on_free()

    def fileno(self) -> int:
        """Return the descriptor behind it."""
        return self._file.fileno()


def watch(driver: Driver, on_free: Callable[[], None]) -> Output:
    """Put an output between a driver that has not been started and its terminal, and return it.

    Textual has no public way to do this: a driver for a terminal writes to its `_file`, in a thread of its own,
    and `write` is where it is handed what to draw. The tests of slow terminals notice if that changes.
    """
    output = Output(driver._file, on_free)  # type: ignore[attr-defined]
    hand_over = driver.write

    def write(data: str) -> None:
        output.expect()
        hand_over(data)

    driver._file = output  # type: ignore[attr-defined]
    driver.write = write  # type: ignore[method-assign]
    return output


class ByteRate:
    """How fast a counter has grown lately."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, count: int) -> float | None:
        """Return its growth a second over the last `RATE_S`; None within the first seconds."""
        now_s = self._clock_s()
        self._seen.append((now_s, count))
        while now_s - self._seen[0][0] > RATE_S:
            self._seen.popleft()
        since_s, before = self._seen[0]
        return (count - before) / (now_s - since_s) if now_s - since_s >= RATE_S / 2 else None

"""The lines of JSON between the monitor and an agent."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from tfmon.system.threads import start_thread

CHUNK_BYTES = 65_536
LONGEST_BYTES = 8 * 2**20
FULL_LINES = 16


class LineError(ValueError):
    """The other side sent something else than lines of JSON."""


class LineReader:
    """Takes chunks that end anywhere. Thread: one."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> list[dict[str, Any]]:
        """Return the complete messages; raises LineError."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_BYTES:
            raise LineError(f"a line longer than {LONGEST_BYTES} bytes")
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise LineError("a line that is not JSON") from None
        if not all(isinstance(message, dict) for message in messages):
            raise LineError("a line that is not a message")
        return messages


class Sender:
    """Writes messages in a thread, so that a slow link delays no caller. Thread: any, also a signal's handler."""

    def __init__(self, fd: int, end: Callable[[], object] = bool) -> None:
        """`fd` blocks; at its end, the sender calls `end` and closes `fd`."""
        self.failure = ""
        self._fd, self._end = fd, end
        self._items: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        start_thread("tfmon-send", self._run, self._fail)

    def send(self, **fields: object) -> None:
        """Send a message."""
        self._items.put(json.dumps(fields).encode() + b"\n")

    @property
    def full(self) -> bool:
        """Whether many messages wait."""
        return self._items.qsize() >= FULL_LINES

    def flush(self, timeout_s: float) -> None:
        """Wait until all earlier messages are written."""
        written = threading.Event()
        self._items.put(written)
        written.wait(timeout_s)

    def close(self) -> None:
        """Close the descriptor when all messages are written."""
        self._items.put(None)

    def _fail(self, reason: str) -> None:
        self.failure = reason

    def _run(self) -> None:
        try:
            while (item := self._items.get()) is not None:
                if isinstance(item, threading.Event):
                    item.set()
                else:
                    self._write(item)
        finally:
            with contextlib.suppress(OSError):
                self._end()
            os.close(self._fd)

    def _write(self, line: bytes) -> None:
        left = memoryview(line)
        with contextlib.suppress(OSError):  # the reader notices it
            while left:
                left = left[os.write(self._fd, left) :]

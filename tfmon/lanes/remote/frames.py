"""Frames between the monitor and an agent: stream number, length, bytes.

Stream 0 carries messages in JSON. Lane n has the streams 2n (requests or events) and 2n + 1 (output).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from tfmon.system.threads import start_thread

HEADER = struct.Struct("!II")
MOST_BYTES = 8 * 2**20
WRITE_BYTES = 65_536
CHUNK_BYTES = 65_536
MESSAGES = 0
AT_ONCE_BYTES = 4_096
"""A pipe with room takes PIPE_BUF bytes without blocking."""
FULL_FRAMES = 16

Frame: TypeAlias = tuple[int, bytes]


class FrameError(ValueError):
    """Invalid bytes in place of a frame."""


class FrameReader:
    """Takes chunks that end anywhere. Thread: one."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, chunk: bytes) -> list[Frame]:
        """Return the complete frames; raises FrameError."""
        rest = self._rest
        rest += chunk
        frames, start = [], 0
        while len(rest) - start >= HEADER.size:
            stream, length = HEADER.unpack_from(rest, start)
            if length > MOST_BYTES:
                raise FrameError(f"a frame of {length} bytes")
            end = start + HEADER.size + length
            if len(rest) < end:
                break
            frames.append((stream, bytes(rest[start + HEADER.size : end])))
            start = end
        del rest[:start]
        return frames


class Sender:
    """Writes frames, in a thread if the link is slow. Thread: any, also a signal's handler."""

    def __init__(self, fd: int, end: Callable[[], object] = bool) -> None:
        """`fd` blocks; at its end, the sender calls `end` and closes `fd`."""
        self.failure = ""
        self._fd, self._end = fd, end
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        self._open, self._broken = True, False
        self._items: deque[bytes | threading.Event | None] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        """A signal's handler does not wait for it."""
        start_thread("tfmon-send", self._run, self._fail)

    def put(self, data: bytes) -> None:
        """Send bytes outside of frames, at once if possible."""
        if len(data) <= AT_ONCE_BYTES and self._lock.acquire(blocking=False):
            try:
                if self._open and not self._items and self._room.poll(0):
                    self._write(data)
                    return
            finally:
                self._lock.release()
        self._add(data)

    def _add(self, item: bytes | threading.Event | None) -> None:
        self._items.append(item)
        self._wake.put(None)

    def send(self, stream: int, payload: bytes) -> None:
        """Send a frame."""
        self.put(HEADER.pack(stream, len(payload)) + payload)

    def send_message(self, **fields: object) -> None:
        """Send a message."""
        self.send(MESSAGES, json.dumps(fields).encode())

    @property
    def full(self) -> bool:
        """Whether much waits."""
        return len(self._items) >= FULL_FRAMES

    def flush(self, timeout_s: float) -> None:
        """Wait until all earlier frames are written."""
        written = threading.Event()
        self._add(written)
        written.wait(timeout_s)

    def close(self) -> None:
        """Close the descriptor when all frames are written."""
        self._add(None)

    def _fail(self, reason: str) -> None:
        self.failure = reason

    def _run(self) -> None:
        try:
            while self._open:
                self._wake.get()
                with self._lock:
                    self._write_waiting()
        finally:
            with self._lock:
                self._open = False
            with contextlib.suppress(OSError):
                self._end()
            os.close(self._fd)

    def _write_waiting(self) -> None:
        while self._items and self._open:
            data = b""
            while self._items and len(data) < WRITE_BYTES and isinstance(self._items[0], bytes):
                data += self._items[0]
                self._items.popleft()
            self._write(data)
            if self._items and not isinstance(self._items[0], bytes):
                item = self._items.popleft()
                if item is None:
                    self._open = False
                elif isinstance(item, threading.Event):
                    item.set()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left and not self._broken:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self._broken = True

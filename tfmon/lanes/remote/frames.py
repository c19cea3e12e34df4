"""Frames between the monitor and an agent, both ways: kind, number, length and payload, in bounded memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from collections import deque
from enum import IntEnum
from queue import Empty, SimpleQueue
from typing import NamedTuple

HEADER = struct.Struct("!BII")
MOST_BYTES = 8 * 2**20
WRITE_BYTES = 65_536
CHUNK_BYTES = 65_536
STAMP = struct.Struct("!q")
PONG = struct.Struct("!qqqq")
"""The ping's stamp, the agent's clock, its CPU time, and its memory in bytes, or -1 if unknown."""
ENDED = struct.Struct("!iq")
"""A lane's exit code as in `Popen`, and the stamp of its end."""


class Kind(IntEnum):
    """The kind of a frame; its number belongs to a lane or a question."""

    # To the agent.
    START = 1
    """JSON."""
    REQUEST = 2
    """Bytes for the request pipe of a lane."""
    SIGNAL = 3
    """A signal for a lane; 1 for its first process only, 0 for the group."""
    PING = 5
    HOLD = 6
    """Suspend every lane; silence means nothing until GO_ON."""
    GO_ON = 7
    ASK = 8
    """JSON."""
    READ = 9
    """Take readings from now on; JSON."""
    FILE = 10
    """A file for the agent's folder: its name there, a zero byte, its content."""
    # To the monitor.
    STARTED = 20
    """Whether a lane's process was started; JSON."""
    METRICS = 21
    OUTPUT = 22
    DROPPED = 23
    """Number of dropped bytes before the next output."""
    ENDED = 24
    PONGED = 25
    ANSWER = 26
    """JSON."""
    EVENT = 27
    """A reading, as one line of the codec."""
    LAST_WORD = 29
    """Why the agent ends."""


class FrameError(ValueError):
    """Invalid bytes in place of a frame."""


class Frame(NamedTuple):
    """One frame."""

    kind: int
    number: int
    payload: bytes


class FrameReader:
    """Takes chunks that end anywhere. Thread: one."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, chunk: bytes) -> list[Frame]:
        """Return the frames that are complete now; raises FrameError for bytes that are none."""
        rest = self._rest
        rest += chunk
        frames, start = [], 0
        while len(rest) - start >= HEADER.size:
            kind, number, length = HEADER.unpack_from(rest, start)
            if length > MOST_BYTES:
                raise FrameError(f"a frame of {length} bytes")
            end = start + HEADER.size + length
            if len(rest) < end:
                break
            frames.append(Frame(kind, number, bytes(rest[start + HEADER.size : end])))
            start = end
        del rest[:start]
        return frames


class Outbox:
    """Frames to send. Thread: `put` any, also a signal's handler; the rest the one that waits for `wake_fd`."""

    def __init__(self) -> None:
        self.wake_fd, self._waker = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._waker, False)
        self._tickets = itertools.count(1)
        self._new: SimpleQueue[tuple[int, bytes, bool]] = SimpleQueue()
        self._urgent: deque[bytes] = deque()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._partial = memoryview(b"")
        self._partial_ticket = 0
        self._closed = False
        self.sent = 0
        """Ticket of the last written frame; urgent frames have none."""
        self.waiting_bytes = 0

    def put(self, kind: Kind, number: int = 0, payload: bytes = b"", *, urgent: bool = False) -> int:
        """Send a frame soon, and return its ticket; an urgent one overtakes the others."""
        ticket = next(self._tickets)
        self._new.put((ticket, HEADER.pack(kind, number, len(payload)) + payload, urgent))
        self.wake()
        return ticket

    def wake(self) -> None:
        """Make the thread that waits look around."""
        with contextlib.suppress(OSError):
            if not self._closed:
                os.write(self._waker, b"!")

    def collect(self) -> None:
        """Take over the frames that were put."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_fd, 4096)
        with contextlib.suppress(Empty):
            while True:
                ticket, frame, urgent = self._new.get_nowait()
                self.waiting_bytes += len(frame)
                if urgent:
                    self._urgent.append(frame)
                else:
                    self._waiting.append((ticket, frame))

    @property
    def empty(self) -> bool:
        """True when all that was collected is written."""
        return not (self._partial or self._urgent or self._waiting)

    def write(self, fd: int) -> None:
        """Write as much as the descriptor, which does not block, takes; raises OSError when nobody reads it."""
        while not self.empty:
            if not self._partial:
                self._take_next()
            try:
                written = os.write(fd, self._partial)
            except BlockingIOError:
                return
            self._partial = self._partial[written:]
            self.waiting_bytes -= written
            if not self._partial:
                self.sent = self._partial_ticket

    def _take_next(self) -> None:
        """Join the next frames up to the size of one write."""
        frames = list(self._urgent)
        self._urgent.clear()
        size = sum(map(len, frames))
        while self._waiting and size < WRITE_BYTES:
            self._partial_ticket, frame = self._waiting.popleft()
            frames.append(frame)
            size += len(frame)
        self._partial = memoryview(b"".join(frames))

    def close(self) -> None:
        """Close the descriptors, and send nothing from then on."""
        self._closed = True
        os.close(self.wake_fd)
        os.close(self._waker)

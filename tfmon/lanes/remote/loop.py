"""The thread that reads and writes the frames of one connection, and notices when it has ended."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable

from tfmon.lanes.remote.frames import CHUNK_BYTES, Frame, FrameReader, Kind, Outbox
from tfmon.lanes.remote.trouble import why_ended
from tfmon.lanes.remote.wire import Wire
from tfmon.model.threads import start_thread

BEAT_S = 1.0
SILENCE_S = 5.0
"""A connection over which nothing came for so long is lost: the agent answers every beat."""
LATE_S = 2.0
"""A loop that is late by so much was stopped itself, and the silence says nothing."""
CLOSE_S = 2.0
"""How long the agent gets to end when the connection is closed."""
CROWDED_S = 0.02
"""How often it is looked whether more can be read."""


class FrameLoop:
    """Reads and writes frames until the connection ends.

    Thread: any; `put` also from a signal's handler.
    """

    def __init__(
        self,
        wire: Wire,
        rest: bytes,
        take: Callable[[Frame, int], None],
        beat: Callable[[], None],
        crowded: Callable[[], bool],
        ended: Callable[[str], None],
    ) -> None:
        """Take over a wire whose agent is ready.

        Args:
            wire: The wire.
            rest: What came behind the agent's word.
            take: Takes each frame, and when it was read.
            beat: Called every second.
            crowded: Whether nothing more should be read for now.
            ended: Called last, with the reason.
        """
        self._wire, self._rest = wire, rest
        self._take_frame, self._beat, self._crowded, self._ended = take, beat, crowded, ended
        self._frames = FrameReader()
        self._outbox = Outbox()
        self._selector = selectors.DefaultSelector()
        self._watched: dict[int, int] = {}
        self._writes = True
        """False once nobody reads what is written."""
        self._closing = False
        self._close_s = 0.0
        self._heard_s = time.monotonic()

    def put(self, kind: Kind, number: int = 0, payload: bytes = b"") -> int:
        """Send a frame, and return its ticket."""
        return self._outbox.put(kind, number, payload)

    @property
    def sent(self) -> int:
        """The ticket of the last frame that was written."""
        return self._outbox.sent

    def close(self) -> None:
        """End the agent, and the connection then."""
        self._closing = True
        self._outbox.wake()

    def start(self) -> None:
        """Start the thread; if it dies, the connection has ended."""
        start_thread(f"tfmon-host-{self._wire.host.name}", lambda: self._end(self._serve()), self._end)

    def _end(self, reason: str) -> None:
        self._wire.kill()
        self._ended(reason)
        self._selector.close()
        self._outbox.close()

    def _serve(self) -> str:
        wire = self._wire
        self._watch(self._outbox.wake_fd, selectors.EVENT_READ)
        self._take(self._rest)
        beat_s = time.monotonic()
        while True:
            crowded = self._crowded()
            self._watch(wire.out_fd, 0 if crowded else selectors.EVENT_READ)
            self._watch(wire.error_fd, selectors.EVENT_READ if wire.errors_open else 0)
            if not self._close_s:
                waits = self._writes and not self._outbox.empty
                self._watch(wire.in_fd, selectors.EVENT_WRITE if waits else 0)
            before_s = time.monotonic()
            wait_s = max(0.0, beat_s - before_s)
            ready = {key.fd for key, _ in self._selector.select(min(wait_s, CROWDED_S) if crowded else wait_s)}
            now_s = time.monotonic()
            if crowded or now_s - before_s > wait_s + LATE_S:
                self._heard_s = now_s
            if wire.out_fd in ready:
                chunk = os.read(wire.out_fd, CHUNK_BYTES)
                if not chunk:
                    return why_ended(wire.host, wire.exit_code(), wire.said())
                self._heard_s = now_s
                self._take(chunk)
            if wire.error_fd in ready:
                wire.read_errors()
            if now_s >= beat_s:
                beat_s = now_s + BEAT_S
                self._beat()
            self._write()
            if self._closing and not self._close_s:
                self._close_s = now_s + CLOSE_S
                self._watch(wire.in_fd, 0)
                wire.close()
            if self._close_s and now_s > self._close_s:
                return "it did not end"
            if now_s - self._heard_s > SILENCE_S:
                return f"nothing was heard for {SILENCE_S:.0f} s"

    def _take(self, chunk: bytes) -> None:
        at_ns = time.monotonic_ns()
        for frame in self._frames.take(chunk):
            self._take_frame(frame, at_ns)

    def _write(self) -> None:
        self._outbox.collect()
        if self._close_s or not self._writes:
            return
        try:
            self._outbox.write(self._wire.in_fd)
        except OSError:  # what is left to read says why
            self._writes = False

    def _watch(self, fd: int, events: int) -> None:
        """Have `select` wait for these events of a descriptor; 0 for none."""
        before = self._watched.get(fd, 0)
        if events == before:
            return
        self._watched[fd] = events
        if not events:
            self._selector.unregister(fd)
        elif before:
            self._selector.modify(fd, events)
        else:
            self._selector.register(fd, events)

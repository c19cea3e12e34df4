"""A link to an agent, until it ends: the thread that reads and writes frames, the heartbeat, the clock there."""

from __future__ import annotations

import os
import selectors
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tfmon.lanes.remote.frames import CHUNK_BYTES, PONG, STAMP, Frame, FrameReader, Kind, Outbox
from tfmon.lanes.remote.trouble import HostError, of_bridge, why_ended
from tfmon.lanes.remote.wire import Wire
from tfmon.model.codec import clean
from tfmon.model.events import LinkMeasured
from tfmon.model.readings import NOT_READ, Missing, Reading
from tfmon.model.threads import start_thread

BEAT_S = 1.0
SILENCE_S = 5.0
"""A link without data for this time is lost: the agent answers every heartbeat."""
LATE_S = 2.0
"""A loop that is this late was stopped itself, so the silence means nothing."""
CLOSE_S = 2.0
"""Time for the agent to end when the link is closed."""
CROWDED_S = 0.02
"""Interval of the check whether reading can go on."""
SETTLE_BEATS = 10
"""Interval of setting the clock by the pings, in heartbeats."""
FIRST_PINGS = 20
FIRST_PINGS_S = 3.0
KEPT_PINGS = 60
QUICKEST = 0.1
"""Share of the pings that counts: the others were delayed, and not equally in both directions."""
DRIFT = 15e-6
"""Drift of two clocks since a ping. Source: RFC 5905, PHI."""


@dataclass(frozen=True, slots=True)
class Ping:
    """One ping: when it was sent and answered here, and the clock there in between."""

    sent_ns: int
    there_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """How long the answer took."""
        return self.received_ns - self.sent_ns

    @property
    def offset_ns(self) -> int:
        """What must be added to a stamp from there, if both ways took equally long."""
        return (self.sent_ns + self.received_ns) // 2 - self.there_ns


class HostClock:
    """Turns stamps of a host into the monitor's. Thread: `take` and `settle` one; `here` any."""

    def __init__(self) -> None:
        self._pings: deque[Ping] = deque(maxlen=KEPT_PINGS)
        self.offset_ns = 0
        self.error_ns = 0
        """Largest error of the offset: half a round trip, the scatter of the pings, and the drift since."""
        self.round_trip_ns = 0

    def take(self, ping: Ping) -> None:
        """Take a ping; the offset changes at the next `settle`."""
        self._pings.append(ping)

    def settle(self) -> bool:
        """Take the offset from the quickest pings; return False if there is none yet."""
        if not self._pings:
            return False
        # Of equally quick ones, the latest: clocks drift.
        pings = sorted(self._pings, key=lambda ping: (ping.round_trip_ns, -ping.sent_ns))
        quickest = pings[: max(1, int(len(pings) * QUICKEST))]
        offset_ns = int(statistics.median(ping.offset_ns for ping in quickest))
        disagree_ns = max(abs(ping.offset_ns - offset_ns) for ping in quickest)
        age_ns = self._pings[-1].received_ns - max(ping.received_ns for ping in quickest)
        self.error_ns = (quickest[0].round_trip_ns + 1) // 2 + disagree_ns + int(DRIFT * age_ns)
        self.round_trip_ns = int(statistics.median(ping.round_trip_ns for ping in quickest))
        self.offset_ns = offset_ns
        return True

    def here(self, there_ns: int) -> int:
        """Return the monitor's stamp for one from there."""
        return max(0, there_ns + self.offset_ns)


class Link:
    """Carries frames until it ends, and calls in its own thread. Thread: any; `put` also in a signal's handler."""

    def __init__(
        self,
        wire: Wire,
        take: Callable[[Frame], None],
        crowded: Callable[[], bool],
        measured: Callable[[LinkMeasured], None],
        ended: Callable[[int], None],
    ) -> None:
        """Take over a wire; `take` gets each frame but clock and end, `ended` the stamp of its end."""
        self.host = wire.host.name
        self.folder = wire.greeting.folder
        self.lost = ""
        self.bridge_error: HostError | None = None
        """Why the bridge to Ray ended the link, if it did."""
        self._wire = wire
        self._take_frame, self._crowded, self._measured, self._ended = take, crowded, measured, ended
        self._frames = FrameReader()
        self.outbox = Outbox()
        self._selector = selectors.DefaultSelector()
        self._watched: dict[int, int] = {}
        self._writes = True
        self._closing = False
        self._close_s = 0.0
        self._heard_s = time.monotonic()
        self._last_word = ""
        self.clock = HostClock()
        self._beats = 0
        self._ponged = threading.Event()
        self._agent: tuple[int, int, int] | None = None
        """The agent's clock, CPU time and memory at the last pong."""
        self._agent_before: tuple[int, int, int] | None = None

    def measure(self) -> None:
        """Set the clock by some pings, one after another."""
        until_s = time.monotonic() + FIRST_PINGS_S
        for _ in range(FIRST_PINGS):
            self._ponged.clear()
            self._ping()
            if not self._ponged.wait(max(0.0, until_s - time.monotonic())) or self.lost:
                break
        self._settle()

    def close(self, reason: str = "") -> None:
        """End the agent, and the link then."""
        self._last_word = self._last_word or reason
        self._closing = True
        self.outbox.wake()

    def start(self) -> None:
        """Start the thread; if it dies, the link has ended."""
        start_thread(f"tfmon-host-{self.host}", lambda: self._end(self._serve()), self._end)

    def _end(self, reason: str) -> None:
        self._wire.kill()
        self.lost = " ".join(clean(self._last_word or reason, 400).split()) or "the connection was closed"
        self._ponged.set()
        self._ended(time.monotonic_ns())
        self._selector.close()
        self.outbox.close()

    def _serve(self) -> str:
        wire = self._wire
        self._watch(self.outbox.wake_fd, selectors.EVENT_READ)
        self._take(wire.received)
        beat_s = time.monotonic()
        while True:
            crowded = self._crowded()
            self._watch(wire.out_fd, 0 if crowded else selectors.EVENT_READ)
            self._watch(wire.error_fd, selectors.EVENT_READ if wire.errors_open else 0)
            if not self._close_s:
                waits = self._writes and not self.outbox.empty
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
                    code, said = wire.exit_code(), wire.said()
                    self.bridge_error = of_bridge(said) if wire.host.ray is not None else None
                    return self.bridge_error.message if self.bridge_error else why_ended(wire.host, code, said)
                self._heard_s = now_s
                self._take(chunk)
            if wire.error_fd in ready:
                wire.read_errors()
            if now_s >= beat_s:
                beat_s = now_s + BEAT_S
                self._ping()
                self._beats += 1
                if self._beats % SETTLE_BEATS == 0:
                    self._settle()
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
            match frame.kind:
                case Kind.PONGED:
                    sent_ns, there_ns, cpu_ns, memory_bytes = PONG.unpack(frame.payload)
                    self.clock.take(Ping(sent_ns, there_ns, at_ns))
                    self._agent = there_ns, cpu_ns, memory_bytes
                    self._ponged.set()
                case Kind.LAST_WORD:
                    self._last_word = self._last_word or frame.payload.decode(errors="replace")
                case _:
                    self._take_frame(frame)

    def _write(self) -> None:
        self.outbox.collect()
        if self._close_s or not self._writes:
            return
        try:
            self.outbox.write(self._wire.in_fd)
        except OSError:  # what is left to read says why
            self._writes = False

    def _watch(self, fd: int, events: int) -> None:
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

    def _ping(self) -> None:
        self.outbox.put(Kind.PING, 0, STAMP.pack(time.monotonic_ns()))

    def _settle(self) -> None:
        if not self.clock.settle():
            return
        cpu_pct: Reading = NOT_READ
        memory: Reading = Missing("that system does not say how much memory a process has")
        if self._agent is not None:
            there_ns, cpu_ns, memory_bytes = self._agent
            if memory_bytes >= 0:
                memory = memory_bytes
            if self._agent_before is not None and there_ns > self._agent_before[0]:
                cpu_pct = 100 * (cpu_ns - self._agent_before[1]) / (there_ns - self._agent_before[0])
            self._agent_before = self._agent
        measured = LinkMeasured(
            at_ns=time.monotonic_ns(),
            host=self.host,
            round_trip_ns=self.clock.round_trip_ns,
            offset_ns=self.clock.offset_ns,
            error_ns=self.clock.error_ns,
            agent_cpu_pct=cpu_pct,
            agent_bytes=memory,
        )
        self._measured(measured)

"""A lane's process on another machine."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfmon.errors import TfmonError
from tfmon.lanes.child_output import TAIL_LINES
from tfmon.lanes.lane_process import Echo, LaneProcess, Sink
from tfmon.lanes.launch import ProcessPlan
from tfmon.model.codec import CodecError, clean, encode_message, read
from tfmon.model.event_base import Event
from tfmon.model.events import BadLine, LaneEnded, LanePrinted
from tfmon.model.lane_events import LaneFailed, Profiled, ProfileFailed
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.lane_texts import without_chatter
from tfmon.model.requests import Assign, Request, TakeProfile

KEPT_PINGS = 60
DRIFT = 15e-6
"""Drift of two clocks since a ping. Source: RFC 5905, PHI."""


class HostClock:
    """Converts a host's stamps. Thread: `take` and `settle` one; `to_monitor` any."""

    def __init__(self) -> None:
        self._pings: deque[tuple[int, int, int]] = deque(maxlen=KEPT_PINGS)
        """Round trip, time of the answer (negative, so that the newest comes first) and offset of each."""
        self.offset_ns = 0
        self.error_ns = 0
        """Half a round trip and the drift."""
        self.round_trip_ns = 0

    def take(self, sent_ns: int, there_ns: int, received_ns: int) -> None:
        """Add a ping, which was answered at `there_ns` of the host's clock."""
        offset_ns = (sent_ns + received_ns) // 2 - there_ns
        self._pings.append((received_ns - sent_ns, -received_ns, offset_ns))

    def settle(self) -> bool:
        """Set the offset by the quickest ping, if any."""
        if not self._pings:
            return False
        self.round_trip_ns, minus_received_ns, self.offset_ns = min(self._pings)
        age_ns = minus_received_ns - self._pings[-1][1]
        self.error_ns = (self.round_trip_ns + 1) // 2 + int(DRIFT * age_ns)
        return True

    def to_monitor(self, there_ns: int) -> int:
        """Convert a host's stamp to the monitor's clock."""
        return max(0, there_ns + self.offset_ns)


class RemoteProcess(LaneProcess):
    """A child of an agent. Thread: `take` and `lose`, the connection's delivery thread; the rest any."""

    def __init__(
        self,
        number: int,
        plan: ProcessPlan,
        sink: Sink,
        echo: Echo,
        tell: Callable[..., bool],
        clock: HostClock,
        folder: str,
        scenario: str,
    ) -> None:
        """`folder` and `scenario` are paths on the host; `tell` sends to its agent."""
        super().__init__(plan.lane, sink, plan.grace_s)
        self.number, self.pid = number, 0
        self._echo, self._tell_host, self._clock = echo, tell, clock
        self._folder, self._scenario = folder, scenario
        self._profiles: dict[str, str] = {}
        self._printed: deque[str] = deque(maxlen=TAIL_LINES)

    def send(self, request: Request) -> bool:
        """Send a request with the host's paths; see `LaneProcess`."""
        if self.ended:
            return False
        if isinstance(request, Assign) and self._scenario:
            request = replace(request, scenario=self._scenario)
        elif isinstance(request, TakeProfile):
            there = f"{self._folder}/profiles/{self.number}-{len(self._profiles) + 1}"
            self._profiles[there] = request.folder
            request = replace(request, folder=there)
        return self._tell_host(do="request", lane=self.number, line=encode_message(request).decode())

    def _control(self, method: str, *arguments: int) -> None:
        if not self.ended:
            self._tell_host(do="control", lane=self.number, method=method, arguments=arguments)

    def kill(self, number: int) -> None:
        """See `LaneProcess`."""
        self._control("kill", number)

    def suspend(self) -> None:
        """See `LaneProcess`."""
        self._control("suspend")

    def continue_(self) -> None:
        """See `LaneProcess`."""
        self._control("continue_")

    def request_end(self) -> None:
        """See `LaneProcess`."""
        self.end_requested = True
        self._control("request_end")

    def ask_stacks(self) -> None:
        """See `LaneProcess`."""
        self._control("ask_stacks")

    def take(self, message: dict[str, Any]) -> None:
        """Report an event, or echo output."""
        if "output" in message:
            if self._echo is not None:
                self._echo(str(message["output"]).encode("latin-1", "replace"))
            return
        problem = ""
        try:
            event: Event = read(message.get("event"), Event)
            at_ns = min(self._clock.to_monitor(event.at_ns), time.monotonic_ns())
            self._report(replace(event, lane=self.lane, at_ns=at_ns))
        except CodecError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - one thread delivers all events; one must not end it
            problem = f"tfmon could not take in an event: {type(error).__name__}: {error}"
        if problem:
            self._tell(BadLine(lane=self.lane, problem=clean(problem, 200)))

    def _report(self, event: Event) -> None:
        if isinstance(event, Profiled | ProfileFailed):
            event = replace(event, folder=self._profiles.get(event.folder, event.folder))
        elif isinstance(event, LanePrinted):
            self._printed.extend(event.lines)
        elif isinstance(event, LaneEnded):
            event = replace(event, requested=self.end_requested)
        self._tell(event)
        if isinstance(event, LaneEnded):
            self.over.set()

    def lose(self, why: TfmonError, at_ns: int) -> None:
        """Report a lost connection."""
        if self.ended:
            return
        if not self.end_requested:
            self._tell(LaneFailed(at_ns=at_ns, lane=self.lane, kind=HOST_LOST, message=why.message, hint=why.hint))
        tail = tuple(without_chatter(tuple(self._printed)))
        self._report(
            LaneEnded(lane=self.lane, at_ns=at_ns, exit_code=None, signal=None, requested=False, output_tail=tail)
        )

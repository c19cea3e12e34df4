"""A lane's process on another machine, as the monitor has it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

from tfmon.lanes.process import LaneProcess, Sink
from tfmon.lanes.remote.frames import Kind
from tfmon.lanes.remote.link import Link
from tfmon.model.lane_events import FromLane, LaneFailed, Profiled, ProfileFailed
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.requests import Assign, Request, TakeProfile


class RemoteProcess(LaneProcess):
    """A child of an agent.

    Thread: what comes from there is taken in the connection's telling thread; the rest any.
    """

    stack_poll_s = 0.3

    def __init__(
        self, lane: str, number: int, scenario: str, link: Link, sink: Sink, ended: Callable[[], None]
    ) -> None:
        """Take over a process that is about to be started.

        Args:
            scenario: Where its scenario is, there; empty for none.
        """
        super().__init__(lane, sink, self._here)
        self.number = number
        self.pid = 0  # until the agent has started it; nobody is told of it before
        self._scenario = scenario
        self._link = link
        self._note_end = ended
        self._profiles: dict[str, str] = {}
        """Folders as profiles were requested, by their names in the agent's folder."""

    def send(self, request: Request) -> bool:
        """Send a request with the paths of that machine; return False when nobody reads it."""
        if isinstance(request, Assign) and self._scenario:
            request = replace(request, scenario=self._scenario)
        elif isinstance(request, TakeProfile):
            there = f"{self._link.folder}/profiles/{self.number}-{len(self._profiles) + 1}"
            self._profiles[there] = request.folder
            request = replace(request, folder=there)
        return super().send(request)

    def write(self, data: bytes) -> bool:
        """Put it on the link; return False when that is lost, or the child has ended."""
        if self.ended or self._link.lost:
            return False
        self._link.put(Kind.REQUEST, self.number, data)
        return True

    def kill(self, number: signal.Signals, *, alone: bool = False) -> None:
        """Have the agent signal the child and its process group, or the child alone."""
        if not self.ended:
            self._link.put(Kind.SIGNAL, self.number, bytes([number, alone]))

    def suspend_with_monitor(self) -> None:
        """Do nothing: the connection suspends all lanes of the host."""

    def continue_with_monitor(self) -> None:
        """Do nothing: the connection continues all lanes of the host."""

    # ---------------------------------------------------------------- what comes from there

    def end(self, code: int, at_ns: int) -> None:
        """Tell that the child has ended, at a stamp of that machine."""
        self._tell_end(code, self._link.here(at_ns))
        self._note_end()

    def lose(self, reason: str, at_ns: int) -> None:
        """Tell that the connection is lost, and the child with it."""
        if self.ended:
            return
        if not self.end_requested:
            self._tell(LaneFailed(at_ns=at_ns, lane=self.lane, kind=HOST_LOST, message=reason))
        self._tell_end(None, at_ns)
        self._note_end()

    def _here(self, event: FromLane) -> FromLane:
        """Return an event with the stamp, and the folder of a profile, that it has on this machine."""
        if isinstance(event, Profiled | ProfileFailed):
            event = replace(event, folder=self._profiles.get(event.folder, event.folder))
        return replace(event, at_ns=self._link.here(event.at_ns))

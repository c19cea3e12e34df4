"""Where lanes run besides the monitor's own machine, as the lanes see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tfmon.lanes.plan import LanePlan, RacePlan
from tfmon.lanes.process import LaneProcess, Sink


class Place(Protocol):
    """Another machine that lanes can be started on."""

    def ensure(self) -> None:
        """Connect again where the connection is lost. Thread: any that may block for seconds.

        Raises:
            TfmonError: It cannot be reached.
        """

    def start_lane(
        self, lane: LanePlan, plan: RacePlan, script: Path, sink: Sink, ended: Callable[[], None]
    ) -> LaneProcess:
        """Start the process of a lane.

        Args:
            lane: The lane.
            plan: Its race.
            script: What the process runs that has no user's command, if it is not tfmon's own.
            sink: Takes the process and each of its events.
            ended: Called after the process has ended.

        Raises:
            OSError: It did not start.
        """

    def suspend_with_monitor(self) -> None:
        """Suspend its lanes for as long as the monitor is stopped. Thread: also a signal's handler."""

    def continue_with_monitor(self) -> None:
        """Continue its lanes. Thread: also a signal's handler."""

"""Ends processes, and waits for their ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from tfmon.lanes.lane_process import LaneProcess
from tfmon.lanes.launch import ASK_S, KILL_S, TERM_S

LOOK_S = 0.1


def end(processes: Sequence[LaneProcess], hurried: Callable[[], bool] = lambda: False) -> None:
    """End processes by a request, SIGTERM and SIGKILL. If `hurried`, SIGTERM follows at once."""
    graces_s = [process.grace_s for process in processes if process.grace_s is not None]
    for process in processes:
        process.request_end()
    if wait_ended(processes, max(graces_s, default=ASK_S), hurried):
        return
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        for process in processes:
            if not process.ended:
                process.kill(number)
        if wait_ended(processes, patience_s):
            return


def wait_ended(
    processes: Sequence[LaneProcess], timeout_s: float, given_up: Callable[[], bool] = lambda: False
) -> bool:
    """Return whether all processes end in time, unless `given_up`."""
    deadline = time.monotonic() + timeout_s
    while running := [process for process in processes if not process.has_ended()]:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or given_up():
            return False
        running[0].over.wait(min(left_s, LOOK_S))
    return True

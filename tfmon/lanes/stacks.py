"""Where a child stands: it writes the stacks of its threads on a signal, even while it hangs."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

from tfmon.lanes.process import LaneProcess
from tfmon.model.events import Event
from tfmon.model.lane_events import StackTold

STACK_SIGNAL = signal.SIGUSR1
PATIENCE_S = 15.0
"""How long an answer may take: a lane that is frozen answers in its next turn."""
LOOK_EVERY_S = 0.05
_STACK_LINE = re.compile(r'(Current thread|Thread) 0x|  File "|  <|  \.\.\.|Stack \(most recent')
"""What `faulthandler` writes."""


def ask(child: LaneProcess, sink: Callable[[Event], object]) -> None:
    """Ask a child that `tells_stack`, and pass on its answer; nothing if it gives none.

    Thread: one of its own.
    """
    before = child.printed_bytes
    child.signal_leader(STACK_SIGNAL)
    deadline = time.monotonic() + PATIENCE_S
    lines: tuple[str, ...] = ()
    while time.monotonic() < deadline and not child.ended:
        time.sleep(LOOK_EVERY_S)
        found = stack_lines(child.printed_since(before))
        if found and found == lines:
            sink(StackTold(lane=child.lane, at_ns=time.monotonic_ns(), lines=lines))
            return
        lines = found


def stack_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of a stack among others."""
    return tuple(line for line in lines if _STACK_LINE.match(line))

"""Where the threads of a script stand, told on request.

A scenario's child writes its stacks on a signal, even while an extension holds Python's lock. A script's signals
are its own, and so is what it writes to stderr: here the inbox's thread looks, which it can as long as the lock is
let go now and then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from tfmon.model.lane_events import StackTold

MOST_THREADS, MOST_FRAMES, MOST_LINES, MOST_CHARACTERS = 20, 100, 200, 160
"""What is told at most: threads, frames of each, lines, characters of a line. It must fit a line of the pipe."""
OWN = "tfmon-"
"""How the names of tfmon's own threads begin."""


def stacks(main: int) -> StackTold:
    """Return where each thread stands, that of the number `main` first, in the form that `faulthandler` writes."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    lines: list[str] = []
    for ident in sorted(frames, key=lambda ident: ident != main)[:MOST_THREADS]:
        name = names.get(ident, "")
        if name.startswith(OWN):
            continue
        lines.append(f"Thread 0x{ident:016x} [{name}] (most recent call first):")
        lines.extend(_calls(frames[ident]))
    return StackTold(at_ns=time.monotonic_ns(), lines=tuple(line[:MOST_CHARACTERS] for line in lines[:MOST_LINES]))


def _calls(frame: FrameType | None) -> Iterator[str]:
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}'
        frame = frame.f_back
    if frame is not None:
        yield "  ..."

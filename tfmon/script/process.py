"""Selects the lane's process: the first one that trains, and after its end the next."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import threading
import time
from typing import TYPE_CHECKING

from tfmon.model.lane_pipes import HOLDER, LanePipes, is_open, read_pipes, reopened

if TYPE_CHECKING:
    from tfmon.script.lane import Lane

_lock = threading.Lock()
_lane: Lane | None = None
_refused = False
_forked = False
"""Whether this is a lane's forked child that has not trained yet."""


def join() -> Lane | None:
    """Make this process the lane and return it, or None if another process is. The calling thread is measured."""
    global _lane, _refused, _forked
    if _forked:
        pipes, _forked = read_pipes(os.environ), False
        if pipes is not None and is_open(pipes):
            tell(pipes, "processes", f"process {os.getpid()}")
    if _lane is not None or _refused:
        return _lane
    with _lock:
        if _lane is None and not _refused:
            _lane = _join()
            _refused = _lane is None
    return _lane


def leave() -> None:
    """End this process's lane, if any. The process may become a lane again."""
    global _lane, _refused
    with _lock:
        lane, _lane, _refused = _lane, None, False
    if lane is not None:
        lane.leave()


def joined() -> Lane | None:
    """Return this process's lane, or None."""
    return _lane


def _join() -> Lane | None:
    pipes = read_pipes(os.environ)
    if pipes is not None and not is_open(pipes):
        pipes = reopened(pipes, os.environ.get(HOLDER, ""))
    if pipes is None:
        return None
    try:
        fcntl.lockf(pipes.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        rank, ranks = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        which = f" (rank {rank} of {ranks})" if rank and ranks else ""
        tell(pipes, "processes", f"process {os.getpid()}{which}")
        return None
    from tfmon.script.lane import Lane

    _watch_forks()
    return Lane(pipes)


@functools.cache
def _watch_forks() -> None:
    from tfmon.script.hooking import hooks

    os.register_at_fork(after_in_child=hooks.guard(_abandon))


def tell(pipes: LanePipes, what: str, reason: str) -> None:
    """Report what is not measured, from a process that is not the lane."""
    from tfmon.model.codec import encode_message
    from tfmon.model.script_events import NotMeasured

    with contextlib.suppress(OSError):  # one short line, so it is written whole
        os.write(pipes.metric_fd, encode_message(NotMeasured(at_ns=time.monotonic_ns(), what=what, reason=reason)))


def _abandon() -> None:
    global _lane, _refused, _forked
    if _lane is not None:
        _lane.reporter.abandon()
    _lane, _refused, _forked = None, True, True

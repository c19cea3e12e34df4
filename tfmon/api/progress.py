"""A race that Python began: one at a time, and how it goes told in a notebook or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tfmon import units
from tfmon.api.arguments import refuse
from tfmon.api.headless import TOLD_EVERY_S, show_progress
from tfmon.api.variance import state_folder
from tfmon.errors import TfmonError

Tell = Callable[[str], None]


@contextlib.contextmanager
def teller(progress: bool | Tell) -> Iterator[Tell | None]:
    """Return the function to call with a progress line once a second, which clears it at the end; None for none.

    Args:
        progress: Whether to show it in a notebook or on a terminal, or what to call with each line.
    """
    if not isinstance(progress, bool) and not callable(progress):
        refuse("progress", progress, "it is True or False, or a function that takes each line")
    if progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif (display := _notebook()) is not None:
        with _cell(display) as tell:
            yield tell
    elif sys.stderr is not None and sys.stderr.isatty():
        try:
            yield show_progress
        finally:
            show_progress("")
    else:
        yield None


def _notebook() -> Any:  # noqa: ANN401 - IPython need not be there
    """Return the function that shows output below a cell; None outside of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    import IPython.display

    return IPython.display.display


@contextlib.contextmanager
def _cell(display: Any) -> Iterator[Tell]:  # noqa: ANN401
    """Show lines in one place below the cell, each over the one before."""
    place = display({"text/plain": "the race begins …"}, raw=True, display_id=True)
    try:
        yield lambda text: place.update({"text/plain": text}, raw=True)
    finally:
        place.update({"text/plain": ""}, raw=True)


# ---------------- one race at a time: two at once on one machine would each measure the other


POLL_S = 0.1
_IN_THIS_PROCESS = threading.Lock()


@contextlib.contextmanager
def alone(wait: bool, tell: Callable[[str], None] | None) -> Iterator[None]:
    """Wait until no other race of this user that Python began is under way, in this process or another.

    Other processes are seen where the state folder can be written.

    Raises:
        TfmonError: one is, and it is not to be waited for.
    """
    since_s, told_s = time.monotonic(), 0.0
    with contextlib.ExitStack() as entered:
        while not _enter(entered):
            if not wait:
                raise TfmonError("another race is under way", "wait=True waits until it is over")
            now_s = time.monotonic()
            if tell is not None and now_s >= told_s + TOLD_EVERY_S:
                told_s = now_s
                tell(f"another race is under way; waiting for its end: {units.clock(now_s - since_s)}")
            time.sleep(POLL_S)
        yield


def _enter(entered: contextlib.ExitStack) -> bool:
    """Take both locks, to be given back with `entered`; return False where one is taken."""
    if not _IN_THIS_PROCESS.acquire(blocking=False):
        return False
    with contextlib.ExitStack() as mine:
        mine.callback(_IN_THIS_PROCESS.release)
        path = state_folder() / "race.lock"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            fd = None  # a folder that cannot be written: other processes are not seen
        if fd is not None:
            mine.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError:
                pass  # a file system without locks
        entered.push(mine.pop_all())
    return True

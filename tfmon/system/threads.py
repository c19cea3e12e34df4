"""Daemon threads that report their errors: a silent death of a thread is a hang.

Also used by the bridge to Ray, so it supports Python 3.9.
"""

from __future__ import annotations

import _thread
import threading
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType

Failed = Callable[[str], object]
"""Called with the error in one line, in the failed thread."""


class ThreadLife:
    """Whether the thread of the last `begin` still runs. Thread numbers are reused."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._mark: weakref.ref[object] = weakref.ref(self)

    def begin(self) -> None:
        """Follow the calling thread."""
        mark = self._local.mark = threading.local()  # it goes with the thread
        self._mark = weakref.ref(mark)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._mark() is None


def start_thread(name: str, work: Callable[[], object], failed: Failed) -> threading.Thread:
    """Start a daemon thread; `failed` is called if `work` raises."""
    thread = threading.Thread(target=guarded, args=(name, work, failed), name=name, daemon=True)
    thread.start()
    return thread


def start_hidden(name: str, work: Callable[[], object], failed: Failed) -> None:
    """Run `work` in a thread that is invisible to the user's script, which could wait for its end.

    It must not call `threading.current_thread()`, like logging does: that would register it.
    """
    _thread.start_new_thread(guarded, (name, work, failed))


def is_ours(frame: FrameType) -> bool:
    """Return whether the thread of this frame was started here."""
    outer: FrameType | None = frame
    while outer is not None and outer.f_code is not guarded.__code__:
        outer = outer.f_back
    return outer is not None


def call_later(name: str, seconds: float, work: Callable[[], object], failed: Failed) -> threading.Timer:
    """Start a timer with its own thread; `failed` is called if `work` raises."""
    timer = threading.Timer(seconds, guarded, (name, work, failed))
    timer.name, timer.daemon = name, True
    timer.start()
    return timer


def guarded(name: str, work: Callable[[], object], failed: Failed) -> None:
    """Run `work`; `failed` is called if that raises."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - top of a thread
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        failed(f"tfmon's thread {name} failed: {why} ({Path(frame.filename).name}:{frame.lineno})")

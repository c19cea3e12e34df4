"""Daemon threads that report their errors. The bridge to Ray runs this on Python 3.9."""

from __future__ import annotations

import _thread
import threading
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType

Failed = Callable[[str], object]
"""Called with the error, in the failed thread."""


class ThreadLife:
    """Whether a thread still runs. Thread numbers are reused."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._mark: weakref.ref[object] = weakref.ref(self)

    def begin(self) -> None:
        """Follow the calling thread."""
        mark = self._local.mark = threading.local()  # it goes with the thread
        self._mark = weakref.ref(mark)

    @property
    def over(self) -> bool:
        """Whether the thread has ended."""
        return self._mark() is None


def start_thread(name: str, work: Callable[[], object], failed: Failed) -> threading.Thread:
    """Start a daemon thread."""
    thread = threading.Thread(target=guarded, args=(name, work, failed), name=name, daemon=True)
    thread.start()
    return thread


def start_hidden(name: str, work: Callable[[], object], failed: Failed) -> None:
    """Run `work` in a thread for which the user's script cannot wait.

    `work` must not call `threading.current_thread()`, as logging does: that registers the thread.
    """
    _thread.start_new_thread(guarded, (name, work, failed))


def is_ours(frame: FrameType) -> bool:
    """Return whether this module started the thread of a frame."""
    outer: FrameType | None = frame
    while outer is not None and outer.f_code is not guarded.__code__:
        outer = outer.f_back
    return outer is not None


def call_later(name: str, seconds: float, work: Callable[[], object], failed: Failed) -> threading.Timer:
    """Start a timer."""
    timer = threading.Timer(seconds, guarded, (name, work, failed))
    timer.name, timer.daemon = name, True
    timer.start()
    return timer


def guarded(name: str, work: Callable[[], object], failed: Failed) -> None:
    """Run `work`; report its error."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - top of a thread
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        failed(f"tfmon's thread {name} failed: {why} ({Path(frame.filename).name}:{frame.lineno})")

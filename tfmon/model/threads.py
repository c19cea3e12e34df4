"""Daemon threads that say why they end: one of ours that dies without a word is a hang.

Also used by the bridge to Ray, so it stays readable for Python 3.9.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path

Failed = Callable[[str], object]
"""Takes the reason in one line, in the thread that died."""


def start_thread(name: str, work: Callable[[], object], failed: Failed) -> threading.Thread:
    """Return a started daemon thread that does `work`; `failed` is called if that raises."""
    thread = threading.Thread(target=_guarded, args=(name, work, failed), name=name, daemon=True)
    thread.start()
    return thread


def call_later(name: str, seconds: float, work: Callable[[], object], failed: Failed) -> threading.Timer:
    """Return the started timer that does `work` in a thread of its own; `failed` is called if that raises."""
    timer = threading.Timer(seconds, _guarded, (name, work, failed))
    timer.name, timer.daemon = name, True
    timer.start()
    return timer


def _guarded(name: str, work: Callable[[], object], failed: Failed) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - top of a thread
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        failed(f"tfmon's thread {name} failed: {why} ({Path(frame.filename).name}:{frame.lineno})")

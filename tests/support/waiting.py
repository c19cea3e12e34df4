"""Waiting for something to become true, instead of sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0, what: str = "the condition") -> None:
    """Return once the condition holds.

    Errors: AssertionError when it does not within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        pause.wait(0.005)

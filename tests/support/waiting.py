"""Waiting for something to become true, instead of sleeping."""

import threading
import time
from collections.abc import Callable

PATIENCE_S = 120.0
LOOK_S = 0.05
"""Most that one look counts: a machine that stands still for a minute takes nobody's patience."""
HANGS_S = 600
"""`timeout` of a child process that a test waits for. It only ends a child that hangs."""


def wait_for(
    condition: Callable[[], object],
    timeout_s: float = PATIENCE_S,
    what: str = "the condition",
    change: threading.Condition | None = None,
) -> None:
    """Return once the condition holds.

    Args:
        change: Held by the caller, and notified when the condition may hold.

    Errors: AssertionError when it does not within `timeout_s` of time in which this process ran.
    """
    waited_s = 0.0
    pause, pause_s = (threading.Event(), 0.005) if change is None else (change, LOOK_S)
    began = time.monotonic()
    while not condition():
        now = time.monotonic()
        waited_s, began = waited_s + min(now - began, LOOK_S), now
        assert waited_s < timeout_s, f"not within {timeout_s} s: {what}"
        pause.wait(pause_s)

"""Ctrl+Z and fg: the lanes stop with tfmon and go on with it, and the time between is no part of any figure."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from tfmon.lanes.stillness import Stillness


def suspend_with(stillness: Stillness, take_terminal: Callable[[], None] | None = None) -> Callable[[], None]:
    """Stop the lanes when SIGTSTP stops this process, from now on; return how to end that.

    Whoever handled the signals before is called in between: Textual gives the terminal back and takes it again.
    It would also take it when SIGCONT follows a SIGSTOP, which it has not noticed, and then not restore it at the
    end; so `take_terminal` is called instead. By default the process stops itself.
    Thread: the main thread.
    """
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT)}
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        stillness.stop_lanes()
        try:
            if callable(before[number]):
                before[number](number, frame)
            else:
                os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            stopped = False
            stillness.let_go_on()

    def go_on(number: int, frame: FrameType | None) -> None:
        if stopped and callable(before[number]):
            before[number](number, frame)
        elif not stopped and take_terminal is not None:
            take_terminal()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    signal.signal(signal.SIGTSTP, stop)
    signal.signal(signal.SIGCONT, go_on)
    return restore


def can_come_back() -> bool:
    """Return whether there is a shell that `fg` can be said to: not where tfmon itself leads the session."""
    return os.getsid(0) != os.getpid()


def suspend_job() -> None:
    """Stop the whole job, as the terminal does for Ctrl+Z: with `make run`, make too, or the shell would wait."""
    os.killpg(os.getpgrp(), signal.SIGTSTP)

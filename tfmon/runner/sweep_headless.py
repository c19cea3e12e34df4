"""A sweep without a screen: waits for its end or a signal, and shows on a terminal how it goes."""

from __future__ import annotations

import contextlib
import time

import click

from tfmon.lanes.suspend import suspend_with
from tfmon.reports.sweep import progress_line
from tfmon.runner.headless import TOLD_EVERY_S, interruption, show_progress
from tfmon.runner.sweep import SweepProgram

POLL_S = 0.2


def run(program: SweepProgram) -> str:
    """Measure until all is known; return why it was interrupted, or "".

    Thread: the main thread, for the signals.
    """
    with interruption() as interrupted, contextlib.ExitStack() as undo:
        for suspension in program.suspensions:
            undo.callback(suspend_with(suspension))
        due_s, unsaved = 0.0, ""
        try:
            program.sweep.start()
            while not interrupted.signal and not program.sweep.join(POLL_S):
                if program.file is not None and program.file.failure != unsaved:
                    unsaved = program.file.failure
                    click.echo(f"tfmon: {unsaved or f'{program.file.path} has all again'}", err=True)
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + TOLD_EVERY_S
                    show_progress(progress_line(program.sweep.found))
        finally:
            program.close(interrupted.reason or "stopped by the user")
            show_progress("")
    return interrupted.reason

"""A sweep on the screen: runs the app, and ends every lane when the app leaves or a signal comes."""

from __future__ import annotations

import contextlib
import gc
import time
from functools import partial

from tfmon.lanes.launcher import yield_to_lanes
from tfmon.lanes.suspend import has_shell, suspend_job, suspend_with
from tfmon.model.race import Race
from tfmon.model.session import Session
from tfmon.probes.machine import read_machine
from tfmon.reports.sweep import to_text
from tfmon.runner.headless import interruption
from tfmon.runner.live import leave_anyway, screen_failed
from tfmon.runner.runs import RecordedRuns
from tfmon.runner.settings import ScreenSettings
from tfmon.runner.sweep import SweepProgram
from tfmon.ui.screens.sweep import SweepApp


def run(program: SweepProgram, screen: ScreenSettings) -> str:
    """Show a sweep until the user leaves; return why it was interrupted, or "".

    Thread: the main thread, for the signals.
    Raises:
        TfmonError: the screen failed; the lanes have ended.
    """
    yield_to_lanes()
    session = Session(read_machine(), time.monotonic_ns)
    session.begin(Race(scenario=program.title), ())
    suspensions = contextlib.ExitStack()

    def take_terminal() -> None:
        for suspension in program.suspensions:
            suspensions.callback(suspend_with(suspension, app.take_terminal))

    app = SweepApp(
        session,
        lambda: program.sweep.found,
        _Ends(program),
        on_ready=program.sweep.start,
        on_terminal=take_terminal,
        suspend=suspend_job if has_shell() else None,
        theme=screen.theme,
        lane_colours=screen.lane_colours,
        keymap=screen.keymap,
        characters=screen.charset,
        table=lambda: to_text(program.sweep.found),
        unsaved=lambda: program.file.failure if program.file is not None else "",
        file=str(program.file.path) if program.file is not None else "",
        runs=RecordedRuns(),
    )

    def leave() -> None:
        app.request_quit()
        leave_anyway(partial(program.close, interrupted.reason))

    with interruption(leave) as interrupted, suspensions:
        try:
            gc.freeze()
            ending = app.run(mouse=screen.mouse)
        finally:
            program.close(interrupted.reason or "stopped by the user")
    if app.broken is not None:
        raise screen_failed(app.broken)
    return interrupted.reason if ending != "quit" else ""


class _Ends:
    """Ends a sweep for the screen."""

    def __init__(self, program: SweepProgram) -> None:
        self._program = program

    def stop(self) -> None:
        """End it, and return when all lanes are gone."""
        self._program.close()

"""A race or a replay on the screen: runs the app, and ends every lane when the app leaves or a signal comes."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click

from tfmon.analysis.analysis import analyse
from tfmon.catalog import ScenarioInfo, list_scenarios
from tfmon.errors import EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError
from tfmon.lanes.launcher import yield_to_lanes
from tfmon.lanes.plan import RacePlan
from tfmon.lanes.suspend import has_shell, suspend_job, suspend_with
from tfmon.model.threads import start_thread
from tfmon.model.views import describe
from tfmon.recordings import library
from tfmon.recordings.header import RecordingError
from tfmon.reports.race import to_text
from tfmon.runner.headless import go_on_alone, interruption
from tfmon.runner.program import Program
from tfmon.runner.repeat import command_line
from tfmon.runner.runs import RecordedRuns
from tfmon.runner.settings import ScreenSettings, config_path
from tfmon.ui.app import MonitorApp

if TYPE_CHECKING:
    from tfmon.recordings.reader import Recording

FIRST_START = "the lanes train the same model, to see which is faster; q ends them and leaves, ? lists all keys"
"""What tfmon says when it is started for the first time."""
PATIENCE_S = 1.0
"""Time the app has to leave after a signal, once the lanes are gone."""


def run(program: Program, info: ScenarioInfo, plan: RacePlan | None, screen: ScreenSettings) -> str:
    """Show a race until the user leaves; return why it was interrupted, or "".

    Without a plan the race is planned after the first paint: a GPU's driver may take seconds to answer.

    Thread: the main thread, for the signals.
    Raises:
        TfmonError: the screen failed; the lanes have ended.
    """
    yield_to_lanes()
    program.announce(info)
    first = not config_path().exists() and not library.runs()

    def begin() -> None:
        if first:
            app.call_from_thread(app.say, FIRST_START)
        planned = plan or program.plan(info)
        for line in describe(planned.race.views):
            app.call_from_thread(app.say, line)
        program.begin(planned)

    app = MonitorApp(
        program.session,
        program.lanes,
        program.experiments,
        scenarios=list_scenarios,
        examine=program.examine,
        profile=program.profile_text,
        watch_gpus=program.watch_gpus,
        runs=RecordedRuns(),
        table=lambda: to_text(analyse(program.session.snapshot())),
        repeat=program.repeat,
        theme=screen.theme,
        lane_colours=screen.lane_colours,
        readonly=screen.readonly,
        keymap=screen.keymap,
        characters=screen.charset,
        on_ready=begin,
        on_terminal=lambda: suspend_with(program.lanes.suspension, app.take_terminal),
        suspend=suspend_job if has_shell() else None,
    )

    def leave() -> None:
        if interrupted.count > 1:
            program.lanes.end_now()
            return
        app.request_quit()
        leave_anyway(partial(program.close, interrupted.reason))

    def hangup() -> bool:
        goes_on = go_on_alone(program)
        if goes_on:
            app.request_leave()
        return goes_on

    with interruption(leave, hangup) as interrupted:
        try:
            gc.freeze()  # so that the garbage collector does not walk through all modules again and again
            ending = app.run(mouse=screen.mouse)
            if app.broken is not None and program.trains_command:
                say = f"the screen failed ({app.broken}); {info.name} trains on and is recorded, Ctrl+C ends it"
                click.echo(f"tfmon: {say}", err=True)
            while ending is None and program.trains_command and not interrupted.wait():
                pass
        finally:
            program.close()
    if app.broken is not None:
        raise screen_failed(app.broken)
    return interrupted.reason if ending != "quit" else ""


def screen_failed(error: Exception) -> TfmonError:
    """Return the error to report, with its traceback in a file."""
    hint = "the race up to there is recorded: tfmon replay last"
    with (
        contextlib.suppress(OSError),
        tempfile.NamedTemporaryFile("w", prefix="tfmon-error-", suffix=".txt", delete=False) as file,
    ):
        file.write("".join(traceback.format_exception(error)))
        hint += f"; please report it with {file.name}"
    failed = TfmonError(f"the screen failed: {type(error).__name__}: {error}", hint)
    failed.exit_code = EXIT_LANE_FAILED
    return failed


def leave_anyway(close: Callable[[], None]) -> None:
    """End the lanes, then the process: the app may be blocked where it writes to a terminal that is gone."""

    def leave() -> NoReturn:
        close()
        time.sleep(PATIENCE_S)
        os._exit(EXIT_INTERRUPTED)

    start_thread("tfmon-leave", leave, lambda _reason: os._exit(EXIT_INTERRUPTED))


def replay(recording: Recording, screen: ScreenSettings) -> bool:
    """Show a recorded race until the user leaves; return whether the user did, and not a signal.

    Raises:
        RecordingError: the recording holds what cannot be shown.
    """
    from tfmon.recordings.player import Player
    from tfmon.ui.screens.replay import ReplayApp

    player = Player(recording)
    app = ReplayApp(
        player.session,
        player,
        runs=RecordedRuns(),
        table=lambda: to_text(analyse(player.session.snapshot())),
        repeat=lambda: command_line(player.session.snapshot()),
        theme=screen.theme,
        lane_colours=screen.lane_colours,
        characters=screen.charset,
        keymap=screen.keymap,
    )
    ending = app.run(mouse=screen.mouse)
    if app.broken is not None:
        problem = f"{type(app.broken).__name__}: {app.broken}"
        raise RecordingError(f"{recording.path} holds what cannot be shown ({problem})")
    return ending is not None

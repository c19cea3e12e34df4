"""What is shown on the screen: runs the app, and ends every lane when the app leaves or a signal comes."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click

from tfmon.analysis.analysis import analyse
from tfmon.analysis.sweep import Found
from tfmon.catalog import ScenarioInfo, list_scenarios
from tfmon.errors import EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError
from tfmon.lanes.launcher import yield_to_lanes
from tfmon.lanes.plan import RacePlan
from tfmon.lanes.suspend import Suspender, has_shell, suspend_job, suspend_with
from tfmon.model.session import Session
from tfmon.model.threads import start_thread
from tfmon.model.views import describe
from tfmon.probes.machine import read_machine
from tfmon.recordings import library
from tfmon.recordings.header import RecordingError
from tfmon.recordings.reader import Recording
from tfmon.reports import race
from tfmon.runner.headless import go_on_alone, interruption
from tfmon.runner.program import Program
from tfmon.runner.runs import OpenPlayer, RecordedRuns
from tfmon.runner.settings import ScreenSettings, config_path
from tfmon.ui.app import MonitorApp
from tfmon.ui.source import Replay, Source

if TYPE_CHECKING:
    from tfmon.runner.sweep import SweepProgram

FIRST_START = "the lanes train the same model, to see which is faster; q ends them and leaves, ? lists all keys"
"""What tfmon says when it is started for the first time."""
PATIENCE_S = 1.0
"""Time the app has to leave after a signal, once the lanes are gone."""


class LiveSource(Source):
    """A source with lanes: they end when the app leaves or a signal comes."""

    runs = RecordedRuns()
    suspensions: Sequence[Suspender] = ()
    """What suspends the lanes along with tfmon."""

    def trains_command(self) -> bool:
        """Return whether a user's own command trains, which goes on where the screen fails."""
        return False

    def hangup(self) -> bool:
        """Return whether the lanes train on although the terminal is gone."""
        return False

    def close(self, interrupted: str = "") -> None:
        """End the lanes and all that goes with them, `interrupted` by what it says. May block."""
        raise NotImplementedError


class LiveRace(LiveSource):
    """A race that runs."""

    def __init__(self, program: Program, info: ScenarioInfo, plan: RacePlan | None) -> None:
        """Announce the race. Without a plan it is planned when it starts: a GPU's driver may take seconds."""
        super().__init__(program.session)
        program.announce(info)
        self.controls, self.experiments = program.lanes, program.experiments
        self.suspensions = [program.lanes.suspension]
        self._program, self._info, self._plan = program, info, plan
        self._first = not config_path().exists() and not library.runs()

    def start(self, say: Callable[[str], object]) -> None:
        """Plan the race, and start its lanes."""
        if self._first:
            say(FIRST_START)
        plan = self._plan or self._program.plan(self._info)
        for line in describe(plan.race.views):
            say(line)
        self._program.begin(plan)

    def scenarios(self) -> Sequence[ScenarioInfo]:
        """Return all scenarios."""
        return list_scenarios()

    def examine(self) -> str:
        """Return the doctor's report."""
        return self._program.examine()

    def profile(self, lane: str) -> str:
        """Profile a lane and return the report."""
        return self._program.profile_text(lane)

    def watch_gpus(self) -> str:
        """Have all GPUs read from now on, and return why there are none, or ""."""
        return self._program.watch_gpus()

    def table(self) -> str:
        """Return the race as text."""
        return race.to_text(analyse(self.snapshot()))

    def repeat(self) -> str:
        """Return the command that repeats the race with the settings in effect."""
        return self._program.repeat()

    def trains_command(self) -> bool:
        """Return whether a user's own command trains."""
        return self._program.trains_command

    def hangup(self) -> bool:
        """Let a user's command train on."""
        return go_on_alone(self._program)

    def close(self, interrupted: str = "") -> None:
        """End the race and its recording."""
        self._program.close(interrupted)


class LiveSweep(LiveSource):
    """A sweep that is measured. Its session has no race, only the machine and the time."""

    refusal = "a sweep chooses its settings itself: no key changes its lanes"
    tabs = ()

    def __init__(self, program: SweepProgram) -> None:
        super().__init__(Session(read_machine(), time.monotonic_ns))
        self.suspensions = program.suspensions
        self._program = program

    def name(self) -> str:
        """Return the name of the scenario."""
        return self._program.title

    def sweep(self) -> Found:
        """Return what is known."""
        return self._program.sweep.found

    def unsaved(self) -> str:
        """Return why what is measured is not saved."""
        return self._program.file.failure if self._program.file is not None else ""

    def recording(self) -> str:
        """Return the path of the file."""
        return str(self._program.file.path) if self._program.file is not None else ""

    def start(self, say: Callable[[str], object]) -> None:
        """Begin to measure."""
        self._program.sweep.start()

    def stop(self) -> None:
        """End it, and return when all lanes are gone."""
        self._program.close()

    def close(self, interrupted: str = "") -> None:
        """End it and close its file."""
        self._program.close(interrupted or "stopped by the user")


def run(source: LiveSource, screen: ScreenSettings) -> str:
    """Show a race or a sweep until the user leaves; return why it was interrupted, or "".

    Thread: the main thread, for the signals.
    Raises:
        TfmonError: the screen failed; the lanes have ended.
    """
    yield_to_lanes()

    def take_terminal() -> None:
        for suspension in source.suspensions:
            undo.callback(suspend_with(suspension, app.take_terminal))

    def leave() -> None:
        if interrupted.count > 1:
            source.end_now()
            return
        app.request_quit()
        leave_anyway(partial(source.close, interrupted.reason))

    def hangup() -> bool:
        goes_on = source.hangup()
        if goes_on:
            app.request_leave()
        return goes_on

    app = app_of(source, screen, take_terminal, suspend_job if has_shell() else None)
    with interruption(leave, hangup) as interrupted, contextlib.ExitStack() as undo:
        try:
            gc.freeze()  # so that the garbage collector does not walk through all modules again and again
            ending = app.run(mouse=screen.mouse)
            if app.broken is not None and source.trains_command():
                say = (
                    f"the screen failed ({app.broken}); {source.name()} trains on and is recorded, Ctrl+C ends it"
                )
                click.echo(f"tfmon: {say}", err=True)
            while ending is None and source.trains_command() and not interrupted.wait():
                pass
        finally:
            source.close()
    if app.broken is not None:
        raise screen_failed(app.broken)
    return interrupted.reason if ending != "quit" else ""


def app_of(
    source: Source,
    screen: ScreenSettings,
    on_terminal: Callable[[], None] | None = None,
    suspend: Callable[[], None] | None = None,
) -> MonitorApp:
    """Return the app that shows a source as the settings say."""
    return MonitorApp(
        source,
        on_terminal=on_terminal,
        suspend=suspend,
        theme=screen.theme,
        lane_colours=screen.lane_colours,
        readonly=screen.readonly,
        keymap=screen.keymap,
        characters=screen.charset,
    )


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
    app = app_of(Replay(OpenPlayer(recording), RecordedRuns()), screen)
    ending = app.run(mouse=screen.mouse)
    if app.broken is not None:
        problem = f"{type(app.broken).__name__}: {app.broken}"
        raise RecordingError(f"{recording.path} holds what cannot be shown ({problem})")
    return ending is not None

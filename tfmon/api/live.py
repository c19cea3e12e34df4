"""Runs the app on the screen, and ends every lane when the app closes or a signal arrives."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from tfmon.analysis.analysis import analyse
from tfmon.api.notify import in_terminal
from tfmon.api.program import Program
from tfmon.api.repeat import command_line
from tfmon.api.run import AnyRun, Interruption, closed_terminal, collect_rarely, ended, go_on
from tfmon.api.run import say as tell
from tfmon.api.runs import RaceRun
from tfmon.api.settings import ScreenSettings, config_path
from tfmon.api.viewer import ANSWER_S, Viewer
from tfmon.catalog import ScenarioInfo, list_scenarios
from tfmon.errors import EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError, described
from tfmon.lanes.launch import yield_to_lanes
from tfmon.lanes.plan import RacePlan
from tfmon.lanes.suspend import has_shell, suspend_job, suspend_with
from tfmon.model.ports import Controls, Experiments, RunInfo
from tfmon.model.session import Session, Snapshot
from tfmon.model.threads import start_thread
from tfmon.recordings import library, sweeps
from tfmon.recordings.header import RecordingError
from tfmon.recordings.player import Player
from tfmon.recordings.reader import Recording
from tfmon.ui.app import MonitorApp
from tfmon.ui.source import Say, ScenarioRow, Source

FIRST_START = "the lanes train the same model, to see which is faster; q ends them and leaves, ? lists all keys"
LOWEST_PRIORITY = 19
PATIENCE_S = 1.0
"""Time for the app to close after a signal, once the lanes have ended."""


def race(program: Program, info: ScenarioInfo, plan: RacePlan | None, screen: ScreenSettings) -> str:
    """Show a race until the user leaves; return why it was interrupted, or "".

    Without a plan, the race is planned after the first paint, because a GPU's driver can take seconds. After a
    failure of the screen, the race continues without it. Thread: the main thread, for the signals.
    """
    program.announce(info)
    first = not config_path().exists() and not library.runs()

    def start(say: Say) -> None:
        if first:
            say(FIRST_START)
        for line in (*filter(None, [run.beside]), *run.notes):
            say(line)
        program.say = say
        run.begin()

    lanes, run = program.lanes, RaceRun(program, plan, info)
    source = replace(
        _source_of(program.session, lanes, program.experiments),
        repeat=program.repeat,
        examine=program.examine,
        profile=program.profiles.text,
        profile_pair=program.profiles.pair,
        watch_gpus=program.watch_gpus,
        start=start,
        stop=lanes.stop,
        end_now=lanes.end_now,
    )
    return _run(source, screen, run, program.session)


def attached(viewer: Viewer, screen: ScreenSettings, *, began_here: bool) -> str:
    """Show a run of another process until the user leaves or it ends; return why it was interrupted, or "".

    A signal ends the run if this command began it (`began_here`); another viewer only leaves.

    Thread: the main thread, for the signals. Raises: TfmonError if the screen failed; the run continues.
    """

    def start(say: Say) -> None:
        viewer.tell = say
        try:
            begun = viewer.ask("begun")
        except TfmonError as error:  # the run has ended before anything could be told
            say(error.line)
            return
        for line in begun:
            if began_here:
                say(line)

    source = replace(
        _source_of(viewer.session, viewer.controls, viewer.experiments),
        repeat=partial(viewer.ask, "repeat", timeout_s=ANSWER_S),
        examine=partial(viewer.ask, "examine"),
        profile=partial(viewer.ask, "profile"),
        profile_pair=partial(viewer.ask, "profile_pair"),
        watch_gpus=partial(viewer.ask, "watch_gpus"),
        start=start,
        stop=viewer.end,
        end_now=viewer.end_now,
        leave=viewer.leave,
        lost=lambda: viewer.lost().line if viewer.died else "",
    )
    if viewer.session.snapshot().sweep is not None:
        source = replace(
            source,
            controls=None,
            experiments=None,
            refusal="a sweep chooses its settings itself: no key changes its lanes",
            tabs=(),
            scenarios=tuple,
            table=str,
            repeat=str,
        )
    return _run(source, screen, viewer, viewer.session, viewer.request_end if began_here else None)


def _source_of(session: Session, controls: Controls, experiments: Experiments) -> Source:
    """Return a source of a running race, in this or another process."""
    return Source(
        session.snapshot,
        controls,
        experiments,
        runs=RecordedRuns(),
        scenarios=lambda: [ScenarioRow(one.name, one.title, one.doc, one.origin) for one in list_scenarios()],
        table=lambda: _table(session.snapshot()),
    )


def _run(
    source: Source,
    screen: ScreenSettings,
    run: AnyRun,
    session: Session | None = None,
    end: Callable[[str], object] | None = str,
) -> str:
    """Show lanes until the user leaves or a signal arrives, and end them; return why it was interrupted.

    A run of another process continues if the user leaves it, and if the terminal or the screen is gone.

    Args:
        end: Ends the run on a signal of that name. `None` if a signal only closes the screen.
    """
    yield_to_lanes()

    def take_terminal() -> None:
        for suspension in run.suspensions:
            undo.callback(suspend_with(suspension, partial(app.request, app.take_terminal)))

    def leave(interrupted: Interruption) -> None:
        if app.broken is not None:
            return
        if end is None:
            app.request(app.exit, "left")
            leave_anyway(run.close)
        else:
            end(interrupted.signal)
            app.request_quit()
            leave_anyway(partial(run.close, interrupted.reason))

    hung_up = bool if source.leave is None else run.go_on_alone
    app = _app(source, screen, take_terminal, suspend_job if has_shell() else None)
    with contextlib.ExitStack() as undo, ended(run, leave, hung_up, quiet=True) as interrupted:
        if session is not None:
            undo.enter_context(in_terminal(session, screen.notify, partial(app.request, app.paint)))
        collect_rarely()
        ending = app.run(mouse=screen.mouse)
        if app.broken is not None:
            flush_input()
            if source.leave is not None:
                raise screen_failed(app.broken, "the run goes on: tfmon attach shows it, with --end it ends")
            tell(f"the screen failed: {described(app.broken)}")
            tell("the race goes on without it; Ctrl+C ends it and prints the result")
            go_on(run, lambda: bool(interrupted.signal))
            run.close(interrupted.reason)
            flush_input()
    return interrupted.reason if ending != "quit" else ""


def _app(
    source: Source,
    screen: ScreenSettings,
    on_terminal: Callable[[], None] | None = None,
    suspend: Callable[[], None] | None = None,
) -> MonitorApp:
    """Return the app for a source with the settings; its keys come from the terminal."""
    if not os.isatty(0):
        terminal = os.open(os.ctermid(), os.O_RDWR)
        os.dup2(terminal, 0)
        os.close(terminal)
    return MonitorApp(
        source,
        on_terminal=on_terminal,
        suspend=suspend,
        theme=screen.theme,
        readonly=screen.readonly,
        characters=screen.charset,
    )


def screen_failed(error: Exception, hint: str = "") -> TfmonError:
    """Return the error to report for a failed screen."""
    failed = TfmonError(f"the screen failed: {described(error)}", hint)
    failed.exit_code = EXIT_LANE_FAILED
    return failed


def flush_input() -> None:
    """Discard keys that were typed for the closed screen, so that no shell receives them."""
    for fd in (0, 1, 2):  # standard input may be a pipe
        with contextlib.suppress(termios.error):
            termios.tcflush(fd, termios.TCIFLUSH)


def leave_anyway(close: Callable[[], None]) -> None:
    """End the lanes, then the process: the app can be blocked while it writes to a lost terminal."""

    def leave() -> NoReturn:
        close()
        time.sleep(PATIENCE_S)
        os._exit(EXIT_INTERRUPTED)

    start_thread("tfmon-leave", leave, lambda _reason: os._exit(EXIT_INTERRUPTED))


def replay(recording: Recording, screen: ScreenSettings, *, at_end: bool = False) -> bool:
    """Show a recorded race; return whether the user left (not a signal). Raises TfmonError if the screen fails."""
    player = Player(recording)
    if at_end:
        player.go_to(player.state().to_ns)
    app = _app(replay_of(player, RecordedRuns()), screen)
    with closed_terminal(partial(os._exit, EXIT_INTERRUPTED)):
        ending = app.run(mouse=screen.mouse)
    if app.broken is not None:
        flush_input()
        hint = f"the recording stays as it is: tfmon replay {recording.path} --headless prints its result"
        raise screen_failed(app.broken, hint)
    return ending is not None


def replay_of(player: Player, runs: RecordedRuns | None = None) -> Source:
    """Return a playing recording as a source; stopping it closes the recording."""
    snapshot = player.session.snapshot
    return Source(
        snapshot,
        refusal="this is a replay of a race that is over: nothing in it can be changed",
        playback=player,
        tabs=("race", "lane", "log", "knobs", "gpus", "runs"),
        runs=runs,
        table=lambda: _table(snapshot()),
        repeat=lambda: command_line(snapshot()),
        stop=player.close,
    )


def _table(snapshot: Snapshot) -> str:
    """Return the result of a race. Report writers are imported here, so that a screen starts faster."""
    from tfmon.reports.race import to_text

    return to_text(analyse(snapshot))


class RecordedRuns:
    """The recordings in the user's folder. Every method raises RecordingError, which is a TfmonError."""

    def list(self) -> Sequence[RunInfo]:
        """Return all recordings by their start, the oldest first."""
        return [run.info() for run in library.runs()]

    def delete(self, id: str) -> None:
        """Delete a recording permanently."""
        library.delete(_path(id))

    def report(self, path: str) -> str:
        """Write a report of a recording or sweep here, in a child at the lowest priority; return its path."""
        recording = Path(path)
        name = library.run_id(recording).removesuffix(sweeps.SUFFIX)
        target = Path.cwd() / f"tfmon-{name}-{time.strftime('%H%M%S')}.html"
        code = f"import sys; sys.path[:] = {sys.path!r}; from tfmon.__main__ import run; run()"
        command = [sys.executable, "-c", code, "export", str(recording), "--html", str(target)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, LOWEST_PRIORITY)
            _, said = child.communicate()
        if child.returncode:
            lines = said.strip().splitlines() or [f"exit code {child.returncode}"]
            raise RecordingError(lines[0].removeprefix("tfmon: "), " ".join(map(str.strip, lines[1:2])))
        return f"saved {target}"

    def replay(self, id: str) -> Source:
        """Open a recording to play it."""
        return replay_of(Player(Recording(_path(id))), self)


def _path(id: str) -> Path:
    """Return the recording with exactly that id; raises RecordingError if it is gone."""
    for suffix in (library.PACKED, library.PLAIN):
        path = library.folder() / (id + suffix)
        if Path(id).name == id and path.is_file():
            return path
    raise RecordingError(f"there is no recording {id} any more", "it was deleted, or dropped to make room")

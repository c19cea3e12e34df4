"""Runs the app."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from tfmon.analysis.analysis import analyse
from tfmon.api.notify import notices_in_terminal
from tfmon.api.repeat_command import command_line
from tfmon.api.run_base import Interruption, closed_terminal, collect_rarely, ended, follow, say
from tfmon.api.settings import ScreenOptions, config_file
from tfmon.api.viewer import Viewer
from tfmon.errors import EXIT_FINE, EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError, described
from tfmon.lanes.suspend import has_shell, suspend_job, suspend_with
from tfmon.model.ports import RunInfo, Source
from tfmon.model.requests import Command
from tfmon.model.session import Snapshot
from tfmon.recordings import library, sweeps
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.player import Player
from tfmon.recordings.reader import Recording
from tfmon.system.threads import start_thread
from tfmon.ui.app import MonitorApp

LOWEST_PRIORITY = 19
YIELDING_NICE = 5
"""A lane then gets three times the CPU of the screen on the same core."""
PATIENCE_S = 1.0


def show(viewer: Viewer, screen: ScreenOptions) -> None:
    """Show a run until the user leaves it or it ends.

    The first signal ends a run that this command began. Other viewers only leave. Thread: the main thread.
    Raises: TfmonError.
    """
    os.nice(YIELDING_NICE)
    viewer.runs = RecordedRuns()

    def take_terminal() -> None:
        undo.callback(
            suspend_with(viewer.suspend_lanes, viewer.continue_lanes, partial(app.request, app.take_terminal))
        )

    def leave(interrupted: Interruption) -> None:
        if app.broken is not None:
            return
        if viewer.began_here:
            viewer.request_end(interrupted.signal)
            app.request_quit()
            _leave_anyway(partial(viewer.close, interrupted.reason))
        else:
            app.request(app.exit, "left")
            _leave_anyway(viewer.close)

    app = _app(viewer, screen, take_terminal, suspend_job if has_shell() else None)
    with contextlib.ExitStack() as undo, ended(viewer, leave, quiet=True) as interrupted:
        undo.enter_context(notices_in_terminal(viewer.session, screen.notify, partial(app.request, app.paint)))
        collect_rarely()
        app.run(mouse=screen.mouse)
        if app.broken is not None:
            _flush_input()
            failed = f"the screen failed: {described(app.broken)}"
            if viewer.detachable:
                hint = "the run goes on: tfmon attach shows it, with --end it ends"
                raise TfmonError(failed, hint, exit_code=EXIT_LANE_FAILED)
            say(failed)
            say("the race goes on without it; Ctrl+C ends it and prints the result")
            follow(viewer, lambda: bool(interrupted.signal))
            viewer.request_end(interrupted.signal)
            _flush_input()


def _app(
    source: Source,
    screen: ScreenOptions,
    on_terminal: Callable[[], None] | None = None,
    suspend: Callable[[], None] | None = None,
) -> MonitorApp:
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
        keymap=config_file().keys,
    )


def _flush_input() -> None:
    for fd in (0, 1, 2):  # the shell must not receive typed keys; standard input may be a pipe
        with contextlib.suppress(termios.error):
            termios.tcflush(fd, termios.TCIFLUSH)


def _leave_anyway(close: Callable[[], None]) -> None:
    """Exit in a thread, because a lost terminal can block the app."""

    def leave() -> NoReturn:
        close()
        time.sleep(PATIENCE_S)
        os._exit(EXIT_INTERRUPTED)

    start_thread("tfmon-leave", leave, lambda _reason: os._exit(EXIT_INTERRUPTED))


def replay(recording: Recording, screen: ScreenOptions, *, at_end: bool = False) -> int:
    """Show a recorded race; return the exit code."""
    player = Player(recording)
    if at_end:
        player.go_to(player.state().to_ns)
    app = _app(Replay(player, RecordedRuns()), screen)
    with closed_terminal(partial(os._exit, EXIT_INTERRUPTED)):
        ending = app.run(mouse=screen.mouse)
    if app.broken is not None:
        _flush_input()
        hint = f"the recording stays as it is: tfmon replay {recording.path} --headless prints its result"
        raise TfmonError(f"the screen failed: {described(app.broken)}", hint, exit_code=EXIT_LANE_FAILED)
    return EXIT_INTERRUPTED if ending is None else EXIT_FINE


class Replay(Source):
    """A recording on the screen."""

    refusal = "this is a replay of a race that is over: nothing in it can be changed"
    tabs = ("race", "lane", "log", "knobs", "gpus", "runs")

    def __init__(self, player: Player, runs: RecordedRuns | None = None) -> None:
        self.playback: Player = player
        self.runs = runs

    def snapshot(self) -> Snapshot:
        """Return the state at the position."""
        return self.playback.session.snapshot()

    def table(self) -> str:
        """Return all results."""
        from tfmon.reports.race_report import to_text  # late: it is slow to load

        return to_text(analyse(self.snapshot()))

    def ask(self, command: Command, timeout_s: float | None = None) -> str:
        """Return the command that repeats the race."""
        if command.action == "watch gpus":
            return ""
        return command_line(self.snapshot()) if command.action == "repeat" else super().ask(command, timeout_s)

    def stop(self) -> None:
        """Close the recording."""
        self.playback.close()


class RecordedRuns:
    """The recordings in the user's folder. Raises RecordingError."""

    def list(self) -> Sequence[RunInfo]:
        """Return all recordings, the oldest first."""
        return library.runs()

    def delete(self, id: str) -> None:
        """Delete a recording."""
        library.delete(_path(id))

    def report(self, path: str) -> str:
        """Write a report; return a message."""
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
            _, errors = child.communicate()
        if child.returncode:
            lines = errors.strip().splitlines() or [f"exit code {child.returncode}"]
            raise RecordingError(lines[0].removeprefix("tfmon: "), " ".join(map(str.strip, lines[1:2])))
        return f"saved {target}"

    def replay(self, id: str) -> Source:
        """Open a recording."""
        return Replay(Player(Recording(_path(id))), self)


def _path(id: str) -> Path:
    for suffix in (library.PACKED, library.PLAIN):
        path = library.folder() / (id + suffix)
        if Path(id).name == id and path.is_file():
            return path
    raise RecordingError(f"there is no recording {id} any more", "it was deleted, or dropped to make room")

"""`tfmon attach`: shows or ends a run that has its own process, and starts one."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from tfmon.api.options import ALONE, RaceOptions, SweepOptions
from tfmon.api.settings import ScreenOptions
from tfmon.cli import flags
from tfmon.errors import EXIT_INTERRUPTED, TfmonError, UsageError

if TYPE_CHECKING:
    import socket

    from tfmon.api.run_base import Run
    from tfmon.api.runner import Make
    from tfmon.api.viewer import Viewer

Made = TypeVar("Made", bound="Run")
RECORDED_S = 3.0


@click.command
@click.argument("run", default="last")
@click.option("--end", is_flag=True, help="End the run as Ctrl+C does, wait for its end, and print its result.")
@flags.takes(ScreenOptions, "attach")
def attach(screen: ScreenOptions, run: str, end: bool) -> None:
    """Show RUN, which is under way in the background: its id, the beginning of that, its process, or `last`.

    HOST/RUN is a run on another machine: one that ssh or the settings file knows. The recording of one that is
    over is copied here.

    A script of your own that `tfmon watch` or `tfmon race` runs on the screen, and all that is started with
    --detach, goes on when its terminal is closed. `tfmon runs` lists what is under way. What is over is shown as
    it ended.

    \b
    For example:
      tfmon attach
      tfmon attach last --readonly
      tfmon attach gpu2/last
      tfmon attach last --end
    """
    if not end and (why := flags.why_no_screen()):
        raise UsageError(f"{why}: attach needs the screen", "tfmon attach --end, and tfmon runs, do without")
    host, slash, name = run.partition("/")
    is_remote = bool(host and slash and not Path(run).exists())
    viewer = _remote_viewer(host, name or "last", end=end) if is_remote else _local_viewer(run, end=end)
    if isinstance(viewer, Path):
        _show_recording(viewer, screen)
    viewer.connect()
    if end:
        _end(viewer)
    _show(viewer, screen)


def _local_viewer(word: str, *, end: bool) -> Viewer | Path:
    """Return the viewer of a run under way, or the recording of one that is over."""
    from tfmon.api import sockets
    from tfmon.api.viewer import Viewer
    from tfmon.recordings import library
    from tfmon.system.view_files import is_locked

    run = sockets.find(word)
    if run is None:
        path = library.find(word)
        _check_over(library.run_id(path), running=is_locked(path), end=end)
        return path
    try:
        return Viewer(sockets.connect(run.path))
    except OSError as error:
        hint = "tfmon runs says whether it is over"
        raise TfmonError(f"{run.name} cannot be attached to: {error}", hint) from None


def _remote_viewer(host: str, word: str, *, end: bool) -> Viewer | Path:
    from tfmon.api.remote_runs import RemoteRuns
    from tfmon.api.viewer import Viewer

    remote = RemoteRuns(host)
    try:
        if connection := remote.connect(word):
            return Viewer(connection, remote=remote)
        run = remote.find(word)
        _check_over(f"{host}/{run.id}", running=run.running, end=end)
        path = remote.fetch(run)
    except BaseException:
        remote.close()
        raise
    remote.close()
    click.echo(f"copied from {host}: tfmon replay, diff and export take {path}", err=True)
    return path


def prepared(make: Callable[[], Made], *, as_json: bool, notes: Iterable[str] = ()) -> Made:
    """Return a planned run without a screen, and print its notes."""
    with flags.errors_as_json(as_json):
        run = make()
        try:
            notes = [*notes, *run.notes]
        except BaseException:
            run.close()
            raise
    for note in notes:
        click.echo(f"tfmon: {note}", err=True)
    return run


def run_here(run: Run, *, as_json: bool, quiet: bool = False) -> NoReturn:
    """Run without a screen, print the result, and exit. `quiet`: see `run_until_over`."""
    from tfmon.api.run_base import run_until_over

    _finish(run, run_until_over(run, quiet=quiet), as_json=as_json)


def _finish(run: Run, interrupted: str = "", *, as_json: bool = False) -> NoReturn:
    result, code = run.outcome(interrupted, as_json=as_json)
    snapshot = run.session.snapshot()
    if result:
        try:
            flags.print_result(result, snapshot.recorded)
        except (OSError, TfmonError):
            if run.disturbs:  # the terminal of a viewer may be gone
                raise
    if snapshot.sweep is not None and snapshot.recording is not None and snapshot.recording.reason:
        raise TfmonError(snapshot.recording.reason, "some printed results were not saved")
    sys.exit(code)


def start(
    make: Make,
    chosen: RaceOptions | SweepOptions,
    screen: ScreenOptions | None,
    *,
    detach: bool,
    as_json: bool = False,
) -> NoReturn:
    """Start a run in a new process, and display the run unless it is detached."""
    from tfmon.api import runner

    if detach and as_json:
        raise UsageError("--detach excludes --json", ALONE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    connection = runner.start(make, as_json=as_json, detach=detach)
    try:
        with flags.errors_as_json(as_json):
            viewer = _started(connection, chosen, None if detach else screen)
            if screen is not None and not detach:
                _show(viewer, screen)
            if not detach:
                run_here(viewer, as_json=as_json)
            until_s = time.monotonic() + RECORDED_S
            while chosen.record is not False and not viewer.snapshot().recorded and time.monotonic() < until_s:
                viewer.join(0.05)
            viewer.leave()
            _finish(viewer)
    except KeyboardInterrupt:
        _interrupt(connection)
        sys.exit(EXIT_INTERRUPTED)


def _started(
    connection: socket.socket, chosen: RaceOptions | SweepOptions, screen: ScreenOptions | None
) -> Viewer:
    """Return the viewer of a run that has begun, or that the screen shows while it begins."""
    if screen is not None:
        import_module("tfmon.api.live")  # the runner loads modules at the same time
    from tfmon.api.run_base import connecting, show_progress, tell_changes
    from tfmon.api.viewer import Viewer

    if isinstance(chosen, SweepOptions):
        race, lanes, info = chosen.race, chosen.on, None
    else:
        race, lanes, info = chosen, chosen.lanes, chosen.info
    viewer = Viewer(connection, began_here=True, detachable=info is None or bool(info.command))
    if info is not None:
        viewer.session.begin(info.announced(race.mode), ())
    # Check everything on the command line before drawing. Default lanes need no check.
    if screen is None or info is None or lanes or race.settings or race.wait_idle is not None:
        viewer.tell = tell_changes()
        with connecting(lanes):
            viewer.begin()
        show_progress("")
        for line in viewer.start_lines if screen is None else ():
            click.echo(f"tfmon: {line}", err=True)
    elif race.record_file or race.metrics or race.notify:
        viewer.connect()
    viewer.tell = str  # until the screen displays the lines
    return viewer


def _interrupt(connection: socket.socket) -> None:
    """End a run during the start; at once if the user interrupts again."""
    from tfmon.model import codec
    from tfmon.model.requests import Command

    for command in (Command("end run", name="SIGINT"), Command("end now")):
        with contextlib.suppress(KeyboardInterrupt, OSError):
            connection.sendall(codec.encode(command))
            while connection.recv(65_536):
                pass
            return


def _show(viewer: Viewer, screen: ScreenOptions) -> NoReturn:
    from tfmon.api import live

    live.show(viewer, screen)
    _finish(viewer)


def _end(viewer: Viewer) -> NoReturn:
    from tfmon.api.run_base import ended

    with ended(viewer):
        viewer.request_end()
    _finish(viewer)


def _check_over(name: str, *, running: bool, end: bool) -> None:
    if running:
        raise UsageError(
            f"{name} runs on the screen or in the foreground of its own tfmon", "start it with --detach"
        )
    if end:
        raise UsageError(f"{name} is over", "tfmon runs lists what is under way")


def _show_recording(path: Path, screen: ScreenOptions) -> NoReturn:
    from tfmon.api import live
    from tfmon.recordings.library import run_id
    from tfmon.recordings.reader import Recording

    with Recording(path) as opened:
        click.echo(f"{run_id(path)} is over: this is its recording", err=True)
        sys.exit(live.replay(opened, screen, at_end=True))

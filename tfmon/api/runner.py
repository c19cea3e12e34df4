"""A process that runs a race and serves viewers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tfmon.errors import EXIT_LANE_FAILED, TfmonError

if TYPE_CHECKING:
    from tfmon.api.options import Purpose, RaceOptions, SweepOptions
    from tfmon.api.program import Program
    from tfmon.api.race_lock import Tell
    from tfmon.api.sweep_program import SweepProgram
    from tfmon.catalog import ScenarioInfo
    from tfmon.model.series import SeriesState
    from tfmon.model.spec import LaneSpec

    Series: TypeAlias = Callable[[Sequence[LaneSpec]], SeriesState]
    """Returns the series to measure on a race's lanes."""

FIRST_START = "the lanes train the same model, to see which is faster; q ends them and leaves, ? lists all keys"
LOOK_S = 2.0


def start(
    info: ScenarioInfo | None,
    options: RaceOptions | SweepOptions,
    purpose: Purpose,
    series: Series | None = None,
    *,
    as_json: bool = False,
    detach: bool = False,
) -> socket.socket:
    """Start a process for a race, series or sweep; return its first viewer's connection.

    It ends when the race or sweep is over and no viewer is attached, or with the series. A user's command
    continues if its first viewer vanishes.
    """
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # A Ctrl+C there would end it without a word.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if os.fork() == 0:
            code = EXIT_LANE_FAILED
            try:
                ours.close()
                os.setsid()
                _leave_terminal(theirs.fileno())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                code = _run(theirs, info, options, purpose, series, as_json=as_json, detach=detach)
            except BaseException:  # noqa: BLE001 - the top of a process
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return ours


def _leave_terminal(kept: int) -> None:
    """Close inherited descriptors except one and piped input."""
    from tfmon.api.race_lock import state_folder
    from tfmon.api.sockets import LOG

    with contextlib.suppress(FileNotFoundError):  # no /proc
        for fd in {*map(int, os.listdir("/dev/fd"))} - {0, 1, 2, kept}:  # noqa: PTH208
            with contextlib.suppress(OSError):  # the list's own descriptor
                os.close(fd)
    null = os.open(os.devnull, os.O_RDWR)
    log = null
    with contextlib.suppress(OSError):
        state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(state_folder() / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    for fd, target in ((0, null if os.isatty(0) else 0), (1, null), (2, log)):
        os.dup2(target, fd)
    for fd in {null, log} - {0, 1, 2}:
        os.close(fd)


def _program(
    info: ScenarioInfo | None,
    options: RaceOptions | SweepOptions,
    purpose: Purpose,
    series: Series | None,
    tell: Tell,
) -> Program | SweepProgram:
    from tfmon.api.options import SweepOptions
    from tfmon.api.program import Program
    from tfmon.api.series_run import SeriesProgram

    if isinstance(options, SweepOptions):
        from tfmon.api.sweep_program import SweepProgram

        return SweepProgram(options)
    assert info is not None
    if purpose.change is not None:
        from tfmon.api.trial_program import TrialProgram

        program: Program = TrialProgram(options, purpose, tell)
        program.announce(info)
        return program
    program = SeriesProgram(options, purpose, series, tell) if series else Program(options, purpose, tell)
    program.announce(info)
    return program


def _run(
    first: socket.socket,
    info: ScenarioInfo | None,
    options: RaceOptions | SweepOptions,
    purpose: Purpose,
    series: Series | None,
    *,
    as_json: bool,
    detach: bool,
) -> int:
    from tfmon.lanes.launch import yield_to_lanes

    yield_to_lanes()  # first, so that the screen appears soon
    from tfmon.api.run_base import collect_rarely, ended
    from tfmon.api.server import Server
    from tfmon.api.settings import config_path
    from tfmon.api.sockets import Ended
    from tfmon.lanes import script_input
    from tfmon.model import codec
    from tfmon.recordings import library

    tellers: list[Callable[[str], None]] = []
    try:
        program = _program(info, options, purpose, series, lambda line: tellers[0](line) if tellers else None)
    except TfmonError as error:
        first.sendall(codec.encode(Ended(exit_code=error.exit_code, error=error.message, hint=error.hint)))
        return error.exit_code
    script_input.pass_on(single=False)
    command = program.trains_command if info is None else bool(info.command)
    first_start = (
        not (command or detach) and info is not None and not config_path().exists() and not library.runs()
    )
    began = False
    with ended(program, hangup=lambda: True, quiet=True) as interrupted:
        server = Server(program, interrupted)
        tellers.append(server.tell)
        server.connect(first, ends_run=not (command or detach))
        server.listen()
        try:
            program.begin()
        except TfmonError as error:
            server.begin(error)
        else:
            began = True
            lines = (FIRST_START if first_start else "", program.beside, server.unreachable, *program.notes)
            server.begin([*filter(None, lines)])
        collect_rarely()
        while not interrupted.wait(LOOK_S) and not server.all_done():
            server.listen()
            program.publish()
            if series is not None and program.join(0) and not (command and server.lost):
                break
        if began:
            program.settle(interrupted=bool(interrupted.count))
    program.alone = command and server.lost
    program.publish()
    printed, code = program.outcome(interrupted.reason, as_json=as_json)
    result = printed if isinstance(printed, str) else json.dumps(printed, indent=2, allow_nan=False)
    server.close(code, result.splitlines())
    return code

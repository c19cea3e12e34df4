"""A process that runs a race without a terminal: it owns lanes, session and recorder, and serves viewers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from tfmon.api.followers import Followers
from tfmon.api.options import RaceOptions, SweepOptions
from tfmon.api.program import Program
from tfmon.api.run import HANGUP, collect_rarely, ended
from tfmon.api.runs import RaceRun, SeriesRun, SweepRun
from tfmon.api.sockets import LOG, Ended
from tfmon.api.state import Tell, state_folder
from tfmon.catalog import ScenarioInfo
from tfmon.errors import EXIT_LANE_FAILED, TfmonError
from tfmon.lanes import script_input
from tfmon.lanes.launch import yield_to_lanes
from tfmon.model import codec
from tfmon.model.series import Experiment
from tfmon.model.spec import LaneSpec

if TYPE_CHECKING:
    from tfmon.api.sweep import SweepProgram

Series: TypeAlias = Callable[[Sequence[LaneSpec]], Experiment]
"""Returns the series to measure on a race's lanes."""
LOOK_S = 2.0
"""Interval of checking whether the race has finished and the socket exists."""


def start(
    info: ScenarioInfo | None,
    options: RaceOptions | SweepOptions,
    series: Series | None = None,
    *,
    as_json: bool = False,
    detach: bool = False,
) -> socket.socket:
    """Start a process for a race, a series on its lanes or a sweep; return its first viewer's connection.

    It ends after the race or sweep once there are no viewers, or with the series; a user's command without its
    terminal continues.

    Args:     info: The scenario. `None` for a sweep, whose options contain it.     as_json: Format of the result
    of a series.     detach: Whether the sweep of a scenario continues without its first viewer.
    """
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Until it has left the terminal, a Ctrl+C there would end it without a word.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if os.fork() == 0:
            ours.close()
            _be_runner(theirs, lambda: _run(theirs, info, options, series, as_json=as_json, detach=detach))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return ours


def _be_runner(first: socket.socket, work: Callable[[], int]) -> NoReturn:
    code = EXIT_LANE_FAILED
    try:
        os.setsid()
        _leave_terminal(first.fileno())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = work()
    except BaseException:  # noqa: BLE001 - the top of a process
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _leave_terminal(kept: int) -> None:
    """Close all inherited descriptors except one and piped input; output goes to the log."""
    with contextlib.suppress(FileNotFoundError):  # no /proc
        for fd in {*map(int, os.listdir("/dev/fd"))} - {0, 1, 2, kept}:  # noqa: PTH208
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(fd)
    nowhere = os.open(os.devnull, os.O_RDWR)
    log = nowhere
    with contextlib.suppress(OSError):
        state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(state_folder() / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    for fd, target in ((0, nowhere if os.isatty(0) else 0), (1, nowhere), (2, log)):
        os.dup2(target, fd)
    for fd in {nowhere, log} - {0, 1, 2}:
        os.close(fd)


def _wired(
    info: ScenarioInfo | None, options: RaceOptions | SweepOptions, series: Series | None, tell: Tell
) -> tuple[Program | SweepProgram, RaceRun | SweepRun]:
    if isinstance(options, SweepOptions):
        from tfmon.api.sweep import SweepProgram  # late: a race needs none of it

        sweep = SweepProgram(options)
        return sweep, SweepRun(sweep)
    assert info is not None
    program = Program(options, tell=tell)
    program.announce(info)
    return program, RaceRun(program, info=info) if series is None else SeriesRun(program, series, info=info)


def _run(
    first: socket.socket,
    info: ScenarioInfo | None,
    options: RaceOptions | SweepOptions,
    series: Series | None,
    *,
    as_json: bool,
    detach: bool,
) -> int:
    """Run until the race has finished and no viewer is attached, or until a stop; return its exit code."""
    told: list[Callable[[str], None]] = []
    try:
        program, run = _wired(info, options, series, lambda line: told[0](line) if told else None)
    except TfmonError as error:
        first.sendall(codec.encode(Ended(exit_code=error.exit_code, error=error.message, hint=error.hint)))
        return error.exit_code
    yield_to_lanes()
    script_input.pass_on(single=False)
    own, began = info is not None and bool(info.command), False
    with ended(run, hangup=lambda: True, quiet=True) as interrupted:
        followers = Followers(program, interrupted)
        told.append(followers.tell)
        beginner = followers.add(first)
        followers.look_for_viewers()
        try:
            run.begin()
        except TfmonError as error:
            followers.begin(error)
        else:
            began = True
            followers.begin((*filter(None, [run.beside, followers.unreachable]), *run.notes))
        collect_rarely()
        while not interrupted.wait(LOOK_S) and not followers.all_done():
            followers.look_for_viewers()
            if isinstance(run, SweepRun):
                run.program.publish()
                if beginner.lost and not (detach or program.trains_command):
                    interrupted.take(HANGUP.name)
            elif series is not None and run.join(0) and not (own and followers.lost):
                break
        if began:
            run.settle(interrupted=bool(interrupted.count))
    if isinstance(run, RaceRun):
        run.alone = own and followers.lost
    else:
        run.program.publish()
    printed, code = run.outcome(interrupted.reason, as_json=as_json)
    result = printed if isinstance(printed, str) else json.dumps(printed, indent=2, allow_nan=False)
    followers.close(code, result.splitlines())
    return code

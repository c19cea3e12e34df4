"""A process that runs a race without a terminal: it owns lanes, session and recorder, and serves viewers."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from tfmon.api.followers import Followers
from tfmon.api.options import RaceOptions
from tfmon.api.program import Program
from tfmon.api.run import ended
from tfmon.api.runs import RaceRun, SeriesRun
from tfmon.api.sockets import LOG, Ended
from tfmon.api.state import state_folder
from tfmon.catalog import ScenarioInfo
from tfmon.errors import EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError
from tfmon.lanes.launch import yield_to_lanes
from tfmon.model import codec
from tfmon.model.series import Experiment
from tfmon.model.spec import LaneSpec
from tfmon.model.views import describe

Series: TypeAlias = Callable[[Sequence[LaneSpec]], Experiment]
"""Returns the series to measure on the lanes of a race."""
LOOK_S = 2.0
"""How often it is looked whether the race is over, and whether the socket is still there."""


def start(
    info: ScenarioInfo, options: RaceOptions, series: Series | None = None, *, as_json: bool = False
) -> socket.socket:
    """Start a process that runs a race, or a series on its lanes; return the connection of its first viewer.

    It ends by itself when the race is over and nobody watches any more, or when the series is over; a user's
    command whose terminal was lost trains on then. `as_json` says how the result of a series is written.
    """
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Until it has left the terminal, a Ctrl+C there would end it without a word.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if os.fork() == 0:
            ours.close()
            _be_runner(theirs, lambda: _run(theirs, info, options, series, as_json=as_json))
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
    """Close all that was inherited but one descriptor; what is printed goes into the log."""
    with contextlib.suppress(FileNotFoundError):  # no /proc
        for fd in {*map(int, os.listdir("/dev/fd"))} - {0, 1, 2, kept}:  # noqa: PTH208
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(fd)
    nowhere = os.open(os.devnull, os.O_RDWR)
    log = nowhere
    with contextlib.suppress(OSError):
        state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(state_folder() / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    for fd, target in ((0, nowhere), (1, nowhere), (2, log)):
        os.dup2(target, fd)
    for fd in {nowhere, log} - {0, 1, 2}:
        os.close(fd)


def _run(
    first: socket.socket, info: ScenarioInfo, options: RaceOptions, series: Series | None, *, as_json: bool
) -> int:
    """Run the race until it is over and nobody watches, or until it is to end; return its exit code."""
    told: list[Callable[[str], None]] = []
    try:
        program = Program(options, tell=lambda line: told[0](line) if told else None)
    except TfmonError as error:
        first.sendall(codec.encode(Ended(exit_code=error.exit_code, error=error.message, hint=error.hint)))
        return error.exit_code
    yield_to_lanes()
    program.announce(info)
    run = RaceRun(program) if series is None else SeriesRun(program, series)
    began = False
    with ended(run, hangup=lambda: True, quiet=True) as interrupted:
        followers = Followers(program, interrupted)
        told.append(followers.tell)
        followers.add(first)
        followers.look_for_viewers()
        try:
            plan = run.plan = program.plan(info)
            run.begin()
        except TfmonError as error:
            followers.begin(error)
        else:
            began = True
            notes = filter(None, [run.beside, followers.unreachable])
            followers.begin((*notes, *plan.race.differs, *describe(plan.race.views)))
        gc.freeze()  # what is loaded by now stays
        while not interrupted.wait(LOOK_S) and not followers.all_done():
            followers.look_for_viewers()
            if series is not None and run.join(0) and not (info.command and followers.lost):
                break
        if began:
            run.settle(interrupted=bool(interrupted.count))
    code, result = program.exit_code_of_race(interrupted.reason), ""
    if began and isinstance(run, SeriesRun) and not (info.command and followers.lost):
        printed, code = run.outcome(as_json=as_json)
        result = json.dumps(printed, indent=2, allow_nan=False) if as_json else str(printed)
        code = EXIT_INTERRUPTED if interrupted.reason else code
    followers.close(code, result.splitlines())
    return code

"""A process that runs a race and serves viewers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tfmon.errors import EXIT_LANE_FAILED, TfmonError

if TYPE_CHECKING:
    from tfmon.api.run_base import Run

    Make: TypeAlias = Callable[[], Run]

LOOK_S = 2.0


def start(make: Make, *, as_json: bool = False, detach: bool = False) -> socket.socket:
    """Start a process for a run; return the first viewer's connection.

    The process ends with a series, or with the last viewer of an ended race. A user's command continues without
    the first viewer.
    """
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Ctrl+C would end the new process silently.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if os.fork() == 0:
            code = EXIT_LANE_FAILED
            try:
                ours.close()
                os.setsid()
                _leave_terminal(theirs.fileno())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                code = _run(theirs, make, as_json=as_json, detach=detach)
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
    from tfmon.api.run_base import state_folder
    from tfmon.api.sockets import LOG

    with contextlib.suppress(FileNotFoundError):  # no /proc
        for fd in {*map(int, os.listdir("/dev/fd"))} - {0, 1, 2, kept}:  # noqa: PTH208
            with contextlib.suppress(OSError):  # the descriptor of the list
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


def _run(first: socket.socket, make: Make, *, as_json: bool, detach: bool) -> int:
    from tfmon.api.run_base import collect_rarely, ended
    from tfmon.api.server import Server
    from tfmon.api.settings import config_path
    from tfmon.api.sockets import Answer
    from tfmon.lanes import script_input
    from tfmon.model import codec
    from tfmon.recordings import library

    try:
        run = make()
        run.announce()
    except TfmonError as error:
        first.sendall(codec.encode(Answer(error=error.message, hint=error.hint, exit_code=error.exit_code)))
        return error.exit_code
    script_input.pass_on(single=False)
    command = run.trains_command
    is_new = not (command or detach or config_path().exists() or library.runs())
    with ended(run, hangup=lambda: True, quiet=True) as interrupted:
        server = Server(run, interrupted)
        run.tell = server.tell
        server.connect(first, ends_run=not (command or detach))
        server.listen()
        try:
            run.begin()
        except TfmonError as error:
            server.started.set_exception(error)
        else:
            lines = (run.hint if is_new else "", run.beside, server.unreachable, *run.notes)
            server.started.set_result("\n".join(filter(None, lines)))
        collect_rarely()
        while not interrupted.wait(LOOK_S) and not server.all_done():
            server.listen()
            run.alone = command and server.lost
            if run.join(0) and run.is_series:
                break
    run.alone = command and server.lost  # a terminal that closes at the start leaves no time to look
    printed, code = run.outcome(interrupted.reason, as_json=as_json)
    result = printed if isinstance(printed, str) else json.dumps(printed, indent=2, allow_nan=False)
    server.close(code, result.splitlines())
    return code

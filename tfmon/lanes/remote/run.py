"""The process of an agent: takes over from its first word, serves, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tfmon
from tfmon.lanes.launch import OWN_GROUP
from tfmon.lanes.remote.agent import Agent
from tfmon.lanes.remote.first_word import say
from tfmon.lanes.remote.frames import PROTOCOL

FILES_GUARD = """
trap '' HUP INT QUIT TERM TSTP
read -r over && exit
sleep 4
rm -rf -- "$1"
"""
"""Removes the agent's folder where the agent was killed; the guards of its lanes have ended them by then."""


def run(folder: str, marker: str) -> None:
    """Serve the monitor over stdin and stdout, then leave nothing behind, and end the process."""
    in_fd, out_fd = os.dup(0), os.dup(1)  # not inherited by anything that is started here
    nothing = os.open(os.devnull, os.O_RDWR)
    guard = _guard_files(folder)
    version = tfmon.__version__
    say(marker, ready=PROTOCOL, version=version, folder=folder, pid=os.getpid(), python=sys.executable)
    for fd in (0, 1, 2):  # what a library prints must not reach the monitor as frames
        os.dup2(nothing, fd)
    agent = Agent(Path(folder), in_fd, out_fd)
    try:
        agent.last_word(agent.serve())
    except Exception as error:  # noqa: BLE001 - top of the process; the monitor shows it
        agent.last_word(f"it failed: {_told(error)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if guard is not None:
            guard.kill()
        # Threads may hang in a driver.
        os._exit(0)


def _told(error: Exception) -> str:
    """Return an error in one line, with the place where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace is not None else ""
    return f"{type(error).__name__}: {error}{place}"


def _guard_files(folder: str) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", FILES_GUARD, "tfmon-guard", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **OWN_GROUP,
        )
    except OSError:
        return None

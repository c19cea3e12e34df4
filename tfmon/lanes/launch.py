"""Starts and guards processes, in the monitor and in agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import field
from pathlib import Path
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.folder_views import View
from tfmon.model.knobs import KnobValue
from tfmon.system.lane_clock import SIZE, SuspendedTime
from tfmon.system.lane_pipes import HOLDER, SETTINGS, VARIABLE, LanePipes
from tfmon.system.view_files import entry, open_lane_store

BOOTSTRAP = Path(__file__).parents[1] / "trainer" / "bootstrap.py"
SITE = Path(__file__).parents[1] / "hooks" / "site"
OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
ASK_S, TERM_S, KILL_S = 1.2, 0.7, 0.7
"""Time to end after a request, SIGTERM and SIGKILL. A user's command has its own instead of `ASK_S`."""
GUARD = f"""
trap '' HUP INT QUIT TERM TSTP
read -r over <&1 && exit
wait_for_end() {{
    left=$1
    while [ "$left" -gt 0 ] && kill -s 0 -- "-$group"; do sleep 0.2 || sleep 1; left=$((left - 1)); done
}}
group=$1
exec 3<&0 4<&2 2>/dev/null
drain() {{
    while kill -s 0 -- "-$group"; do cat >/dev/null; sleep 0.2 || sleep 1; done
}}
kill -s CONT -- "-$group"
kill -s "$2" -- "-$group"
drain <&3 &
drain <&4 &
wait_for_end "$3"
kill -s TERM -- "-$group" || exit
wait_for_end {round(5 * TERM_S)}
kill -s KILL -- "-$group"
"""
"""Ends process group $1 when descriptor 1, a pipe from the monitor, ends: signal $2, after $3 fifths of a second
SIGTERM, then SIGKILL. The group's output, descriptors 0 and 2, is drained so that writing does not fail. POSIX's
`sleep` takes whole seconds only, and its redirections descriptors of one digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """How the process of a lane is started, here or by an agent."""

    lane: str
    python: str
    environment: dict[str, str | None]
    """Variables to add. `None` removes one."""
    script: str = str(BOOTSTRAP)
    scenario: str = ""
    """A file that is sent to a host."""
    argv: tuple[str, ...] = ()
    """A user's own command, with its device, settings and time to end. Empty for a scenario."""
    device: str = "cpu"
    settings: dict[str, KnobValue] = field(default_factory=dict)
    grace_s: float | None = None
    view: View | None = None
    files: dict[str, str | None] = field(default_factory=dict)
    """Other contents of files in its view in Latin-1; `None` for a removed file."""
    folder: str | None = None
    guarded: bool = False
    """Whether a guard ends the process with this one; a user's command always has one."""
    split: bool = False
    """Whether standard error has its own pipe."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A process and the monitor's ends of its pipes."""

    popen: subprocess.Popen[bytes]
    metric_fd: int
    request_fd: int
    suspended: SuspendedTime
    guard: Guard | None


def launch(plan: ProcessPlan, stdin: int = subprocess.DEVNULL) -> Launched:
    """Start a process; raises OSError."""
    merged = {key: value for key, value in {**os.environ, **plan.environment}.items() if value is not None}
    metric_fd, child_metric_fd = os.pipe()
    child_request_fd, request_fd = os.pipe()
    os.set_blocking(metric_fd, False)
    os.set_blocking(request_fd, False)
    lock, token = lock_file()
    inherited = [child_metric_fd, child_request_fd, lock]
    try:
        suspended = SuspendedTime(lock)
        if not plan.argv:
            argv = [plan.python, plan.script, *map(str, inherited)]
            merged["PYTHONUNBUFFERED"] = "1"
        else:
            argv = list(plan.argv)
            if plan.view is not None:
                open_lane_store(plan.view, plan.files)
                argv = [*entry(plan.view), *argv]
            pipes = LanePipes(child_metric_fd, child_request_fd, lock, token, plan.device)
            before = merged.get("PYTHONPATH", "")
            path = os.pathsep.join([str(SITE), before]) if before else str(SITE)
            merged.update(
                {VARIABLE: pipes.text(), SETTINGS: json.dumps(plan.settings), HOLDER: "", "PYTHONPATH": path}
            )
        popen = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if plan.split else subprocess.STDOUT,
            pass_fds=inherited,
            env=merged,
            cwd=plan.folder,
            # A user's command has its own session, so that it cannot use the terminal. Others stay in the
            # monitor's: if the monitor dies, the kernel sends SIGHUP and SIGCONT to a suspended child, as to each
            # orphaned group (POSIX). Linux does not until all threads have stopped, so its inbox asks for SIGCONT.
            **({"start_new_session": True} if plan.argv else OWN_GROUP),
        )
    except OSError:
        os.close(metric_fd)
        os.close(request_fd)
        raise
    finally:
        for fd in inherited:
            os.close(fd)
    for stream in filter(None, (popen.stdout, popen.stderr)):
        os.set_blocking(stream.fileno(), False)
    guard = _start_guard(popen, plan.grace_s) if plan.guarded or plan.argv else None
    return Launched(popen, metric_fd, request_fd, suspended, guard)


def lock_file() -> tuple[int, str]:
    """Return an unlinked file for the lane's processes, and its token."""
    token = os.urandom(8).hex()
    with tempfile.TemporaryFile() as file:
        file.write(token.encode())
        file.truncate(SIZE)
        return os.dup(file.fileno()), token


@dataclass(frozen=True, slots=True)
class Guard:
    """Ends a process group once `pipe_fd` is closed."""

    popen: subprocess.Popen[bytes]
    pipe_fd: int

    def dismiss(self) -> None:
        """Stop the guard, because another process group may get the number."""
        self.popen.kill()
        self.popen.wait()
        os.close(self.pipe_fd)


def _start_guard(group: subprocess.Popen[bytes], grace_s: float | None) -> Guard | None:
    first, patience_s = ("CONT", ASK_S) if grace_s is None else ("INT", grace_s)
    over_fd, pipe_fd = os.pipe()
    try:
        popen = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "tfmon-guard", str(group.pid), first, str(round(5 * patience_s))],
            stdin=group.stdout,
            stdout=over_fd,
            stderr=group.stderr or subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        os.close(pipe_fd)
        return None
    finally:
        os.close(over_fd)
    return Guard(popen, pipe_fd)

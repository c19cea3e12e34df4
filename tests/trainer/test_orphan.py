"""A child whose monitor is gone ends, with what it started, even if it cannot run a line of Python any more."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.waiting import wait_for

ROOT = str(Path(__file__).parents[2])
WITHIN_S = 3.0

MONITOR = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], process_group=0)
print(child.pid, flush=True)
child.wait()
"""
START = f"import sys; sys.path.insert(0, {ROOT!r})\nfrom tfmon.trainer import channel as orphan\n"
HOLDS_THE_LOCK = START + "orphan.die_with_parent()\nprint('up', flush=True)\nsum(range(10**14))\n"
WITH_A_GRANDCHILD = (
    START
    + "import subprocess\ngrandchild = subprocess.Popen(['sleep', '600'])\n"
    + "print(grandchild.pid, flush=True)\norphan.end_group()\n"
)


@pytest.fixture
def monitor() -> Iterator[subprocess.Popen[str]]:
    """A process that starts what a test gives it, and is killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", MONITOR, code]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the test starts a process group as 3.11 can")
def test_one_that_holds_pythons_lock_for_ever_dies_with_its_monitor(monitor):
    parent = monitor(HOLDS_THE_LOCK)
    child = psutil.Process(int(parent.stdout.readline()))
    assert parent.stdout.readline() == "up\n"
    parent.kill()
    try:
        wait_for(lambda: gone(child), WITHIN_S, "the child is gone")
    finally:
        if not gone(child):
            child.kill()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the test starts a process group as 3.11 can")
def test_the_end_of_the_group_takes_grandchildren_along(monitor):
    parent = monitor(WITH_A_GRANDCHILD)
    child = psutil.Process(int(parent.stdout.readline()))
    grandchild = psutil.Process(int(parent.stdout.readline()))
    wait_for(lambda: gone(child) and gone(grandchild), WITHIN_S, "both are gone")


def test_a_process_that_leads_no_group_ends_nobody():
    code = START + "orphan.end_group()\nprint('still here')\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("still here\n", 0)


def test_sigterm_still_ends_one_that_dies_with_its_parent():
    code = START + "orphan.die_with_parent()\nprint('up', flush=True)\nimport time\ntime.sleep(600)\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.terminate()
        assert child.wait(10) == -signal.SIGTERM

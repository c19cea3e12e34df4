"""The whole tfmon on eight GPUs with other users: the chosen GPU, and the messages about them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.eight_gpus import script
from support.terminal import Terminal, racing
from support.waiting import HANGS_S

from tfmon.errors import EXIT_INTERRUPTED

from .test_gpu_lane import PROGRAM, Machine

pytestmark = pytest.mark.pty

RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "gpu", "--no-record")
ALL_BUSY = script() + f"proc 1 {os.getpid()} 9000000000\nproc 6 {os.getpid()} 9000000000\n"
"""The other user is this test's process, which tfmon did not start."""


@pytest.fixture
def eight(build_fake_nvml: Callable[..., Path], tmp_path: Path) -> Machine:
    return Machine(build_fake_nvml(), tmp_path)


def test_ctrl_c_leaves_while_it_waits(eight):
    eight.driver.play(ALL_BUSY)
    command = [sys.executable, str(PROGRAM), *RACE, "--headless", "--wait-idle", "5"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **eight.environment}, **pipes) as waiting:
        assert "waiting for a free GPU" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=HANGS_S)
    assert (waiting.returncode, out) == (EXIT_INTERRUPTED, "")
    assert "Traceback" not in err


def test_the_screen_opens_when_a_gpu_is_free_and_its_page_lists_the_processes(eight):
    eight.driver.play(ALL_BUSY)
    screen = Terminal(*RACE, "--wait-idle", "5", program=[str(PROGRAM)], **eight.environment)
    try:
        screen.wait_for(lambda shown: "waiting for a free GPU (" in shown)
        eight.driver.play(script() + f"proc 6 {os.getpid()} 9000000000\n")
        screen.wait_for(lambda shown: racing(shown) and "gpu:1" in shown)
        command = psutil.Process().cmdline()[0][:12]
        screen.process.send("G")
        words = ("8 GPUs, 0 free", str(os.getpid()), command, "76.0/80.0 GiB")
        screen.wait_for(lambda shown: all(word in shown for word in words))
        screen.process.send("q")
        screen.wait_for(racing)
        screen.leave(0)
    finally:
        screen.close()

"""The whole tfmon on eight GPUs that others use, too: which one it takes, and what it says of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.eight_gpus import script
from support.nvml import build_fake_nvml
from support.terminal import Terminal, racing
from support.waiting import HANGS_S

from tfmon.errors import EXIT_BUSY, EXIT_INTERRUPTED

from .test_gpu_lane import PROGRAM, Machine

pytestmark = pytest.mark.pty

__all__ = ["build_fake_nvml"]

RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "gpu", "--no-record")
ALL_BUSY = script() + f"proc 1 {os.getpid()} 9000000000\nproc 6 {os.getpid()} 9000000000\n"
"""This test's own process is the stranger: tfmon did not start it."""


@pytest.fixture
def eight(build_fake_nvml: Callable[..., Path], tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(build_fake_nvml(), tmp_path)
    machine.driver.play(script())
    yield machine


def run(machine: Machine, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **machine.environment}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *RACE, *words],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


class Stranger:
    """Takes 40 % of a GPU for as long as it is there, by time stamps that go on."""

    def __init__(self, machine: Machine, gpu: int) -> None:
        self._machine, self._gpu, self._over = machine, gpu, threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._over.wait(0.2):
            self._play()

    def _play(self) -> None:
        stamp_us = time.monotonic_ns() // 1_000
        share = f"share {self._gpu} {os.getpid()} {stamp_us} 40\n"
        self._machine.driver.play(script() + f"proc {self._gpu} {os.getpid()} 9000000000\n" + share)

    def __enter__(self) -> Stranger:
        self._play()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def look_at_the_gpus(screen: Terminal, *words: str) -> None:
    """Go to the page of GPUs, wait for what it says, and come back to the race."""
    screen.process.send("G")
    screen.wait_for(lambda shown: all(word in shown for word in words))
    screen.process.send("q")
    screen.wait_for(racing)


@pytest.mark.slow
def test_a_lane_gets_the_idlest_gpu_and_the_verdict_tells_who_came_to_it_later(eight):
    with Stranger(eight, 1), run(eight, "--lane", "gpu:1", "--steps", "3000", "--json") as racing_:
        out, err = racing_.communicate(timeout=HANGS_S)
    assert racing_.returncode == 0, err
    told = json.loads(out)
    _, chosen, named = told["lanes"]
    # The stranger was on gpu:1 already when the lane was planned, so the idlest is the other empty one.
    assert chosen["device"] == "gpu:6" and chosen["device_chosen"].startswith(
        "the idlest of 8 GPUs: no process, 3 %"
    )
    assert (named["device"], named["device_chosen"]) == ("gpu:1", None)
    assert chosen["gpu_others"]["slices"] == 0
    others = named["gpu_others"]
    assert others["gpu_pct"] == pytest.approx(40) and 0 < others["slices"] <= others["of_slices"]
    assert others["command"].startswith(psutil.Process().cmdline()[0]) and others["processes"] == 1
    assert "another process took 40 % of gpu:1 during" in told["verdict"]["text"]
    assert "others took 40 % of gpu:1" in named["bottleneck_text"]


def test_where_no_gpu_becomes_free_one_line_says_who_has_them_and_nothing_was_started(eight):
    eight.driver.play(ALL_BUSY)
    with run(eight, "--headless", "--wait-idle", "0.02") as waiting:
        out, err = waiting.communicate(timeout=HANGS_S)
    assert (waiting.returncode, out) == (EXIT_BUSY, "")
    *waits, last, hint = err.splitlines()  # none where the first look took longer than it may wait
    said = r"tfmon: waiting for a free GPU \(0:0[01] left, Ctrl-C leaves\): the idlest of 8, gpu:1: 1 process"
    assert all(re.match(said, line) for line in waits)
    assert last.startswith("tfmon: no GPU was free within 0.02 min: ") and "--wait-idle" in hint


def test_ctrl_c_leaves_while_it_waits(eight):
    eight.driver.play(ALL_BUSY)
    with run(eight, "--headless", "--wait-idle", "5") as waiting:
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
        look_at_the_gpus(screen, "8 GPUs, 0 free", str(os.getpid()), command, "76.0/80.0 GiB")
        screen.leave(0)
    finally:
        screen.close()

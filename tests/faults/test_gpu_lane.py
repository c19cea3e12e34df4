"""The whole tfmon with GPU lanes behind a scripted driver: a child that claims the GPU, and other users."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.eight_gpus import script
from support.mig import LOADS, SPLIT
from support.nvml import TWO_GPUS, FakeDriver
from support.processes import run_python
from support.terminal import FAKE_TFMON, racing
from support.waiting import HANGS_S

import tfmon
from tfmon.errors import EXIT_DEVICE_ABSENT, EXIT_INTERRUPTED

pytestmark = pytest.mark.pty

LANES = ("race", "small-dense", "--lane", "cpu", "--lane", "gpu:0")


class Machine:
    def __init__(self, library: Path, folder: Path) -> None:
        self.driver = FakeDriver(library, folder / "script.txt")
        self.driver.play(TWO_GPUS)
        self.environment = {
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKE_NVML_SCRIPT": str(folder / "script.txt"),
            "PYTHONPATH": str(Path(tfmon.__file__).parents[1]),
        }

    def race(self, *words: str, lanes: tuple[str, ...] = LANES) -> subprocess.CompletedProcess[str]:
        return run_python(FAKE_TFMON, *lanes, *words, **self.environment)


@pytest.fixture
def machine(build_fake_nvml: Callable[..., Path], tmp_path: Path) -> Machine:
    return Machine(build_fake_nvml(), tmp_path)


@pytest.mark.slow
def test_a_lane_on_two_gpus_has_the_readings_of_both_and_replays_to_the_digit(machine, tmp_path):
    lanes = ("race", "small-dense", "--lane", "gpu:0", "--lane", "gpu:all")
    recording = str(tmp_path / "one.jsonl")
    done = machine.race("--steps", "3000", "--slice", "0.2", "--json", "--record", recording, lanes=lanes)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    one, two = told["lanes"]
    assert (two["device"], two["device_name"]) == ("gpu:0+1", "NVIDIA Busy + NVIDIA Idle")
    assert [(gpu["name"], gpu["busy_pct"]) for gpu in two["gpus"]] == [("NVIDIA Busy", 87), ("NVIDIA Idle", 0)]
    assert (len(one["gpus"]), two["gpu_busy_pct"]) == (1, 43.5)
    assert two["knobs"]["batch_scope"] == "global"
    assert told["verdict"]["scaling"] == [], "the two GPUs are not of one model"
    again = machine.race("--json", lanes=("replay", recording))
    assert json.loads(again.stdout)["lanes"] == told["lanes"]


def test_an_instance_of_a_split_gpu_is_raced_with_readings_of_its_own(machine):
    machine.driver.play(SPLIT + LOADS)
    lanes = ("race", "small-dense", "--lane", "cpu", "--lane", "mig-1111")
    done = machine.race("--steps", "1600", "--json", lanes=lanes)
    assert done.returncode == 0, done.stderr
    cpu, part = json.loads(done.stdout)["lanes"]
    assert (part["device"], part["device_name"]) == ("MIG-11111111", "NVIDIA Busy MIG 1g.10gb")
    assert part["gpu_busy_pct"] == 62.5
    assert cpu["gpu_busy_pct"] is None and cpu["missing"]["gpu_busy_pct"] == "no GPU in this lane"
    refused = machine.race("--seconds", "1")
    assert (refused.returncode, "--lane MIG-11111111" in refused.stderr) == (EXIT_DEVICE_ABSENT, True)


def test_a_gpu_that_is_lost_touches_its_readings_only(machine, start):
    screen = start(*LANES, **machine.environment)
    screen.wait_for(lambda shown: "87 % busy" in shown and "NVIDIA" in shown)
    machine.driver.play(TWO_GPUS + "lost 0\n")
    seen = ("n/a (the GPU is lost", "examples/s", "% of")  # the lanes and the machine are still read
    screen.wait_for(lambda shown: all(words in shown for words in seen))


RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "gpu", "--no-record")
ALL_BUSY = script() + f"proc 1 {os.getpid()} 9000000000\nproc 6 {os.getpid()} 9000000000\n"
"""The other user is this test's process, which tfmon did not start."""


def test_ctrl_c_leaves_while_it_waits(machine):
    machine.driver.play(ALL_BUSY)
    command = [sys.executable, str(FAKE_TFMON), *RACE, "--headless", "--wait-idle", "5"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **machine.environment}, **pipes) as waiting:
        assert "waiting for a free GPU" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=HANGS_S)
    assert (waiting.returncode, out) == (EXIT_INTERRUPTED, "")
    assert "Traceback" not in err


def test_the_screen_opens_when_a_gpu_is_free_and_its_page_lists_the_processes(machine, start):
    machine.driver.play(ALL_BUSY)
    screen = start(*RACE, "--wait-idle", "5", **machine.environment)
    screen.wait_for(lambda shown: "waiting for a free GPU (" in shown)
    machine.driver.play(script() + f"proc 6 {os.getpid()} 9000000000\n")
    screen.wait_for(lambda shown: racing(shown) and "gpu:1" in shown)
    command = psutil.Process().cmdline()[0][:12]
    screen.process.send("G")
    words = ("8 GPUs, 0 free", str(os.getpid()), command, "76.0/80.0 GiB")
    screen.wait_for(lambda shown: all(word in shown for word in words))
    screen.process.send("q")
    screen.wait_for(racing)
    screen.leave(0)

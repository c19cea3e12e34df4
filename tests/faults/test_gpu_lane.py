"""The whole tfmon with a GPU lane: the real pynvml behind a scripted driver, a child that claims the GPU."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.mig import LOADS, SPLIT
from support.nvml import TWO_GPUS, FakeDriver
from support.processes import run_python
from support.terminal import Terminal

import tfmon
from tfmon.errors import EXIT_DEVICE_ABSENT

pytestmark = pytest.mark.pty

PROGRAM = Path(__file__).parents[1] / "support" / "fake_tfmon.py"
LANES = ("race", "small-dense", "--lane", "cpu", "--lane", "gpu:0")


class Machine:
    """A machine with the scripted driver."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.driver = FakeDriver(library, folder / "script.txt")
        self.driver.play(TWO_GPUS)
        self.environment = {
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKE_NVML_SCRIPT": str(folder / "script.txt"),
            "PYTHONPATH": str(Path(tfmon.__file__).parents[1]),
        }

    def race(self, *words: str, lanes: tuple[str, ...] = LANES) -> subprocess.CompletedProcess[str]:
        return run_python(PROGRAM, *lanes, *words, **self.environment)


@pytest.fixture
def machine(build_fake_nvml: Callable[..., Path], tmp_path: Path) -> Machine:
    return Machine(build_fake_nvml(), tmp_path)


def test_the_result_has_the_readings_of_the_gpu_that_the_lane_claims(machine):
    done = machine.race("--steps", "1500", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    cpu, gpu = told["lanes"]
    assert told["machine"]["gpus"] == ["NVIDIA Busy", "NVIDIA Idle"]
    assert (gpu["device"], gpu["device_name"], gpu["gpu_busy_pct"]) == ("gpu:0", "NVIDIA Busy", 87)
    assert cpu["gpu_busy_pct"] is None and cpu["missing"]["gpu_busy_pct"] == "no GPU in this lane"


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
    done = machine.race("--steps", "2000", "--json", lanes=lanes)
    assert done.returncode == 0, done.stderr
    _, part = json.loads(done.stdout)["lanes"]
    assert (part["device"], part["device_name"]) == ("MIG-11111111", "NVIDIA Busy MIG 1g.10gb")
    assert part["gpu_busy_pct"] == 62.5
    refused = machine.race("--seconds", "1")
    assert (refused.returncode, "--lane MIG-11111111" in refused.stderr) == (EXIT_DEVICE_ABSENT, True)


def test_a_gpu_that_is_lost_touches_its_readings_only(machine):
    screen = Terminal(*LANES, program=[str(PROGRAM)], **machine.environment)
    try:
        screen.wait_for(lambda shown: "87 % busy" in shown and "NVIDIA" in shown)
        machine.driver.play(TWO_GPUS + "lost 0\n")
        seen = ("n/a (the GPU is lost", "examples/s", "% of")  # the lanes and the machine are still read
        screen.wait_for(lambda shown: all(words in shown for words in seen))
    finally:
        screen.close()

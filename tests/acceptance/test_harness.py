"""The harness of the acceptance on a GPU: with the scripted driver, and an `nvidia-smi` that reads its script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.nvml import BUSY, IDLE, TWO_GPUS, Clock, FakeDriver, build_fake_nvml, driver, load_driver, take
from support.waiting import HANGS_S

from tfmon.probes.machine import in_pid_namespace
from tfmon.probes.nvidia.probe import NvidiaProbe

from .agreement import DIFFERS, ONLY_SMI, agree
from .smi import Smi

__all__ = ["build_fake_nvml", "driver", "load_driver"]

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
FULL = TWO_GPUS + "clock 0 1500 1600 1980 1700\nlink 0 4 5 16 16\necc 0 0\nrows 0 1 0\nreasons 0 4\nreasons 1 0\n"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the fake `nvidia-smi` first in PATH; return its folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "nvidia-smi"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -S {SUPPORT / "fake_smi.py"} "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def rows(driver: FakeDriver, smi: Path, clock) -> Callable[[str], dict[str, str]]:
    """Return a function that compares a GPU, and returns the verdict of each reading."""

    def look(script: str = FULL) -> dict[str, str]:
        driver.play(script)
        probe, asked = NvidiaProbe([BUSY, IDLE], clock_ns=clock), Smi()
        take(probe)
        found = agree(
            lambda: take(probe)[0],
            lambda: asked.ask()[BUSY.uuid],
            tries=2,
            pause=lambda: clock.pass_s(2),
        )
        probe.close()
        return {row.reading: row.verdict for row in found}

    return look


@pytest.mark.process
@pytest.mark.parametrize(
    ("column", "told", "reading"),
    [
        ("temperature.gpu", "15", "temperature_c"),
        ("memory.used", "99", "used_bytes"),
        ("pcie.link.width.current", "8", "pcie_width"),
        ("clocks.max.sm", "1981", "sm_clock_max_mhz"),
        ("clocks_event_reasons.active", "0x40", "clock_reasons"),
        ("name", "NVIDIA_Other", "name"),
    ],
)
def test_a_reading_that_is_wrong_is_found(rows, monkeypatch, column, told, reading):
    monkeypatch.setenv("FAKE_SMI_OFF", f"{column}={told}")
    assert bad_of(rows()) == [reading]


def bad_of(verdicts: dict[str, str]) -> list[str]:
    return [name for name, verdict in verdicts.items() if verdict in (DIFFERS, ONLY_SMI)]


def accept(folder: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], dict[str, dict]]:
    """Run the steps as `make accept-gpu` does; return how it ended, and the steps of its report by name."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/acceptance"]
    command += ["--deselect", "tests/acceptance/test_harness.py"]
    given = {**os.environ, "TFMON_ACCEPT_GPU": str(folder), "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    told = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return done, {step["name"]: step for step in told["steps"]}


@pytest.mark.process
def test_on_the_scripted_driver_it_finds_what_is_right_and_what_is_not(build_fake_nvml, smi, tmp_path):
    script = tmp_path / "script.txt"
    script.write_text(FULL.replace("NVIDIA_Idle", "NVIDIA_Busy"), encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/example.jsonl.gz").write_text("of an earlier run")
    done, steps = accept(
        tmp_path / "out",
        LD_LIBRARY_PATH=str(build_fake_nvml().parent),
        FAKE_NVML_SCRIPT=str(script),
        TFMON_ACCEPT_CHILD=str(SUPPORT / "gpu_child.py"),
        TFMON_ACCEPT_RACE_S="8",
        TFMON_ACCEPT_SCALING_S="6",
        FASTER="devices=2:1.7",
        TFMON_ACCEPT_CLAIMS="1",
        TFMON_ACCEPT_CLAIM_S="6",
    )
    outcomes = {name: step["outcome"] for name, step in steps.items()}
    contained = in_pid_namespace()
    wanted = {
        "test_every_reading_agrees_with_nvidia_smi": "passed",
        "test_processes_and_their_memory_agree": "skipped" if contained else "passed",
        "test_what_a_sample_costs": "passed",
        "test_the_race_has_a_verdict_and_its_knobs_changed": "passed",
        "test_readings_agree_with_nvidia_smi_while_a_lane_trains": "passed",
        "test_the_memory_of_the_lane_is_what_nvidia_smi_says": "passed",
        "test_shares_of_step_time_are_those_of_the_profiler": "passed",
        "test_the_recording_ends_with_the_same_figures": "passed",
        "test_the_memory_of_a_killed_lane_is_given_back": "passed",
        "test_lanes_over_several_gpus_scale": "passed",
        "test_the_claims_that_need_a_gpu": "passed",
    }
    assert outcomes == wanted, done.stdout[-6000:] + done.stderr
    assert done.returncode == 0
    (said,) = steps["test_lanes_over_several_gpus_scale"]["notes"]
    assert said.startswith("2 GPUs are 1.") and "% of linear; 95 % CI" in said
    counts = "10 passed, 0 failed, 1 skipped" if contained else "11 passed, 0 failed, 0 skipped"
    report = (tmp_path / "out/report.md").read_text(encoding="utf-8")
    for words in (
        counts, "| temperature_c | 61 | 61 | ±2 | agrees |", "2861 MiB were given back",
        "nvmlDeviceGetUtilizationRates: median", "by the profiler 90.0 %",
        "- NVIDIA driver: 550.54.15", "## To ship the race",
    ):  # fmt: skip
        assert words in report
    assert (tmp_path / "out/example.jsonl.gz").stat().st_size > 1_000

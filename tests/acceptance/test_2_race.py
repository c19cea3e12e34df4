"""A race of the CPU against the GPU: knobs, shares, memory, the recording; and a lane that is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tfmon.analysis.verdict import find_verdict
from tfmon.catalog import find_scenario
from tfmon.model.lane_events import KnobApplied
from tfmon.model.lane_state import RACING
from tfmon.model.readings import Missing
from tfmon.probes.base import Gpu
from tfmon.recordings.player import play_all
from tfmon.runner.planner import RaceOptions
from tfmon.runner.program import Program

from .agreement import bad
from .ledger import Ledger, Step
from .racing import SCENARIO, Raced, race, wait
from .smi import Smi

pytestmark = [pytest.mark.process, pytest.mark.tensorflow, pytest.mark.timeout(300)]

SECONDS = float(os.environ.get("TFMON_ACCEPT_RACE_S", "50"))
POINTS = 10.0
"""Percentage points by which shares of step time may differ from the profiler's."""
GIVEN_BACK_S = 15.0
MIB = 2**20


@pytest.fixture(scope="module")
def raced(ledger: Ledger, smi: Smi, gpu: Gpu, device: str, tmp_path_factory: pytest.TempPathFactory) -> Raced:
    """Race once; every test below looks at something else of it."""
    return race(device, smi, gpu.uuid, ledger.recording, tmp_path_factory.mktemp("profile"), SECONDS)


def test_the_race_has_a_verdict_and_its_knobs_changed(step: Step, raced: Raced, gpu: Gpu):
    cpu, other = raced.end.lanes
    step.notes.append(f"{SCENARIO}: {raced.verdict}")
    assert [lane.trouble for lane in raced.end.lanes] == [None, None]
    assert cpu.steady.windows and other.steady.windows
    read = raced.end.gpu_of(other)
    assert read is not None and read.key == gpu.uuid, "the readings beside the lane are those of its GPU"
    applied = {(one.lane, one.knob, one.value) for one in raced.changes if isinstance(one, KnobApplied)}
    for lane in (cpu.spec.name, other.spec.name):
        assert {(lane, "batch_size", 512), (lane, "prefetch", 1)} <= applied
    step.notes.append(f"{len(applied)} knob changes in effect, at the steps that the lanes told")


def test_readings_agree_with_nvidia_smi_while_it_trains(step: Step, raced: Raced):
    step.rows = raced.under_load
    assert step.rows, "it was not compared"
    assert [f"{row.reading}: {row.ours}, nvidia-smi {row.theirs}" for row in bad(step.rows)] == []


def test_the_memory_of_the_lane_is_what_nvidia_smi_says(step: Step, raced: Raced):
    state, told = raced.memory, raced.told
    assert state is not None and told is not None
    used, allocated = state.gpu_memory_used_bytes, state.gpu_memory_allocated_bytes
    assert not isinstance(used, Missing), used
    held = f"{allocated / MIB:.0f} MiB" if allocated is not None else "n/a"
    step.notes.append(f"used {used / MIB:.0f} MiB ({state.gpu_memory_source}), allocated {held}")
    if allocated is not None:
        assert allocated <= used + 64 * MIB, "what TensorFlow has allocated is a part of what the lane uses"
    listed = [told.used_by_pid[pid] for pid in state.pids if pid in told.used_by_pid]
    if not listed:
        pytest.skip("nvidia-smi does not list the lane's process by the number that it has here")
    assert used == pytest.approx(sum(listed), abs=64 * MIB)


def test_shares_of_step_time_are_those_of_the_profiler(step: Step, raced: Raced):
    assert raced.profile is not None, raced.profile_error
    assert raced.shares is not None
    assert raced.profile.devices, "the profile has no plane of a GPU"
    device = raced.profile.devices[0]
    step.notes.append(f"profile: {raced.profile.step_ns / 1e6:.2f} ms a step on {device.name}")
    theirs = {"compute": device.kernels_ns, "input": device.idle_input_ns, "copy": device.h2d_exposed_ns}
    ours = {
        "compute": raced.shares.device_pct,
        "input": raced.shares.input_pct,
        "copy": raced.shares.copy_pct,
    }
    apart = {}
    for name, share in ours.items():
        other = 100 * theirs[name] / raced.profile.step_ns
        if isinstance(share, Missing):
            step.notes.append(f"{name}: n/a ({share.reason}), by the profiler {other:.1f} %")
            continue
        step.notes.append(f"{name}: {share:.1f} %, by the profiler {other:.1f} %")
        # The share of copying is told as "at most": a sampled step overlaps nothing of it.
        apart[name] = max(0.0, other - share) if name == "copy" else abs(share - other)
    assert {name: points for name, points in apart.items() if points > POINTS} == {}


def test_the_recording_ends_with_the_same_figures(step: Step, raced: Raced, ledger: Ledger):
    recording, end = play_all(ledger.recording)
    size = ledger.recording.stat().st_size
    step.notes.append(f"{len(recording)} events, {size / 1024:.0f} KiB")
    assert recording.closed is not None
    assert find_verdict(end).text == raced.verdict
    assert [lane.steady.steps for lane in end.lanes] == [lane.steady.steps for lane in raced.end.lanes]
    assert any(isinstance(gpu.power_w, float) or isinstance(gpu.busy_pct, float) for gpu in end.gpus)


def test_the_memory_of_a_killed_lane_is_given_back(step: Step, smi: Smi, gpu: Gpu, device: str, tmp_path: Path):
    before = smi.ask()[gpu.uuid].numbers["used_bytes"]
    program = Program(RaceOptions(lanes=(device,), record=False, spare=False))
    try:
        program.begin(program.plan(find_scenario(SCENARIO)))
        (name,) = (lane.spec.name for lane in program.session.snapshot().lanes)
        wait(program, lambda: program.session.snapshot().lane(name).phase == RACING, 120.0)
        wait(program, lambda: program.session.snapshot().lane(name).steady.windows > 3, 60.0)
        during = smi.ask()[gpu.uuid].numbers["used_bytes"]
        pid = program.session.snapshot().lane(name).pid
        assert pid is not None
        assert during > before + 64 * MIB, "the lane uses memory of the GPU"
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        while (now := smi.ask()[gpu.uuid].numbers["used_bytes"]) > before + 64 * MIB:
            assert time.monotonic() - began < GIVEN_BACK_S, f"{(now - before) / MIB:.0f} MiB are still used"
            time.sleep(0.2)
        step.notes.append(
            f"{(during - before) / MIB:.0f} MiB were given back within {time.monotonic() - began:.1f} s of SIGKILL"
        )
        wait(program, lambda: program.session.snapshot().lane(name).over, 20.0)
        trouble = program.session.snapshot().lane(name).trouble
        assert trouble is not None and "SIGKILL" in trouble.message
    finally:
        program.close()

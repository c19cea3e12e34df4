"""A race of the CPU against the GPU with its knobs, shares and recording; and a lane alone that is killed."""

from __future__ import annotations

import pytest

from tfmon.analysis.verdict import find_verdict
from tfmon.model.lane_events import KnobApplied
from tfmon.model.readings import Missing
from tfmon.probes.base import Gpu
from tfmon.recordings.player import play_all

from .agreement import bad
from .ledger import Ledger, Step
from .racing import ROOM_BYTES, SCENARIO, Alone, Raced, points_apart, race, train_alone
from .smi import Smi

pytestmark = [pytest.mark.process, pytest.mark.tensorflow, pytest.mark.timeout(240)]

SECONDS = 50.0
POINTS = 10.0
"""Percentage points by which shares of step time may differ from the profiler's."""
MIB = 2**20


@pytest.fixture(scope="module")
def raced(ledger: Ledger, device: str, tmp_path_factory: pytest.TempPathFactory) -> Raced:
    """Race once; each test below looks at something else of it."""
    return race(device, ledger.recording, tmp_path_factory.mktemp("profile"), SECONDS)


@pytest.fixture(scope="module")
def alone(smi: Smi, gpu: Gpu, device: str) -> Alone:
    """Train one lane alone, once; skip instances, for which nvidia-smi has no readings."""
    if gpu.part_of:
        pytest.skip("nvidia-smi tells no readings of an instance (MIG)")
    return train_alone(device, smi, gpu.uuid)


def test_the_race_has_a_verdict_and_its_knobs_changed(step: Step, gpu: Gpu, raced: Raced):
    cpu, other = raced.end.lanes
    step.notes.append(f"{SCENARIO}: {raced.verdict}")
    assert [lane.trouble for lane in raced.end.lanes] == [None, None]
    assert cpu.steady.windows and other.steady.windows
    (read,) = raced.end.gpus_of(other)
    assert read.key == gpu.uuid, "the readings beside the lane are those of its GPU"
    applied = {
        (change.lane, change.knob, change.value) for change in raced.changes if isinstance(change, KnobApplied)
    }
    for lane in (cpu.spec.name, other.spec.name):
        assert {(lane, "batch_size", 512), (lane, "prefetch", 1)} <= applied
    step.notes.append(f"{len(applied)} knob changes in effect, at the steps that the lanes told")


def test_shares_of_step_time_are_those_of_the_profiler(step: Step, raced: Raced):
    assert raced.profile is not None, raced.profile_error
    assert raced.shares is not None
    assert raced.profile.devices, "the profile has no plane of a GPU"
    step.notes.append(f"profile: {raced.profile.step_ns / 1e6:.2f} ms a step on {raced.profile.devices[0].name}")
    found = points_apart(raced.shares, raced.profile)
    for name, (ours, theirs, _) in found.items():
        said = f"n/a ({ours.reason})" if isinstance(ours, Missing) else f"{ours:.1f} %"
        step.notes.append(f"{name}: {said}, by the profiler {theirs:.1f} %")
    assert {name: apart for name, (_, _, apart) in found.items() if apart > POINTS} == {}


def test_the_recording_ends_with_the_same_figures(step: Step, ledger: Ledger, raced: Raced):
    recording, end = play_all(ledger.recording)
    size = ledger.recording.stat().st_size
    step.notes.append(f"{len(recording)} events, {size / 1024:.0f} KiB")
    assert recording.closed is not None
    assert find_verdict(end).answer == raced.verdict
    assert [lane.steady.steps for lane in end.lanes] == [lane.steady.steps for lane in raced.end.lanes]
    assert any(isinstance(gpu.power.power_w, float) or isinstance(gpu.load.busy_pct, float) for gpu in end.gpus)


def test_readings_agree_with_nvidia_smi_while_a_lane_trains(step: Step, alone: Alone):
    step.rows = alone.rows
    assert step.rows, "it was not compared"
    assert [f"{row.reading}: {row.ours}, nvidia-smi {row.theirs}" for row in bad(step.rows)] == []


def test_the_memory_of_the_lane_is_what_nvidia_smi_says(step: Step, alone: Alone):
    state, told = alone.lane, alone.told
    assert state is not None and told is not None
    used, allocated = state.gpu_use.used_bytes, state.gpu_use.allocated_bytes
    assert not isinstance(used, Missing), used
    held = f"{allocated / MIB:.0f} MiB" if allocated is not None else "n/a"
    step.notes.append(f"used {used / MIB:.0f} MiB ({state.gpu_use.source}), allocated {held}")
    if allocated is not None:
        assert allocated <= used + ROOM_BYTES, "what TensorFlow has allocated is a part of what the lane uses"
    listed = [told.used_by_pid[pid] for pid in state.tree.pids if pid in told.used_by_pid]
    if not listed:
        pytest.skip("nvidia-smi does not list the lane's process by the number that it has here")
    assert used == pytest.approx(sum(listed), abs=ROOM_BYTES)


def test_the_memory_of_a_killed_lane_is_given_back(step: Step, alone: Alone):
    assert alone.told is not None
    took = alone.told.numbers["memory.used_bytes"] - alone.before_bytes
    assert took > ROOM_BYTES, "the lane used memory of the GPU"
    assert alone.given_back_s is not None, f"{alone.left_bytes / MIB:.0f} MiB are still used"
    step.notes.append(f"{took / MIB:.0f} MiB were given back within {alone.given_back_s:.1f} s of SIGKILL")
    assert alone.killed is not None and alone.killed.over
    assert alone.killed.trouble is not None and "SIGKILL" in alone.killed.trouble.message

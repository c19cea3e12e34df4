"""The same traces read by XProf: step time, input, memory and the operations that take most agree within 3 %.

XProf's answers about the traces in `data/` are kept in `data/xprof.json`: `make test` compares with these.
`make test-all` has XProf read the traces again. `python benchmarks/traces/xprof_answers.py` writes the answers.
"""

import importlib.util
import json
from typing import Any

import pytest

from benchmarks.traces.xprof_answers import ANSWERS, KEPT, ask, unpacked
from tfmon.analysis.compare_profiles import layer
from tfmon.model.profile import MemoryPeak, Profile
from tfmon.model.readings import Missing
from tfmon.profile import loop_thread
from tfmon.profile.breakdown import read_profile
from tfmon.profile.trace import STEP, Times, read_space

CLOSE = {"rel": 0.03}
pytestmark = pytest.mark.tensorflow


def kept(name: str) -> tuple[dict[str, dict[str, float]], dict[tuple[str, str], float], Any]:
    """Return XProf's kept answers about a trace: its steps, its operations, its peak of memory."""
    answers = json.loads(ANSWERS.read_text("utf-8"))[name]
    return answers["steps"], {(kind, op): time_us for kind, op, time_us in answers["self_us"]}, answers["peak"]


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(importlib.util.find_spec("xprof") is None, reason="needs xprof")
def test_the_kept_answers_are_those_of_xprof(tmp_path, name):
    answers = json.loads(json.dumps(ask(unpacked(name, tmp_path), KEPT[name])))
    assert answers == json.loads(ANSWERS.read_text("utf-8"))[name]


def own_times(profile: Profile) -> dict[tuple[str, str], float]:
    """Return the own time of each operation, in µs in the whole capture."""
    return {(part.kind, part.name): part.self_ns * profile.steps / 1000 for part in profile.parts if part.runs}


def test_a_trace_of_a_net_that_waits_for_its_input(tmp_path):
    """The last `ExecutorState::Process` of a thread is missing in it, because the capture ended before it did."""
    path = unpacked("slow-input", tmp_path)
    steps, self_us, _ = kept("slow-input")
    profile = read_profile(path)
    ours = dict(sorted(own_times(profile).items(), key=lambda own: -own[1])[:10])
    assert {key: self_us.get(key) for key in ours} == pytest.approx(ours, rel=1e-6)
    loop = loop_thread.find(read_space(path), STEP)
    compared = [int(number) for number in steps if 0 <= int(number) < len(loop.steps)]
    assert len(compared) >= 6, "it leaves the first and the last step out"
    spans = [loop.steps[number] for number in compared]
    step_ms, input_ms = (
        sum(steps[str(number)][name] for number in compared) for name in ("stepTimeMs", "infeedTimeMs")
    )
    assert sum(end - start for start, end in spans) / 1e9 == pytest.approx(step_ms, **CLOSE)
    assert (loop.input & Times(spans)).total / 1e9 == pytest.approx(input_ms, **CLOSE)
    assert sum(part.step_ns for part in profile.parts) == pytest.approx(profile.step_ns)


@pytest.mark.parametrize("name", ["h100-graphs", "h100-single"])
def test_a_trace_of_an_h100(tmp_path, name):
    """XProf leaves kernels in CUDA graphs out, and looks fusions up in XLA's program."""
    steps, self_us, (peak_bytes, _) = kept(name)
    profile = read_profile(unpacked(name, tmp_path), marker="")
    (device,) = profile.devices
    ours = own_times(profile)
    named = {key: time_us for key, time_us in self_us.items() if "/" in key[1] and key in ours}
    assert len(named) >= 4
    assert {key: ours[key] for key in named} == pytest.approx(named, **CLOSE)
    graphs = sum(time_us for (kind, name), time_us in ours.items() if "fusion" in kind) / 1000 / profile.steps
    assert graphs > 0.3, "kernels of fusions, in CUDA graphs or not, have names of their own"
    assert not any("command_buffer" in name for _, name in ours)
    busy_ms = sum(step["deviceComputeTimeMs"] for step in steps.values()) / len(steps)
    works_ns = device.kernels_ns + device.h2d_exposed_ns + device.d2h_exposed_ns
    assert works_ns / 1e6 == pytest.approx(busy_ms, rel=0.05)
    assert sum(part.step_ns for part in profile.parts) == pytest.approx(profile.step_ns)
    assert (device.h2d_bytes, profile.mode) == (256 * (32 * 32 * 3 + 1) * 4, "xla")
    assert {layer(name) for _, name in named} >= {"conv_1", "conv_2"}
    peak = peak_in(profile)
    assert (peak.place, peak.allocated_bytes, peak.unknown_bytes) == ("GPU:0", peak_bytes, 0)


LARGE = 8 << 20
"""Larger than the weights: XProf does not list blocks that an earlier step wrote."""


def peak_in(profile: Profile) -> MemoryPeak:
    assert not isinstance(profile.memory, Missing), profile.memory.reason
    return profile.memory[0]


def agree(peak: MemoryPeak, by_xprof: tuple[int, dict[str, int]]) -> dict[str, int]:
    """Assert that the peak and all of XProf's operations agree; return the large operations."""
    peak_bytes, named = by_xprof
    ours = {operation.name: operation.allocated_bytes for operation in peak.operations}
    assert (peak.allocated_bytes, peak.unknown_bytes) == (peak_bytes, 0)
    assert all(ours.get(name, 0) >= size for name, size in named.items())
    large, theirs = ({name: size for name, size in side.items() if size > LARGE} for side in (ours, named))
    assert theirs and {name: large.get(name) for name in theirs} == theirs
    return large


@pytest.mark.parametrize("name", ["dense-onednn", "dense-bfc"])
def test_the_peak_of_memory_of_a_net(tmp_path, name):
    """XProf counts the peak to one step. In about every third trace that step has not allocated anything large."""
    large = agree(peak_in(read_profile(unpacked(name, tmp_path))), kept(name)[2])
    assert large["sequential_1/large_1/Relu"] >= 4096 * 2048 * 4

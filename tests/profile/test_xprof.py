"""The same traces read by XProf: step time, input, memory and the operations that take most agree within 3 %.

XProf's answers about the traces in `data/` are kept in `data/xprof.json`: `make test` compares with these.
`make test-all` has XProf read the traces again. `python tests/profile/test_xprof.py` writes the answers.
"""

import gzip
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tfmon.analysis.compare_profiles import layer
from tfmon.model.profile import NAMELESS, MemoryPeak, Profile
from tfmon.model.readings import Missing
from tfmon.profile import loop_thread
from tfmon.profile.breakdown import read_profile
from tfmon.profile.trace import STEP, both, read_space, total

HERE = Path(__file__).parent
DATA = HERE / "data"
ANSWERS = DATA / "xprof.json"
CLOSE = 0.03
pytestmark = pytest.mark.tensorflow
NEEDS_XPROF = pytest.mark.skipif(importlib.util.find_spec("xprof") is None, reason="needs xprof")
CONVERT = """
import sys
from xprof.convert import raw_to_tool_data
for tool in sys.argv[2:]:
    data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {})
    print("xprof:" + (data.decode() if isinstance(data, bytes) else data))
"""
KEPT = {
    "slow-input": "",
    "dense-onednn": "mklcpu",
    "dense-bfc": "bfc_cpu_allocator_for_gpu",
    "h100-graphs": "GPU_0_bfc",
    "h100-single": "GPU_0_bfc",
}
"""The traces, each with the allocator whose peak is compared.

Source: the scripts in `benchmarks/traces`."""


def unpacked(name: str, folder: Path) -> Path:
    """Write a kept trace into a separate folder, as XProf requires."""
    path = folder / name / "vm.xplane.pb"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.decompress((DATA / f"{name}.xplane.pb.gz").read_bytes()))
    return path


def converted(path: Path, *tools: str) -> list[Any]:
    """Return what XProf's tools make of a trace."""
    command = [sys.executable, "-c", CONVERT, str(path), *tools]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line.removeprefix("xprof:") for line in done.stdout.splitlines() if line.startswith("xprof:")]
    assert len(lines) == len(tools), done.stderr[-2000:]
    return [json.loads(line) for line in lines]


def by_xprof(path: Path) -> tuple[dict[int, dict[str, Any]], dict[tuple[str, str], dict[str, Any]]]:
    """Return its steps by their number, and its operations on the host or the device by their type and name."""
    return tables(*converted(path, "input_pipeline_analyzer", "framework_op_stats"))


def tables(analyzer: Any, operations: Any) -> tuple[dict[int, dict[str, Any]], dict[tuple[str, str], Any]]:
    (steps,) = (one for one in map(rows, analyzer) if one and "stepTimeMs" in one[0])
    numbered = {int(str(step["stepnum"]).split()[-1]): step for step in steps}
    return numbered, {(row["type"], row["operation"]): row for row in rows(operations[0])}


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["id"] for column in table["cols"]]
    return [dict(zip(names, (cell["v"] for cell in row["c"]), strict=True)) for row in table["rows"]]


def peak_of(memory: Any, allocator: str) -> tuple[int, dict[str, int]]:
    """Return the peak, and what each operation of the step in which it is has allocated then, in bytes."""
    own = memory["memoryProfilePerAllocator"][allocator]
    named: Counter[str] = Counter()
    for one in own["activeAllocations"]:
        if (place := int(one["snapshotIndex"])) >= 0:
            block = own["memoryProfileSnapshots"][place]["activityMetadata"]
            named[block["tfOpName"] or NAMELESS] += int(block["allocationBytes"]) * int(one["numOccurrences"])
    return int(own["profileSummary"]["peakStats"]["heapAllocatedBytes"]), dict(named)


COLUMNS = ("stepTimeMs", "infeedTimeMs", "deviceComputeTimeMs")
MOST_OPERATIONS = 40


def ask(path: Path, allocator: str) -> dict[str, Any]:
    """Return XProf's answers about a trace, as they are kept."""
    tools = ["input_pipeline_analyzer", "framework_op_stats", *(["memory_profile"] if allocator else [])]
    analyzer, stats, *memory = converted(path, *tools)
    steps, operations = tables(analyzer, stats)
    longest = sorted(operations.items(), key=lambda item: -item[1]["total_self_time"])[:MOST_OPERATIONS]
    return {
        "steps": {
            str(number): {name: one[name] for name in COLUMNS if name in one} for number, one in steps.items()
        },
        "self_us": [[*key, one["total_self_time"]] for key, one in longest],
        "peak": peak_of(memory[0], allocator) if memory else None,
    }


def kept(name: str) -> tuple[dict[str, dict[str, float]], dict[tuple[str, str], float], Any]:
    """Return XProf's kept answers about a trace: its steps, its operations, its peak of memory."""
    answers = json.loads(ANSWERS.read_text("utf-8"))[name]
    return answers["steps"], {(kind, op): time_us for kind, op, time_us in answers["self_us"]}, answers["peak"]


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.slow
@pytest.mark.process
@NEEDS_XPROF
def test_the_kept_answers_are_those_of_xprof(tmp_path, name):
    answers = json.loads(json.dumps(ask(unpacked(name, tmp_path), KEPT[name])))
    assert answers == json.loads(ANSWERS.read_text("utf-8"))[name]


def largest(profile: Profile) -> dict[tuple[str, str], float]:
    """Return the own time of the ten largest operations, in µs in the whole capture."""
    ops = sorted((part for part in profile.parts if part.runs), key=lambda part: -part.self_ns)[:10]
    return {(part.kind, part.name): part.self_ns * profile.steps / 1000 for part in ops}


def close(value: float) -> object:
    return pytest.approx(value, rel=CLOSE)


def test_a_trace_of_a_net_that_waits_for_its_input(tmp_path):
    """The last `ExecutorState::Process` of a thread is missing in it, because the capture ended before it did."""
    path = unpacked("slow-input", tmp_path)
    steps, self_us, _ = kept("slow-input")
    profile = read_profile(path)
    ours = largest(profile)
    assert {key: self_us.get(key) for key in ours} == {
        key: pytest.approx(time, rel=1e-6) for key, time in ours.items()
    }
    loop = loop_thread.find(read_space(path), STEP)
    compared = [int(number) for number in steps if 0 <= int(number) < len(loop.steps)]
    assert len(compared) >= 6, "it leaves the first and the last step out"
    spans = [loop.steps[number] for number in compared]
    step_ms, input_ms = (
        sum(steps[str(number)][name] for number in compared) for name in ("stepTimeMs", "infeedTimeMs")
    )
    assert sum(end - start for start, end in spans) / 1e9 == close(step_ms)
    assert total(both(loop.input, spans)) / 1e9 == close(input_ms)
    assert sum(part.step_ns for part in profile.parts) == pytest.approx(profile.step_ns)


@pytest.mark.parametrize("name", ["h100-graphs", "h100-single"])
def test_a_trace_of_an_h100(tmp_path, name):
    """XProf leaves kernels in CUDA graphs out, and looks fusions up in XLA's program."""
    steps, self_us, (peak_bytes, _) = kept(name)
    profile = read_profile(unpacked(name, tmp_path), marker="")
    (device,) = profile.devices
    ours = {(part.kind, part.name): part.self_ns * profile.steps / 1000 for part in profile.parts if part.runs}
    named = {key: time_us for key, time_us in self_us.items() if "/" in key[1] and key in ours}
    assert len(named) >= 4
    assert {key: ours[key] for key in named} == {key: close(time_us) for key, time_us in named.items()}
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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asked = {name: ask(unpacked(name, Path(temporary)), allocator) for name, allocator in KEPT.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answers)}" for name, answers in asked.items())
    ANSWERS.write_text(f"{{\n{lines}\n}}\n", "utf-8")

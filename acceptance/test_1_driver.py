"""The driver as it is: every reading against `nvidia-smi`, and what reading it costs."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tfmon.model.gpu_samples import GpuSample
from tfmon.probes.base import SLOW_NS
from tfmon.probes.find_gpus import GpuSearch
from tfmon.probes.nvidia.nvml import Nvml, NvmlFailure, open_nvml
from tfmon.probes.nvidia.probe import NvidiaProbe

from .agreement import agree, bad
from .ledger import Step
from .smi import Smi

pytestmark = pytest.mark.process

MOST_CPU_S = 0.01
"""CPU time of a sample of one GPU: 1 % of a core at one sample a second."""
SAMPLES = 20


def samples_of(probe: NvidiaProbe) -> dict[str, GpuSample]:
    """Take one sample of every GPU, by UUID."""
    return {one.key: one for one in probe.sample() if isinstance(one, GpuSample)}


def test_every_reading_agrees_with_nvidia_smi(step: Step, smi: Smi, search: GpuSearch, probe: NvidiaProbe):
    samples_of(probe)  # the first sample of a counter has no rate
    time.sleep(1.0)
    wrong = []
    for gpu in search.gpus:
        if gpu.split:
            step.notes.append(f"{gpu.name} is split up (MIG), so it is not compared as a whole")
            continue
        rows = agree(lambda key=gpu.uuid: samples_of(probe)[key], lambda key=gpu.uuid: smi.ask()[key])
        step.rows += rows
        wrong += [f"{row.reading}: {row.ours}, nvidia-smi {row.theirs} ({row.verdict})" for row in bad(rows)]
    assert step.rows or search.instances
    assert wrong == []


def test_processes_and_their_memory_agree(step: Step, smi: Smi, search: GpuSearch, probe: NvidiaProbe):
    ours, theirs = samples_of(probe), smi.ask()
    if any(our.processes.foreign_pids for our in ours.values()):
        pytest.skip("in a container the driver may number processes as the host does")
    for gpu in search.gpus:
        told, listed = theirs[gpu.uuid].used_by_pid, ours[gpu.uuid].processes.used_by_pid
        step.notes.append(f"{gpu.name}: {len(listed)} processes, by nvidia-smi {len(told)}")
        for pid, used in told.items():
            assert listed.get(pid) == pytest.approx(used, abs=64 * 2**20), f"process {pid} of {gpu.name}"


def test_what_a_sample_costs(step: Step, search: GpuSearch):
    durations: dict[str, list[float]] = defaultdict(list)
    probe = NvidiaProbe(search.gpus or search.instances, open_library=lambda: timed(durations))
    samples_of(probe)
    durations.clear()
    cpu_s, wall_s = [], []
    for _ in range(SAMPLES):
        time.sleep(0.2)
        began_cpu, began = time.thread_time(), time.perf_counter()
        samples = samples_of(probe)
        cpu_s.append(time.thread_time() - began_cpu)
        wall_s.append(time.perf_counter() - began)
    slow = {one.name for sample in samples.values() for one in sample.slow}
    probe.close()
    each = len(samples)
    cpu, wall = statistics.median(cpu_s) / each, statistics.median(wall_s) / each
    step.notes.append(f"a sample of one GPU takes {1000 * wall:.2f} ms, of which {1000 * cpu:.2f} ms CPU time")
    for name, took in sorted(durations.items(), key=lambda item: -statistics.median(item[1])):
        median, most = statistics.median(took) * 1e6, max(took) * 1e6
        step.notes.append(f"{name}: median {median:.0f} µs, at most {most:.0f} µs, {len(took)} calls")
    slowest = {name for name, took in durations.items() if statistics.median(took) * 1e9 > SLOW_NS}
    step.notes.append(f"asked less often, because they are slow: {', '.join(sorted(slow)) or 'nothing'}")
    assert cpu <= MOST_CPU_S
    assert bool(slow) >= bool(slowest), f"{slowest} are slow and asked as often as before"


def timed(durations: dict[str, list[float]]) -> Nvml | NvmlFailure:
    """Open the library, and note how long each call takes, in seconds."""
    nvml = open_nvml()
    if isinstance(nvml, NvmlFailure):
        return nvml
    call: Callable[..., Any] = nvml.call

    def noting(function: str, *arguments: object, **named: object) -> Any:
        began = time.perf_counter()
        try:
            return call(function, *arguments, **named)
        finally:
            durations[function].append(time.perf_counter() - began)

    nvml.call = noting  # type: ignore[method-assign]
    return nvml

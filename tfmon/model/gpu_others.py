"""Other users of a GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from tfmon.model.gpu_samples import GpuProcesses, GpuSample, ProcessName
from tfmon.model.readings import Missing, known

TAKEN_PCT = 5.0
"""Least reported share of GPU time."""
HELD = 0.1
"""Least reported share of GPU memory."""
MOST_TAKEN = 900
MOST_NAMES = 512
UNNAMED = "a process that the system does not name"


@dataclass(frozen=True, slots=True)
class Taken:
    """Use of a lane's GPU by others."""

    since_ns: int
    until_ns: int
    pct: float
    processes: int = 0
    first: ProcessName | None = None

    @property
    def counts(self) -> bool:
        """Whether the use is reported."""
        return self.pct >= TAKEN_PCT


def taken(processes: GpuProcesses, lane_pids: Collection[int]) -> Taken | None:
    """Return others' use of a GPU since the previous reading."""
    since_ns, until_ns, shares = processes.since_ns, processes.until_ns, processes.busy_by_pid
    if isinstance(shares, Missing) or since_ns is None or until_ns is None:
        return None
    if processes.foreign_pids and processes.used_by_pid.keys().isdisjoint(lane_pids):
        return None
    theirs = {pid: shares[pid] for pid in processes.of_others(lane_pids) if shares.get(pid)}
    most = max(theirs, key=lambda pid: theirs[pid], default=None)
    first = None if most is None else processes.names.get(most)
    return Taken(since_ns, until_ns, min(100.0, sum(theirs.values())), len(theirs), first)


def holders(processes: GpuProcesses, lane_pids: Collection[int] = ()) -> dict[int, int]:
    """Return the bytes of GPU memory by process of others, the largest first."""
    used = {pid: used for pid in processes.of_others(lane_pids) if (used := processes.used_by_pid.get(pid))}
    return dict(sorted(used.items(), key=lambda holder: (-holder[1], holder[0])))


def held_text(sample: GpuSample, device: str, lane_pids: Collection[int] = ()) -> str:
    """Describe the memory of other processes, if considerable."""
    result, total = holders(sample.processes, lane_pids), known(sample.memory.total_bytes)
    held = sum(result.values())
    if not total or held < HELD * total:
        return ""
    who = "another process holds" if len(result) == 1 else f"{len(result)} other processes hold"
    pid, used = next(iter(result.items()))
    most = "" if len(result) == 1 else f"; the most, {_gib(used)} GiB,"
    subject = f"{who} {_gib(held)} of the {_gib(total)} GiB of {device}"
    return f"{subject}{most}{' by' if most else ':'} {process_text(sample.processes.names.get(pid))} (pid {pid})"


def _gib(value: float) -> str:
    return f"{value / 2**30:.1f}"


def process_text(name: ProcessName | None) -> str:
    """Return such as "ana: python train.py"."""
    if name is None or not (name.user or name.command):
        return UNNAMED
    return ": ".join(filter(None, (name.user, name.command)))


def with_names(
    before: tuple[ProcessName, ...], processes: GpuProcesses, lane_pids: Collection[int]
) -> tuple[ProcessName, ...]:
    """Add the processes on a GPU to the names."""
    new = [
        name for pid in processes.of_others(lane_pids) if (name := processes.names.get(pid)) and name not in before
    ]
    return (*before, *dict.fromkeys(new))[-MOST_NAMES:] if new else before


def names_in(samples: Iterable[GpuSample]) -> set[ProcessName]:
    """Return the names of processes on GPUs, except tfmon's."""
    return {
        replace(name, ours=False)
        for sample in samples
        for name in sample.processes.names.values()
        if not name.ours
    }

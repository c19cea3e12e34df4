"""Other users of a GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from tfmon.model.gpu_samples import GpuProcesses, GpuSample, ProcessName
from tfmon.model.readings import Missing, known

TAKEN_PCT = 5.0
"""From this share on, use by others counts."""
HELD = 0.1
"""From this share on, others explain a lack of memory."""
MOST_TAKEN = 900
MOST_NAMES = 512
UNTOLD = "a process that the system does not name"


@dataclass(frozen=True, slots=True)
class Taken:
    """Use of a lane's GPU by others."""

    since_ns: int
    until_ns: int
    pct: float
    """Share of the GPU's time."""
    processes: int = 0
    first: ProcessName | None = None
    """With the largest share."""

    @property
    def counts(self) -> bool:
        """Whether it is large enough to report."""
        return self.pct >= TAKEN_PCT


def taken(on_it: GpuProcesses, own: Collection[int]) -> Taken | None:
    """Return the use by others since the previous reading."""
    since_ns, until_ns, shares = on_it.since_ns, on_it.until_ns, on_it.busy_by_pid
    if isinstance(shares, Missing) or since_ns is None or until_ns is None:
        return None
    if on_it.foreign_pids and on_it.used_by_pid.keys().isdisjoint(own):
        return None
    theirs = {pid: shares[pid] for pid in on_it.of_others(own) if shares.get(pid)}
    most = max(theirs, key=lambda pid: theirs[pid], default=None)
    first = None if most is None else on_it.names.get(most)
    return Taken(since_ns, until_ns, min(100.0, sum(theirs.values())), len(theirs), first)


def with_taken(before: tuple[Taken, ...], more: Taken | None) -> tuple[Taken, ...]:
    """Return the readings with a new one."""
    if more is None or (before and more.until_ns <= before[-1].until_ns):
        return before
    return (*before[1 - MOST_TAKEN :], more)


@dataclass(frozen=True, slots=True)
class _Holder:
    pid: int
    used_bytes: int
    name: ProcessName | None


def holders(on_it: GpuProcesses, own: Collection[int] = ()) -> list[_Holder]:
    """Return others with memory, the largest first."""
    of_others = on_it.of_others(own)
    result = [
        _Holder(pid, used, on_it.names.get(pid)) for pid in of_others if (used := on_it.used_by_pid.get(pid))
    ]
    return sorted(result, key=lambda one: (-one.used_bytes, one.pid))


def held_text(sample: GpuSample, place: str, own: Collection[int] = ()) -> str:
    """Return a text if others' memory explains a lack of it."""
    result, total = holders(sample.processes, own), known(sample.memory.total_bytes)
    held = sum(one.used_bytes for one in result)
    if not total or held < HELD * total:
        return ""
    who = "another process holds" if len(result) == 1 else f"{len(result)} other processes hold"
    first = result[0]
    most = "" if len(result) == 1 else f"; the most, {_gib(first.used_bytes)} GiB,"
    named = f"{who} {_gib(held)} of the {_gib(total)} GiB of {place}"
    return f"{named}{most}{' by' if most else ':'} {process_text(first.name)} (pid {first.pid})"


def _gib(value: float) -> str:
    return f"{value / 2**30:.1f}"


def process_text(name: ProcessName | None) -> str:
    """Return such as "ana: python train.py"."""
    if name is None or not (name.user or name.command):
        return UNTOLD
    return ": ".join(filter(None, (name.user, name.command)))


def with_names(
    before: tuple[ProcessName, ...], on_it: GpuProcesses, own: Collection[int]
) -> tuple[ProcessName, ...]:
    """Return the names with those on a GPU. Shared reports must not contain them."""
    new = [name for pid in on_it.of_others(own) if (name := on_it.names.get(pid)) and name not in before]
    return (*before, *dict.fromkeys(new))[-MOST_NAMES:] if new else before


def names_in(samples: Iterable[GpuSample]) -> set[ProcessName]:
    """Return the processes on GPUs, except tfmon's."""
    return {
        replace(name, ours=False)
        for sample in samples
        for name in sample.processes.names.values()
        if not name.ours
    }

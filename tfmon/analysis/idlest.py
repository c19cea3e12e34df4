"""Which GPU of a machine is the idlest, whether one is free, and the words for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfmon import units
from tfmon.model.gpu_others import free_bytes, strangers
from tfmon.model.readings import GpuSample, known

IDLE_PCT = 10.0
"""A GPU with less load and no process is free."""
LOAD_STEP_PCT = 5.0
"""Loads that differ by less are alike: then memory decides."""
CROWDED = 0.1
"""A GPU of whose memory less is left comes after those that have more."""
UNTOLD_BYTES = 2**30
"""More used memory than this belongs to somebody, also where the driver lists no process."""


def ranked(samples: Iterable[GpuSample]) -> list[GpuSample]:
    """Return GPUs by how idle they are, the idlest first.

    Those that can be read come first, then those with memory left, then those with nobody's process, then by
    load, in steps, then by free memory, and the first of equal ones.
    """
    return sorted(samples, key=_rank)


def _rank(sample: GpuSample) -> tuple[float, ...]:
    busy, free, total = known(sample.busy_pct), free_bytes(sample), known(sample.total_bytes)
    unread = free is None and busy is None
    crowded = free is not None and bool(total) and free < CROWDED * (total or 0.0)
    load = LOAD_STEP_PCT * round((busy or 0.0) / LOAD_STEP_PCT)
    return unread, crowded, bool(strangers(sample)), load, -(free or 0.0), sample.index


def is_free(sample: GpuSample) -> bool:
    """Return whether nobody uses a GPU: no process, no load, no memory."""
    busy, used, total = known(sample.busy_pct), known(sample.used_bytes), known(sample.total_bytes)
    if busy is None and used is None:
        return False
    untold = max(UNTOLD_BYTES, (total or 0.0) / 20)
    return (
        not strangers(sample) and (busy or 0.0) < IDLE_PCT and (used is None or sample.unified or used <= untold)
    )


def why(chosen: Sequence[GpuSample], of: int) -> str:
    """Say why GPUs were chosen: "the idlest of 8 GPUs: no process, 0 % busy, 79 GiB free"."""
    if len(chosen) == 1:
        return f"the idlest of {of} GPUs: {state(chosen[0])}"
    said = "; ".join(f"gpu:{one.index} {state(one)}" for one in chosen)
    return f"the {len(chosen)} idlest of {of} GPUs: {said}"


def state(sample: GpuSample) -> str:
    """Say how many processes are on a GPU, how busy it is, and how much memory is free."""
    busy, free = known(sample.busy_pct), free_bytes(sample)
    if busy is None and free is None:
        return units.reading(sample.busy_pct, units.percent)
    said = [_processes(sample)]
    if busy is not None:
        said.append(f"{units.percent(busy)} busy")
    if free is not None:
        said.append(f"{units.memory(free)} free")
    return ", ".join(said)


def _processes(sample: GpuSample) -> str:
    count = len(strangers(sample))
    if not count:
        return "processes not listed" if sample.no_processes_reason else "no process"
    return f"{count} process{'es' if count > 1 else ''}"

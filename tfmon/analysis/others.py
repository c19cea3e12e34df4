"""Use of the CPU and the GPUs by other processes. It is reported, never corrected.

They hardly change the CPU time per example, so its ratio is reported if both lanes are CPU-bound.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tfmon import units
from tfmon.analysis.intervals import trimmed
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuProcesses, GpuSample, ProcessName, Taken, process_text
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import NO_STOLEN, Missing, Reading, known
from tfmon.model.session import Snapshot
from tfmon.model.windows import SliceSpeed


@dataclass(frozen=True, slots=True)
class GpuOthers:
    """Use of a lane's GPU by other processes."""

    place: str
    share_pct: float
    """Mean share while the use was notable."""
    time_share: float
    """Share of the time with notable use."""
    processes: int
    first: ProcessName | None

    @property
    def shown(self) -> bool:
        """Whether the use is large enough to report."""
        return self.time_share > REPORTED_SHARE

    @property
    def text(self) -> str:
        """The use in a sentence."""
        who = "another process" if self.processes == 1 else f"up to {self.processes} other processes"
        most = "" if self.processes == 1 else "the most: "
        process = f" ({most}{process_text(self.first)})" if self.first else ""
        took, when = f"{self.share_pct:.0f} % of {self.place}", f"{100 * self.time_share:.0f} % of the time"
        return f"{who} took {took} during {when}{process}"

    @property
    def short(self) -> str:
        """The use in a few words."""
        return f"others took {self.share_pct:.0f} % of {self.place}"


def gpu_others(lane: LaneState, index: int | None = None) -> GpuOthers | None:
    """Return the use by other processes of their most used GPU."""
    taken = sorted(lane.gpu_use.taken.items())
    result = [_of_gpu(lane, at, readings) for at, readings in taken if index in (None, at)]
    return max(result, key=lambda share: share.time_share * share.share_pct, default=None)


def windows_with_others(lane: LaneState, index: int) -> int:
    """Return how many recent windows other processes disturbed."""
    taken = [part for part in lane.gpu_use.taken.get(index, ()) if part.counts]
    until_ns = [part.until_ns for part in taken]
    positions = (bisect_right(until_ns, point.since_ns) for point in lane.points)
    return sum(
        position < len(taken) and taken[position].since_ns < point.at_ns
        for position, point in zip(positions, lane.points, strict=True)
    )


def _of_gpu(lane: LaneState, index: int, readings: Sequence[Taken]) -> GpuOthers:
    counted = [reading for reading in readings if reading.counts]
    span_ns, hit_ns = (sum(map(_span_ns, parts)) for parts in (readings, counted))
    most = max(counted, key=lambda part: part.pct, default=None)
    return GpuOthers(
        lane.spec.place_of(index),
        share_pct=sum(_span_ns(part) * part.pct for part in counted) / (hit_ns or 1),
        time_share=hit_ns / (span_ns or 1),
        processes=max((part.processes for part in counted), default=0),
        first=most.first if most is not None else None,
    )


def others_notes(snapshot: Snapshot) -> list[str]:
    """Return a line for each GPU that other processes used."""
    longest: dict[str, GpuOthers] = {}
    for use in map(gpu_others, snapshot.lanes):
        if use is not None and use.shown and use.time_share >= longest.get(use.place, use).time_share:
            longest[use.place] = use
    return [f"{use.text}; the figures include that" for use in longest.values()]


def _span_ns(reading: Taken) -> int:
    return max(0, reading.until_ns - reading.since_ns)


IDLE_PCT = 10.0
LOAD_STEP_PCT = 5.0
CROWDED = 0.1
"""GPUs with less free memory come last."""
UNLISTED_BYTES = 2**30
"""More used memory belongs to an unlisted process."""


def ranked(samples: Iterable[GpuSample]) -> list[GpuSample]:
    """Return the GPUs, the idlest first."""
    return sorted(samples, key=_rank)


def _rank(sample: GpuSample) -> tuple[float, ...]:
    busy, free, total = known(sample.load.busy_pct), sample.memory.free_bytes, known(sample.memory.total_bytes)
    unread = free is None and busy is None
    crowded = free is not None and bool(total) and free < CROWDED * (total or 0.0)
    load = LOAD_STEP_PCT * round((busy or 0.0) / LOAD_STEP_PCT)
    return unread, crowded, bool(sample.processes.of_others()), load, -(free or 0.0), sample.index


def is_free(sample: GpuSample) -> bool:
    """Return whether a GPU is unused."""
    busy, memory = known(sample.load.busy_pct), sample.memory
    used, total = known(memory.used_bytes), known(memory.total_bytes)
    if busy is None and used is None:
        return False
    unlisted = max(UNLISTED_BYTES, (total or 0.0) / 20)
    nobodys = used is None or memory.unified or used <= unlisted
    return nobodys and (busy or 0.0) < IDLE_PCT and not sample.processes.of_others()


def why(chosen: Sequence[GpuSample], count: int) -> str:
    """Return why these GPUs were chosen."""
    if len(chosen) == 1:
        return f"the idlest of {count} GPUs: {state(chosen[0])}"
    states = "; ".join(f"gpu:{sample.index} {state(sample)}" for sample in chosen)
    return f"the {len(chosen)} idlest of {count} GPUs: {states}"


def state(sample: GpuSample, *, with_users: bool = False) -> str:
    """Return a GPU's processes, load and free memory."""
    busy, free = known(sample.load.busy_pct), sample.memory.free_bytes
    if busy is None and free is None:
        return units.reading(sample.load.busy_pct, units.percent)
    parts = [_who(sample.processes, with_users=with_users)]
    if busy is not None:
        parts.append(f"{units.percent(busy)} busy")
    if free is not None:
        parts.append(f"{units.memory(free)} free")
    return ", ".join(parts)


def _who(processes: GpuProcesses, *, with_users: bool) -> str:
    pids = processes.of_others()
    if not pids:
        return "processes not listed" if processes.no_list_reason else "no process"
    users = sorted({name.user for pid in pids if (name := processes.names.get(pid)) and name.user})
    owners = f" of {', '.join(users[:3])}{' and others' if len(users) > 3 else ''}" if users and with_users else ""
    return f"{len(pids)} process{'es' if len(pids) > 1 else ''}{owners}"


NO_DELAYS = Missing("this system does not report how long threads wait for a core")
NO_SLICES = Missing("no slice was measured")
REPORTED_SHARE = 0.05
"""Minimum share of use to report."""
BUSY_CORES = 0.8
"""Minimum busy cores of a CPU-bound lane."""
ALIKE_CORES = 1.5
"""Maximum ratio of busy cores for `cpu_ratio`."""


@dataclass(frozen=True, slots=True)
class Contention:
    """Use of CPU time by other programs."""

    slices_share: Reading
    """See `SliceLoad.contended`."""
    stolen_share: Reading
    """Share of one core for other machines."""
    cpu_ratio: float | None = None
    others_cores: Reading = NO_SLICES

    def text(self, *, undecided: bool = False, local: bool = True) -> str:
        """Return the use as text, or "" for little use."""
        notes = []
        slices, stolen = known(self.slices_share) or 0.0, known(self.stolen_share) or 0.0
        if slices > REPORTED_SHARE:
            notes.append(f"other programs took CPU time during {100 * slices:.0f} % of the slices")
        if stolen > REPORTED_SHARE:
            which = "this virtual machine loses" if local else "the virtual machines lose"
            notes.append(f"{which} {100 * stolen:.0f} % of a core to others; the figures include that")
        if notes and self.cpu_ratio is not None:
            notes.append(f"counting only CPU time: {units.ratio(self.cpu_ratio)}")
        busy = f"{'the machine is' if local else 'the machines are'} too busy for a quick answer: "
        return (busy if notes and undecided else "") + "; ".join(notes)


def contention(lanes: Iterable[Sequence[SliceSpeed]]) -> Contention:
    """Return the contention of lanes for CPU time."""
    slices = list(lanes)
    loads = [part.load for lane in slices for part in lane if part.load is not None]

    def mean(values: Sequence[tuple[float | None, int]], unknown: Missing) -> Reading:
        known = [(value, weight) for value, weight in values if value is not None]
        if known:
            return sum(value for value, _ in known) / max(1, sum(weight for _, weight in known))
        return unknown if loads else NO_SLICES

    share = mean([(load.contended, 1) for load in loads], NO_DELAYS)
    stolen = mean([(load.stolen_ns, load.span_ns) for load in loads], NO_STOLEN)
    others_cores = mean([(load.others_ns, load.span_ns) for load in loads], NO_DELAYS)
    notable = max(known(share) or 0.0, known(stolen) or 0.0) > REPORTED_SHARE
    ratio = cpu_ratio(slices[0], slices[-1]) if notable and len(slices) > 1 else None
    return Contention(share, stolen, ratio, others_cores)


def cpu_ratio(first: Sequence[SliceSpeed], second: Sequence[SliceSpeed]) -> float | None:
    """Return the ratio of CPU times per example, if both lanes are CPU-bound with similar cores."""
    loads = [{part.round: part.load for part in lane if part.load is not None} for lane in (first, second)]
    cores, costs = [], []
    for by_round in loads:
        busy_ns = sum(load.cpu_ns + (load.delay_ns or 0) for load in by_round.values())
        cores.append(busy_ns / max(1, sum(load.span_ns for load in by_round.values())))
        known_loads = {number: load for number, load in by_round.items() if load.examples * load.cpu_ns}
        costs.append({number: math.log(load.cpu_ns / load.examples) for number, load in known_loads.items()})
    if min(cores) < BUSY_CORES or max(cores) > ALIKE_CORES * min(cores):
        return None
    result = trimmed([costs[1][number] - cost for number, cost in costs[0].items() if number in costs[1]])
    return None if result is None else math.exp(result.value)

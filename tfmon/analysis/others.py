"""Use of the CPU and the GPUs by others. It is reported, never corrected.

The CPU time per example hardly changes, so it is shown if both lanes are CPU-bound.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.analysis.intervals import trimmed
from tfmon.model.gpu_others import Taken, process_text
from tfmon.model.gpu_samples import GpuProcesses, GpuSample, ProcessName
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import NO_STOLEN, Missing, Reading, known
from tfmon.model.session import Snapshot
from tfmon.model.windows import SliceSpeed


@dataclass(frozen=True, slots=True)
class GpuOthers:
    """Use of one lane's GPU by others."""

    place: str
    share_pct: float
    """Mean share while it was notable."""
    time_share: float
    """Share of the notable time."""
    processes: int
    first: ProcessName | None

    @property
    def shown(self) -> bool:
        """Whether it is large enough to report."""
        return self.time_share > TOLD

    @property
    def text(self) -> str:
        """Such as "another process took 40 % of gpu:0 during 30 % of the time (ana: python train.py)"."""
        who = "another process" if self.processes == 1 else f"up to {self.processes} other processes"
        named = f" ({'' if self.processes == 1 else 'the most: '}{process_text(self.first)})" if self.first else ""
        took, when = f"{self.share_pct:.0f} % of {self.place}", f"{100 * self.time_share:.0f} % of the time"
        return f"{who} took {took} during {when}{named}"

    @property
    def short(self) -> str:
        """Such as "others took 40 % of gpu:0"."""
        return f"others took {self.share_pct:.0f} % of {self.place}"


def gpu_others(lane: LaneState, index: int | None = None) -> GpuOthers | None:
    """Return the use by others of a lane's most used GPU: the lane waits for it."""
    result = [
        _of_gpu(lane, at, readings) for at, readings in sorted(lane.gpu_use.taken.items()) if index in (None, at)
    ]
    return max(result, key=lambda one: one.time_share * one.share_pct, default=None)


def windows_with_others(lane: LaneState, index: int) -> int:
    """Return how many recent windows others disturbed."""
    taken = [one for one in lane.gpu_use.taken.get(index, ()) if one.counts]
    until_ns = [one.until_ns for one in taken]
    after = (bisect_right(until_ns, point.since_ns) for point in lane.points)
    return sum(
        place < len(taken) and taken[place].since_ns < one.at_ns
        for place, one in zip(after, lane.points, strict=True)
    )


def _of_gpu(lane: LaneState, index: int, readings: Sequence[Taken]) -> GpuOthers:
    counted = [reading for reading in readings if reading.counts]
    span_ns = sum(_span_ns(reading) for reading in readings)
    hit_ns = sum(_span_ns(one) for one in counted)
    weighted = sum(_span_ns(one) * one.pct for one in counted)
    most = max(counted, key=lambda one: one.pct, default=None)
    return GpuOthers(
        lane.spec.place_of(index),
        weighted / hit_ns if hit_ns else 0.0,
        hit_ns / span_ns if span_ns else 0.0,
        max((one.processes for one in counted), default=0),
        most.first if most is not None else None,
    )


def others_notes(snapshot: Snapshot) -> list[str]:
    """Return a line for each GPU that others used."""
    notable = [one for lane in snapshot.lanes if (one := gpu_others(lane)) is not None and one.shown]
    longest = {one.place: one for one in sorted(notable, key=lambda one: one.time_share)}
    return [
        f"{longest[place].text}; the figures include that" for place in dict.fromkeys(one.place for one in notable)
    ]


def _span_ns(one: Taken) -> int:
    return max(0, one.until_ns - one.since_ns)


IDLE_PCT = 10.0
LOAD_STEP_PCT = 5.0
CROWDED = 0.1
"""A GPU with less free memory comes last."""
UNTOLD_BYTES = 2**30
"""More used memory belongs to an unlisted process."""


def ranked(samples: Iterable[GpuSample]) -> list[GpuSample]:
    """Return GPUs by idleness."""
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
    untold = max(UNTOLD_BYTES, (total or 0.0) / 20)
    nobodys = used is None or memory.unified or used <= untold
    return nobodys and (busy or 0.0) < IDLE_PCT and not sample.processes.of_others()


def why(chosen: Sequence[GpuSample], of: int) -> str:
    """Return such as "the idlest of 8 GPUs: no process, 0 % busy, 79 GiB free"."""
    if len(chosen) == 1:
        return f"the idlest of {of} GPUs: {state(chosen[0])}"
    said = "; ".join(f"gpu:{one.index} {state(one)}" for one in chosen)
    return f"the {len(chosen)} idlest of {of} GPUs: {said}"


def state(sample: GpuSample, *, named: bool = False) -> str:
    """Return a GPU's processes, load and free memory."""
    busy, free = known(sample.load.busy_pct), sample.memory.free_bytes
    if busy is None and free is None:
        return units.reading(sample.load.busy_pct, units.percent)
    said = [_who(sample.processes, named=named)]
    if busy is not None:
        said.append(f"{units.percent(busy)} busy")
    if free is not None:
        said.append(f"{units.memory(free)} free")
    return ", ".join(said)


def _who(on_it: GpuProcesses, *, named: bool) -> str:
    pids = on_it.of_others()
    if not pids:
        return "processes not listed" if on_it.no_list_reason else "no process"
    users = sorted({name.user for pid in pids if (name := on_it.names.get(pid)) and name.user})
    of = f" of {', '.join(users[:3])}{' and others' if len(users) > 3 else ''}" if users and named else ""
    return f"{len(pids)} process{'es' if len(pids) > 1 else ''}{of}"


NO_DELAYS = Missing("this system does not report how long threads wait for a core")
NO_SLICES = Missing("no slice was measured")
TOLD = 0.05
"""From this share on, the verdict reports it."""
BUSY_CORES = 0.8
"""Such a lane is CPU-bound."""
ALIKE_CORES = 1.5
"""Maximum ratio of busy cores for CPU times."""


@dataclass(frozen=True, slots=True)
class Contention:
    """Use of CPU time by others."""

    slices_share: Reading
    """See `SliceLoad.contended`."""
    stolen_share: Reading
    """Of one core, for other machines."""
    cpu_ratio: float | None = None
    """Second lane's CPU time per example over the first's."""
    others_cores: Reading = NO_SLICES
    """Mean cores of other programs."""

    def text(self, *, undecided: bool = False, own: bool = True) -> str:
        """Return one line, or "" for little use."""
        notes = []
        if not isinstance(self.slices_share, Missing) and self.slices_share > TOLD:
            notes.append(f"other programs took CPU time during {100 * self.slices_share:.0f} % of the slices")
        if not isinstance(self.stolen_share, Missing) and self.stolen_share > TOLD:
            which = "this virtual machine loses" if own else "the virtual machines lose"
            lost = f"{which} {100 * self.stolen_share:.0f} % of a core to others"
            notes.append(f"{lost}; the figures include that")
        if notes and self.cpu_ratio is not None:
            notes.append(f"counting only CPU time: {units.ratio(self.cpu_ratio)}")
        busy = f"{'the machine is' if own else 'the machines are'} too busy for a quick answer: "
        return (busy if notes and undecided else "") + "; ".join(notes)


def contention(lanes: Iterable[Sequence[SliceSpeed]]) -> Contention:
    """Return the contention of lanes for CPU time."""
    slices = list(lanes)
    loads = [one.load for lane in slices for one in lane if one.load is not None]

    def mean(values: Sequence[tuple[float | None, int]], unknown: Missing) -> Reading:
        known = [(value, weight) for value, weight in values if value is not None]
        if known:
            return sum(value for value, _ in known) / max(1, sum(weight for _, weight in known))
        return unknown if loads else NO_SLICES

    share = mean([(load.contended, 1) for load in loads], NO_DELAYS)
    stolen = mean([(load.stolen_ns, load.span_ns) for load in loads], NO_STOLEN)
    others = mean([(load.others_ns, load.span_ns) for load in loads], NO_DELAYS)
    told = any(not isinstance(one, Missing) and one > TOLD for one in (share, stolen))
    ratio = cpu_ratio(slices[0], slices[-1]) if told and len(slices) > 1 else None
    return Contention(share, stolen, ratio, others)


def cpu_ratio(first: Sequence[SliceSpeed], second: Sequence[SliceSpeed]) -> float | None:
    """Return the ratio of CPU times per example, if both lanes are CPU-bound with similar cores."""
    loads = [{one.round: one.load for one in lane if one.load is not None} for lane in (first, second)]
    cores = sorted(
        sum(load.cpu_ns + (load.delay_ns or 0) for load in of_lane.values())
        / max(1, sum(load.span_ns for load in of_lane.values()))
        for of_lane in loads
    )
    if cores[0] < BUSY_CORES or cores[1] > ALIKE_CORES * cores[0]:
        return None
    costs = [
        {
            number: math.log(load.cpu_ns / load.examples)
            for number, load in one.items()
            if load.examples * load.cpu_ns
        }
        for one in loads
    ]
    result = trimmed([costs[1][number] - cost for number, cost in costs[0].items() if number in costs[1]])
    return None if result is None else math.exp(result.value)

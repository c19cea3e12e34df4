"""Other processes on GPUs: what they took of the lanes' while they raced, and which GPU has the fewest. Pure.

What others took is reported, never corrected for: two programs on one GPU share its time, so a lane that shares
trains slower, whatever its model is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.analysis.contention import TOLD
from tfmon.model.gpu_others import Taken, free_bytes, strangers, told
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import GpuSample, ProcessName, known
from tfmon.model.session import Snapshot


@dataclass(frozen=True, slots=True)
class GpuOthers:
    """What others took of one lane's GPU since steady state began."""

    place: str
    """The GPU, such as `gpu:0`."""
    share_pct: float
    """Share of the GPU's time that they took while they took any that counts."""
    slices: int
    """Slices of the lane in which they did; 0 for a lane that trains in none."""
    of_slices: int
    """Slices for which that is known."""
    time_share: float
    """Share of the time in which they did."""
    processes: int
    """How many there were at once, at most."""
    first: ProcessName | None
    """Who took the most; None where that cannot be told."""

    @property
    def shown(self) -> bool:
        """Whether it is enough to be said."""
        share = self.slices / self.of_slices if self.of_slices else self.time_share
        return share > TOLD

    @property
    def text(self) -> str:
        """One line: "another process took 40 % of gpu:0 during 12 of 30 slices (ana: python train.py)"."""
        who = "another process" if self.processes == 1 else f"up to {self.processes} other processes"
        when = (
            f"{self.slices} of {self.of_slices} slices"
            if self.of_slices
            else f"{100 * self.time_share:.0f} % of the time"
        )
        named = f" ({'' if self.processes == 1 else 'the most: '}{told(self.first)})" if self.first else ""
        return f"{who} took {self.share_pct:.0f} % of {self.place} during {when}{named}"

    @property
    def short(self) -> str:
        """The same for a sentence about a lane: "others took 40 % of gpu:0"."""
        return f"others took {self.share_pct:.0f} % of {self.place}"


def gpu_others(lane: LaneState, index: int | None = None) -> GpuOthers | None:
    """Return the use of a lane's GPU by others; None where the driver does not say, and for a lane on the CPU.

    Of several GPUs it is that with `index`, or else the one of which they took the most: its lane waits for it.
    """
    found = [
        _of_gpu(lane, at, readings) for at, readings in sorted(lane.gpu_use.taken.items()) if index in (None, at)
    ]
    return max(found, key=lambda one: one.time_share * one.share_pct, default=None)


def _of_gpu(lane: LaneState, index: int, readings: Sequence[Taken]) -> GpuOthers:
    counted = [one for one in readings if one.counts]
    slices = _slices(lane, readings, any_counts=bool(counted))
    span_ns = sum(_span_ns(one) for one in readings)
    hit_ns = sum(_span_ns(one) for one in counted)
    hit = [share for share in slices if share.counts]
    weighted = sum(_span_ns(one) * one.pct for one in counted)
    most = max(counted, key=lambda one: one.pct, default=None)
    return GpuOthers(
        lane.spec.place_of(index),
        weighted / hit_ns if hit_ns else 0.0,
        len(hit),
        len(slices),
        hit_ns / span_ns if span_ns else 0.0,
        max((one.processes for one in counted), default=0),
        most.first if most is not None else None,
    )


def others_notes(snapshot: Snapshot) -> list[str]:
    """Return a line for each GPU of the lanes that others used, too; that of the lane that lost the most."""
    found: dict[str, GpuOthers] = {}
    for lane in snapshot.lanes:
        one = gpu_others(lane)
        if one is not None and one.shown:
            before = found.get(one.place)
            found[one.place] = one if before is None or one.time_share > before.time_share else before
    return [f"{one.text}; the figures include that" for one in found.values()]


def _slices(lane: LaneState, readings: Sequence[Taken], *, any_counts: bool) -> list[Taken]:
    """Return the use by others in each slice of a lane for which it is known."""
    if not any_counts:
        known = (one for one in lane.slices if one.at_ns > readings[0].since_ns)
        return [Taken(one.at_ns - one.span_ns, one.at_ns, 0.0) for one in known]
    ends = [one.until_ns for one in readings]
    found = (_during(one.at_ns - one.span_ns, one.at_ns, readings, ends) for one in lane.slices)
    return [one for one in found if one is not None]


def _during(since_ns: int, until_ns: int, readings: Sequence[Taken], ends: Sequence[int]) -> Taken | None:
    """Return the use by others over some time, as far as it is known; None where nothing is."""
    total_ns, weighted = 0, 0.0
    for one in readings[bisect_right(ends, since_ns) :]:
        if one.since_ns >= until_ns:
            break
        shared_ns = min(until_ns, one.until_ns) - max(since_ns, one.since_ns)
        if shared_ns > 0:
            total_ns, weighted = total_ns + shared_ns, weighted + shared_ns * one.pct
    return Taken(since_ns, until_ns, weighted / total_ns) if total_ns else None


def _span_ns(one: Taken) -> int:
    return max(0, one.until_ns - one.since_ns)


# ---------------- which GPU of a machine is the idlest, whether one is free, and the words for it

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


def state(sample: GpuSample, *, named: bool = False) -> str:
    """Say how many are on a GPU, with `named` who, how busy it is, and how much memory is free."""
    busy, free = known(sample.busy_pct), free_bytes(sample)
    if busy is None and free is None:
        return units.reading(sample.busy_pct, units.percent)
    said = [_who(sample, named=named)]
    if busy is not None:
        said.append(f"{units.percent(busy)} busy")
    if free is not None:
        said.append(f"{units.memory(free)} free")
    return ", ".join(said)


def _who(sample: GpuSample, *, named: bool) -> str:
    pids = strangers(sample)
    if not pids:
        return "processes not listed" if sample.no_processes_reason else "no process"
    users = sorted({name.user for pid in pids if (name := sample.processes.get(pid)) and name.user})
    of = f" of {', '.join(users[:3])}{' and others' if len(users) > 3 else ''}" if users and named else ""
    return f"{len(pids)} process{'es' if len(pids) > 1 else ''}{of}"

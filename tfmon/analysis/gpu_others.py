"""What other processes took of the lanes' GPUs while they raced: reported, never corrected for. Pure.

Two programs on one GPU share its time, so a lane that shares trains slower, whatever its model is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tfmon.analysis.contention import TOLD
from tfmon.model.gpu_others import Taken, told
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import ProcessName
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

"""What the processes of a lane take of its machine; CPU time counts over the slices that the lane had. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmon.model.readings import NOT_SAMPLED, Missing, Reading, TreeSample
from tfmon.model.records import replace
from tfmon.model.window_sums import Mean

WAITS = Missing("it had no slice since the last sample")
LEAST_NS = 50_000_000
"""CPU time is counted in steps of 10 ms, which would make a shorter slice's share too coarse."""


@dataclass(frozen=True, slots=True)
class SliceClock:
    """The time that a lane spent in slices since a moment: the last sample of its processes, or its last step."""

    sampled_ns: int | None = None
    """When that was; None before the first sample."""
    granted_ns: int | None = None
    """Since when it has its slice, at the earliest since that sample; None while another lane has one."""
    spent_ns: int = 0
    """In slices that are over."""

    def granted(self, at_ns: int, *, own: bool) -> SliceClock:
        """Return the clock after a slice began: of this lane, or of another one or of none."""
        if not own and self.granted_ns is None:
            return self
        return replace(self, granted_ns=at_ns if own else None, spent_ns=self.until(at_ns))

    def sampled(self, at_ns: int) -> SliceClock:
        """Return the clock after a sample."""
        return SliceClock(at_ns, None if self.granted_ns is None else at_ns)

    def in_slices(self, cpu_pct: Reading, at_ns: int) -> Reading:
        """Return CPU per time in slices, given CPU per time since the last sample; `WAITS` for too little."""
        if isinstance(cpu_pct, Missing) or self.sampled_ns is None:
            return cpu_pct
        spent_ns = self.until(at_ns)
        return cpu_pct * (at_ns - self.sampled_ns) / spent_ns if spent_ns >= LEAST_NS else WAITS

    def until(self, at_ns: int) -> int:
        """Return the time in slices, in nanoseconds."""
        return self.spent_ns + (max(0, at_ns - self.granted_ns) if self.granted_ns is not None else 0)


@dataclass(frozen=True, slots=True)
class TreeUse:
    """What a lane's process and all that it started take: at the last sample, and on average while it raced."""

    cpu_pct: Reading = NOT_SAMPLED
    """CPU over the last second; of a lane that trains in slices, while it has them."""
    private_bytes: Reading = NOT_SAMPLED
    """Memory that they share with no other process."""
    peak_private_bytes: Reading = NOT_SAMPLED
    processes: int | None = None
    pids: tuple[int, ...] = ()
    racing_cpu_pct: Mean = field(default_factory=Mean)
    racing_private_bytes: Mean = field(default_factory=Mean)
    """Without the last sample: the process may have been about to exit."""
    clock: SliceClock = field(default_factory=SliceClock)
    """Of the slices since the last sample."""

    def in_slices(self, sample: TreeSample, cores: float) -> TreeSample:
        """Return a sample of a lane that trains in slices, with its CPU per time in these.

        CPU time is counted in ticks, and slices by when they were granted, so it is at most that of all `cores`.
        """
        cpu_pct = self.clock.in_slices(sample.cpu_pct, sample.at_ns)
        if cores and not isinstance(cpu_pct, Missing):
            cpu_pct = min(cpu_pct, 100 * cores)
        return replace(sample, cpu_pct=cpu_pct)

    def plus(self, sample: TreeSample, *, racing: bool) -> TreeUse:
        """Return the use after a sample; while the lane waits for its slice, the last figure of CPU stays."""
        memory = [one for one in (sample.private_bytes, self.peak_private_bytes) if not isinstance(one, Missing)]
        racing_cpu_pct, racing_private_bytes = self.racing_cpu_pct, self.racing_private_bytes
        if racing:
            racing_cpu_pct = racing_cpu_pct.plus(sample.cpu_pct)
            racing_private_bytes = racing_private_bytes.plus(self.private_bytes)
        return TreeUse(
            cpu_pct=self.cpu_pct if sample.cpu_pct == WAITS else sample.cpu_pct,
            private_bytes=sample.private_bytes,
            peak_private_bytes=max(memory, default=NOT_SAMPLED),
            processes=sample.processes,
            pids=sample.pids,
            racing_cpu_pct=racing_cpu_pct,
            racing_private_bytes=racing_private_bytes,
            clock=self.clock.sampled(sample.at_ns),
        )

"""How long a lane trained since a moment: since two samples, for its CPU time, or since its last step. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfmon.model.readings import Missing, Reading
from tfmon.model.records import replace

WAITS = Missing("it had no slice since the last sample")
LEAST_NS = 50_000_000
"""CPU time is counted in steps of 10 ms, which would make a shorter slice's share too coarse."""


@dataclass(frozen=True, slots=True)
class SliceClock:
    """The time that a lane spent in slices since its process tree was sampled last."""

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

"""Counters that only grow, as rates."""

from __future__ import annotations

from tfmon.model.readings import Missing, Reading

FIRST_SAMPLE = Missing("first sample")
TOO_SOON = Missing("sampled again too soon")
BEGAN_ANEW = Missing("the system's counter began anew")
SHORTEST_NS = 100_000_000
"""CPU time comes in ticks of 10 ms; over less than this they would say nothing."""


class Rate:
    """How fast one counter grows, from one sample to the next."""

    def __init__(self) -> None:
        self._before: tuple[float, int] | None = None

    def per_s(self, count: float, at_ns: int, wraps_at: float | None = None) -> Reading:
        """Return the growth a second since the sample before.

        `wraps_at` is the largest count of a counter that then goes on at 0.
        """
        before = self._before
        if before is not None and at_ns - before[1] < SHORTEST_NS:
            return TOO_SOON
        self._before = count, at_ns
        if before is None:
            return FIRST_SAMPLE
        grown = count - before[0]
        if grown < 0:
            if wraps_at is None:
                return BEGAN_ANEW
            grown += wraps_at
        return grown * 1e9 / (at_ns - before[1])

"""Patience with a slow driver: what takes long to read is read less often, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfmon.model.readings import SlowReading
from tfmon.probes.base import Readings

SLOW_NS = 50_000_000
"""Reading something fast takes microseconds; the slowest calls by design, two of them, take 40 ms together."""
LEAST_S, MOST_S = 5.0, 60.0
_SHARE = 0.01
"""At most this share of the time is spent on something slow, as far as `MOST_S` permits."""
_AGAIN_NS = 15_000_000_000
"""A read counts as slow if there was another slow one so short before: one alone may have waited for a core."""


@dataclass(slots=True)
class _Kept:
    value: Readings
    at_ns: int
    took_ns: int

    @property
    def every_s(self) -> float:
        return min(MOST_S, max(LEAST_S, self.took_ns / 1e9 / _SHARE))


class Backoff:
    """Reads what is due and repeats what is not, each reading by its name.

    Thread: the ticker's only.
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._kept: dict[str, _Kept] = {}
        self._slow_at_ns: dict[str, int] = {}

    def read(self, name: str, read: Callable[[], Readings]) -> Readings:
        """Return the readings of a name; those of before while a slow one is not due again."""
        begun_ns, kept = self._clock_ns(), self._kept.get(name)
        if kept is not None and begun_ns - kept.at_ns < kept.every_s * 1e9:
            return kept.value
        value = read()
        took_ns = self._clock_ns() - begun_ns
        if took_ns <= SLOW_NS:
            self._kept.pop(name, None)
            return value
        before_ns, self._slow_at_ns[name] = self._slow_at_ns.get(name), begun_ns
        if kept is not None or (before_ns is not None and begun_ns - before_ns <= _AGAIN_NS):
            self._kept[name] = _Kept(value, begun_ns, took_ns)
        return value

    @property
    def slow(self) -> tuple[SlowReading, ...]:
        """What is read less often."""
        return tuple(
            SlowReading(name, one.took_ns / 1e6, one.every_s, one.at_ns) for name, one in self._kept.items()
        )

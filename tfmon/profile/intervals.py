"""Sets of time as sorted lists of intervals that do not touch: united, cut and measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]
Times: TypeAlias = list[Interval]
"""Sorted by beginning, none empty, none touching the next."""


def unite(intervals: Iterable[Interval]) -> Times:
    """Return the time that lies in any of these intervals, which may overlap and come in any order."""
    times: Times = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if times and start <= times[-1][1]:
            if end > times[-1][1]:
                times[-1] = (times[-1][0], end)
        else:
            times.append((start, end))
    return times


def total(times: Times) -> int:
    """Return how long it is."""
    return sum(end - start for start, end in times)


def both(left: Times, right: Times) -> Times:
    """Return the time that lies in the one and in the other."""
    times: Times = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            times.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return times


def without(left: Times, right: Times) -> Times:
    """Return the time that lies in the one and not in the other."""
    times: Times = []
    j = 0
    for begin, end in left:
        start = begin
        while j < len(right) and right[j][1] <= start:
            j += 1
        k = j
        while k < len(right) and right[k][0] < end:
            if right[k][0] > start:
                times.append((start, right[k][0]))
            start = max(start, right[k][1])
            k += 1
        if start < end:
            times.append((start, end))
    return times

"""The step time of a lane as a series of blocks, and when it changes.

After each block of half a second, the series is split in two where the statistic of Wilcoxon's rank-sum test is
largest. The speed has changed there if

- the median of the later blocks is above 95 % of the earlier blocks, by a margin that becomes smaller the longer
  the difference lasts: a factor of 1.22 after 20 blocks, and of 1.04 from 100 blocks on;
- chance does not explain the ranks that are left after the margin is taken off the later blocks. If blocks are
  exchangeable, the number of early blocks among the slowest is hypergeometric. Its tail must be below
  `CHANCE / n**2` after n blocks, so that the sum over all looks stays below 2 `CHANCE`.

Both the mean and the median step time are tested: other programs hardly change the median.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfmon.model.histogram import add, quantile_ns
from tfmon.model.lane_events import Window
from tfmon.model.state_part import StatePart

BLOCK_NS = 500_000_000
MARGIN, LEAST_MARGIN = 4.0, 0.04
"""Logarithm: the first over the number of later blocks, at least the second."""
SCATTER = 0.95
CHANCE = 0.01
LEAST_SIDE, LEAST_BLOCKS = 5, 19
"""Least blocks beside a slowdown, and before a lane can become faster or be steady."""
MOST_BLOCKS, THINNED, MOST_KEPT = 368, 128, 32
"""Blocks of the present level; then half of the oldest are left out. Blocks of a finished level."""
MOST_LEVELS, MOST_NOTES = 8, 16
LATE_NS = 1_500_000_000
"""For late readings of disturbances."""


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """A steady window with its last step, and other readings of that time."""

    window: Window
    step: int
    readings: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Consecutive steady windows."""

    since_ns: int
    span_ns: int
    steps: int
    step: int
    """The first one."""
    input_ns: int
    median_ns: float
    readings: Mapping[str, float]

    @property
    def logs(self) -> tuple[float, float]:
        """Of mean and median step time in nanoseconds."""
        return math.log(self.span_ns / self.steps), math.log(self.median_ns)


@dataclass(frozen=True, slots=True)
class Level:
    """Blocks between two changes."""

    since_ns: int
    step: int
    blocks: tuple[StepBlock, ...]


@dataclass
class SpeedWatch(StatePart):
    """The speed since the last change."""

    blocks: tuple[StepBlock, ...] = ()
    """Of the present level, oldest first."""
    thinned: int = 0
    """The first blocks, of which others were left out."""
    count: int = 0
    """All blocks of the present level."""
    levels: tuple[Level, ...] = ()
    """Finished ones, oldest first."""
    since_ns: int = 0
    step: int = 0
    """Start of the present level."""
    pending: tuple[SteadyWindow, ...] = ()
    """Of the next blocks."""
    readings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[tuple[int, str], ...] = ()
    """Other activities of the lane."""

    def add(self, window: Window, step: int) -> None:
        """Add a steady window with the last step `step`."""
        if not window.steps:
            return
        self.pending = (*self.pending, SteadyWindow(window, step, self.readings))
        ripe = [one for one in self.pending if one.window.at_ns < window.at_ns - LATE_NS]
        for count, span_ns in enumerate(itertools.accumulate(one.window.span_ns for one in ripe), 1):
            if span_ns >= BLOCK_NS:
                self.pending = self.pending[count:]
                self._add_block(_block_of(ripe[:count]))
                break

    def _add_block(self, block: StepBlock) -> None:
        self.blocks, self.count = (*self.blocks, block), self.count + 1
        if len(self.blocks) > MOST_BLOCKS:
            kept = self.blocks[:THINNED:2]
            self.blocks, self.thinned = (*kept, *self.blocks[THINNED:]), len(kept)
        for which in (0, 1):
            place = _changed_at([one.logs[which] for one in self.blocks], self.thinned, self.count)
            if place is not None:
                before, after = self.blocks[:place], self.blocks[place:]
                level = Level(self.since_ns, self.step, before[:: 1 + len(before) // MOST_KEPT])
                self.levels = (*self.levels[1 - MOST_LEVELS :], level)
                self.blocks, self.thinned, self.count = after, 0, len(after)
                self.since_ns, self.step = after[0].since_ns, after[0].step
                return

    def discard(self, since_ns: int, until_ns: int) -> None:
        """Discard windows in a disturbance, known after they ended."""
        self.pending = tuple(
            one
            for one in self.pending
            if one.window.at_ns <= since_ns or one.window.at_ns - one.window.span_ns >= until_ns
        )

    def note(self, at_ns: int, text: str) -> None:
        """Note another activity."""
        self.notes = (*self.notes[1 - MOST_NOTES :], (at_ns, text))

    def read(self, **readings: float | None) -> None:
        """Store readings."""
        self.readings = {**self.readings, **{name: one for name, one in readings.items() if one is not None}}


def _block_of(steady: Sequence[SteadyWindow]) -> StepBlock:
    windows = [one.window for one in steady]
    span_ns, steps = sum(one.span_ns for one in windows), sum(one.steps for one in windows)
    return StepBlock(
        since_ns=windows[0].at_ns - windows[0].span_ns,
        span_ns=span_ns,
        steps=steps,
        step=steady[0].step - windows[0].steps + 1,
        input_ns=sum(one.input_ns for one in windows),
        median_ns=quantile_ns(functools.reduce(add, (one.histogram for one in windows)), 0.5) or span_ns / steps,
        readings=steady[-1].readings,
    )


def _changed_at(times: Sequence[float], earliest: int, looks: int) -> int | None:
    """Return the index of the first block at another speed; `times` are logarithms, oldest first."""
    count, difference = len(times), 0
    if count < 2 * LEAST_SIDE:
        return None
    differences = [0]
    ordered = sorted(times)
    for time in times:  # slower blocks less faster ones
        difference += count - bisect_right(ordered, time) - bisect_left(ordered, time)
        differences.append(difference)
    first = max(
        range(max(earliest, 1), count), key=lambda place: differences[place] ** 2 / (place * (count - place))
    )
    sign = 1 if differences[first] > 0 else -1
    if not (LEAST_SIDE if sign > 0 else LEAST_BLOCKS) <= first <= count - LEAST_SIDE:
        return None
    margin = max(LEAST_MARGIN, MARGIN / (count - first))
    before, after = [sign * one for one in times[:first]], [sign * one - margin for one in times[first:]]
    # The module statistics is not used: a script's lane loads this, and the script may have one of that name.
    if sorted(after)[(len(after) - 1) // 2] <= sorted(before)[int(SCATTER * first)]:
        return None
    limit = sorted([*before, *after])[first - 1]
    slow = sum(one > limit for one in before)
    ways = sum(math.comb(first, one) * math.comb(len(after), one) for one in range(slow + 1))
    return first if ways / math.comb(count, first) < CHANCE / looks**2 else None

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

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
MOST_RECENT, MOST_KNOWN, MOST_KEPT = 240, 128, 32
"""Recent blocks, a sample of earlier ones, and blocks of a finished level."""
MOST_LEVELS, MOST_NOTES = 8, 16
LATE_NS = 1_500_000_000
"""For late readings of disturbances."""


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Consecutive steady windows."""

    since_ns: int
    at_ns: int
    span_ns: int
    steps: int
    step: int
    input_ns: int = 0
    median_ns: float = 0.0
    """0 while the block is open."""
    histogram: Mapping[int, int] = field(default_factory=dict)
    """While the block is open."""
    readings: Mapping[str, float] = field(default_factory=dict)

    @property
    def logs(self) -> tuple[float, float]:
        """Of mean and median step time in nanoseconds."""
        return math.log(self.mean_ns), math.log(self.median_ns)

    @property
    def mean_ns(self) -> float:
        """The mean step time."""
        return self.span_ns / self.steps

    @property
    def closed(self) -> StepBlock:
        """Return the block with only its median."""
        median_ns = quantile_ns(self.histogram, 0.5) or self.mean_ns
        return replace(self, median_ns=median_ns, histogram={})

    def joined(self, later: StepBlock) -> StepBlock:
        """Return both blocks as one."""
        span_ns, steps = self.span_ns + later.span_ns, self.steps + later.steps
        input_ns, times = self.input_ns + later.input_ns, add(self.histogram, later.histogram)
        return StepBlock(
            self.since_ns, later.at_ns, span_ns, steps, self.step, input_ns, 0.0, times, later.readings
        )


@dataclass(frozen=True, slots=True)
class Level:
    """Blocks between two changes."""

    since_ns: int
    step: int
    blocks: tuple[StepBlock, ...]


@dataclass
class SpeedWatch(StatePart):
    """The speed since the last change."""

    known: tuple[StepBlock, ...] = ()
    recent: tuple[StepBlock, ...] = ()
    every: int = 1
    count: int = 0
    """Blocks of the present level."""
    open: StepBlock | None = None
    levels: tuple[Level, ...] = ()
    """Finished ones, oldest first."""
    since_ns: int = 0
    step: int = 0
    """Start of the present level."""
    late: tuple[StepBlock, ...] = ()
    readings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[tuple[int, str], ...] = ()
    """Other activities of the lane."""

    @property
    def blocks(self) -> tuple[StepBlock, ...]:
        """Blocks of the present level, oldest first."""
        return (*self.known, *self.recent)

    def add(self, window: Window, step: int) -> None:
        """Add a steady window with the last step `step`."""
        if not window.steps:
            return
        since_ns, first = window.at_ns - window.span_ns, step - window.steps + 1
        times = since_ns, window.at_ns, window.span_ns
        block = StepBlock(*times, window.steps, first, window.input_ns, 0.0, window.histogram, self.readings)
        self.late = (*self.late, block)
        while len(self.late) > 1 and self.late[0].at_ns < window.at_ns - LATE_NS:
            oldest, self.late = self.late[0], self.late[1:]
            self._add_block(oldest if self.open is None else self.open.joined(oldest))

    def _add_block(self, block: StepBlock) -> None:
        if block.span_ns < BLOCK_NS:
            self.open = block
            return
        self.open, self.recent, self.count = None, (*self.recent, block.closed), self.count + 1
        if len(self.recent) > MOST_RECENT:
            if not self.count % self.every:
                self.known = (*self.known, self.recent[0])
            self.recent = self.recent[1:]
        if len(self.known) > MOST_KNOWN:
            self.known, self.every = self.known[::2], 2 * self.every
        places = [
            _changed_at([one.logs[which] for one in self.blocks], len(self.known), self.count) for which in (0, 1)
        ]
        place = next((place for place in places if place is not None), None)
        if place is not None:
            self._begin_level(place)

    def _begin_level(self, place: int) -> None:
        before, after = self.blocks[:place], self.blocks[place:]
        level = Level(self.since_ns, self.step, before[:: 1 + len(before) // MOST_KEPT])
        self.levels = (*self.levels[1 - MOST_LEVELS :], level)
        self.known, self.recent, self.every, self.count = (), after, 1, len(after)
        self.since_ns, self.step = after[0].since_ns, after[0].step

    def discard(self, since_ns: int, until_ns: int) -> None:
        """Discard windows in a disturbance, known after they ended."""
        self.late = tuple(one for one in self.late if one.at_ns <= since_ns or one.since_ns >= until_ns)

    def note(self, at_ns: int, text: str) -> None:
        """Note another activity."""
        self.notes = (*self.notes[1 - MOST_NOTES :], (at_ns, text))

    def read(self, **readings: float | None) -> None:
        """Store readings."""
        self.readings = {**self.readings, **{name: one for name, one in readings.items() if one is not None}}


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

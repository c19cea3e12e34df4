"""The step time of a lane as a series of blocks, and changes of the speed.

After each block of half a second, the series is split where the statistic of Wilcoxon's rank-sum test is largest.
The speed has changed there if

- the median of the later blocks is above 95 % of the earlier blocks, by a margin that becomes smaller the longer
  the difference lasts: a factor of 1.22 after 20 blocks, and of 1.04 from 100 blocks on;
- chance does not explain the ranks without that margin. The number of early blocks among the slowest blocks is
  then hypergeometric. Its tail must be below `CHANCE / n**2` after n blocks, so that the sum over all tests stays
  below 2 `CHANCE`.

Both the mean and the median step time are tested: other programs hardly change the median.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import Window, quantile_ns
from tfmon.model.windows import StatePart, add

BLOCK_NS = 500_000_000
MARGIN, LEAST_MARGIN = 4.0, 0.04
"""Logarithms: the first over the number of later blocks, at least the second."""
SCATTER = 0.95
CHANCE = 0.01
LEAST_SIDE, LEAST_BLOCKS = 5, 19
"""Least blocks beside a slowdown, and for a steady state."""
MOST_RECENT, MOST_KNOWN, MOST_KEPT = 240, 128, 32
"""Recent and sampled earlier blocks, and blocks of a finished level."""
MOST_LEVELS, MOST_NOTES = 8, 16
LATE_NS = 1_500_000_000
"""Delay for late readings of disturbances."""


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
    histogram: Mapping[int, int] = field(default_factory=dict)
    readings: Mapping[str, float] = field(default_factory=dict)

    @property
    def logs(self) -> tuple[float, float]:
        """Logarithms of mean and median step time in ns."""
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
    open: StepBlock | None = None
    levels: tuple[Level, ...] = ()
    since_ns: int = 0
    step: int = 0
    late: tuple[StepBlock, ...] = ()
    readings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[tuple[int, str], ...] = ()

    @property
    def blocks(self) -> tuple[StepBlock, ...]:
        """Blocks of the present level, oldest first."""
        return (*self.known, *self.recent)

    def add(self, window: Window, step: int) -> None:
        """Add a steady window that ends with `step`."""
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
        series = zip(*((block.span_ns / block.steps, block.median_ns) for block in self.blocks), strict=True)
        indexes = (_changed_at(times, len(self.known), self.count) for times in series)
        index = next((index for index in indexes if index is not None), None)
        if index is not None:
            self._begin_level(index)

    def _begin_level(self, index: int) -> None:
        before, later = self.blocks[:index], self.blocks[index:]
        level = Level(self.since_ns, self.step, before[:: 1 + len(before) // MOST_KEPT])
        self.levels = (*self.levels[1 - MOST_LEVELS :], level)
        self.known, self.recent, self.every, self.count = (), later, 1, len(later)
        self.since_ns, self.step = later[0].since_ns, later[0].step

    def discard(self, since_ns: int, until_ns: int) -> None:
        """Discard past windows in a disturbance."""
        self.late = tuple(
            change for change in self.late if change.at_ns <= since_ns or change.since_ns >= until_ns
        )

    def note(self, at_ns: int, text: str) -> None:
        """Note another activity of the lane."""
        self.notes = (*self.notes[1 - MOST_NOTES :], (at_ns, text))

    def read(self, **readings: float | None) -> None:
        """Store readings that may explain a change."""
        self.readings = {
            **self.readings,
            **{name: reading for name, reading in readings.items() if reading is not None},
        }


def _changed_at(times: Sequence[float], earliest: int, looks: int) -> int | None:
    """Return the index of the first block at another speed."""
    count = len(times)
    if count < 2 * LEAST_SIDE:
        return None
    ordered = sorted(times)
    slower_from = {time: index for index, time in enumerate(ordered, 1)}
    faster = dict(zip(reversed(ordered), reversed(range(count)), strict=True))
    # Slower blocks minus faster blocks.
    differences = [*accumulate((count - slower_from[time] - faster[time] for time in times), initial=0)]
    least = max(earliest, 1)
    scores = [differences[index] ** 2 / (index * (count - index)) for index in range(least, count)]
    first = least + scores.index(max(scores))
    becomes_slower = differences[first] > 0
    if not (LEAST_SIDE if becomes_slower else LEAST_BLOCKS) <= first <= count - LEAST_SIDE:
        return None
    margin = max(LEAST_MARGIN, MARGIN / (count - first))
    before, later = times[:first], times[first:]
    # `statistics` is not imported: a script that loads this module may have its own module of that name.
    middle = sorted(later, reverse=not becomes_slower)[(len(later) - 1) // 2]
    limit = sorted(before, reverse=not becomes_slower)[int(SCATTER * first)]
    change = math.log(middle / limit)
    if (change if becomes_slower else -change) <= margin:
        return None
    sign = 1 if becomes_slower else -1
    before_logs = [sign * math.log(time) for time in before]
    later_logs = [sign * math.log(time) - margin for time in later]
    slowest = sorted([*before_logs, *later_logs])[first - 1]
    slow = sum(time > slowest for time in before_logs)
    ways = sum(math.comb(first, count) * math.comb(len(later), count) for count in range(slow + 1))
    return first if ways / math.comb(count, first) < CHANCE / looks**2 else None

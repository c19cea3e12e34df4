"""The step time of a lane as a series, and when it changes: a sequential test on blocks of steady windows. Pure.

A block holds the windows of half a second, on other scales of more. Its mean step time, and its median, which
other programs hardly move, are ranked among those of the blocks before it. As long as the blocks of a lane are
exchangeable, a rank is uniform, however they are distributed; a bet on high ranks then gains nothing on average.
The gains of a bet since the best moment to begin it are an e-detector (CUSUM): in N blocks it exceeds `LIMIT`
with a probability of N / `LIMIT` at most. A margin is taken off each block before it is ranked, so that what
changes less does not count, and blocks that follow each other may be somewhat alike. Memory is bounded: of many
blocks every second one is dropped, and so on from then.

A slowdown before there are enough blocks to rank is found by all splits of the first ones: of exchangeable blocks,
the number of early ones among the slowest is hypergeometric.

Sources: Shin, Ramdas, Rinaldo (2022), arXiv 2203.03532; Vovk et al. (2003), Testing exchangeability on-line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfmon.model.lane_events import Window
from tfmon.model.window_sums import add, quantile_ns

SCALES = ((500_000_000, math.log(1.2)), (4_000_000_000, math.log(1.04)))
"""Length of the blocks in nanoseconds, and the margin: large changes early, small ones later."""
BETS = ((0, 1), (0, -1), (1, 1), (1, -1))
"""Bets that the mean (0) or the median (1) of a block is larger (1) or smaller (-1) than before."""
LIMIT = 1e7
"""Gain of a bet at which the speed has changed: 0.9 and 0.1 false alarms in 50 days of healthy blocks."""
LEAST_BLOCKS = 19
"""Blocks before the first bet: ranks among fewer are useless."""
POWER = 0.3
"""A rank p, as a share, gains POWER * p ** (POWER - 1): 1 on average."""
EARLY_BLOCKS, LEAST_EARLY, EARLY_ERROR = 64, 5, 1e-6
"""Blocks that are split, the least on each side, and the largest probability of a split by chance."""
MOST_BLOCKS, MOST_KEPT = 128, 32
"""Blocks of a scale, and of a finished level."""
MOST_LEVELS, MOST_NOTES = 8, 16
LATE_NS = 1_500_000_000
"""A block counts after this delay, for late readings of disturbances."""


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
    """Median step time. 0 while the block is open."""
    histogram: Mapping[int, int] = field(default_factory=dict)
    """Step times, while the block is open."""
    readings: Mapping[str, float] = field(default_factory=dict)
    """Readings of lane and machine at its end, by name; unknown ones are missing."""

    @property
    def logs(self) -> tuple[float, float]:
        """The logarithms of the mean and the median step time in nanoseconds."""
        return math.log(self.mean_ns), math.log(self.median_ns)

    @property
    def mean_ns(self) -> float:
        """The mean step time."""
        return self.span_ns / self.steps

    @property
    def closed(self) -> StepBlock:
        """Return the block with its median instead of its step times."""
        median_ns = quantile_ns(self.histogram, 0.5) or self.mean_ns
        return replace(self, median_ns=median_ns, histogram={})

    def joined(self, later: StepBlock) -> StepBlock:
        """Return this block and the following one as one."""
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


@dataclass(frozen=True, slots=True)
class Bet:
    """A bet that blocks become slower, or faster."""

    gain: float = 0.0
    """Logarithm of its gain since it began."""
    began: int = 0
    """Number of its first block."""

    def after(self, share: float, number: int) -> Bet:
        """Return the bet after the block of that number, with its rank as a share."""
        gain = self.gain + math.log(POWER) + (POWER - 1) * math.log(share)
        return Bet(gain, self.began) if gain > 0 else Bet(0.0, number + 1)


@dataclass(frozen=True, slots=True)
class BlockScale:
    """The blocks of one length since the last change, and the bets on them."""

    known: tuple[StepBlock, ...] = ()
    """Blocks before a running bet, a uniform sample."""
    every: int = 1
    seen: int = 0
    pending: tuple[StepBlock, ...] = ()
    """The latest blocks, with a running bet."""
    number: int = 0
    bets: tuple[Bet, ...] = (Bet(),) * len(BETS)
    open: StepBlock | None = None

    def plus(self, block: StepBlock, length_ns: int, margin: float) -> BlockScale:
        """Return the scale after some windows."""
        block = block if self.open is None else self.open.joined(block)
        if block.span_ns < length_ns:
            return BlockScale(self.known, self.every, self.seen, self.pending, self.number, self.bets, block)
        block, bets = block.closed, (Bet(0.0, self.number + 1),) * len(BETS)
        if len(self.known) >= LEAST_BLOCKS:
            before = [one.mean_ns for one in self.known], [one.median_ns for one in self.known]
            now = block.mean_ns, block.median_ns
            bets = tuple(
                bet.after(_rank(before[which], now[which] * math.exp(-sign * margin), sign), self.number)
                for bet, (which, sign) in zip(self.bets, BETS, strict=True)
            )
        pending, known, seen, every = (*self.pending, block), self.known, self.seen, self.every
        kept = min(self.number + 1 - min(one.began for one in bets), MOST_BLOCKS)
        for one in pending[: len(pending) - kept]:
            known = known if seen % every else (*known, one)
            seen += 1
            if len(known) >= MOST_BLOCKS:
                known, every = known[::2], 2 * every
        return BlockScale(known, every, seen, pending[len(pending) - kept :], self.number + 1, bets)

    def changed_from(self, margin: float) -> StepBlock | None:
        """Return the first block at another speed. `None` if the speed has not changed."""
        best = max(self.bets, key=lambda one: one.gain)
        if best.gain >= math.log(LIMIT):
            return self.pending[max(0, best.began - (self.number - len(self.pending)))]
        return _slower_from(self.blocks, margin) if self.number <= EARLY_BLOCKS else None

    @property
    def blocks(self) -> tuple[StepBlock, ...]:
        """All kept blocks, oldest first."""
        return (*self.known, *self.pending)

    def since(self, at_ns: int) -> BlockScale:
        """Return the scale with only the blocks since a moment."""
        blocks = tuple(one for one in self.blocks if one.since_ns >= at_ns)
        return BlockScale(blocks, 1, len(blocks), (), len(blocks), (Bet(0.0, len(blocks)),) * len(BETS))


@dataclass(frozen=True, slots=True)
class SpeedWatch:
    """The speed of a lane since its settings last changed, in levels."""

    scales: tuple[BlockScale, ...] = (BlockScale(),) * len(SCALES)
    levels: tuple[Level, ...] = ()
    """Finished levels, oldest first."""
    since_ns: int = 0
    step: int = 0
    """Start of the present level. 0 for the first."""
    late: tuple[StepBlock, ...] = ()
    readings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[tuple[int, str], ...] = ()
    """Other activities of the lane with their times."""

    def plus(self, window: Window, step: int) -> SpeedWatch:
        """Return the watch after a steady window with the last step `step`."""
        if not window.steps:
            return self
        at_ns, span_ns, first = window.at_ns, window.span_ns, step - window.steps + 1
        block = StepBlock(
            at_ns - span_ns,
            at_ns,
            span_ns,
            window.steps,
            first,
            window.input_ns,
            0.0,
            window.histogram,
            self.readings,
        )
        late, watch, scales = (*self.late, block), self, self.scales
        while len(late) > 1 and late[0].at_ns < window.at_ns - LATE_NS:
            oldest, late = late[0], late[1:]
            scales = tuple(one.plus(oldest, *scale) for one, scale in zip(scales, SCALES, strict=True))
            for scale, (_, margin) in zip(scales, SCALES, strict=True):
                if scale.open is None and (began := scale.changed_from(margin)) is not None:
                    watch = watch._changed(scales, scale, began)
                    scales = watch.scales
                    break
        return replace(watch, scales=scales, late=late)

    def _changed(self, scales: tuple[BlockScale, ...], scale: BlockScale, first: StepBlock) -> SpeedWatch:
        """Return the watch at a new level, which begins with a block of one of the scales."""
        before = tuple(one for one in scale.blocks if one.since_ns < first.since_ns)
        level = Level(self.since_ns, self.step, before[:: 1 + len(before) // MOST_KEPT])
        return replace(
            self,
            scales=tuple(one.since(first.since_ns) for one in scales),
            levels=(*self.levels[1 - MOST_LEVELS :], level),
            since_ns=first.since_ns,
            step=first.step,
        )

    def without(self, since_ns: int, until_ns: int) -> SpeedWatch:
        """Return the watch without the windows that overlap a disturbance, known after they ended."""
        late = tuple(one for one in self.late if one.at_ns <= since_ns or one.since_ns >= until_ns)
        return self if len(late) == len(self.late) else replace(self, late=late)

    def noted(self, at_ns: int, text: str) -> SpeedWatch:
        """Return the watch with an activity of the lane besides steps."""
        return replace(self, notes=(*self.notes[1 - MOST_NOTES :], (at_ns, text)))

    def read(self, **readings: float | None) -> SpeedWatch:
        """Return the watch with readings of the lane and its machine. `None` for unknown."""
        known = {**self.readings, **{name: value for name, value in readings.items() if value is not None}}
        return replace(self, readings=known)

    @property
    def blocks(self) -> tuple[StepBlock, ...]:
        """Blocks of the present level, a uniform sample."""
        return self.scales[0].blocks


MOST_SAMPLES = 96


@dataclass(frozen=True, slots=True)
class MemoryCourse:
    """Samples of a quantity over time; when there are too many, every second one is dropped."""

    points: tuple[tuple[int, float], ...] = ()
    every: int = 1
    seen: int = 0
    latest: tuple[int, float] | None = None

    @property
    def latest_ns(self) -> int | None:
        """Time of the latest sample."""
        return self.latest[0] if self.latest is not None else None

    def plus(self, at_ns: int, value: float) -> MemoryCourse:
        """Return the course with one more sample."""
        points, every = self.points, self.every
        if not self.seen % every:
            points = (*points, (at_ns, value))
        if len(points) >= MOST_SAMPLES:
            points, every = points[::2], 2 * every
        return MemoryCourse(points, every, self.seen + 1, (at_ns, value))


def _rank(before: Sequence[float], now: float, sign: int) -> float:
    beyond = [one >= now for one in before] if sign > 0 else [one <= now for one in before]
    return (1 + sum(beyond)) / (1 + len(before))


def _slower_from(blocks: Sequence[StepBlock], margin: float) -> StepBlock | None:
    """Return the first block of a slower speed. `None` if chance explains the difference."""
    best, first = EARLY_ERROR, None
    for times_ns in ([one.mean_ns for one in blocks], [one.median_ns for one in blocks]):
        for early in range(LEAST_EARLY, len(blocks) - LEAST_EARLY + 1):
            if times_ns[early] < times_ns[early - 1] * math.exp(margin / 2):
                continue
            before, after = times_ns[:early], [one * math.exp(-margin) for one in times_ns[early:]]
            limit_ns = sorted([*before, *after])[early - 1]
            slow = sum(one > limit_ns for one in before)
            ways = sum(math.comb(early, one) * math.comb(len(after), one) for one in range(slow + 1))
            chance = ways / math.comb(len(blocks), early)
            best, first = (chance, blocks[early]) if chance < best else (best, first)
    return first

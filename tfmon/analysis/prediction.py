"""How a race's intervals are looked at, and how much longer it takes until there is an answer. Pure.

The scatter so far is taken to go on, and so is the ratio. What two equal processes differ by becomes no narrower
with more pairs of the same processes, so there may be no end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tfmon.analysis.intervals import FEW, Looks
from tfmon.analysis.means import FEWEST, TRIM, UNTRIMMED, WIDEST
from tfmon.analysis.statistics import Between, Comparison
from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.race import Race
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING

SUPPOSED_SCATTER, SUPPOSED_DEGREES = 0.03, 4
"""Standard deviation of a pair that is supposed beside that of few pairs, which may be small by chance: so the
time that is told rather falls than rises."""
MOST_PAIRS = 20_000
"""Some five hours: what takes longer is not predicted."""
Slices = Sequence[Sequence[SliceSpeed]]
"""The slices of every lane that is compared."""


def looks_of(race: Race, slices: Slices, *, over: bool) -> Looks:
    """Return how the intervals of a race are looked at.

    An interval for the end of a race holds only there: while the race goes on (in its replay), or where it was
    interrupted, an always valid one takes its place. A known length is that since the measurement began again.
    """
    choices = max(1, len(slices) - 1)
    if race.interval == FIXED and over and not race.interrupted:
        return Looks(FIXED, choices=choices)
    measured = [lane for lane in slices if lane]
    if race.interval == SPENDING and race.seconds is not None and race.started_ns is not None and measured:
        since_ns = min(lane[0].at_ns - lane[0].span_ns for lane in measured)
        until_ns = race.started_ns + round(race.seconds * 1e9)
        passed_ns = max(lane[-1].at_ns for lane in measured) - since_ns
        return Looks(SPENDING, max(0.0, min(1.0, passed_ns / max(1, until_ns - since_ns))), choices)
    return Looks(ALWAYS_VALID, choices=choices)


def least_rounds(race: Race, *, over: bool = False) -> int:
    """Return after how many rounds there is a first interval; at the end of a known length it comes earlier."""
    return FEWEST if over and race.interval != ALWAYS_VALID and not race.interrupted else FEW


def round_s(slices: Slices) -> float | None:
    """Return how long a round has taken so far, in seconds; None before a lane has trained in two."""
    paces = [
        (lane[-1].at_ns - lane[0].at_ns) / (lane[-1].round - lane[0].round) / 1e9
        for lane in slices
        if lane and lane[-1].round > lane[0].round
    ]
    return sum(paces) / len(paces) if paces else None


def seconds_left(race: Race, slices: Slices, comparison: Comparison, looks: Looks) -> float | None:
    """Return about how many seconds more give an answer, or the width that ends the race.

    None if there is one, or if more time of this race gives none.
    """
    value, margin = abs(comparison.center.value), math.log1p(race.margin)

    def enough(reach: float) -> bool:
        if race.until_ci is not None:
            return math.sinh(min(reach, WIDEST)) <= race.until_ci
        return reach < max(value, margin - value)

    if enough(comparison.reach(looks)):
        return None
    pairs = more_pairs(comparison, looks, enough, fresh=race.fresh)
    lasted_ns = max((lane[-1].at_ns - lane[0].at_ns for lane in slices if lane), default=0)
    return None if pairs is None else pairs * lasted_ns / 1e9 / (comparison.center.count - 1)


def more_pairs(
    comparison: Comparison, looks: Looks, enough: Callable[[float], bool], *, fresh: bool = False
) -> int | None:
    """Return after how many more pairs the comparison is known well enough; None if that never comes.

    Args:
        comparison: What is known so far.
        looks: How it is looked at. What a known length has no time for is taken to get a longer one.
        enough: Whether half an interval is short enough.
        fresh: Whether processes are renewed from time to time.
    """
    count = comparison.center.count

    def known(pairs: int) -> bool:
        return enough(_reach(comparison, looks, pairs, fresh=fresh))

    if not known(MOST_PAIRS):
        return None
    low, high = count, MOST_PAIRS  # It is not known after the lower one.
    while high - low > max(1, low // 50):
        middle = round(math.sqrt(low * high)) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if known(middle) else (middle, high)
    return high - count


def _reach(comparison: Comparison, looks: Looks, pairs: int, *, fresh: bool) -> float:
    """Return half the interval after so many pairs."""
    center, between, longer = comparison.center, comparison.between, pairs / comparison.center.count
    cut = int(TRIM * pairs) if pairs >= UNTRIMMED else 0
    supposed = center.degrees * center.error**2 + SUPPOSED_DEGREES * SUPPOSED_SCATTER**2 / center.count
    error = max(center.error, math.sqrt(supposed / (center.degrees + SUPPOSED_DEGREES)))
    if looks.kind == SPENDING:
        looks = replace(looks, share=min(1.0, looks.share * longer))
    degrees = pairs - 2 * cut - 1 - center.estimated
    within = looks.errors(pairs - center.estimated, degrees) * error / math.sqrt(longer)
    if between is None:
        return within
    if fresh:
        more = between.processes * (longer - 1)
        between = Between(between.sd, round(between.degrees + more, 1), between.processes + more)
    return math.hypot(within, between.reach(looks))

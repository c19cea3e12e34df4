"""How much longer a comparison takes: until it has an answer, or its interval is as narrow as requested. Pure.

The scatter so far is taken to go on, and so is the ratio. What two equal processes differ by becomes no narrower
with more pairs of the same processes, so there may be no end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tfmon.analysis.intervals import Looks
from tfmon.analysis.statistics import TRIM, Between, Comparison
from tfmon.model.readings import SPENDING

MOST_PAIRS = 20_000
"""Some five hours: what takes longer is not predicted."""


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
    low, high = count, MOST_PAIRS  # It is not known after the lower one, or only just.
    while high - low > max(1, low // 50):
        middle = round(math.sqrt(low * high)) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if known(middle) else (middle, high)
    return high - count


def _reach(comparison: Comparison, looks: Looks, pairs: int, *, fresh: bool) -> float:
    """Return half the interval after so many pairs."""
    center, between, longer = comparison.center, comparison.between, pairs / comparison.center.count
    if looks.kind == SPENDING:
        looks = replace(looks, share=min(1.0, looks.share * longer))
    degrees = pairs - 2 * int(TRIM * pairs) - 1 - center.estimated
    within = looks.errors(pairs - center.estimated, degrees) * center.error / math.sqrt(longer)
    if between is None:
        return within
    if fresh:
        more = between.processes * (longer - 1)
        between = Between(between.sd, round(between.degrees + more, 1), between.processes + more)
    return math.hypot(within, between.reach(looks))

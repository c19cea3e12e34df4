"""How far a race is whose length was said: by seconds or by steps. Pure."""

from __future__ import annotations

from tfmon import units
from tfmon.model.session import Snapshot
from tfmon.ui.rows import Row
from tfmon.ui.style import DIM, TEXT

BAR_CELLS = 20


def progress_row(snapshot: Snapshot) -> Row:
    """Return a bar and how much is done; empty before the start, after the end, and where no length is known.

    Of steps, those of the lane that has done the fewest count: the race ends with it.
    """
    race = snapshot.race
    still = [lane for lane in snapshot.lanes if not lane.over]
    if race.started_ns is None or not still:
        return ()
    if race.seconds is not None:
        share = (snapshot.at_ns - race.started_ns) / 1e9 / race.seconds
        words = f"{100 * min(1.0, share):.0f} % of {units.clock(race.seconds)}"
    elif race.steps is not None:
        done = min(lane.steps for lane in still)
        share = done / race.steps
        words = f"{units.count(done)} of {units.count(race.steps)} steps"
    else:
        return ()
    filled = round(BAR_CELLS * max(0.0, min(1.0, share)))
    return (("▓" * filled, TEXT), ("░" * (BAR_CELLS - filled), DIM), (f" {words} ", DIM))

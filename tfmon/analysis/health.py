"""What a lane's own figures say is wrong with its training: it stands still, waits, or its loss is lost. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tfmon import units
from tfmon.model.lane_state import DONE, LaneState
from tfmon.model.window_sums import middle_ns, quantile_ns

LEAST_STILL_S, TIMES_LONGEST = 5.0, 5
"""A lane stands still if a step has run for so long, and for so many times its longest step."""
TIMES_MEDIAN = 10
"""A step waits if it took longer than so many times the median."""
LEAST_SHARE = 0.05
"""Waits are told from this share of the time on."""
LOST_LOSS = "a lower learning rate may help; tf.debugging.enable_check_numerics() names the operation"

ConcernId = Literal["stands_still", "loss_lost", "waits"]


@dataclass(frozen=True, slots=True)
class Concern:
    """What is wrong with the training of a lane; `id` stays the same from version to version."""

    id: ConcernId
    text: str


@dataclass(frozen=True, slots=True)
class Waits:
    """The steps of a lane's steady state that took far longer than the others."""

    steps: int
    """Those that took more than `TIMES_MEDIAN` times the median."""
    share: float
    """Their share of the time of all."""
    longest_s: float
    """The longest step, to within 0.55 %."""


def waits_of(lane: LaneState) -> Waits | None:
    """Return how many steps waited since the lane's knobs last changed; None before the first step."""
    bins = lane.steady.histogram
    median_ns = quantile_ns(bins, 0.5)
    if median_ns is None:
        return None
    times_ns = {middle_ns(one): count for one, count in bins.items()}
    total_ns = sum(time_ns * count for time_ns, count in times_ns.items())
    long = {time_ns: count for time_ns, count in times_ns.items() if time_ns > TIMES_MEDIAN * median_ns}
    share = sum(time_ns * count for time_ns, count in long.items()) / total_ns
    return Waits(sum(long.values()), share, max(times_ns) / 1e9)


def stands_still_s(lane: LaneState, now_ns: int) -> float | None:
    """Return for how long no step of a lane has ended, or had when it was ended; None where that may be right.

    A script that validates, or is between two epochs, may take its time; so may one that has ended by itself.
    """
    if not lane.points or lane.state == DONE or lane.between_steps:
        return None
    runs_s, longest_ns = lane.step_runs_s(now_ns), max(lane.steady.histogram, default=0)
    return runs_s if runs_s >= max(LEAST_STILL_S, TIMES_LONGEST * middle_ns(longest_ns) / 1e9) else None


def concerns(lane: LaneState, now_ns: int) -> tuple[Concern, ...]:
    """Return the concerns of a lane, the worst first."""
    return tuple(_find(lane, waits_of(lane), now_ns))


def _find(lane: LaneState, waits: Waits | None, now_ns: int) -> Iterator[Concern]:
    still_s = stands_still_s(lane, now_ns)
    longest_s = waits.longest_s if waits is not None else 0.0
    if still_s is not None:
        before = f"; the longest before took {units.duration(longest_s)}" if longest_s else ""
        yield Concern("stands_still", f"no step has ended for {units.duration(still_s)}{before}")
    losses = lane.losses
    if losses.last is not None and not math.isfinite(losses.last):
        yield Concern(
            "loss_lost",
            f"the loss is {losses.last}, from step {units.count(losses.lost)} on at the latest; {LOST_LOSS}",
        )
    if waits is not None and waits.share >= LEAST_SHARE:
        steps = units.several(waits.steps, "step")
        yield Concern(
            "waits",
            f"{steps} of {units.count(lane.steady.steps)} took {waits.share:.0%} of the time, more than "
            f"{TIMES_MEDIAN} times the median each and up to {units.duration(waits.longest_s)}",
        )


def trained_text(lane: LaneState, now_ns: int) -> str:
    """Return the steps and throughput of a lane, after its concerns; the error of one that failed."""
    if lane.trouble is not None:
        return f"{lane.title} {lane.phase}: {lane.trouble.message}"
    told = [one.text for one in concerns(lane, now_ns)]
    speed = lane.steady.examples_per_s
    done = f"{units.count(lane.steps)} steps, {units.count(lane.examples)} examples"
    told.append(done if speed is None else f"{done}, {units.rate(speed)} examples/s")
    return f"{lane.title}: {'; '.join(told)}"

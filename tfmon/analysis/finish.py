"""The end of a script's race."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import TypeAlias

from tfmon import units
from tfmon.model.lane_state import DONE, LaneState
from tfmon.model.lane_texts import went_on
from tfmon.model.readings import Estimate
from tfmon.model.series import TUNING
from tfmon.model.session import Snapshot

LEAST_LOSSES = 8
TOO_FAR = 3.0
"""Maximum difference of losses, in units of their scatter."""
ALIKE = 1.1
"""Below this ratio, work is the same. The last batch of an epoch can differ."""
NORMAL = 1.4826
"""Standard deviation over the median absolute deviation."""
Lead: TypeAlias = tuple[str, str, Estimate]
Losses: TypeAlias = Sequence[tuple[int, float]]


def ending_line(snapshot: Snapshot) -> str:
    """Return which commands received Ctrl+C, and when they are killed."""
    ending = [(lane.title, end) for lane in snapshot.lanes if (end := lane.end.requested) and not lane.over]
    if not ending:
        return ""
    left_s = max(end.at_ns / 1e9 + end.grace_s for _, end in ending)
    names = " and ".join(title for title, _ in ending)
    return f"{names} got Ctrl+C; killed in {max(0.0, left_s - snapshot.at_ns / 1e9):.0f} s"


def seconds_left(lane: LaneState) -> float | None:
    """Return the remaining seconds of a script's `fit`, if known."""
    progress, pace = lane.script.progress, lane.recent().steps_per_s or lane.steady.steps_per_s
    if progress is None or not progress.batches or not progress.epochs or not pace or progress.doing == "":
        return None
    epochs = max(0, progress.epochs - progress.epoch)
    batches = epochs * progress.batches + max(0, progress.batches - progress.batch)
    beside_ns = (progress.validation_ns + progress.between_ns) / max(1, progress.epochs_done)
    return batches / pace + (epochs + 1) * beside_ns / 1e9


def time_to_finish(snapshot: Snapshot, lead: Lead | None, *, brief: bool) -> str:
    """Return which lane did the same work sooner, if known."""
    text = _times(snapshot.lanes, lead, brief=brief) if _ended(snapshot) else ""
    changed = {change.lane for period in snapshot.periods for change in period.changes}
    series = [period.experiment for period in snapshot.periods]
    changed |= {state.lane for state in series if state is not None and state.plan.policy == TUNING}
    ids = " and ".join(lane.spec.id for lane in snapshot.lanes if lane.spec.name in changed)
    return f"{text}; settings of {ids} changed during the run" if text and ids else text


def _ended(snapshot: Snapshot) -> bool:
    lanes = snapshot.lanes
    return len(lanes) > 1 and all(lane.phase == DONE and lane.script.command for lane in lanes)


def ended_itself(lanes: Sequence[LaneState]) -> bool:
    """Return whether a script's lanes ended on their own."""
    return all(lane.script.command and lane.end.requested is None for lane in lanes)


def went_on_notes(lanes: Sequence[LaneState]) -> tuple[str, ...]:
    """Return notes on lanes that continued from a checkpoint."""
    restored = {went_on(lane) for lane in lanes}
    other = ": it did different work from the other lanes" if len(restored) > 1 else ""
    return tuple(f"{lane.title} {went_on(lane)}{other}" for lane in lanes if went_on(lane))


def _times(lanes: Sequence[LaneState], lead: Lead | None, *, brief: bool) -> str:
    if len({went_on(lane) for lane in lanes}) > 1:
        return "" if brief else "no time to finish: the lanes did different work"
    epochs = {lane.script.progress.epochs_done if lane.script.progress is not None else 0 for lane in lanes}
    noun = "examples" if all(lane.totals.examples for lane in lanes) else "steps"
    amounts = [lane.totals.examples if noun == "examples" else lane.totals.steps for lane in lanes]
    if not any(amounts):
        return ""
    if max(amounts) > ALIKE * min(amounts):
        each = ", ".join(f"{lane.title} {units.count(done)}" for lane, done in zip(lanes, amounts, strict=True))
        return "" if brief else f"no time to finish: the lanes trained different numbers of {noun} ({each})"
    work = units.several(done, "epoch") if len(epochs) == 1 and (done := epochs.pop()) else ""
    work = work or f"{units.count(max(amounts))} {noun}"
    first, *_, last = sorted(lanes, key=lambda lane: lane.totals.trained_ns)
    times = ", ".join(f"{lane.title} {lane.totals.trained_ns / 1e9:.1f} s" for lane in lanes) + " of training"
    if lead is None or lead[:2] != (first.spec.id, last.spec.id):
        text = "" if brief else f"one run of each cannot tell who finishes the same {work} sooner ({times})"
    else:
        factor, interval = units.ratio_in(lead[2].value, lead[2].low, lead[2].high)
        text = f"{first.title} finished the same {work} sooner than {last.title}"
        text += "" if brief else f": {factor} by its throughput (95 % CI {interval}; {times})"
    if brief:
        return text
    losses = [(lane.title, lane.totals.losses.last) for lane in lanes if lane.totals.losses.last is not None]
    ends = ", ".join(f"{title} {units.loss(loss)}" for title, loss in losses)
    return text + (f"; loss at the end: {ends}" if ends else "")


def loss_warnings(snapshot: Snapshot) -> list[str]:
    """Return warnings about lanes with different losses."""
    result: list[str] = []
    lanes = snapshot.lanes if _ended(snapshot) else ()
    finite = {lane.title: math.isfinite(loss) for lane in lanes if (loss := lane.totals.losses.last) is not None}
    if len({*finite.values()}) > 1:
        lost = " and ".join(title for title, is_finite in finite.items() if not is_finite)
        sound = " and ".join(title for title, is_finite in finite.items() if is_finite)
        result.append(f"the loss of {lost} is no longer finite, and that of {sound} is: they train differently")
    for lane, other in itertools.combinations(lanes, 2):
        scatter = max(loss_scatter(lane.totals.losses.points), loss_scatter(other.totals.losses.points))
        distances = loss_distances(*sorted(map(finite_losses, (lane, other)), key=len))
        difference = statistics.median(map(abs, distances)) if len(distances) >= LEAST_LOSSES else 0.0
        if difference > TOO_FAR * scatter and _comparable(lane, other):
            result.append(
                f"losses of {lane.title} and {other.title} at the same step differ by {units.loss(difference)}, "
                f"and within a lane they scatter by {units.loss(scatter)}: one may train something else"
            )
    return result


def _comparable(lane: LaneState, other: LaneState) -> bool:
    """Without a common seed, only losses that never overlap are a sign."""
    if lane.in_effect.get("batch_size") != other.in_effect.get("batch_size") or went_on(lane) != went_on(other):
        return False
    seeds = {side.script.resolved.get("seed", "none") for side in (lane, other)}
    first, second = ([loss for _, loss in finite_losses(side)] for side in (lane, other))
    seeded = len(seeds) == 1 and "none" not in seeds
    return seeded or (bool(first and second) and (min(first) > max(second) or min(second) > max(first)))


@functools.lru_cache(maxsize=64)
def loss_scatter(points: tuple[tuple[int, float], ...]) -> float:
    """Return the standard deviation of losses around their trend."""
    losses = [loss for _, loss in points if math.isfinite(loss)]
    steps = [later - earlier for earlier, later in itertools.pairwise(losses)]
    if not steps:
        return 0.0
    middle = statistics.median(steps)
    return NORMAL * statistics.median(abs(step - middle) for step in steps) / 2**0.5


def loss_distances(few: Losses, many: Losses) -> list[float]:
    """Return how far losses are outside the losses around their steps.

    Keras resets the mean in each epoch, so losses between two steps are not interpolated.
    """
    steps, distances = [step for step, _ in many], []
    for step, loss in few:
        if steps and steps[0] <= step <= steps[-1]:
            index = bisect.bisect_left(steps, step)
            first = index if steps[index] == step else index - 1
            around = [loss for _, loss in many[first : index + 1]]
            distances.append(loss - min(max(loss, min(around)), max(around)))
    return distances


def finite_losses(lane: LaneState) -> Losses:
    """Return steps and losses without NaN and infinity."""
    return [(step, loss) for step, loss in lane.totals.losses.points if math.isfinite(loss)]

"""Tuning of a running lane: the next trial, its gain, and whether to keep it.

The lane trains under the old and the new settings in turn. The error of the gain's interval is divided among
all tests and possible changes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace

from tfmon import units
from tfmon.analysis.bottleneck import Bottleneck, find_bottleneck
from tfmon.analysis.causes import Cause, setting_text
from tfmon.analysis.intervals import Looks
from tfmon.analysis.series_layout import settings_text
from tfmon.analysis.statistics import gain
from tfmon.errors import ExperimentError
from tfmon.model.knobs import BATCH_SIZE, MIXED_PRECISION, STEPS_PER_EXECUTION, KnobValue, find
from tfmon.model.lane_events import SEES_BATCHES
from tfmon.model.lane_state import LaneState
from tfmon.model.periods import KnobChange, Period
from tfmon.model.readings import SPENDING, Estimate
from tfmon.model.series import (
    KEPT,
    REFUSED,
    REVERTED,
    STOPPED,
    TUNING,
    UNDONE,
    Attempt,
    Change,
    SeriesPlan,
    SeriesState,
)
from tfmon.model.session import Snapshot

LOOKS = (6, 12, 18)
"""Pairs after which the gain is tested."""
LOOKS_RESTARTING = (6, 12)
"""The same if changes need new processes."""
CLEAR = 0.05
"""Gain or loss that decides before the last test."""
WORTH = 0.01


def advised(snapshot: Snapshot, lane: LaneState, *, everything: bool = False) -> Bottleneck | None:
    """Return the bottleneck, without suggestions tried since the last kept change.

    After a kept change, earlier failures are tried again, but not in the same series if they clearly cost
    throughput.
    """
    result = find_bottleneck(snapshot, lane, everything=everything)
    state = snapshot.tuned
    if result is None or state is None:
        return result
    tried = []
    for attempt in state.present if not state.over else ():
        slower = attempt.gain is not None and attempt.gain.high < 1 - CLEAR
        if attempt.outcome == KEPT or _not_kept(attempt) or slower:
            tried.append(attempt)
    latest = (change for change in reversed(state.changes) if change.of_lane.lane == lane.spec.name)
    tried += itertools.takewhile(lambda attempt: attempt.outcome != KEPT, latest)
    causes = []
    for cause in result.causes:
        trial = next((attempt for attempt in tried if attempt.settings == {cause.knob: cause.value}), None)
        if trial is None or cause.count:
            causes.append(cause if trial is None else replace(cause, effect=attempt_text(trial)))
    return replace(result, causes=tuple(causes))


def plan_tuning(snapshot: Snapshot, name: str, *, everything: bool) -> SeriesState:
    """Return a tuning of a lane. Raises ExperimentError if the lane has ended or no knob helps."""
    lane = next((lane for lane in snapshot.lanes if lane.spec.name == name), None)
    if lane is None:
        raise ExperimentError(f"there is no lane {name} in this race")
    if lane.over:
        raise ExperimentError(f"{lane.title} does not train any more: start it again first")
    result = advised(snapshot, lane, everything=everything)
    if result is not None and not any(cause.can_try for cause in result.causes):
        before = find_bottleneck(snapshot, lane)
        could_try = before is not None and any(cause.can_try for cause in before.causes)
        tried = " that was not tried" if could_try else ""
        if result.causes and not tried:
            raise ExperimentError(f"no knob can help {lane.title} here; Enter shows the code")
        raise ExperimentError(f"no knob{tried} helps {lane.title}: {result.text}")
    attempts = snapshot.tuned.attempts if snapshot.tuned is not None else ()
    return tuning_of(name, attempts, everything=everything)


def find_change(snapshot: Snapshot) -> tuple[tuple[KnobChange, ...], SeriesState | None]:
    """Return the last change in effect, and for a tuning the state without it.

    Undone changes are skipped, so that undo can be repeated. Raises ExperimentError.
    """
    if any(lane.changes.requested for lane in snapshot.lanes):
        raise ExperimentError("a change is not in effect yet: undo it then")
    made: list[tuple[KnobChange, ...]] = []
    for changes in itertools.chain(*map(_changes_in, snapshot.periods)):
        back = {replace(change, before=change.after, after=change.before) for change in changes}
        if made and back == set(made[-1]):
            made.pop()
        else:
            made.append(changes)
    lanes = {lane.spec.name: lane.settings for lane in snapshot.lanes}
    if not made or any(lanes[change.lane].get(change.knob) != change.after for change in made[-1]):
        raise ExperimentError("nothing to undo: no change of this race is in effect")
    state, last = snapshot.tuned, made[-1]
    attempts = list(state.attempts) if state is not None else []
    undone = [at for at, trial in enumerate(attempts) if trial.outcome == KEPT and _changes_of(trial) == last]
    for at in undone:
        attempts[at] = replace(attempts[at], outcome=UNDONE)
    return last, replace(state, attempts=tuple(attempts)) if state is not None and undone else None


def undoes_last(snapshot: Snapshot) -> bool:
    """Return whether the last change can be undone."""
    running = snapshot.experiment is not None and not snapshot.experiment.over
    made = _changes_in(snapshot.periods[-1]) if snapshot.periods and not running else []
    with contextlib.suppress(ExperimentError):
        return bool(made) and find_change(snapshot)[0] == made[-1]
    return False


def _changes_of(attempt: Attempt) -> tuple[KnobChange, ...]:
    change = attempt.of_lane
    return tuple(KnobChange(change.lane, knob, change.before[knob], new) for knob, new in attempt.settings.items())


def _changes_in(period: Period) -> list[tuple[KnobChange, ...]]:
    state = period.experiment
    attempts = state.present if state is not None and state.plan.policy == TUNING else ()
    tuned = [_changes_of(attempt) for attempt in attempts if attempt.outcome in (KEPT, UNDONE)]
    return [period.changes, *tuned] if period.changes else tuned


def tuning_of(lane: str, attempts: Sequence[Attempt] = (), *, everything: bool = False) -> SeriesState:
    """Return a tuning before its start, with earlier attempts."""
    plan = SeriesPlan(TUNING, lanes=(lane,), everything=everything)
    return SeriesState(plan, tuple(attempts), first=len(attempts))


def plan_attempt(
    snapshot: Snapshot, name: str, cause: Cause, bottleneck: str, choices: int = 1, number: int = 0
) -> Attempt:
    """Return the attempt that tries a cause's remedy."""
    lane = snapshot.lane(name)
    assert cause.knob is not None and cause.value is not None
    change = Change(
        lane=name,
        before=dict(lane.settings),
        bottleneck=bottleneck,
        purpose=cause.advice,
        restarts=find(snapshot.race.knobs, cause.knob).kind == "restart",
        choices=choices,
        work=changed_work(lane, cause.knob),
        title=snapshot.called(lane),
    )
    return Attempt(number, "", {cause.knob: cause.value}, change)


def changed_work(lane: LaneState, knob: str) -> str:
    """Return how a knob changes the training, or ""."""
    if not lane.script.command:
        return ""
    if knob == STEPS_PER_EXECUTION.name and SEES_BATCHES in lane.script.step_traits:
        return "callbacks of batches are called once for all steps of a call"
    return {BATCH_SIZE.name: "an epoch has fewer updates", MIXED_PRECISION.name: "losses are less exact"}.get(
        knob, ""
    )


def gain_of(attempt: Attempt) -> Estimate | None:
    """Return the gain so far, 1.38 for 38 %."""
    share = min(1.0, len(attempt.pairs) / _looks_at(attempt)[-1])
    looks = Looks(SPENDING, share, attempt.of_lane.choices)
    return gain(attempt.pairs, looks, one_process=not attempt.of_lane.restarts)


def _looks_at(attempt: Attempt) -> tuple[int, ...]:
    return LOOKS_RESTARTING if attempt.of_lane.restarts else LOOKS


def decide(attempt: Attempt) -> str:
    """Return `kept` or `reverted`, or "" to continue."""
    looks = _looks_at(attempt)
    pairs, result = len(attempt.pairs), gain_of(attempt)
    last = pairs >= looks[-1]
    if pairs < looks[0]:
        return ""
    if result is None:
        return REVERTED if last else ""
    if result.high < 1 + WORTH:
        return REVERTED
    if result.low > 1 and result.value >= 1 + (WORTH if last else CLEAR):
        return REVERTED if attempt.of_lane.work else KEPT
    useless = pairs > looks[0] and result.low <= 1 and result.value < 1 + CLEAR / 2
    return REVERTED if last or useless else ""


def best_of(state: SeriesState) -> tuple[dict[str, KnobValue], Estimate | None]:
    """Return the kept settings of a tuning, and the gain of all together, if measured."""
    kept = [attempt for attempt in state.present if attempt.outcome == KEPT]
    settings = {knob: value for attempt in kept for knob, value in attempt.settings.items()}
    whole = kept[0] if len(kept) == 1 else state.whole
    if whole is None or whole.outcome != KEPT or {**whole.of_lane.before, **settings} != whole.settings_after:
        return settings, None
    return settings, whole.gain


WIDE = 2.0


def news(snapshot: Snapshot) -> str:
    """Return the present trial, or the last change's result."""
    state = snapshot.tuned
    if state is None or snapshot.experiment is not state:
        return ""
    lane = next((lane for lane in snapshot.lanes if lane.spec.name == state.lane), None)
    if lane is None:
        return ""
    attempt = state.latest
    lead = f"{lane.spec.id}: " if len(snapshot.lanes) > 1 else ""
    if attempt is None:
        return f"{lead}{state.ended}" if state.over else f"{lead}measuring what limits it"
    settings = attempt.settings_after if attempt.outcome == KEPT else attempt.of_lane.before
    in_effect = all(lane.settings.get(knob) == settings[knob] for knob in attempt.settings)
    if state.over and not (in_effect and lane.spec.name == attempt.of_lane.lane):
        return ""
    if attempt is state.whole:
        return f"{lead}{settings_text(best_of(state)[0])} against the start: {_measured_text(attempt)}"
    return f"{lead}{attempt_text(attempt)}"


def change_text(attempt: Attempt) -> str:
    """Return text such as "prefetch auto"."""
    return " · ".join(setting_text(knob, value) for knob, value in attempt.settings.items())


def gain_text(estimate: Estimate) -> str:
    """Return text such as "+38 % (CI 31 to 44)"."""
    gain, interval = gain_texts(estimate)
    return f"{gain} (CI {interval})"


def gain_texts(estimate: Estimate) -> tuple[str, str]:
    """Return the texts of a gain and its interval."""
    if estimate.value >= 2 or 0 < estimate.value < 0.5:
        slower = " slower" if estimate.value < 1 else ""
        ratio = estimate.inverse if slower else estimate
        factor, interval = units.ratio_in(ratio.value, ratio.low, ratio.high)
        return f"{factor}{slower}", interval
    digits = 0 if (estimate.high - estimate.low) > 0.02 else 1
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (f"{100 * (factor - 1):+.{digits}f}" for factor in ends)
    return f"{value} %", f"{low} to {high}"


def outcome_text(attempt: Attempt) -> str:
    """Return the outcome, with the reason of a refusal."""
    if attempt.outcome == REFUSED:
        return f"not possible: {attempt.refused}"
    return _not_kept(attempt) or attempt.outcome or "in progress"


def _not_kept(attempt: Attempt) -> str:
    gains = attempt.outcome == REVERTED and attempt.gain is not None and attempt.gain.low > 1
    return f"not kept: {attempt.of_lane.work}" if gains and attempt.of_lane.work else ""


def attempt_text(attempt: Attempt) -> str:
    """Return a trial or the result as text."""
    change, gain = change_text(attempt), attempt.gain
    if attempt.outcome == "":
        return f"trying {change}: {_measured_text(attempt)}"
    if attempt.outcome == REFUSED:
        return f"{change} is not possible: {attempt.refused}"
    if attempt.outcome == STOPPED:
        so_far = f"{gain_text(gain)} so far, " if gain is not None else ""
        return f"{change}: {so_far}stopped before it was known"
    measured = gain_text(gain) if gain is not None else "too little could be measured"
    unclear = attempt.outcome == REVERTED and gain is not None and not gain.clear_of(1)
    outcome = "no clear gain, reverted" if unclear else _not_kept(attempt) or attempt.outcome
    return f"{change}: {measured}, {outcome}"


def _measured_text(attempt: Attempt) -> str:
    if attempt.outcome:
        return gain_text(attempt.gain) if attempt.gain is not None else attempt.refused or attempt.outcome
    result, pairs = gain_of(attempt), len(attempt.pairs)
    so_far = f", {gain_text(result)} so far" if result is not None else ""
    if result is not None and result.high > WIDE * result.low:
        so_far = ", too early to say"
    looks = _looks_at(attempt)
    next_look = next((look for look in looks if look > pairs), looks[-1])
    return f"{pairs} of {next_look} pairs{so_far}"


def answer_text(state: SeriesState) -> str:
    """Return the final settings and their gain."""
    (settings, speed_up), yet = best_of(state), "" if state.over else " yet"
    undone = [f"{change_text(attempt)} was undone" for attempt in state.present if attempt.outcome == UNDONE]
    not_kept = [attempt_text(attempt) for attempt in state.present if _not_kept(attempt)]
    label = "best so far" if not state.over else "best of what was tried" if state.ended else "best"
    if not state.present:
        result = f"nothing was tried{yet}"
    elif settings:
        gained = f": {gain_text(speed_up)} in all" if speed_up is not None else ""
        result = f"{label}: {settings_text(settings)}{gained}"
    elif undone or measured(state):
        result = "the settings it began with" if undone else f"{label}: the settings it began with"
    else:
        result = "no change was measured to the end" if state.over else "no change is measured yet"
    return "; ".join([result, *undone, *not_kept])


def measured(state: SeriesState) -> bool:
    """Return whether any change was decided."""
    decided = (attempt.gain for attempt in state.present if attempt.outcome in (KEPT, REVERTED, UNDONE))
    return any(gain is not None for gain in decided)

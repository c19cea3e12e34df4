"""The history of a race: each change, its effect, and the verdict from then on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tfmon import units
from tfmon.analysis import statistics
from tfmon.analysis.crossover_curve import curve_of
from tfmon.analysis.intervals import FEW, UNTRIMMED, Center, Looks, trimmed_in_time
from tfmon.analysis.result import ChangeResult
from tfmon.analysis.speed_changes import changes_of
from tfmon.analysis.tuning_trials import answer_text, gain_text
from tfmon.analysis.verdict import FASTER, SAME, Verdict, find_verdict
from tfmon.model.lane_state import LaneState
from tfmon.model.periods import Period, in_slices
from tfmon.model.race import Race
from tfmon.model.readings import ALWAYS_VALID, TOO_WIDE, Estimate
from tfmon.model.series import CROSSOVER
from tfmon.model.session import Snapshot
from tfmon.model.windows import concurrent_slices

LARGE = 2.0
"""From this factor on, two slices suffice."""
LOOKS = Looks(ALWAYS_VALID)


@dataclass(frozen=True, slots=True)
class MeasuredPeriod:
    """The outcome of one period."""

    period: Period | None
    verdict: Verdict
    centers: Mapping[str, Center | None]


def effect_text(effect: Estimate | None, before: float | None, after: float | None, *, early: bool) -> str:
    """Return the effect, or why it is missing. `early`: it will become clearer."""
    if effect is not None and effect.is_narrow:
        return gain_text(effect)
    if before is None and after is not None:
        return "not measured before"
    if effect is not None and not early:
        return "scatters too much to say"
    return "too early to say" if early else "measured too briefly"


def _row(
    at_s: float,
    change: str,
    lane_id: str | None = None,
    before: float | None = None,
    after: float | None = None,
    effect: Estimate | None = None,
    *,
    early: bool = False,
) -> ChangeResult:
    text = effect_text(effect, before, after, early=early)
    return ChangeResult(at_s, lane_id, change, before, after, effect, text)


def _with_verdict(row: ChangeResult, verdict: Verdict, snapshot: Snapshot) -> ChangeResult:
    winner_id = snapshot.lane(verdict.winner).spec.id if verdict.winner is not None else None
    return replace(row, verdict=verdict.kind, winner_id=winner_id, ratio=verdict.interval)


def measure(
    snapshot: Snapshot, verdict: Verdict, before: Sequence[MeasuredPeriod] = ()
) -> tuple[MeasuredPeriod, ...]:
    """Return the outcome of each period; `before` has outcomes to reuse."""
    known = {id(one.period): one for one in before if one.period is not None}
    result = []
    for period in snapshot.periods:
        if id(period) not in known:
            then = replace(snapshot, at_ns=period.until_ns, lanes=period.lanes, race=period.race)
            known[id(period)] = MeasuredPeriod(period, find_verdict(then), _centers(period.lanes, period.race))
        result.append(known[id(period)])
    return (*result, MeasuredPeriod(None, verdict, _centers(snapshot.lanes, snapshot.race) if result else {}))


def center_of(lane: LaneState, *, sliced: bool) -> Center | None:
    """Return the mean logarithm of examples/s since the last change."""
    slices = lane.slices if sliced else concurrent_slices([lane.measurements])[1][0]
    return trimmed_in_time([math.log(part.examples_per_s) for part in slices if part.examples > 0], few=True)


def _centers(lanes: tuple[LaneState, ...], race: Race) -> dict[str, Center | None]:
    return {lane.spec.name: center_of(lane, sliced=in_slices(race, lanes)) for lane in lanes}


def history_of(snapshot: Snapshot, measured: Sequence[MeasuredPeriod]) -> tuple[ChangeResult, ...]:
    """Return the changes of a race, oldest first."""
    changes = list(_changes_of_speed(snapshot, measured))
    start = measured[: 1 if changes else -1][:1]
    rows = [_with_verdict(_row(0.0, "start"), one.verdict, snapshot) for one in start]
    for one, then in itertools.pairwise(measured):
        *several, last = _rows_of(one, then, snapshot)
        rows += [*several, _with_verdict(last, then.verdict, snapshot)]
    return tuple(sorted((*rows, *changes), key=lambda row: row.at_s))


def _changes_of_speed(snapshot: Snapshot, measured: Sequence[MeasuredPeriod]) -> Iterator[ChangeResult]:
    began_ns = snapshot.race.started_ns or 0
    for one in measured:
        for lane in one.period.lanes if one.period is not None else snapshot.lanes:
            for change in changes_of(lane):
                what = (
                    f"became {'slower' if change.ratio.value > 1 else 'faster'} at step {units.count(change.step)}"
                )
                at_s = max(0, change.at_ns - began_ns) / 1e9
                text = ": ".join(filter(None, (what, change.why)))
                yield _row(at_s, text, lane.spec.id, effect=change.ratio.inverse)


def _rows_of(one: MeasuredPeriod, then: MeasuredPeriod, snapshot: Snapshot) -> Iterator[ChangeResult]:
    period, now = one.period, then.period.lanes if then.period is not None else snapshot.lanes
    assert period is not None, "the present period has not ended"
    at_s, series = _at_s(period, snapshot), period.experiment
    for change in period.changes:
        lane, after = period.lane(change.lane), next(one for one in now if one.spec.name == change.lane)
        centers = one.centers[change.lane], then.centers[change.lane]
        if after.settings.get(change.knob) != change.after:
            centers = centers[0], None
        first, second = (None if center is None else math.exp(center.value) for center in centers)
        effect = _effect(*centers, snapshot.race, same_process=lane.process.number == after.process.number)
        enough = centers[0] is not None and math.exp(2 * centers[0].reach(LOOKS)) < TOO_WIDE
        early = enough and then.period is None
        yield _row(at_s, change.text, lane.spec.id, first, second, effect, early=early)
    if series is not None and series.policy == CROSSOVER:
        yield _row(at_s, f"crossover: {curve_of(replace(snapshot, lanes=now), series).text}")
    elif series is not None:
        yield _row(at_s, f"{period.lane(series.lane).spec.id} tuned, {answer_text(series)}")
    elif not period.changes:
        centers = one.centers.get(period.phase_of), then.centers.get(period.phase_of)
        first, second = (None if center is None else math.exp(center.value) for center in centers)
        yield _row(at_s, period.event, before=first, after=second)


def _effect(before: Center | None, after: Center | None, race: Race, *, same_process: bool) -> Estimate | None:
    """For another process with between-process variance."""
    if before is None or after is None:
        return None
    value, reach = after.value - before.value, math.hypot(before.reach(LOOKS), after.reach(LOOKS))
    if abs(value) >= math.log(LARGE) and min(before.count, after.count) < UNTRIMMED:
        reach = _reach_of_few(before, after)
    if not math.isfinite(reach):
        return None
    if not same_process:
        reach = math.hypot(reach, statistics.between_processes((), (), race.between).reach(LOOKS))
    return Estimate(math.exp(value), math.exp(value - reach), math.exp(value + reach), after.count, LOOKS.kind)


def _reach_of_few(before: Center, after: Center) -> float:
    scatters = [one.error**2 * one.count for one in (before, after)]
    degrees = before.degrees + after.degrees
    common = (scatters[0] * before.degrees + scatters[1] * after.degrees) / degrees
    errors = LOOKS.errors(max(FEW, min(before.count, after.count)), degrees)
    return errors * math.sqrt(max(common, *scatters) * (1 / before.count + 1 / after.count))


def _at_s(period: Period, snapshot: Snapshot) -> float:
    return max(0, period.until_ns - (snapshot.race.started_ns or period.until_ns)) / 1e9


def change_news(snapshot: Snapshot, rows: Sequence[ChangeResult]) -> str:
    """Return a text about the user's last change, if it is the latest."""
    count = len(snapshot.periods[-1].changes) if snapshot.periods else 0
    rows = [row for row in rows if not row.change.startswith("became ")]
    last = rows[len(rows) - count :]
    news = [
        (row, row.change if place == 0 or row.change != last[0].change else "") for place, row in enumerate(last)
    ]
    return "; ".join(f"{' '.join(filter(None, (row.lane_id, what)))}: {row.effect_text}" for row, what in news)


def earlier_text(snapshot: Snapshot, measured: Sequence[MeasuredPeriod]) -> str:
    """Return the last verdict, if the present settings have none."""
    for one in reversed(measured):
        if one.verdict.kind in (FASTER, SAME):
            if (period := one.period) is None:
                break
            ended = [f"{period.lane(change.lane).spec.id} {change.text}" for change in period.changes]
            what = ", ".join(ended) or period.event or "an experiment"
            return f"until {what} at {units.clock(_at_s(period, snapshot))}: {one.verdict.text}"
    return ""

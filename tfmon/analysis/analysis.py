"""The meaning of a snapshot, computed once: verdict, bottlenecks, series, and the history of changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tfmon import units
from tfmon.analysis import statistics, tuning_trials
from tfmon.analysis.bottleneck import Bottleneck
from tfmon.analysis.causes import Cause, causes_of
from tfmon.analysis.crossover_curve import Curve, curve_of
from tfmon.analysis.finish import loss_warnings, time_to_finish
from tfmon.analysis.intervals import AT_ANY_TIME, FEW, UNTRIMMED, Center, Looks, trimmed_in_time
from tfmon.analysis.result import ChangeResult
from tfmon.analysis.speed_changes import changes_of
from tfmon.analysis.statistics import Throughput
from tfmon.analysis.verdict import FASTER, SAME, Verdict, find_verdict
from tfmon.analysis.verdict_notes import concern_notes
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_state import LaneState
from tfmon.model.periods import Period
from tfmon.model.race import Race, interleaved
from tfmon.model.readings import ALWAYS_VALID, TOO_WIDE, Estimate
from tfmon.model.series import CROSSOVER
from tfmon.model.session import Snapshot
from tfmon.model.windows import WindowSums, concurrent_slices

LARGE = 2.0
"""From this factor on, two slices suffice for an effect."""


@dataclass(frozen=True, slots=True)
class MeasuredPeriod:
    """The outcome of one period. `period` is `None` for the present one."""

    period: Period | None
    lanes: Sequence[LaneState]
    verdict: Verdict
    centers: Mapping[str, Center | None]


@dataclass(frozen=True, slots=True)
class LaneAnalysis:
    """The analysis of one lane."""

    lane: LaneState
    bottleneck: Bottleneck | None
    throughput: Throughput
    recent: WindowSums
    looks: Looks

    @property
    def speed(self) -> Estimate | None:
        """Throughput in examples/s, if known."""
        return self.throughput.speed(self.looks)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of the bottleneck, or the observed causes."""
        return self.bottleneck.causes if self.bottleneck is not None else causes_of(self.lane)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The conclusions from one snapshot."""

    snapshot: Snapshot
    verdict: Verdict
    lanes: tuple[LaneAnalysis, ...]
    news: str
    curve: Curve | None
    history: tuple[ChangeResult, ...] = ()
    measured: tuple[MeasuredPeriod, ...] = ()
    earlier: str = ""

    def lane(self, name: str) -> LaneAnalysis:
        """Return the lane's analysis; raises KeyError."""
        return {lane.lane.spec.name: lane for lane in self.lanes}[name]

    @property
    def is_series(self) -> bool:
        """Whether the race existed only for a series."""
        if self.curve is not None:
            began = [period.experiment is not None for period in self.snapshot.periods]
            return not any(began) or began[-1]
        return self.snapshot.tuned is not None and len(self.snapshot.lanes) == 1

    @property
    def answer(self) -> str:
        """The headline."""
        if self.is_series:
            return self.curve.text if self.curve is not None else self.tuned
        return self.verdict.answer

    @property
    def answered(self) -> bool:
        """Whether a series has measured anything, or had nothing to try."""
        if self.curve is not None:
            return any(point.ratio is not None for point in self.curve.points)
        state = self.snapshot.tuned
        if state is None:
            return False
        nothing_left = state.plan.everything and not (state.present or state.ended)
        return tuning_trials.measured(state) or (
            nothing_left and any(lane.lane.totals.measured_steps for lane in self.lanes)
        )

    @property
    def tuned(self) -> str:
        """The result of the tuning, or ""."""
        return tuning_trials.answer_text(self.snapshot.tuned) if self.snapshot.tuned is not None else ""

    def finish(self, *, brief: bool = False) -> str:
        """Return which lane did the same work sooner, if known."""
        winner, slowest, ratio = self.verdict.winner_id, self.verdict.slowest_id, self.verdict.interval
        lead = (winner, slowest, ratio) if winner and slowest and ratio else None
        return time_to_finish(self.snapshot, lead, brief=brief)

    @property
    def finish_lines(self) -> tuple[str, ...]:
        """Lines about the end of a script's race."""
        return tuple(filter(None, (self.finish(), *loss_warnings(self.snapshot))))

    @property
    def outcome(self) -> str:
        """The result of the race in one line."""
        snapshot, verdict = self.snapshot, self.verdict
        if self.is_series or len(snapshot.lanes) == 1:
            return f"crossover: {self.answer}" if self.curve is not None else self.answer
        decided = verdict.kind in (FASTER, SAME)
        answer = verdict.answer if decided or not self.earlier else self.earlier
        parts = (self.finish(brief=True), answer, self.tuned, *concern_notes(snapshot))
        return "; ".join(filter(None, parts))


def analyse(snapshot: Snapshot, before: Analysis | None = None) -> Analysis:
    """Analyse a snapshot, reusing figures of the analysis `before`."""
    known = {id(lane.throughput.slices): lane.throughput for lane in before.lanes} if before else {}
    throughputs = {
        lane.spec.name: known.get(id(lane.slices)) or Throughput.from_slices(lane.slices)
        for lane in snapshot.lanes
    }
    series = snapshot.experiment
    verdict = find_verdict(snapshot, throughputs)
    measured = _measure(snapshot, verdict, before.measured if before is not None else ())
    rows = _history_of(snapshot, measured)
    return Analysis(
        snapshot=snapshot,
        verdict=verdict,
        lanes=tuple(
            LaneAnalysis(
                lane,
                tuning_trials.advised(snapshot, lane),
                throughputs[lane.spec.name],
                lane.recent(),
                verdict.looks,
            )
            for lane in snapshot.lanes
        ),
        news=_change_news(snapshot, rows) or tuning_trials.news(snapshot),
        curve=curve_of(snapshot, series) if series is not None and series.plan.policy == CROSSOVER else None,
        history=rows,
        measured=measured,
        earlier=_earlier_text(snapshot, measured),
    )


def outlook(analysis: Analysis) -> str:
    """Return the remaining time as text."""
    race, parts = analysis.snapshot.race, []
    if race.seconds is not None and race.started_ns is not None:
        left_s = race.seconds - (analysis.snapshot.at_ns - race.started_ns) / 1e9
        parts.append(f"{units.clock(left_s)} left")
    if analysis.verdict.left_s is not None:
        goal = f"±{100 * race.until_ci:g} %" if race.until_ci is not None else "an answer"
        parts.append(f"{goal} in about {units.about(analysis.verdict.left_s)}")
    elif analysis.verdict.kind in (FASTER, SAME):
        parts.append("there is an answer")
    return "".join(f"   {part}" for part in parts)


def speeds(snapshot: Snapshot) -> str:
    """Return each lane's speed as text."""
    parts = []
    for lane in snapshot.lanes:
        speed = lane.recent().examples_per_s
        seconds = (snapshot.at_ns - lane.phase_since_ns) / 1e9
        state = f"{units.rate(speed)} examples/s" if speed is not None else f"{lane.phase} {seconds:.0f} s"
        parts.append(f"{lane.spec.name}: {state}")
    return "   ".join(parts)


def change_row(
    at_s: float,
    change: str,
    lane_id: str | None = None,
    centers: Iterable[Center | None] = (None, None),
    effect: Estimate | None = None,
    *,
    early: bool = False,
) -> ChangeResult:
    """Return a row without a verdict, and the text of the effect, or why it is missing."""
    speed_before, speed_after = (None if center is None else math.exp(center.value) for center in centers)
    if effect is not None and effect.is_narrow:
        text = tuning_trials.gain_text(effect)
    elif speed_before is None and speed_after is not None:
        text = "not measured before"
    elif early:
        text = "too early to say"
    else:
        text = "scatters too much to say" if effect is not None else "measured too briefly"
    return ChangeResult(at_s, lane_id, change, speed_before, speed_after, effect, text)


def _with_verdict(row: ChangeResult, verdict: Verdict) -> ChangeResult:
    return replace(row, verdict=verdict.kind or "", winner_id=verdict.winner_id, ratio=verdict.interval)


def _measure(snapshot: Snapshot, verdict: Verdict, before: Sequence[MeasuredPeriod]) -> tuple[MeasuredPeriod, ...]:
    known = {id(row.period): row for row in before if row.period is not None}
    result = []
    for period in snapshot.periods:
        if id(period) not in known:
            then = replace(snapshot, at_ns=period.until_ns, lanes=period.lanes, race=period.race)
            known[id(period)] = MeasuredPeriod(period, period.lanes, find_verdict(then), _centers(then))
        result.append(known[id(period)])
    return (*result, MeasuredPeriod(None, snapshot.lanes, verdict, _centers(snapshot) if result else {}))


def center_of(lane: LaneState, *, sliced: bool) -> Center | None:
    """Return the mean log of examples/s since the last change."""
    slices = lane.slices if sliced else concurrent_slices([lane.measurements])[1][0]
    return trimmed_in_time([part.log for part in slices if part.examples], few=True)


def _centers(snapshot: Snapshot) -> dict[str, Center | None]:
    sliced = interleaved(snapshot.race.mode, "", len(snapshot.lanes))
    return {lane.spec.name: center_of(lane, sliced=sliced) for lane in snapshot.lanes}


def _history_of(snapshot: Snapshot, measured: Sequence[MeasuredPeriod]) -> tuple[ChangeResult, ...]:
    changes = list(_changes_of_speed(snapshot, measured))
    start = measured[: 1 if changes else -1][:1]
    rows = [_with_verdict(change_row(0.0, "start"), analysis.verdict) for analysis in start]
    for present, then in itertools.pairwise(measured):
        *several, last = _rows_of(present, then, snapshot)
        rows += [*several, _with_verdict(last, then.verdict)]
    return tuple(sorted((*rows, *changes), key=lambda row: row.at_s))


def _changes_of_speed(snapshot: Snapshot, measured: Sequence[MeasuredPeriod]) -> Iterator[ChangeResult]:
    began_ns = snapshot.race.started_ns or 0
    for present in measured:
        for lane in present.lanes:
            for change in changes_of(lane):
                how, at_s = "slower" if change.ratio.value > 1 else "faster", max(0, change.at_ns - began_ns) / 1e9
                text = ": ".join(filter(None, (f"became {how} at step {units.count(change.step)}", change.why)))
                yield change_row(at_s, text, lane.spec.id, effect=change.ratio.inverse)


def _rows_of(ended: MeasuredPeriod, then: MeasuredPeriod, snapshot: Snapshot) -> Iterator[ChangeResult]:
    period, now = ended.period, tuple(then.lanes)
    assert period is not None, "the present period has not ended"
    at_s, series = _at_s(period, snapshot), period.experiment
    for change in period.changes:
        lane, later = period.lane(change.lane), next(lane for lane in now if lane.spec.name == change.lane)
        centers = ended.centers[change.lane], then.centers[change.lane]
        if later.settings.get(change.knob) != change.after:
            centers = centers[0], None
        effect = _effect(*centers, snapshot.race, same_process=lane.process.number == later.process.number)
        enough = centers[0] is not None and math.exp(2 * centers[0].reach(AT_ANY_TIME)) < TOO_WIDE
        early = enough and then.period is None
        yield change_row(at_s, change.text, lane.spec.id, centers, effect, early=early)
    if series is not None and series.plan.policy == CROSSOVER:
        yield change_row(at_s, f"crossover: {curve_of(replace(snapshot, lanes=now), series).text}")
    elif series is not None:
        yield change_row(at_s, f"{period.lane(series.lane).spec.id} tuned, {tuning_trials.answer_text(series)}")
    elif not period.changes:
        yield change_row(at_s, period.event, centers=(side.centers.get(period.phase_of) for side in (ended, then)))


def _effect(first: Center | None, second: Center | None, race: Race, *, same_process: bool) -> Estimate | None:
    if first is None or second is None:
        return None
    value, reach = second.value - first.value, math.hypot(first.reach(AT_ANY_TIME), second.reach(AT_ANY_TIME))
    if abs(value) >= math.log(LARGE) and min(first.count, second.count) < UNTRIMMED:
        reach = _reach_of_few(first, second)
    if not math.isfinite(reach):
        return None
    if not same_process:
        reach = math.hypot(reach, statistics.between_processes((), (), race.between).reach(AT_ANY_TIME))
    return Estimate(math.exp(value), math.exp(value - reach), math.exp(value + reach), second.count, ALWAYS_VALID)


def _reach_of_few(first: Center, second: Center) -> float:
    scatters = [speed.error**2 * speed.count for speed in (first, second)]
    degrees = first.degrees + second.degrees
    common = (scatters[0] * first.degrees + scatters[1] * second.degrees) / degrees
    errors = AT_ANY_TIME.errors(max(FEW, min(first.count, second.count)), degrees)
    return errors * math.sqrt(max(common, *scatters) * (1 / first.count + 1 / second.count))


def _at_s(period: Period, snapshot: Snapshot) -> float:
    return max(0, period.until_ns - (snapshot.race.started_ns or period.until_ns)) / 1e9


def _change_news(snapshot: Snapshot, rows: Sequence[ChangeResult]) -> str:
    count = len(snapshot.periods[-1].changes) if snapshot.periods else 0
    last = [row for row in rows if not row.change.startswith("became ")][-count:] if count else []
    news = []
    for row in last:
        change = row.change if row is last[0] or row.change != last[0].change else ""
        news.append(f"{' '.join(filter(None, (row.lane_id, change)))}: {row.effect_text}")
    return "; ".join(news)


def _earlier_text(snapshot: Snapshot, measured: Sequence[MeasuredPeriod]) -> str:
    for present in reversed(measured):
        if present.verdict.kind in (FASTER, SAME):
            if (period := present.period) is None:
                break
            ended = [f"{period.lane(change.lane).spec.id} {change.text}" for change in period.changes]
            what = ", ".join(ended) or period.event or "an experiment"
            return f"until {what} at {units.clock(_at_s(period, snapshot))}: {present.verdict.answer}"
    return ""

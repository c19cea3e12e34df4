"""The meaning of a snapshot, computed once."""

from __future__ import annotations

from dataclasses import dataclass

from tfmon import units
from tfmon.analysis import tuning_trials
from tfmon.analysis.bottleneck import Bottleneck
from tfmon.analysis.causes import Cause, causes_of
from tfmon.analysis.crossover_curve import Curve, curve_of
from tfmon.analysis.finish import loss_warnings, time_to_finish
from tfmon.analysis.history import MeasuredPeriod, change_news, earlier_text, history_of, measure
from tfmon.analysis.intervals import Looks
from tfmon.analysis.result import ChangeResult
from tfmon.analysis.statistics import Throughput
from tfmon.analysis.verdict import FASTER, SAME, Verdict, find_verdict
from tfmon.analysis.verdict_notes import concern_notes
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Estimate
from tfmon.model.series import CROSSOVER
from tfmon.model.session import Snapshot
from tfmon.model.windows import WindowSums


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

    @property
    def measured_text(self) -> str:
        """The measured time and its discarded part."""
        lane = self.lane
        return units.measured(lane.steady.span_ns / 1e9, lane.measurements.ran_ns / 1e9, lane.discarded_shares)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The conclusions from one snapshot."""

    snapshot: Snapshot
    verdict: Verdict
    lanes: tuple[LaneAnalysis, ...]
    news: str
    curve: Curve | None
    tuning: tuning_trials.Best | None
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
        return self.tuning is not None and len(self.snapshot.lanes) == 1

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
    measured = measure(snapshot, verdict, before.measured if before is not None else ())
    rows = history_of(snapshot, measured)
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
        news=change_news(snapshot, rows) or tuning_trials.news(snapshot),
        curve=curve_of(snapshot, series) if series is not None and series.policy == CROSSOVER else None,
        tuning=tuning_trials.best_of(snapshot.tuned) if snapshot.tuned is not None else None,
        history=rows,
        measured=measured,
        earlier=earlier_text(snapshot, measured),
    )

"""Programs that do more than race."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon import errors, units
from tfmon.analysis.analysis import analyse
from tfmon.analysis.compare_profiles import ProfiledSide, profiled_pair
from tfmon.analysis.series_tables import lane_series_progress
from tfmon.analysis.summarise import summarise
from tfmon.analysis.trial_answer import Trial, ended, judge_trial
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.profiling import TIMES
from tfmon.api.program import Program
from tfmon.api.run_base import say
from tfmon.errors import TfmonError, UsageError
from tfmon.lanes.plan import RacePlan
from tfmon.lanes.suspend import Suspender
from tfmon.model.folder_views import COPY, IN_PLACE
from tfmon.model.lane_events import Progressed
from tfmon.model.lane_state import ABSENT, FAILED, LaneState, Trouble
from tfmon.model.profile import Profile
from tfmon.model.race import ScenarioInfo
from tfmon.model.series import SeriesState
from tfmon.model.spec import LaneSpec

LEAST_WINDOWS = 5


class SeriesProgram(Program):
    """A crossover or a tuning."""

    is_series = True

    def __init__(
        self, race_options: RaceOptions, purpose: Purpose, make: Callable[[Sequence[LaneSpec]], SeriesState]
    ) -> None:
        super().__init__(race_options, purpose)
        self._make = make

    def begin(self, plan: RacePlan | None = None) -> None:
        """Start the lanes and the series."""
        plan = plan or self.planned()
        self._state = self._make([lane.spec for lane in plan.lanes])
        super().begin(plan)
        self.experiments.run(self._state)

    @property
    def notes(self) -> Sequence[str]:
        """The lanes, their differences, and views."""
        return *(f"{lane.spec.id}: {lane.spec.name}" for lane in self.planned().lanes), *super().notes

    def join(self, timeout_s: float) -> bool:
        """Wait; return whether the series has ended."""
        return self.experiments.join(timeout_s) and (not self.alone or super().join(timeout_s))

    def line(self) -> str:
        """Return the progress."""
        return lane_series_progress(self.session.snapshot())

    def close(self, reason: str = "") -> None:
        """End the series, then the lanes."""
        while not self.experiments.join(0):
            self.experiments.stop()
        super().close(reason)

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code."""
        known, measured = self.session.snapshot(), self.experiments.measured
        if self.alone or measured is None:  # without a terminal, or without a start
            return super().outcome(interrupted, as_json=as_json)
        from tfmon.reports.race_report import to_text
        from tfmon.reports.series_report import series_to_json

        # The settings are restored by now, which began another period.
        measured = replace(measured, experiment=known.experiment, tuned=known.tuned, recording=known.recording)
        result = analyse(measured)
        code = self.exit_code() or (errors.EXIT_FINE if result.answered else errors.EXIT_CANNOT_TELL)
        return (series_to_json if as_json else to_text)(result), errors.EXIT_INTERRUPTED if interrupted else code


class ProfileProgram(Program):
    """Profiles of one or two lanes."""

    result: Profile | None = None
    sides: tuple[ProfiledSide, ProfiledSide] | None = None

    def __init__(
        self,
        race_options: RaceOptions,
        purpose: Purpose,
        folder: Path,
        steps: int,
        chrome: str,
        times: int = TIMES,
    ) -> None:
        super().__init__(race_options, purpose)
        self._folder, self._steps, self._chrome, self._times = folder, steps, chrome, times

    def join(self, timeout_s: float) -> bool:
        """Wait until the lanes are steady, and profile them; return whether that is done."""
        super().join(timeout_s)
        lanes = self.session.snapshot().lanes
        for lane in lanes:
            if lane.over:
                trouble = lane.trouble or Trouble("the lane ended")
                raise TfmonError(trouble.message, trouble.hint, exit_code=errors.EXIT_LANE_FAILED)
        if any(lane.steady.windows < LEAST_WINDOWS for lane in lanes):
            return False
        names = [lane.spec.name for lane in lanes]
        if len(names) == 1:
            self.result = self.profiles.take(names[0], self._folder, self._steps, self._chrome)
        else:
            self.profiles.in_turns(names, self._folder, self._steps, self._times)
            self.sides = profiled_pair(self.session.snapshot().lanes)
        return True


class TrialProgram(Program):
    """A race of two lanes of one script, which ends when both have ended, or one fails.

    Then each side runs by itself, if that can change the answer.
    """

    def __init__(self, race_options: RaceOptions, purpose: Purpose, runs: int) -> None:
        """`runs` is how often each side runs by itself."""
        super().__init__(race_options, purpose)
        assert purpose.change is not None, "a try without a change"
        self._runs = runs
        self.change = purpose.change
        self._lengths: dict[str, tuple[int, int | None]] = {}
        self._first_over: set[str] = set()
        self.again: tuple[list[LaneState], list[LaneState]] = [], []
        """Further runs of each side."""
        self._sides: list[int] | None = None
        """The sides that still run by themselves. `None` before the end of the race."""
        self._side = 0
        self._alone: Program | None = None
        """The present run of a single side."""
        self.session.listen(self._note_length, Progressed)

    def plan(self, info: ScenarioInfo, race_options: RaceOptions | None = None) -> RacePlan:
        """Plan the race; raises UsageError."""
        plan = super().plan(info, race_options)
        view = plan.race.views.get("")
        if view is None or view.kind == IN_PLACE:
            why = view.reason if view is not None else "the lanes have none"
            text = f"the lanes cannot have views of the folder with different files: {why}"
            hint = "allow user namespaces; or share data that is only read with --link, or raise view_copy"
            raise UsageError(text, hint, options=("link",))
        linked = [
            path for path in self.change.paths if f"{path}/".startswith(tuple(f"{link}/" for link in view.links))
        ]
        if linked and view.kind == COPY:
            raise UsageError(
                f"--link shares {linked[0]}, which the change replaces", "leave it out", options=("link",)
            )
        return plan

    def _note_length(self, event: Progressed) -> None:
        if not event.epochs or event.lane in self._first_over:
            return
        known = self._lengths.get(event.lane)
        if known is not None and (known[0] != event.epochs or event.doing == ""):
            self._first_over.add(event.lane)
        else:
            self._lengths[event.lane] = event.epochs, event.batches

    def join(self, timeout_s: float) -> bool:
        """Wait; return whether the race and the runs of each side have ended."""
        alone = self._alone
        over = super().join(timeout_s if alone is None else 0)
        phases = [lane.phase for lane in self.session.snapshot().lanes]
        if not over and not {FAILED, ABSENT}.intersection(phases):
            if self._sides is not None:  # the user has started the race again
                self._end_alone()
                self._sides, self.again = None, ([], [])
            return False
        if alone is not None and alone.join(timeout_s):
            lanes = alone.session.snapshot().lanes
            self._end_alone()
            self.again[self._side].extend(lanes)
            if any(lane.phase == FAILED for lane in lanes):
                self._sides = []
        if self._sides is None:
            self._sides = self._sides_again()
        if self._sides and self._alone is None:
            self._begin_alone(self._sides.pop(0))
        if self.tell is not None:  # a message on the screen is displayed for some seconds
            self.tell(self.line() if self._alone is not None else self.judge().text)
        return self._alone is None

    def _sides_again(self) -> list[int]:
        """Return which side each further run has.

        If a side does not end, only the unchanged script runs again, for as long, to show the effect of seeds.
        """
        lanes = self.session.snapshot().lanes
        if len(lanes) < 2 or any(lane.phase in (FAILED, ABSENT) for lane in lanes):
            return []
        trial, in_pairs = self.judge(), self._runs > 0 and all(map(ended, lanes))
        if trial.same_training is False or not (in_pairs or trial.unclear):
            return []
        if not in_pairs:
            (self.tell or say)("the losses differ: the script as it is runs once more")
            return [0]
        about = units.about(self._runs * sum(filter(None, trial.run_s)))
        (self.tell or say)(
            f"each side runs {units.several(self._runs, 'time')} by itself, alternately: about {about}"
        )
        return [
            (number + 1) // 2 % 2 for number in range(2 * self._runs)
        ]  # A B B A cancels a drift of the machine

    def _begin_alone(self, side: int) -> None:
        first = self.session.snapshot().lanes[0]
        seconds = None if ended(first) else max(1.0, first.totals.trained_ns / 1e9)
        change = replace(self.change, sides=(self.change.sides[side],))
        options = replace(self._options, record=False, seconds=seconds, notify=None, metrics=None)
        self._side = side
        self._alone = Program(options, Purpose(watched=False, restarts=True, change=change))
        self._alone.begin()

    def _end_alone(self, reason: str = "") -> None:
        alone, self._alone = self._alone, None
        if alone is not None:
            alone.close(reason)

    def line(self) -> str:
        """Return the progress."""
        if self._alone is None:
            return super().line()
        number = 1 + sum(map(len, self.again))
        return f"run {number} of {number + len(self._sides or ())} by itself: {self._alone.line()}"

    def close(self, interrupted: str = "") -> None:
        """End everything."""
        self._end_alone(interrupted)
        super().close(interrupted)

    @property
    def suspenders(self) -> Sequence[Suspender]:
        """The owners of the lanes' processes."""
        return *super().suspenders, *(self._alone.suspenders if self._alone is not None else ())

    def end_now(self) -> None:
        """Kill ending commands."""
        super().end_now()
        if self._alone is not None:
            self._alone.end_now()

    def judge(self) -> Trial:
        """Return the answer."""
        analysis, change = analyse(self.session.snapshot()), self.change
        return judge_trial(analysis, self._lengths, change.title, change.paths, self.again)

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code."""
        from tfmon.reports import trial_report

        analysis = analyse(self.session.snapshot())
        if len(analysis.snapshot.lanes) < 2:
            return "", errors.EXIT_INTERRUPTED if interrupted else errors.EXIT_LANE_FAILED
        trial, result = self.judge(), summarise(analysis, self.header)
        code = errors.EXIT_INTERRUPTED if interrupted else trial.exit_code
        if any(lane.phase == ABSENT for lane in analysis.snapshot.lanes):
            code = errors.EXIT_DEVICE_ABSENT
        return (trial_report.to_json if as_json else trial_report.to_text)(trial, result), code

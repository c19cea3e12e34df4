"""Programs that do more than race."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfmon.analysis.analysis import analyse
from tfmon.analysis.compare_profiles import ProfiledSide, profiled_pair
from tfmon.analysis.series_tables import lane_series_progress
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.profiling import TIMES
from tfmon.api.program import Program
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_FINE, EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError
from tfmon.lanes.plan import RacePlan
from tfmon.model.lane_state import Trouble
from tfmon.model.profile import Profile
from tfmon.model.series import TUNING, SeriesState
from tfmon.model.session import Snapshot

if TYPE_CHECKING:
    from tfmon.model.spec import LaneSpec

LEAST_WINDOWS = 5


class SeriesProgram(Program):
    """A crossover or a tuning."""

    result: Snapshot | None = None
    is_series = True

    def __init__(
        self,
        race_options: RaceOptions,
        purpose: Purpose,
        make: Callable[[Sequence[LaneSpec]], SeriesState],
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

    def settle(self, *, interrupted: bool) -> None:
        """Keep the result before the lanes' settings are restored, which begins another period."""
        while not self.experiments.join(0):
            self.experiments.stop()
        snapshot, measured = self.session.snapshot(), self.experiments.measured
        if measured is not None:
            snapshot = replace(measured, experiment=snapshot.experiment, tuned=snapshot.tuned)
        if snapshot.experiment is None:  # a signal came before the series began
            tuned = self._state if self._state.policy == TUNING else None
            snapshot = replace(snapshot, experiment=self._state, tuned=tuned)
        self.result = snapshot

    def close(self, reason: str = "") -> None:
        """End the lanes."""
        super().close(reason)
        if self.result is not None:
            self.result = replace(self.result, recording=self.session.snapshot().recording)

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code."""
        if self.alone or self.result is None:  # without a terminal, or without a start
            return super().outcome(interrupted, as_json=as_json)
        from tfmon.reports.race_report import to_text
        from tfmon.reports.series_report import series_to_json

        result = analyse(self.result)
        code = self.ending.exit_code() or (EXIT_FINE if result.answered else EXIT_CANNOT_TELL)
        return (series_to_json if as_json else to_text)(result), EXIT_INTERRUPTED if interrupted else code


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
        """Wait; return whether the lanes are ready."""
        super().join(timeout_s)
        lanes = self.session.snapshot().lanes
        for lane in lanes:
            if lane.over:
                trouble = lane.trouble or Trouble("the lane ended")
                raise TfmonError(trouble.message, trouble.hint, exit_code=EXIT_LANE_FAILED)
        return all(lane.steady.windows >= LEAST_WINDOWS for lane in lanes)

    def settle(self, *, interrupted: bool) -> None:
        """Profile the lanes, unless there was a signal."""
        if interrupted:
            return
        names = [lane.spec.name for lane in self.session.snapshot().lanes]
        if len(names) == 1:
            self.result = self.profiles.take(names[0], self._folder, self._steps, self._chrome)
        else:
            self.profiles.in_turns(names, self._folder, self._steps, self._times)
            self.sides = profiled_pair(self.session.snapshot().lanes)

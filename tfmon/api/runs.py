"""Everything that can run: a race, a series on its lanes, a profile, or a sweep."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tfmon import units
from tfmon.analysis.analysis import Analysis, analyse
from tfmon.analysis.finish import ending_line
from tfmon.analysis.profile_diff import ProfiledSide, profiled_pair
from tfmon.analysis.series_tables import lane_series_progress
from tfmon.analysis.verdict import FASTER, SAME
from tfmon.api.profiling import TIMES
from tfmon.api.program import Program
from tfmon.api.run import AnyRun, show_progress
from tfmon.catalog import ScenarioInfo
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_FINE, EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError
from tfmon.lanes.plan import RacePlan
from tfmon.lanes.suspend import Suspender
from tfmon.model.codec import clean
from tfmon.model.lane_state import PAUSED
from tfmon.model.profile import Profile
from tfmon.model.series import Experiment, TuneState
from tfmon.model.session import Snapshot
from tfmon.model.views import describe

if TYPE_CHECKING:
    from tfmon.api.sweep import SweepProgram
    from tfmon.model.spec import LaneSpec

LEAST_WINDOWS = 5


def plan_race(program: Program, info: ScenarioInfo, lanes: Sequence[str]) -> RacePlan:
    """Plan a race, with a progress line while it connects; on an error, undo it. Raises TfmonError."""
    try:
        with connecting(lanes):
            return program.plan(info)
    except BaseException:
        program.close()
        raise


@contextlib.contextmanager
def connecting(lanes: Sequence[str]) -> Iterator[None]:
    """Display that tfmon connects to the lanes' other machines."""
    hosts = list(
        dict.fromkeys(filter(None, (lane.partition(",")[0].rpartition("/")[0].strip() for lane in lanes)))
    )
    try:
        if hosts:
            show_progress(clean(f"connecting to {' and '.join(hosts)}…"))
        yield
    finally:
        if hosts:
            show_progress("")


class RaceRun(AnyRun):
    """A race, until every lane has ended."""

    alone = False
    """Whether a user's command continues without its lost terminal."""

    def __init__(self, program: Program, plan: RacePlan | None = None, info: ScenarioInfo | None = None) -> None:
        """Start with a plan, or what to plan at the beginning, or neither if another object begins it."""
        self.program = program
        self.plan = plan
        self._info = info
        self._analysis: Analysis | None = None

    def begin(self) -> None:
        """Start the lanes."""
        self.program.begin(self._planned())

    def _planned(self) -> RacePlan:
        if self.plan is None:
            assert self._info is not None
            self.plan = self.program.plan(self._info)
        return self.plan

    @property
    def notes(self) -> Sequence[str]:
        """Other differences between lanes, and their views of the working folder."""
        race = self._planned().race
        return *race.differs, *describe(race.views)

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output after the end, as text or for JSON ("" for none), and the exit code."""
        return "", self.program.ending.exit_code_of_race(interrupted)

    def join(self, timeout_s: float) -> bool:
        """Wait with a timeout; return whether it has ended."""
        time.sleep(timeout_s)
        return self.program.lanes.running.all_over

    def line(self) -> str:
        """Return the speed of the lanes and the remaining time."""
        self._analysis = analyse(self.program.session.snapshot(), self._analysis)
        return f"{speeds(self._analysis.snapshot)}{_outlook(self._analysis)}"

    def close(self, reason: str = "") -> None:
        """End the lanes, the probes and the recording."""
        self.program.close(reason)

    def ending(self) -> str:
        """Return which commands were asked to end, with their remaining grace."""
        return ending_line(self.program.session.snapshot())

    def end_now(self) -> None:
        """Kill commands that were asked to end."""
        self.program.lanes.end_now()

    @property
    def suspensions(self) -> list[Suspender]:
        """The objects that suspend the lanes along with tfmon."""
        return [self.program.lanes.running.suspension]

    def go_on_alone(self) -> bool:
        """Continue a user's command, even a paused one, without a terminal; return False if none exists."""
        if not self.program.trains_command:
            return False
        self.alone = True
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            with contextlib.suppress(OSError):
                if os.isatty(fd) or os.fstat(fd).st_mode & stat.S_IFCHR:
                    os.dup2(nowhere, fd)
        os.close(nowhere)
        lanes = self.program.session.snapshot().lanes
        self.program.lanes.resume([lane.spec.name for lane in lanes if lane.phase == PAUSED])
        return True


class SeriesRun(RaceRun):
    """A crossover or a tuning on the lanes of a race."""

    result: Snapshot
    """The state at the end, before the lanes got back their settings."""

    def __init__(
        self,
        program: Program,
        make: Callable[[Sequence[LaneSpec]], Experiment],
        plan: RacePlan | None = None,
        info: ScenarioInfo | None = None,
    ) -> None:
        """Start with the function that creates the series; it raises TfmonError if that is impossible."""
        super().__init__(program, plan, info)
        self._make = make

    def begin(self) -> None:
        """Start the lanes and the series."""
        self._state = self._make([lane.spec for lane in self._planned().lanes])
        super().begin()
        self.program.experiments.run(self._state)

    def join(self, timeout_s: float) -> bool:
        """Wait with a timeout; return whether it has ended."""
        return self.program.experiments.join(timeout_s) and (not self.alone or super().join(timeout_s))

    def line(self) -> str:
        """Return the progress of the experiment in a line."""
        return lane_series_progress(self.program.session.snapshot())

    def settle(self, *, interrupted: bool) -> None:
        """Keep the result before the lanes get back their settings, which begins another period."""
        while not self.program.experiments.join(0):
            self.program.experiments.stop()
        snapshot, measured = self.program.session.snapshot(), self.program.experiments.measured
        if measured is not None:
            snapshot = replace(measured, experiment=snapshot.experiment, tuned=snapshot.tuned)
        if snapshot.experiment is None:  # a signal came before the series began
            tuned = self._state if isinstance(self._state, TuneState) else None
            snapshot = replace(snapshot, experiment=self._state, tuned=tuned)
        self.result = snapshot

    def close(self, reason: str = "") -> None:
        """End the lanes; the recording is compressed."""
        super().close(reason)
        if hasattr(self, "result"):
            self.result = replace(self.result, recording=self.program.session.snapshot().recording)

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output after the end, as text or for JSON, and the exit code."""
        if self.alone or not hasattr(self, "result"):  # without a terminal, or it could not begin
            return super().outcome(interrupted, as_json=as_json)
        from tfmon.reports.race import to_text
        from tfmon.reports.series_json import series_to_json

        result = analyse(self.result)
        code = self.program.ending.exit_code() or (EXIT_FINE if result.answered else EXIT_CANNOT_TELL)
        return (series_to_json if as_json else to_text)(result), EXIT_INTERRUPTED if interrupted else code


class ProfileRun(RaceRun):
    """A profile of the only lane of a race in steady state, or several of each of two lanes."""

    result: Profile | None = None
    """Profile of the only lane; `None` after a signal."""
    sides: tuple[ProfiledSide, ProfiledSide] | None = None

    def __init__(
        self, program: Program, plan: RacePlan, folder: Path, steps: int, chrome: str, times: int = TIMES
    ) -> None:
        """Start with the arguments of `Profiling.take` and `Profiling.in_turns`."""
        super().__init__(program, plan)
        self._folder, self._steps, self._chrome, self._times = folder, steps, chrome, times

    def join(self, timeout_s: float) -> bool:
        """Wait with a timeout; return whether the lanes are ready; raises TfmonError if one ended."""
        super().join(timeout_s)
        lanes = self.program.session.snapshot().lanes
        for lane in lanes:
            if lane.over:
                trouble = lane.trouble
                failed = TfmonError(trouble.message, trouble.hint) if trouble else TfmonError("the lane ended")
                failed.exit_code = EXIT_LANE_FAILED
                raise failed
        return all(lane.steady.windows >= LEAST_WINDOWS for lane in lanes)

    def settle(self, *, interrupted: bool) -> None:
        """Profile some steps of the lanes, unless there was a signal."""
        if interrupted:
            return
        names = [lane.spec.name for lane in self.program.session.snapshot().lanes]
        if len(names) == 1:
            self.result = self.program.profiles.take(names[0], self._folder, self._steps, self._chrome)
        else:
            self.program.profiles.in_turns(names, self._folder, self._steps, self._times)
            self.sides = profiled_pair(self.program.session.snapshot().lanes)


class SweepRun(AnyRun):
    """A sweep, until each combination is settled."""

    def __init__(self, program: SweepProgram) -> None:
        self.program = program
        self._known = program.sweep.ranking
        self._unsaved = ""

    def begin(self) -> None:
        """Start the workers."""
        self.program.sweep.start()

    def join(self, timeout_s: float) -> bool:
        """Wait with a timeout; return whether it has ended."""
        return self.program.sweep.join(timeout_s)

    def line(self) -> str:
        """Return the progress and the best so far."""
        from tfmon.reports.series import progress_line

        return progress_line(self.program.sweep.ranking)

    def news(self) -> Iterator[str]:
        """Yield settled combinations, losses, and errors of the file."""
        from tfmon.reports.series import happened

        before, self._known = self._known, self.program.sweep.ranking
        yield from happened(before, self._known)
        file = self.program.file
        if file is not None and file.failure != self._unsaved:
            self._unsaved = file.failure
            yield self._unsaved or f"{file.path} has all again"

    def close(self, reason: str = "") -> None:
        """End the sweep and every process."""
        self.program.close(reason or "stopped by the user")

    @property
    def suspensions(self) -> list[Suspender]:
        """The objects that suspend the lanes along with tfmon."""
        return self.program.suspensions

    @property
    def notes(self) -> Sequence[str]:
        """The lanes' views of the working folder."""
        return describe(self.program.views)

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output after the end, as text or for JSON, and the exit code."""
        from tfmon.analysis.sweep import FAILED
        from tfmon.reports.series import to_text
        from tfmon.reports.series_json import sweep_to_json

        result, file = self.program.sweep.ranking, self.program.file
        lost = result.state.lost or any(row.outcome == FAILED for row in result.rows)
        fine = EXIT_FINE if result.answered else EXIT_CANNOT_TELL
        code = EXIT_LANE_FAILED if self.program.sweep.failure or lost else fine
        printed = (sweep_to_json if as_json else to_text)(result, str(file.path) if file is not None else "")
        return printed, EXIT_INTERRUPTED if interrupted else code


def pass_on(stream: TextIO) -> Callable[[bytes], None]:
    """Return a function that writes bytes to a stream until it is closed."""
    broken = False

    def write(chunk: bytes) -> None:
        nonlocal broken
        if not broken:
            try:
                stream.buffer.write(chunk)
                stream.flush()
            except (OSError, ValueError):
                broken = True

    return write


def _outlook(analysis: Analysis) -> str:
    """Return the remaining time of the race and until an answer. Empty if unknown."""
    race, parts = analysis.snapshot.race, []
    if race.seconds is not None and race.started_ns is not None:
        left_s = race.seconds - (analysis.snapshot.at_ns - race.started_ns) / 1e9
        parts.append(f"{units.clock(left_s)} left")
    if analysis.verdict.left_s is not None:
        what = f"±{100 * race.until_ci:g} %" if race.until_ci is not None else "an answer"
        parts.append(f"{what} in about {units.about(analysis.verdict.left_s)}")
    elif analysis.verdict.kind in (FASTER, SAME):
        parts.append("there is an answer")
    return "".join(f"   {one}" for one in parts)


def speeds(snapshot: Snapshot) -> str:
    """Return the speed or activity of each lane."""
    parts = []
    for lane in snapshot.lanes:
        speed = lane.recent().examples_per_s
        seconds = (snapshot.at_ns - lane.phase_since_ns) / 1e9
        what = f"{units.rate(speed)} examples/s" if speed is not None else f"{lane.phase} {seconds:.0f} s"
        parts.append(f"{lane.spec.name}: {what}")
    return "   ".join(parts)

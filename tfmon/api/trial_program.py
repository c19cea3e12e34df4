"""`tfmon try`: the race of a script against the same script with a change."""

from __future__ import annotations

from dataclasses import replace

from tfmon import units
from tfmon.analysis.analysis import analyse
from tfmon.analysis.summarise import summarise
from tfmon.analysis.trial_answer import Trial, ended, judge_trial
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.program import Program
from tfmon.api.run_base import run_until_over, say
from tfmon.catalog import ScenarioInfo
from tfmon.errors import EXIT_DEVICE_ABSENT, EXIT_INTERRUPTED, EXIT_LANE_FAILED, UsageError
from tfmon.lanes.plan import RacePlan
from tfmon.model.events import Event
from tfmon.model.folder_views import COPY, IN_PLACE
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.script_events import Progressed
from tfmon.reports.trial_report import to_json, to_text

HEADLESS_SECONDS = 300.0


class TrialProgram(Program):
    """A race of two lanes of one script, which ends when both have ended, or one fails."""

    def __init__(self, race_options: RaceOptions, purpose: Purpose) -> None:
        super().__init__(race_options, purpose)
        assert purpose.change is not None, "a try without a change"
        self.change = purpose.change
        self._lengths: dict[str, tuple[int, int | None]] = {}
        self._first_over: set[str] = set()
        self.again: tuple[list[LaneState], list[LaneState]] = [], []
        """Further runs of each side."""
        self.session.listen(self._note_length)

    def plan(self, info: ScenarioInfo, race_options: RaceOptions | None = None) -> RacePlan:
        """Plan the race; raises UsageError."""
        plan = super().plan(info, race_options)
        view = plan.race.views.get("")
        if view is None or view.kind == IN_PLACE:
            why = view.reason if view is not None else "the lanes have none"
            raise UsageError(
                f"the lanes cannot have views of the folder with different files: {why}",
                "allow user namespaces; or share data that is only read with --link, or raise view_copy",
                options=("link",),
            )
        linked = [
            path for path in self.change.paths if f"{path}/".startswith(tuple(f"{link}/" for link in view.links))
        ]
        if linked and view.kind == COPY:
            raise UsageError(
                f"--link shares {linked[0]}, which the change replaces", "leave it out", options=("link",)
            )
        return plan

    def _note_length(self, event: Event) -> None:
        if not isinstance(event, Progressed) or not event.epochs or event.lane in self._first_over:
            return
        known = self._lengths.get(event.lane)
        if known is not None and (known[0] != event.epochs or event.doing == ""):
            self._first_over.add(event.lane)
        else:
            self._lengths[event.lane] = event.epochs, event.batches

    def join(self, timeout_s: float) -> bool:
        """Wait; return whether the race has ended."""
        over = super().join(timeout_s)
        return over or any(lane.phase in (FAILED, ABSENT) for lane in self.session.snapshot().lanes)

    def judge(self) -> tuple[Trial, bool]:
        """Return the answer, and whether the unchanged script must run again."""
        analysis = analyse(self.session.snapshot())
        trial, unclear = judge_trial(analysis, self._lengths, self.change.title, self.again)
        return replace(trial, files=self.change.paths), unclear

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code."""
        analysis = analyse(self.session.snapshot())
        if len(analysis.snapshot.lanes) < 2:
            return "", EXIT_INTERRUPTED if interrupted else EXIT_LANE_FAILED
        trial, _ = self.judge()
        result = summarise(analysis, self.header)
        code = EXIT_INTERRUPTED if interrupted else trial.exit_code
        if any(lane.phase == ABSENT for lane in analysis.snapshot.lanes):
            code = EXIT_DEVICE_ABSENT
        return (to_json(trial, result) if as_json else to_text(trial, result)), code


def run_again(program: TrialProgram, options: RaceOptions, runs: int) -> str:
    """Run both sides alternately, if that can change the answer; return the interruption.

    If a side does not end, only the unchanged script runs again, for as long, to show the effect of seeds.
    """
    trial, unclear = program.judge()
    first, second = program.session.snapshot().lanes
    in_pairs = runs > 0 and ended(first) and ended(second)
    if trial.same_training is False or FAILED in (first.phase, second.phase) or not (in_pairs or unclear):
        return ""
    if in_pairs:
        about = units.about(runs * sum(filter(None, trial.run_s)))
        say(f"each side runs {units.several(runs, 'time')} by itself, alternately: about {about}")
    else:
        say("the losses differ: the script as it is runs once more")
    seconds = None if ended(first) else max(1.0, first.totals.trained_ns / 1e9)
    for number in range(2 * runs if in_pairs else 1):
        side = (number + 1) // 2 % 2  # A B B A A B cancels a drift of the machine
        purpose = Purpose(
            watched=False, restarts=True, change=replace(program.change, sides=(program.change.sides[side],))
        )
        alone = Program(replace(options, record=False, seconds=seconds), purpose)
        alone.prepare()
        if interrupted := run_until_over(alone):
            return interrupted
        program.again[side].extend(alone.session.snapshot().lanes)
        if any(lane.phase == FAILED for lane in program.again[side]):
            break
    return ""

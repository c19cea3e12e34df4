"""`tfmon try`: the race of a script against the same script with a change."""

from __future__ import annotations

from dataclasses import replace

from tfmon.analysis.analysis import analyse
from tfmon.analysis.summarise import summarise
from tfmon.analysis.trial_answer import LossDifference, Trial, judge_trial, loss_difference
from tfmon.api.change import Change
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.program import Program
from tfmon.api.race_lock import Tell
from tfmon.api.run_base import run_until_over
from tfmon.api.series_run import plan_race
from tfmon.catalog import ScenarioInfo
from tfmon.errors import EXIT_DEVICE_ABSENT, EXIT_INTERRUPTED, EXIT_LANE_FAILED, UsageError
from tfmon.lanes.plan import RacePlan
from tfmon.model.events import Event
from tfmon.model.folder_views import IN_PLACE
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.script_events import Progressed
from tfmon.reports.trial_report import to_json, to_text

HEADLESS_SECONDS = 300.0


class TrialProgram(Program):
    """A race of two lanes of one script. It ends when both have ended, or one fails."""

    def __init__(self, race_options: RaceOptions, purpose: Purpose, tell: Tell | None = None) -> None:
        super().__init__(race_options, purpose, tell)
        assert purpose.change is not None, "a try without a change"
        self._change = purpose.change
        self._lengths: dict[str, tuple[int, int | None]] = {}
        self._first_over: set[str] = set()
        self.seeds: LossDifference | None = None
        """Between the losses of two runs of the script as it is."""
        self.session.listen(self._note_length)

    def plan(self, info: ScenarioInfo, race_options: RaceOptions | None = None) -> RacePlan:
        """Plan the race; raises UsageError."""
        plan = super().plan(info, race_options)
        view = plan.race.views.get("")
        if view is None or view.kind == IN_PLACE:
            why = view.reason if view is not None else "the lanes have none"
            raise UsageError(
                f"the lanes cannot have views of the folder with different files: {why}",
                "allow user namespaces, or raise the setting view_copy so that the folder is copied",
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
        """Wait; return whether both have ended, or one failed."""
        over = super().join(timeout_s)
        return over or any(lane.phase in (FAILED, ABSENT) for lane in self.session.snapshot().lanes)

    def judge(self) -> tuple[Trial, bool]:
        """Return the answer, and whether a second run would make it clearer."""
        analysis = analyse(self.session.snapshot())
        trial, unclear = judge_trial(analysis, self._lengths, self._change.title, self.seeds)
        return replace(trial, files=self._change.paths), unclear

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


def compare_seeds(options: RaceOptions, program: TrialProgram, change: Change) -> str:
    """Run the script as it is once more, and compare its losses; return the interruption.

    Two runs without a seed differ. Only such a difference shows whether a change trains something else.
    """
    first = program.session.snapshot().lanes[0]
    seconds = max(1.0, first.totals.trained_ns / 1e9) if options.seconds else None
    purpose = Purpose(watched=False, restarts=True, change=replace(change, sides=change.sides[:1]))
    again = Program(replace(options, record=False, seconds=seconds), purpose)
    plan_race(again, options.info, ())
    interrupted = run_until_over(again)
    lanes = again.session.snapshot().lanes
    program.seeds = loss_difference(first, lanes[0]) if lanes and not interrupted else None
    return interrupted

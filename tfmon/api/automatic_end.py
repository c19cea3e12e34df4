"""The end of a race, and its exit code."""

from __future__ import annotations

import time

from tfmon.analysis.analysis import analyse
from tfmon.analysis.health import concerns
from tfmon.api.options import RaceOptions
from tfmon.errors import EXIT_DEVICE_ABSENT, EXIT_FINE, EXIT_INTERRUPTED, EXIT_LANE_FAILED, EXIT_UNHEALTHY
from tfmon.lanes.group import LaneGroup
from tfmon.model.events import Event, Interrupted
from tfmon.model.lane_events import SliceEnded
from tfmon.model.lane_state import ABSENT, DONE, FAILED
from tfmon.model.lane_texts import code_of_command
from tfmon.model.readings import HostSample
from tfmon.model.session import Session


class Ending:
    """Ends the race automatically. Thread: any."""

    def __init__(self, session: Session, lanes: LaneGroup, race_options: RaceOptions) -> None:
        self._session, self._lanes = session, lanes
        self._until_ci, self._fail_on = race_options.until_ci, race_options.concerns
        self._unhealthy = ""
        if self._until_ci is not None:
            session.listen(self._finish_when_narrow)
        if self._fail_on:
            session.listen(self._finish_when_unhealthy)

    @property
    def unhealthy(self) -> str:
        """The concern of `fail_on`, past or present."""
        snapshot = self._session.snapshot()
        lanes = snapshot.lanes if self._fail_on and not self._unhealthy else ()
        result = ((lane, concern) for lane in lanes for concern in concerns(snapshot, lane))
        texts = (f"{lane.title}: {one.text}" for lane, one in result if one.id in self._fail_on)
        return next(texts, self._unhealthy)

    def _finish_when_narrow(self, event: Event) -> None:
        if not isinstance(event, SliceEnded) or self._until_ci is None:
            return
        ranking = analyse(self._session.snapshot()).verdict.ranking
        if ranking and all(rank.ratio.half_width <= self._until_ci for rank in ranking):
            self._lanes.finish()

    def _finish_when_unhealthy(self, event: Event) -> None:
        if isinstance(event, HostSample) and not self._unhealthy and (result := self.unhealthy):
            self._unhealthy = result
            self._session.accept(Interrupted(at_ns=time.monotonic_ns(), reason=f"ended by --fail-on: {result}"))
            self._lanes.finish()

    def exit_code(self) -> int:
        """Return the exit code for the lanes."""
        phases = [lane.phase for lane in self._session.snapshot().lanes]
        if ABSENT in phases:
            return EXIT_DEVICE_ABSENT
        return EXIT_LANE_FAILED if FAILED in phases else EXIT_FINE

    def exit_code_of_race(self, interrupted: str) -> int:
        """Return the exit code of race or command."""
        lanes, ours = self._session.snapshot().lanes, self.exit_code()
        if self.unhealthy:
            return EXIT_UNHEALTHY
        command_ended = len(lanes) == 1 and lanes[0].script.command and lanes[0].end.event is not None
        if command_ended and ours != EXIT_DEVICE_ABSENT:
            code, ended_well, trouble = code_of_command(lanes[0]), lanes[0].phase == DONE, lanes[0].trouble
            refused = trouble is not None and trouble.kind == "scenario"
            if code == EXIT_INTERRUPTED and not interrupted and (ended_well or refused):
                return ours  # tfmon's own Ctrl+C ended it
            if code or ended_well:
                return code
        return EXIT_INTERRUPTED if interrupted else ours

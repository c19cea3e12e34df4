"""Profiles of the lanes of a race."""

from __future__ import annotations

import queue
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfmon.errors import TfmonError
from tfmon.lanes.group import LaneGroup
from tfmon.model.event_base import Event
from tfmon.model.events import LaneEnded
from tfmon.model.lane_events import LaneFailed, Profiled, ProfileFailed
from tfmon.model.profile import NOT_COUNTED, CpuCounters, Profile
from tfmon.model.race import interleaved
from tfmon.model.readings import Missing
from tfmon.model.requests import TakeProfile
from tfmon.model.session import Session
from tfmon.probes import cpu_counters

STEPS, TIMES = 20, 3
TIMEOUT_S = 90.0


class Profiling:
    """Profiles lanes. Thread: any except the screen's."""

    def __init__(self, session: Session, lanes: LaneGroup) -> None:
        self._session = session
        self._lanes = lanes

    def take(
        self, lane: str, folder: Path, steps: int = STEPS, chrome: str = "", *, count: bool = True
    ) -> Profile:
        """Profile a lane into `folder` and `chrome`; raises TfmonError."""
        state = self._session.snapshot().lane(lane)
        counters: CpuCounters | Missing = NOT_COUNTED
        if count and state.spec.kind == "cpu" and not state.spec.host and state.process.pid is not None:
            counters = cpu_counters.count(state.process.pid)
        request = TakeProfile(folder=str(folder), steps=steps, chrome=chrome, counters=counters)
        return self._answer(lane, request)

    def _answer(self, lane: str, request: TakeProfile) -> Profile:
        answers: queue.Queue[Event] = queue.Queue()

        def take(event: Event) -> None:
            if not isinstance(event, Profiled | ProfileFailed) or event.folder == request.folder:
                answers.put(event)

        forget = self._session.listen(take, LaneEnded, LaneFailed, Profiled, ProfileFailed)
        try:
            self._lanes.profile(lane, request)
            answer = answers.get(timeout=TIMEOUT_S)
        except queue.Empty:
            raise TfmonError(f"{lane} wrote no profile within {TIMEOUT_S:.0f} s") from None
        finally:
            forget()
        if isinstance(answer, Profiled):
            return answer.profile
        reason = answer.reason if isinstance(answer, ProfileFailed) else "the lane ended"
        raise TfmonError(f"no profile of {lane} could be taken: {reason}")

    def in_turns(self, lanes: Sequence[str], folder: Path, steps: int = STEPS, times: int = TIMES) -> None:
        """Profile each lane alone, in turns; raises TfmonError."""
        snapshot = self._session.snapshot()
        contended = not interleaved(snapshot.race.mode, snapshot.race.exclusive, len(snapshot.lanes))
        try:
            for number in range(1, times + 1):
                for name in lanes:
                    if contended:
                        self._lanes.set_exclusive(name)
                    spec = snapshot.lane(name).spec
                    target = folder / (spec.id or spec.name) / str(number)
                    target.mkdir(parents=True, exist_ok=True)
                    chrome = "" if spec.host or number > 1 else f"{target.parent}.json"
                    self.take(name, target, steps, chrome, count=number == 1)
        finally:
            if contended:
                self._lanes.set_exclusive("")

    def of_lanes(self, lanes: Sequence[str]) -> str:
        """Profile lanes; return the report on a single lane. Raises TfmonError."""
        from tfmon.reports.profile_report import to_text

        with tempfile.TemporaryDirectory(prefix="tfmon-profile-") as folder:
            if len(lanes) == 1:
                return to_text(self.take(lanes[0], Path(folder)))
            self.in_turns(lanes, Path(folder))
        return ""

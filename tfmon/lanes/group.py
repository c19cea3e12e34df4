"""The user's requests for the lanes of a race: begin, change, pause, restart and end them."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tfmon.errors import TfmonError
from tfmon.lanes.launch import BOOTSTRAP
from tfmon.lanes.plan import RacePlan
from tfmon.lanes.process import Place
from tfmon.lanes.running import RunningLanes
from tfmon.model.events import Event, KnobRequested, LaneEnded, UserRequested
from tfmon.model.knobs import KnobValue, find
from tfmon.model.lane_events import LaneFailed, Profiled, ProfileFailed
from tfmon.model.lane_state import FAILED
from tfmon.model.periods import why_mode_stays
from tfmon.model.profile import Profile
from tfmon.model.requests import SetKnob, TakeProfile
from tfmon.model.session import Session
from tfmon.model.threads import start_thread

PROFILE_TIMEOUT_S = 90.0


class LaneGroup:
    """Runs one race after another; the screen's `Controls`. Thread: any; only `stop` waits."""

    def __init__(
        self,
        session: Session,
        plan: Callable[[str], RacePlan],
        script: Path = BOOTSTRAP,
        *,
        keep_spare: bool = False,
        places: Callable[[str], Place] | None = None,
    ) -> None:
        """Run lanes; `plan` makes the default race of a scenario, `places` finds a host, None for none."""
        self.running = RunningLanes(session, script, keep_spare=keep_spare, places=places)
        self._session, self._lock = session, self.running.lock
        self._children, self._scheduler = self.running.children, self.running.scheduler
        self._plan_race = plan
        self._request_numbers = itertools.count(1)
        self._restarting = 0

    def begin(self, plan: RacePlan) -> None:
        """Start every lane of a race, unless the group is stopped."""
        self.running.begin(plan)

    def race(self, scenario: str) -> None:
        """End this race and start the default one of another scenario; after a TfmonError this one goes on."""
        plan = self._plan_race(scenario)
        self._record_request("race", (), scenario)

        def change() -> None:
            with self._lock:
                processes = self._children.take()
            self._children.end(processes)
            self.begin(plan)

        self.running.in_background(change)

    def finish(self) -> None:
        """End the lanes of this race soon; they keep their place and their figures."""
        self.running.finish(self.running.plan)

    def stop(self) -> None:
        """End every lane, and return when all are gone."""
        self.running.stop()

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Request another setting of a lane; a knob that is not live restarts the lane with it."""
        with self._lock:
            if lane not in self.running.settings:
                return
            if self._over and self._session.snapshot().lane(lane).phase != FAILED:
                return
            process = self._children.find(lane)
            if process is None and self.running.plan is not None and self.running.plan.command:
                return  # only `restart` starts a user's command again
            kind = find(self._session.snapshot().race.knobs, knob).kind
            request = next(self._request_numbers)
            at_ns = time.monotonic_ns()
            self._session.accept(KnobRequested(lane=lane, at_ns=at_ns, request=request, knob=knob, value=value))
            self.running.settings[lane][knob] = value
            if self.running.renewing:
                return  # the fresh process begins with it
            if kind == "live" and process is not None:
                process.send(SetKnob(request=request, knob=knob, value=value))
                return
        self.restart([lane])

    def pause(self, lanes: Sequence[str]) -> None:
        """Pause lanes at their next step boundary."""
        if self._over:
            return
        self._record_request("pause", lanes)
        with self._lock:
            self._scheduler.pause(lanes)

    def resume(self, lanes: Sequence[str]) -> None:
        """Let paused lanes train on."""
        if self._over:
            return
        self._record_request("resume", lanes)
        with self._lock:
            self._scheduler.resume(lanes)

    def profile(self, lane: str, request: TakeProfile) -> None:
        """Make a lane train some steps under the profiler; its answer comes as an event."""
        self._record_request("profile", [lane])
        on_gpu = self._session.snapshot().lane(lane).spec.kind == "gpu"
        with self._lock:
            self._children.send(lane, replace(request, on_gpu=on_gpu))

    def take_profile(self, lane: str, request: TakeProfile) -> Profile:
        """Profile some steps of a lane and return the profile; raises TfmonError."""
        answers: queue.Queue[Event] = queue.Queue()

        def hear(event: Event) -> None:
            over = isinstance(event, LaneEnded | LaneFailed) and event.lane == lane
            if over or (isinstance(event, Profiled | ProfileFailed) and event.folder == request.folder):
                answers.put(event)

        forget = self._session.listen(hear)
        try:
            self.profile(lane, request)
            answer = answers.get(timeout=PROFILE_TIMEOUT_S)
        except queue.Empty:
            raise TfmonError(f"{lane} wrote no profile within {PROFILE_TIMEOUT_S:.0f} s") from None
        finally:
            forget()
        if isinstance(answer, Profiled):
            return answer.profile
        reason = answer.reason if isinstance(answer, ProfileFailed) else "the lane ended"
        raise TfmonError(f"no profile of {lane} could be taken: {reason}")

    def set_mode(self, mode: str) -> None:
        """Change the mode to interleaved or concurrent, unless `why_mode_stays` objects."""
        with self._lock:
            if why_mode_stays(self._session.snapshot().lanes):
                return
            self._session.set_mode(mode)
            self._scheduler.set_mode(mode)

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Train one lane alone, in slices of `slice_s` seconds; "" ends that."""
        with self._lock:
            self._session.set_exclusive(lane)
            self._scheduler.set_exclusive(lane, slice_s)

    def restart(self, lanes: Sequence[str]) -> None:
        """End lanes and start them again as requested last; a race that is over with a result starts again."""
        self._record_request("restart", lanes)
        with self._lock:
            if self._over and self.running.plan is not None and self._session.snapshot().has_result:
                self._begin_again(self.running.plan)
                return
            plan, known = self.running.plan, self._session.snapshot().hosts
            if plan is None:
                return
            waiting: dict[str, list[str]] = {}
            for lane in plan.lanes:
                host = lane.spec.host
                if not host or host not in known or lane.spec.name not in lanes:
                    continue
                if known[host].connecting:
                    return  # it is being connected to again already
                if known[host].lost:
                    waiting.setdefault(host, []).append(lane.spec.name)
            self._restarting += 1 + len(waiting)
        for names in waiting.values():
            start_thread("tfmon-reconnect", partial(self._restart_there, plan, names), self.running.thread_failed)
        self._restart([name for name in lanes if not any(name in names for names in waiting.values())])

    def _restart_there(self, plan: RacePlan, lanes: Sequence[str]) -> None:
        self.running.connect_again(plan, lanes)
        if plan is self.running.plan and not self.running.stopped:
            self._restart(lanes)
        else:
            with self._lock:
                self._restarting -= 1

    def _restart(self, lanes: Sequence[str]) -> None:

        def start_again() -> None:
            with self._lock:
                for name in lanes:
                    self._scheduler.restarting(name)
                processes = self._children.take(lanes)
            self._children.end(processes)
            with self._lock:
                self._restarting -= 1
                plan = self.running.plan
                if plan is None or self.running.stopped:
                    return
                names = [name for name in lanes if name not in self._children]
                again = [lane for lane in plan.lanes if lane.spec.name in names]
                self.running.start(
                    plan, [replace(lane, settings=dict(self.running.settings[lane.spec.name])) for lane in again]
                )

        self.running.in_background(start_again)

    def _begin_again(self, plan: RacePlan) -> None:
        """Begin the race again with the settings and the mode in effect; the caller holds the lock."""
        mode = self._session.snapshot().race.mode
        lanes = [replace(lane, settings=dict(self.running.settings[lane.spec.name])) for lane in plan.lanes]
        again = replace(plan, race=replace(plan.race, mode=mode), lanes=tuple(lanes))
        processes = self._children.take()
        self._restarting += 1

        def begin() -> None:
            self._children.end(processes)
            self.running.connect_again(again, list(self.running.settings))
            with self._lock:
                self._restarting -= 1
                self.begin(again)

        self.running.in_background(begin)

    @property
    def _over(self) -> bool:
        return not self._restarting and self._session.snapshot().over

    def pass_output(
        self, write: Callable[[bytes], object], write_error: Callable[[bytes], object] | None = None
    ) -> None:
        """Pass on the output of the lanes of the next races unchanged; without `write_error`, all by `write`."""
        self._children.echo, self._children.echo_error = write, write_error

    def end_now(self) -> None:
        """Wait no longer for user's commands that are ending."""
        self._children.end_now()

    def kill(self, lane: str) -> None:
        """End one lane, by force if it does not end itself, or at once the second time; the others go on."""
        self._record_request("end", [lane])
        with self._lock:
            process = self._children.find(lane)
            if self._session.snapshot().lane(lane).end.requested is not None:
                self._children.end_now()
                return
        self.running.in_background(lambda: self._children.end([process] if process is not None else []))

    def ask_stack(self, lane: str) -> None:
        """Make a lane report the stacks of its threads; the answer comes as an event, if it comes."""
        self.running.ask_stack(lane)

    def _record_request(self, action: str, lanes: Sequence[str], scenario: str = "") -> None:
        at_ns = time.monotonic_ns()
        self._session.accept(UserRequested(at_ns=at_ns, action=action, lanes=tuple(lanes), scenario=scenario))

"""The lanes of a race together: started, given one start signal, commanded, restarted and stopped."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.lanes.children import Children
from tfmon.lanes.launch import BOOTSTRAP
from tfmon.lanes.plan import LanePlan, RacePlan, digest, next_process, started
from tfmon.lanes.process import LaneProcess
from tfmon.lanes.renewal import PATIENCE_S, PREPARE_S, Renewal
from tfmon.lanes.scheduler import Scheduler
from tfmon.lanes.suspend import Suspender
from tfmon.lanes.watchdog import MemoryKills
from tfmon.model.events import (
    BadLine,
    Event,
    KnobRequested,
    LaneEnded,
    LaneStalled,
    Suspended,
    UserRequested,
)
from tfmon.model.knobs import KnobValue, find
from tfmon.model.lane_events import Finished, KnobRefused, LaneFailed, PhaseEntered, SliceEnded, StackReported
from tfmon.model.lane_state import FAILED, PAUSED, READY
from tfmon.model.requests import ReportStack, SetKnob, TakeProfile
from tfmon.model.session import Session, why_mode_stays


class LaneGroup:
    """Runs the lanes of one race after another. It is the screen's `Controls`.

    Thread: every method may be called from any thread, and all but `stop` return at once.
    """

    def __init__(
        self,
        session: Session,
        plan: Callable[[str], RacePlan],
        script: Path = BOOTSTRAP,
        *,
        keep_spare: bool = False,
    ) -> None:
        """Run lanes for a session.

        Args:
            session: Takes every event.
            plan: Returns the default race of a scenario that the user requests.
            script: What the process of a lane runs that has no user's command.
            keep_spare: Whether a process that has loaded TensorFlow is kept for the next lane to start.
        """
        self._session = session
        self._plan_race = plan
        self._lock = threading.RLock()
        self._children = Children(script, self._lock, self._accept, keep_spare=keep_spare)
        self._changing = threading.Lock()
        self._request_numbers = itertools.count(1)
        self._plan: RacePlan | None = None
        self._settings: dict[str, dict[str, KnobValue]] = {}
        """What each lane is requested to train under; a restart uses it."""
        self._scheduler = Scheduler(self._children, self)
        self._renewal = Renewal()
        self._renewing: tuple[str, ...] = ()
        """Lanes whose processes are being replaced by fresh ones."""
        self._finished: RacePlan | None = None
        self._memory_kills = MemoryKills()
        self.suspension = Suspender(self._children.all, self._record_suspension)
        self._stopped = False
        self._restarting = 0
        """Restarts under way."""

    # ---------------------------------------------------------------- whole races

    def begin(self, plan: RacePlan) -> None:
        """Start every lane of a race; none once the group is stopped."""
        with self._lock:
            if self._stopped:
                return
            self._plan, self._renewing = plan, ()
            self._renewal = Renewal(plan.fresh_every_s, plan.seconds)
            self._settings = {lane.spec.name: dict(lane.settings) for lane in plan.lanes}
            self._scheduler.begin(list(self._settings), plan.race.mode, plan.slice_s)
            self._session.begin(plan.race, [lane.spec for lane in plan.lanes], digest(plan.scenario))
            self._start(plan, plan.lanes)

    def race(self, scenario: str) -> None:
        """End this race and start the default race of another scenario.

        Raises:
            TfmonError: It cannot be raced; the race that runs goes on.
        """
        plan = self._plan_race(scenario)
        self._record_request("race", (), scenario)

        def change() -> None:
            with self._lock:
                processes = self._children.take()
            self._children.end(processes)
            self.begin(plan)

        self._in_background(change)

    def finish(self) -> None:
        """End the lanes of this race soon; they keep their place and their figures."""
        self._finish(self._plan)

    def _finish(self, plan: RacePlan | None) -> None:
        with self._lock:
            self._finished = plan
            if plan is self._plan:
                self._break_off_renewal()

        def end() -> None:
            with self._lock:
                processes = [] if self._plan is not plan or self._stopped else self._children.all()
            self._children.end(processes)

        self._in_background(end)

    def stop(self) -> None:
        """End every lane, and return when all are gone."""
        with self._lock:
            self._stopped = True
            self._break_off_renewal()
        self._children.close()

    # ---------------------------------------------------------------- requests of the user

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Request another setting of a lane; a knob that is not live restarts the lane with it."""
        with self._lock:
            if lane not in self._settings:
                return
            if self._over and self._session.snapshot().lane(lane).phase != FAILED:
                return
            kind = find(self._session.snapshot().race.knobs, knob).kind
            request = next(self._request_numbers)
            at_ns = time.monotonic_ns()
            self._session.accept(KnobRequested(lane=lane, at_ns=at_ns, request=request, knob=knob, value=value))
            self._settings[lane][knob] = value
            if self._renewing:
                return  # the fresh process begins with it
            process = self._children.find(lane)
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

    def profile(self, lane: str, folder: Path, steps: int) -> None:
        """Have a lane train some steps under the profiler; its answer comes as an event."""
        self._record_request("profile", [lane])
        with self._lock:
            self._children.send(lane, TakeProfile(folder=str(folder), steps=steps))

    def set_mode(self, mode: str) -> None:
        """Let the lanes train in turns or concurrently, where `why_mode_stays` has nothing against it."""
        with self._lock:
            if why_mode_stays(self._session.snapshot()):
                return
            self._session.set_mode(mode)
            self._scheduler.set_mode(mode)

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Let one lane train by itself, in slices of so many seconds; "" ends that."""
        with self._lock:
            self._session.set_exclusive(lane)
            self._scheduler.set_exclusive(lane, slice_s)

    def restart(self, lanes: Sequence[str]) -> None:
        """End lanes and start them again with the settings that were requested last.

        When all lanes have ended and something was measured, that result stays: a new race begins, with a
        recording of its own.
        """
        self._record_request("restart", lanes)
        with self._lock:
            if self._over and self._plan is not None and self._session.snapshot().has_result:
                self._begin_again(self._plan)
                return
            self._restarting += 1

        def start_again() -> None:
            with self._lock:
                for name in lanes:
                    self._scheduler.restarting(name)
                processes = self._children.take(lanes)
            self._children.end(processes)
            with self._lock:
                self._restarting -= 1
                plan = self._plan
                if plan is None or self._stopped:
                    return
                names = [name for name in lanes if name not in self._children]
                again = [lane for lane in plan.lanes if lane.spec.name in names]
                self._start(plan, [replace(lane, settings=dict(self._settings[lane.spec.name])) for lane in again])

        self._in_background(start_again)

    def _begin_again(self, plan: RacePlan) -> None:
        """Begin a race anew with the settings and the mode in effect; the caller holds the lock."""
        mode = self._session.snapshot().race.mode
        lanes = [replace(lane, settings=dict(self._settings[lane.spec.name])) for lane in plan.lanes]
        again = replace(plan, race=replace(plan.race, mode=mode), lanes=tuple(lanes))
        processes = self._children.take()
        self._restarting += 1

        def begin() -> None:
            self._children.end(processes)
            with self._lock:
                self._restarting -= 1
                self.begin(again)

        self._in_background(begin)

    @property
    def _over(self) -> bool:
        """True when every lane of the race has ended and none is about to start again."""
        return not self._restarting and self._session.snapshot().over

    def kill(self, lane: str) -> None:
        """End one lane, by force if it does not end itself; the others go on."""
        with self._lock:
            process = self._children.find(lane)
        self._in_background(lambda: self._children.end([process] if process is not None else []))

    def ask_stack(self, lane: str) -> None:
        """Have a lane report the stacks of its threads; the answer comes as an event, if it comes."""
        with self._lock:
            process = self._children.find(lane)
            if process is None or not self._session.snapshot().lane(lane).reports_stack:
                return
            if self._plan is not None and self._plan.command:
                process.send(ReportStack())
                return
        threading.Thread(target=self._read_stacks, args=(process,), name="tfmon-stack", daemon=True).start()

    def _read_stacks(self, process: LaneProcess) -> None:
        lines = process.read_stacks()
        if lines:
            self._session.accept(StackReported(lane=process.lane, at_ns=time.monotonic_ns(), lines=lines))

    def _record_request(self, action: str, lanes: Sequence[str], scenario: str = "") -> None:
        at_ns = time.monotonic_ns()
        self._session.accept(UserRequested(at_ns=at_ns, action=action, lanes=tuple(lanes), scenario=scenario))

    def _in_background(self, work: Callable[[], None]) -> None:
        """Do what waits for a process's end: in a thread, one after another."""

        def run() -> None:
            with self._changing:
                work()

        threading.Thread(target=run, name="tfmon-change", daemon=True).start()

    # ---------------------------------------------------------------- what the watchdog notices

    def report_stall(self, lane: str, since_ns: int) -> None:
        """Record that a lane hangs; the race goes on without it until it says something."""
        with self._lock:
            if self._children.find(lane) is not None:
                self._session.accept(LaneStalled(lane=lane, at_ns=time.monotonic_ns(), since_ns=since_ns))
                self._scheduler.skip(lane)

    def skip(self, lane: str) -> None:
        """End the slice of a lane that hung before and hangs still."""
        with self._lock:
            lanes = self._session.snapshot().lanes
            if any(one.spec.name == lane and one.heartbeat.stalled_since_ns is not None for one in lanes):
                self._scheduler.skip(lane)

    def count_memory_kills(self) -> None:
        """Count the processes that the kernel has killed for lack of memory."""
        with self._lock:
            self._memory_kills.count()

    def _record_suspension(self, since_ns: int, until_ns: int, lasted_s: float) -> None:
        with self._lock:
            for name in self._settings:
                self._session.accept(Suspended(lane=name, at_ns=until_ns, since_ns=since_ns, lasted_s=lasted_s))

    # ---------------------------------------------------------------- processes and what they say

    def _start(self, plan: RacePlan, lanes: Sequence[LanePlan], *, renewed: bool = False) -> None:
        """Start lanes, with the lock, so that no event overtakes LaneStarted; and prepare spare workers."""
        for lane in lanes:
            name = lane.spec.name
            try:
                process, hello = self._children.start(lane, plan)
            except OSError as error:
                program = plan.command[0] if plan.command else plan.python
                message = f"{program} did not start: {error.strerror or error}"
                self._accept(LaneFailed(lane=name, at_ns=time.monotonic_ns(), kind="error", message=message))
                continue
            self._session.accept(started(plan, lane, process.pid, renewed=renewed))
            if hello is not None:
                self._session.accept(replace(hello, lane=name))
        if not plan.command:
            self._children.prepare_spares(plan.python, quiet=self._scheduler.busy)

    def _accept(self, event: Event) -> None:
        """Take an event of a lane's process: into the session first, then into the scheduler."""
        if isinstance(event, LaneEnded) and event.signal == "SIGKILL" and not event.requested:
            event = replace(event, memory_kills=self._memory_kills.recent())
        self._session.accept(event)
        match event:
            case PhaseEntered(phase=phase) if phase == READY:
                self._scheduler.ready(event.lane)
            case PhaseEntered(phase=phase) if phase == PAUSED:
                self._scheduler.idle(event.lane)
            case SliceEnded():
                self._scheduler.idle(event.lane)
            case LaneEnded() | LaneFailed() | Finished():
                self._scheduler.ended(event.lane)
            case KnobRefused():
                in_effect = self._session.snapshot().lane(event.lane).settings
                if event.knob in in_effect:
                    self._settings[event.lane][event.knob] = in_effect[event.knob]
        if not isinstance(event, BadLine) and not self._scheduler.responded(event.lane):
            self._session.accept(LaneStalled(lane=event.lane, at_ns=event.at_ns, since_ns=event.at_ns))

    # ---------------------------------------------------------------- what the scheduler decides

    def started(self) -> None:
        """Record that the lanes got the start signal, and start the clock that ends the race."""
        self._session.start_clock(time.monotonic_ns())
        plan = self._plan
        if plan is not None and plan.seconds is not None:
            self.suspension.call_after(plan.seconds, lambda: self._finish(plan))

    def granted(self, lane: str) -> None:
        """Record whose slice it is."""
        self._session.grant_slice(lane)

    def paused(self, lane: str) -> None:
        """Record that a lane is paused which does not train at the moment."""
        self._session.accept(PhaseEntered(lane=lane, at_ns=time.monotonic_ns(), phase=PAUSED))

    def renew(self, lanes: Sequence[str]) -> bool:
        """Replace the processes of lanes by fresh ones, between two rounds; return whether that is due.

        They go on with the settings and with the measurement; the weights begin anew.
        """
        plan = self._plan
        if plan is None or self._finished is plan:
            return False
        if plan.fresh_spares and self._renewal.due(PREPARE_S):
            self._children.prepare_spares(plan.python, quiet=True, fresh=plan.fresh_spares)
        if self._children.spares_loading and not self._renewal.due(-PATIENCE_S):
            return False
        known = self._session.snapshot()
        if any(known.lane(name).requested for name in lanes) or not self._renewal.due():
            return False
        self._renewal.begin()
        self._renewing = renewing = tuple(lanes)
        for name in lanes:
            self._scheduler.restarting(name)
        processes = self._children.take(lanes)

        def start_fresh() -> None:
            self._children.end(processes)
            with self._lock:
                if self._renewing is renewing and plan is self._plan:
                    self._renewing = ()
                    known = self._session.snapshot()
                    again = [
                        next_process(plan, lane, self._settings[name], known.lane(name).measured_steps)
                        for lane in plan.lanes
                        if (name := lane.spec.name) in lanes
                    ]
                    self._start(plan, again, renewed=True)

        self._in_background(start_fresh)
        return True

    def _break_off_renewal(self) -> None:
        """Start no fresh processes: the race is over, and the ones before them were its last."""
        lanes, self._renewing = self._renewing, ()
        for lane in lanes:
            ended = LaneEnded(lane=lane, at_ns=time.monotonic_ns(), exit_code=0, signal=None, requested=True)
            self._accept(ended)

    # ---------------------------------------------------------------- what is known of the processes

    def processes(self) -> dict[str, int]:
        """Return the process that leads each lane that runs, and under blank names the spare workers."""
        with self._lock:
            return self._children.pids()

    @property
    def spare_ready(self) -> bool:
        """True when a spare worker has loaded TensorFlow."""
        with self._lock:
            return self._children.spare.ready

    @property
    def all_over(self) -> bool:
        """True when every process has ended, and none is being replaced."""
        with self._lock:
            return not self._renewing and all(process.ended for process in self._children.all())

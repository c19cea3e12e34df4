"""The lanes of a race as they run: their processes, what these say, and what scheduler and watchdog make of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.errors import TfmonError
from tfmon.lanes.children import Children
from tfmon.lanes.plan import LanePlan, RacePlan, digest, next_process, not_started, started, with_view
from tfmon.lanes.process import LaneProcess, Place
from tfmon.lanes.rounds import computes, slice_patience_s
from tfmon.lanes.scheduler import Scheduler
from tfmon.lanes.spare import PATIENCE_S, PREPARE_S, Renewal
from tfmon.lanes.suspend import Suspender
from tfmon.model.events import BadLine, EndRequested, Event, HostLost, LaneEnded, LaneStalled, Suspended
from tfmon.model.heartbeat import IN_A_STEP
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import Finished, KnobRefused, LaneFailed, PhaseEntered, SliceEnded, Window
from tfmon.model.lane_state import PAUSED, READY
from tfmon.model.limits import MemoryKills
from tfmon.model.requests import ReportStack
from tfmon.model.script_events import StackReported
from tfmon.model.session import Session
from tfmon.model.threads import start_thread


class RunningLanes:
    """Carries out the decisions of scheduler and watchdog, and passes on events. Thread: any; no method waits."""

    def __init__(
        self, session: Session, script: Path, *, keep_spare: bool, places: Callable[[str], Place] | None = None
    ) -> None:
        self.session = session
        self.lock = threading.RLock()
        self.failure = ""
        """Why no race is possible any more: a thread of tfmon has died."""
        self.children = Children(
            script, self.lock, self._accept, self.thread_failed, keep_spare=keep_spare, places=places
        )
        self._changing = threading.Lock()
        self.plan: RacePlan | None = None
        self.settings: dict[str, dict[str, KnobValue]] = {}
        """The requested settings of each lane; a restart uses them."""
        self.scheduler = Scheduler(self.children, self)
        self._renewal = Renewal()
        self.renewing: tuple[str, ...] = ()
        """Lanes whose processes are being replaced by fresh ones."""
        self._finished: RacePlan | None = None
        self._away: dict[str, TfmonError] = {}
        self._memory_kills = MemoryKills()
        self.suspension = Suspender(self.children.suspendable, self._record_suspension, self.thread_failed)
        self.stopped = False

    def begin(self, plan: RacePlan) -> None:
        """Start every lane of a race, unless these lanes are stopped."""
        with self.lock:
            if self.stopped or self.failure:
                return
            number = self.session.snapshot().race.number + 1
            views = {host: one.of_race(number) for host, one in plan.race.views.items()}
            plan = replace(plan, race=replace(plan.race, views=views))
            self.plan, self.renewing = plan, ()
            self._renewal = Renewal(plan.fresh_every_s, plan.seconds)
            self.settings = {lane.spec.name: dict(lane.settings) for lane in plan.lanes}
            self.session.begin(plan.race, [lane.spec for lane in plan.lanes], digest(plan.scenario))
            known = self.session.snapshot()
            machines = {lane.spec.name: known.machine_key(lane) for lane in known.lanes}
            self.scheduler.begin(list(self.settings), plan.race.mode, plan.slice_s, machines)
            self.start(plan, plan.lanes)

    def stop(self) -> None:
        """End every process, and return when all are gone."""
        with self.lock:
            self.stopped = True
            self._break_off_renewal()
        self.children.close()

    def start(self, plan: RacePlan, lanes: Sequence[LanePlan], *, renewed: bool = False) -> None:
        """Start lanes, with the lock, so that no event overtakes LaneStarted; and prepare spare workers."""
        if self.failure:
            return
        known = self.session.snapshot()
        for lane in [with_view(plan, one, known.lane(one.spec.name).process.number + 1) for one in lanes]:
            name = lane.spec.name
            try:
                process, hello = self.children.start(lane, plan)
            except OSError as error:
                self._accept(None, not_started(plan, lane, self._away.get(lane.spec.host, error)))
                continue
            self.session.accept(started(plan, lane, process.pid, renewed=renewed))
            if hello is not None:
                self.session.accept(replace(hello, lane=name))
        if not plan.command and any(not lane.spec.host for lane in plan.lanes):
            self.children.prepare_spares(plan.python, quiet=self.scheduler.busy)

    def connect_again(self, plan: RacePlan, lanes: Sequence[str]) -> None:
        """Connect again to the lost hosts of lanes, without the lock; report a host that stays away."""
        for host in dict.fromkeys(lane.spec.host for lane in plan.lanes if lane.spec.name in lanes):
            self._away.pop(host, None)
            try:
                self.children.ensure([host])
            except TfmonError as error:
                self._away[host] = error
                self.session.accept(HostLost(at_ns=time.monotonic_ns(), host=host, reason=error.message))

    def _accept(self, process: LaneProcess | None, event: Event) -> None:
        """Accept an event of a process, or about a lane if `None`: first the session, then the scheduler."""
        with self.lock:
            if process is not None and not self.children.speaks_for_lane(process, event):
                return
            if isinstance(event, LaneEnded) and event.signal == "SIGKILL" and not event.requested:
                lane = self.session.snapshot().lane(event.lane)
                kills = "" if lane.spec.host else self._memory_kills.since(lane.heartbeat.heard_ns)
                event = replace(event, memory_kills=kills)
            if isinstance(event, Window) and IN_A_STEP in event.marks and self.computes(event.lane):
                event = replace(event, marks=tuple(mark for mark in event.marks if mark != IN_A_STEP))
            own, hung_since_ns = self.children.find(event.lane), None
            if own is not None and own.end_requested and not isinstance(event, BadLine | LaneEnded):
                # The last output of a lane that was told to end is not a sign of life.
                hung_since_ns = self.session.snapshot().lane(event.lane).heartbeat.stalled_since_ns
            self.session.accept(event)
            match event:
                case PhaseEntered(phase=phase) if phase == READY:
                    self.scheduler.ready(event.lane)
                case PhaseEntered(phase=phase) if phase == PAUSED:
                    self.scheduler.idle(event.lane)
                case SliceEnded():
                    self.scheduler.idle(event.lane)
                case EndRequested() if event.lane not in self.children:
                    pass  # the lane is being restarted
                case EndRequested() | LaneEnded() | LaneFailed() | Finished():
                    self.scheduler.ended(event.lane)
                    self.children.continue_(event.lane)  # a script may train on that is not measured any more
                    if self.session.snapshot().race.exclusive == event.lane:
                        self.session.set_exclusive("")
                        self.scheduler.set_exclusive("")
                case KnobRefused():
                    in_effect = self.session.snapshot().lane(event.lane).settings
                    if event.knob in in_effect:
                        self.settings[event.lane][event.knob] = in_effect[event.knob]
            if hung_since_ns is not None:
                self.session.accept(LaneStalled(lane=event.lane, at_ns=event.at_ns, since_ns=hung_since_ns))
            elif not isinstance(event, BadLine) and not self.scheduler.responded(event.lane):
                self.session.accept(LaneStalled(lane=event.lane, at_ns=event.at_ns, since_ns=event.at_ns))

    def finish(self, plan: RacePlan | None) -> None:
        """End the lanes of a race soon, unless another one has begun."""
        with self.lock:
            self._finished = plan
            if plan is self.plan:
                self._break_off_renewal()

        def end() -> None:
            with self.lock:
                processes = [] if self.plan is not plan or self.stopped else self.children.all()
            self.children.end(processes)

        self.in_background(end)

    def in_background(self, work: Callable[[], None]) -> None:
        """Do what waits for a process's end: in a thread, one after another."""

        def run() -> None:
            with self._changing:
                work()

        start_thread("tfmon-change", run, self.thread_failed)

    def thread_failed(self, reason: str) -> None:
        """Fail every lane with the reason for which a thread of tfmon has died, and end their processes."""
        with self.lock:
            if self.failure or self.stopped:
                return
            self.failure = reason
            processes = self.children.all()
            hint = "this is a mistake in tfmon; please report it"
            failed = LaneFailed(at_ns=time.monotonic_ns(), kind="error", message=reason, hint=hint)
            for lane in self.session.snapshot().lanes:
                if not lane.over:
                    self.session.accept(replace(failed, lane=lane.spec.name))
        start_thread("tfmon-end", lambda: self.children.end(processes), lambda _reason: None)

    def started(self) -> None:
        """Record that the lanes got the start signal, and start the clock that ends the race."""
        self.session.start_clock(time.monotonic_ns())
        plan = self.plan
        if plan is not None and plan.seconds is not None:
            self.suspension.call_after(plan.seconds, lambda: self.finish(plan))

    def granted(self, lane: str, beside: Sequence[str] = ()) -> None:
        """Record whose slice begins, and which slices of other machines run on."""
        self.session.grant_slice(lane, beside)

    def paused(self, lane: str) -> None:
        """Record that a lane is paused which does not train at the moment."""
        self.session.accept(PhaseEntered(lane=lane, at_ns=time.monotonic_ns(), phase=PAUSED))

    def renew(self, lanes: Sequence[str]) -> bool:
        """Replace lanes' processes by fresh ones, which go on measuring, between rounds; return if it is due."""
        plan = self.plan
        if plan is None or self._finished is plan:
            return False
        if plan.fresh_spares and self._renewal.due(PREPARE_S):
            self.children.prepare_spares(plan.python, quiet=True, fresh=plan.fresh_spares)
        if self.children.spares_loading and not self._renewal.due(-PATIENCE_S):
            return False
        known = self.session.snapshot()
        if any(known.lane(name).changes.requested for name in lanes) or not self._renewal.due():
            return False
        self._renewal.begin()
        self.renewing = renewing = tuple(lanes)
        for name in lanes:
            self.scheduler.restarting(name)
        processes = self.children.take(lanes)

        def start_fresh() -> None:
            self.children.end(processes)
            with self.lock:
                if self.renewing is renewing and plan is self.plan:
                    self.renewing = ()
                    known = self.session.snapshot()
                    again = [
                        next_process(plan, lane, self.settings[name], known.lane(name).totals.measured_steps)
                        for lane in plan.lanes
                        if (name := lane.spec.name) in lanes
                    ]
                    self.start(plan, again, renewed=True)

        self.in_background(start_fresh)
        return True

    def computes(self, lane: str) -> bool:
        """Return whether a step of a lane takes the same running time if it is suspended in the middle."""
        return computes(self.session.snapshot().lane(lane))

    def patience_s(self, lane: str) -> float:
        """Return after how many seconds a lane that has not ended its slice does something else than its steps."""
        return slice_patience_s(self.session.snapshot().lane(lane))

    def _break_off_renewal(self) -> None:
        """Start no fresh processes, because the race is over."""
        lanes, self.renewing = self.renewing, ()
        for lane in lanes:
            ended = LaneEnded(lane=lane, at_ns=time.monotonic_ns(), exit_code=0, signal=None, requested=True)
            self._accept(None, ended)

    def report_stall(self, lane: str, since_ns: int) -> None:
        """Record that a lane hangs; the race goes on without it until it says something."""
        with self.lock:
            if self.children.find(lane) is not None:
                self.session.accept(LaneStalled(lane=lane, at_ns=time.monotonic_ns(), since_ns=since_ns))
                self.scheduler.skip(lane)

    def give_up(self, lane: str, silent_s: float) -> None:
        """Fail a lane that was silent for `silent_s` seconds while it started, and end its process."""
        with self.lock:
            process = self.children.find(lane)
            if process is None:
                return
            phase = self.session.snapshot().lane(lane).phase
            message = f"it said nothing for {silent_s:.0f} s while it was {phase}"
            hint = "start_timeout in the settings allows more seconds"
            at_ns = time.monotonic_ns()
            self._accept(None, LaneFailed(lane=lane, at_ns=at_ns, kind="error", message=message, hint=hint))
        self.in_background(lambda: self.children.end([process]))

    def ask_stack(self, lane: str) -> None:
        """Make a lane report the stacks of its threads; the answer comes as an event, if it comes."""
        with self.lock:
            process = self.children.find(lane)
            if process is None or not self.session.snapshot().lane(lane).process.reports_stack:
                return
            if self.plan is not None and self.plan.command:
                process.send(ReportStack())
                return

        def report(*lines: str) -> None:
            if lines:
                self.session.accept(StackReported(lane=lane, at_ns=time.monotonic_ns(), lines=lines))

        start_thread("tfmon-stack", lambda: report(*process.read_stacks()), report)

    def skip(self, lane: str) -> None:
        """End the slice of a lane that hung before and hangs still."""
        with self.lock:
            lanes = self.session.snapshot().lanes
            if any(one.spec.name == lane and one.heartbeat.stalled_since_ns is not None for one in lanes):
                self.scheduler.skip(lane)

    def check_slices(self) -> None:
        """Let others train in the middle of a slice that does not end."""
        with self.lock:
            self.scheduler.check()

    def count_memory_kills(self) -> None:
        """Count the processes that the kernel has killed for lack of memory."""
        with self.lock:
            self._memory_kills.count(time.monotonic_ns())

    def _record_suspension(self, since_ns: int, until_ns: int, lasted_s: float) -> None:
        with self.lock:
            for name in self.settings:
                self.session.accept(Suspended(lane=name, at_ns=until_ns, since_ns=since_ns, lasted_s=lasted_s))

    def processes(self) -> dict[str, int]:
        """Return the process that leads each lane that runs, and under blank names the spare workers."""
        with self.lock:
            return self.children.pids()

    @property
    def all_over(self) -> bool:
        """True when every process has ended and none is being replaced, or when tfmon itself has failed."""
        with self.lock:
            ended = not self.renewing and all(process.ended for process in self.children.all())
            return ended or bool(self.failure)

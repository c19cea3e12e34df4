"""The lanes of a race as they run: their processes, what these say, and what scheduler and watchdog make of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.errors import TfmonError
from tfmon.lanes.children import Children
from tfmon.lanes.launch import ProcessLauncher
from tfmon.lanes.plan import LanePlan, RacePlan, next_process, started, with_view
from tfmon.lanes.process import Place
from tfmon.lanes.rounds import SliceBreak
from tfmon.lanes.scheduler import Scheduler
from tfmon.lanes.spare import PATIENCE_S, PREPARE_S, Renewal
from tfmon.lanes.suspend import Suspender
from tfmon.lanes.watchdog import MemoryKills
from tfmon.model.events import BadLine, EndRequested, Event, HostLost, LaneEnded, LaneStalled, Suspended
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import Finished, KnobRefused, LaneFailed, PhaseEntered, SliceEnded, Window
from tfmon.model.lane_state import HOST_LOST, IN_A_STEP, PAUSED, READY
from tfmon.model.lane_statistics import LATEST
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.threads import start_thread
from tfmon.model.window_sums import without_stop

OTHER_WORK_S, TIMES_STEP = 3.0, 3
"""A lane that has trained for so long, and for so many times its longest step, does something else than steps."""
COMPUTING_PCT = 80
"""CPU of a lane from which on its step computes, and does not wait: 100 is one core."""


class RunningLanes:
    """Carries out what scheduler and watchdog decide, and passes on what the processes say.

    Thread: every method may be called from any thread, and all return at once.
    """

    def __init__(
        self, session: Session, script: Path, *, keep_spare: bool, places: Callable[[str], Place] | None = None
    ) -> None:
        self._session = session
        self._lock = threading.RLock()
        self._failure = ""
        """Why nothing can be raced any more: a thread of tfmon has died."""
        self._children = Children(
            script, self._lock, self._accept, self.thread_failed, keep_spare=keep_spare, places=places
        )
        self._changing = threading.Lock()
        self._plan: RacePlan | None = None
        self._settings: dict[str, dict[str, KnobValue]] = {}
        """What each lane is requested to train under; a restart uses it."""
        self._scheduler = Scheduler(self._children, self)
        self._renewal = Renewal()
        self._renewing: tuple[str, ...] = ()
        """Lanes whose processes are being replaced by fresh ones."""
        self._finished: RacePlan | None = None
        self._away: dict[str, TfmonError] = {}
        """Why hosts could not be connected to again."""
        self._memory_kills = MemoryKills()
        self.suspension = Suspender(self._children.suspendable, self._record_suspension, self.thread_failed)
        self._stopped = False

    # ---------------------------------------------------------------- processes and what they say

    def _start(self, plan: RacePlan, lanes: Sequence[LanePlan], *, renewed: bool = False) -> None:
        """Start lanes, with the lock, so that no event overtakes LaneStarted; and prepare spare workers."""
        if self._failure:
            return
        known = self._session.snapshot()
        for lane in [with_view(plan, one, known.lane(one.spec.name).process + 1) for one in lanes]:
            name = lane.spec.name
            try:
                process, hello = self._children.start(lane, plan)
            except OSError as error:
                self._accept(_not_started(plan, lane, self._away.get(lane.spec.host, error)))
                continue
            self._session.accept(started(plan, lane, process.pid, renewed=renewed))
            if hello is not None:
                self._session.accept(replace(hello, lane=name))
        if not plan.command and any(not lane.spec.host for lane in plan.lanes):
            self._children.prepare_spares(plan.python, quiet=self._scheduler.busy)

    def _connect_again(self, plan: RacePlan, lanes: Sequence[str]) -> None:
        """Connect again to the lost hosts of lanes, without the lock; one that stays away is told."""
        for host in dict.fromkeys(lane.spec.host for lane in plan.lanes if lane.spec.name in lanes):
            self._away.pop(host, None)
            try:
                self._children.ensure([host])
            except TfmonError as error:
                self._away[host] = error
                self._session.accept(HostLost(at_ns=time.monotonic_ns(), host=host, reason=error.message))

    def _accept(self, event: Event) -> None:
        """Take an event of a lane's process: into the session first, then into the scheduler."""
        if isinstance(event, LaneEnded) and event.signal == "SIGKILL" and not event.requested:
            elsewhere = self._session.snapshot().lane(event.lane).spec.host
            event = replace(event, memory_kills="" if elsewhere else self._memory_kills.recent())
        if isinstance(event, Window | SliceEnded) and (stops := self._scheduler.stops(event.lane)):
            event = _with_stops(event, stops)
        hung_since_ns = self._hung_since_ns(event)
        self._session.accept(event)
        match event:
            case PhaseEntered(phase=phase) if phase == READY:
                self._scheduler.ready(event.lane)
            case PhaseEntered(phase=phase) if phase == PAUSED:
                self._scheduler.idle(event.lane)
            case SliceEnded():
                self._scheduler.idle(event.lane)
            case EndRequested() if event.lane not in self._children:
                pass  # the lane is being restarted
            case EndRequested() | LaneEnded() | LaneFailed() | Finished():
                self._scheduler.ended(event.lane)
                self._children.continue_(event.lane)  # a script may train on that is not measured any more
                if self._session.snapshot().race.exclusive == event.lane:
                    self._session.set_exclusive("")
                    self._scheduler.set_exclusive("")
            case KnobRefused():
                in_effect = self._session.snapshot().lane(event.lane).settings
                if event.knob in in_effect:
                    self._settings[event.lane][event.knob] = in_effect[event.knob]
        if hung_since_ns is not None:
            self._session.accept(LaneStalled(lane=event.lane, at_ns=event.at_ns, since_ns=hung_since_ns))
        elif not isinstance(event, BadLine) and not self._scheduler.responded(event.lane):
            self._session.accept(LaneStalled(lane=event.lane, at_ns=event.at_ns, since_ns=event.at_ns))

    def _hung_since_ns(self, event: Event) -> int | None:
        """Return since when a lane hangs that was told to end: its last words are no sign of life."""
        process = self._children.find(event.lane)
        if isinstance(event, BadLine | LaneEnded) or process is None or not process.end_requested:
            return None
        return self._session.snapshot().lane(event.lane).heartbeat.stalled_since_ns

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

    def _in_background(self, work: Callable[[], None]) -> None:
        """Do what waits for a process's end: in a thread, one after another."""

        def run() -> None:
            with self._changing:
                work()

        start_thread("tfmon-change", run, self.thread_failed)

    def thread_failed(self, reason: str) -> None:
        """Fail every lane with the reason for which a thread of tfmon has died, and end their processes."""
        with self._lock:
            if self._failure or self._stopped:
                return
            self._failure = reason
            processes = self._children.all()
            hint = "this is a mistake in tfmon; please report it"
            failed = LaneFailed(at_ns=time.monotonic_ns(), kind="error", message=reason, hint=hint)
            for lane in self._session.snapshot().lanes:
                if not lane.over:
                    self._session.accept(replace(failed, lane=lane.spec.name))
        start_thread("tfmon-end", lambda: self._children.end(processes), lambda _reason: None)

    # ---------------------------------------------------------------- what the scheduler decides

    def started(self) -> None:
        """Record that the lanes got the start signal, and start the clock that ends the race."""
        self._session.start_clock(time.monotonic_ns())
        plan = self._plan
        if plan is not None and plan.seconds is not None:
            self.suspension.call_after(plan.seconds, lambda: self._finish(plan))

    def granted(self, lane: str, beside: Sequence[str] = ()) -> None:
        """Record whose slice begins, and which slices of other machines run on."""
        self._session.grant_slice(lane, beside)

    def paused(self, lane: str) -> None:
        """Record that a lane is paused which does not train at the moment."""
        self._session.accept(PhaseEntered(lane=lane, at_ns=time.monotonic_ns(), phase=PAUSED))

    def renew(self, lanes: Sequence[str]) -> bool:
        """Replace the processes of lanes by fresh ones, between two rounds; return whether that is due.

        They go on with the settings and with the measurement; the weights are initialised again.
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

    def computes(self, lane: str) -> bool:
        """Return whether a step of a lane takes the same running time if it is suspended in the middle.

        A step of a scenario does, on a CPU that it keeps busy. What a GPU computes goes on, and a script may wait
        for something outside, or look at a clock.
        """
        known = self._session.snapshot().lane(lane)
        busy = not isinstance(known.tree.cpu_pct, Missing) and known.tree.cpu_pct >= COMPUTING_PCT
        return busy and known.spec.kind == "cpu" and not known.command

    def patience_s(self, lane: str) -> float:
        """Return after how many seconds a lane that has not ended its slice does something else than its steps."""
        known = self._session.snapshot().lane(lane)
        before_ns = max(known.heartbeat.longest_window_ns, known.heartbeat.warm_up_ns)
        longest_ns = max((one.span_ns for one in known.points[-LATEST:] if one.steady), default=before_ns)
        return max(OTHER_WORK_S, TIMES_STEP * longest_ns / 1e9)

    def _break_off_renewal(self) -> None:
        """Start no fresh processes: the race is over, and the ones before them were its last."""
        lanes, self._renewing = self._renewing, ()
        for lane in lanes:
            ended = LaneEnded(lane=lane, at_ns=time.monotonic_ns(), exit_code=0, signal=None, requested=True)
            self._accept(ended)

    # ---------------------------------------------------------------- what the watchdog notices

    def report_stall(self, lane: str, since_ns: int) -> None:
        """Record that a lane hangs; the race goes on without it until it says something."""
        with self._lock:
            if self._children.find(lane) is not None:
                self._session.accept(LaneStalled(lane=lane, at_ns=time.monotonic_ns(), since_ns=since_ns))
                self._scheduler.skip(lane)

    def give_up(self, lane: str, silent_s: float) -> None:
        """Fail a lane that was silent for `silent_s` seconds while it started, and end its process."""
        with self._lock:
            process = self._children.find(lane)
            if process is None:
                return
            phase = self._session.snapshot().lane(lane).phase
            message = f"it said nothing for {silent_s:.0f} s while it was {phase}"
            hint = "start_timeout in the settings allows more seconds"
            at_ns = time.monotonic_ns()
            self._accept(LaneFailed(lane=lane, at_ns=at_ns, kind="error", message=message, hint=hint))
        self._in_background(lambda: self._children.end([process]))

    def skip(self, lane: str) -> None:
        """End the slice of a lane that hung before and hangs still."""
        with self._lock:
            lanes = self._session.snapshot().lanes
            if any(one.spec.name == lane and one.heartbeat.stalled_since_ns is not None for one in lanes):
                self._scheduler.skip(lane)

    def check_slices(self) -> None:
        """Let others train in the middle of a slice that does not end."""
        with self._lock:
            self._scheduler.check()

    def count_memory_kills(self) -> None:
        """Count the processes that the kernel has killed for lack of memory."""
        with self._lock:
            self._memory_kills.count()

    def _record_suspension(self, since_ns: int, until_ns: int, lasted_s: float) -> None:
        with self._lock:
            for name in self._settings:
                self._session.accept(Suspended(lane=name, at_ns=until_ns, since_ns=since_ns, lasted_s=lasted_s))

    # ---------------------------------------------------------------- what is known of the processes

    def processes(self) -> dict[str, int]:
        """Return the process that leads each lane that runs, and under blank names the spare workers."""
        with self._lock:
            return self._children.pids()

    @property
    def launcher(self) -> ProcessLauncher:
        """Starts processes at the priority that the program was started with."""
        return self._children.launcher

    @property
    def spare_ready(self) -> bool:
        """True when a spare worker has loaded TensorFlow."""
        with self._lock:
            return self._children.spare.ready

    @property
    def all_over(self) -> bool:
        """True when every process has ended and none is being replaced, or when tfmon itself has failed."""
        with self._lock:
            ended = not self._renewing and all(process.ended for process in self._children.all())
            return ended or bool(self._failure)


def _with_stops(event: Window | SliceEnded, stops: Sequence[SliceBreak]) -> Window | SliceEnded:
    """Return an event of a slice without the times in which the lane was suspended."""
    if isinstance(event, SliceEnded):
        return replace(event, load=None)  # It was counted while others trained, too.
    began_ns = event.at_ns - event.span_ns
    within = [one for one in stops if one.since_ns < event.at_ns and began_ns < one.until_ns]
    if not within:
        return event
    stopped_ns = sum(one.until_ns - one.since_ns for one in within)
    if all(one.computing and began_ns <= one.since_ns for one in within) and stopped_ns <= event.call_ns:
        return without_stop(event, stopped_ns)
    return replace(event, marks=(*event.marks, IN_A_STEP))


def _not_started(plan: RacePlan, lane: LanePlan, error: OSError | TfmonError) -> LaneFailed:
    """Return the event that a lane's process could not be started."""
    name, at_ns = lane.spec.name, time.monotonic_ns()
    if isinstance(error, TfmonError):
        return LaneFailed(lane=name, at_ns=at_ns, kind=HOST_LOST, message=error.message, hint=error.hint)
    why = error.strerror or str(error)
    if isinstance(error, ConnectionError):
        return LaneFailed(lane=name, at_ns=at_ns, kind=HOST_LOST, message=why)
    program = plan.command[0] if plan.command else "Python" if lane.spec.host else plan.python
    there = f" on {lane.spec.host}" if lane.spec.host else ""
    return LaneFailed(lane=name, at_ns=at_ns, kind="error", message=f"{program} did not start{there}: {why}")

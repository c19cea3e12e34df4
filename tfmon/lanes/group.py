"""The lanes of a race together: started, given one start signal, commanded, restarted and stopped."""

from __future__ import annotations

import hashlib
import itertools
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.lanes import children
from tfmon.lanes.children import Children
from tfmon.lanes.memory_kills import MemoryKills
from tfmon.lanes.plan import LanePlan, RacePlan
from tfmon.lanes.process import BOOTSTRAP
from tfmon.lanes.scheduler import Scheduler
from tfmon.lanes.suspend import Suspension
from tfmon.model.events import (
    BadLine,
    Event,
    KnobRequested,
    LaneEnded,
    LaneStalled,
    LaneStarted,
    Suspended,
    UserRequested,
)
from tfmon.model.knobs import KnobValue, find
from tfmon.model.lane_events import Finished, KnobRefused, LaneFailed, PhaseEntered, SliceEnded
from tfmon.model.lane_state import PAUSED, READY
from tfmon.model.session import Session
from tfmon.model.wire import Profile, ReportStack, Request, SetKnob

LEND_S = 0.5
"""How long a spare loads between two rounds: no slice is touched, the race takes a little longer."""


def _digest(path: Path) -> str:
    """Return what tells one version of a file from another; "" for one that cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


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
        """Run lanes for a session; `plan` is asked when another scenario is wished for.

        `keep_spare` has a child ready that has loaded TensorFlow, for the next lane to start.
        """
        self._session = session
        self._plan_race = plan
        self._lock = threading.RLock()
        self._children = Children(script, self._lock, keep_spare=keep_spare)
        self._changing = threading.Lock()
        self._requests = itertools.count(1)
        self._plan: RacePlan | None = None
        self._wanted: dict[str, dict[str, KnobValue]] = {}
        self._scheduler = Scheduler(self)
        self._memory_kills = MemoryKills()
        self.suspension = Suspension(self._children.all, self._tell_gap)
        self._stopped = False

    # ------------------------------------------------------------ whole races

    def begin(self, plan: RacePlan) -> None:
        """Start every lane of a race; none once the group is stopped."""
        with self._lock:
            if self._stopped:
                return
            self._plan = plan
            self._wanted = {lane.spec.name: dict(lane.settings) for lane in plan.lanes}
            self._scheduler.begin(list(self._wanted), plan.race.mode, plan.slice_s)
            self._session.begin(plan.race, [lane.spec for lane in plan.lanes], _digest(plan.scenario))
            for lane in plan.lanes:
                self._start(lane)
            self._prepare_spare()

    def race(self, scenario: str) -> None:
        """End this race and start the default race of another scenario.

        Errors: TfmonError when it cannot be raced; the race that runs goes on then.
        """
        plan = self._plan_race(scenario)
        self._note("race", (), scenario)
        self._in_background(lambda: self._change_race(plan))

    def finish(self) -> None:
        """End the lanes of this race soon; they keep their place and their figures."""
        plan = self._plan
        if plan is not None:
            self._in_background(lambda: self._time_up(plan))

    def stop(self) -> None:
        """End every lane, and return when all are gone."""
        with self._lock:
            self._stopped = True
        self._children.close()

    # ------------------------------------------------------------ wishes

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Ask a lane for another setting; a knob that is not live restarts the lane with it."""
        with self._lock:
            if self._plan is None or lane not in self._wanted:
                return
            kind = find(self._session.snapshot().race.knobs, knob).kind
            request = next(self._requests)
            asked = KnobRequested(lane=lane, at_ns=time.monotonic_ns(), request=request, knob=knob, value=value)
            self._session.accept(asked)
            self._wanted[lane][knob] = value
            if kind == "live" and self._children.find(lane) is not None:
                self._children.send(lane, SetKnob(request=request, knob=knob, value=value))
                return
        self.restart([lane])

    def pause(self, lanes: Sequence[str]) -> None:
        """Pause lanes at their next step boundary."""
        self._note("pause", lanes)
        with self._lock:
            self._scheduler.pause(lanes)

    def resume(self, lanes: Sequence[str]) -> None:
        """Let paused lanes train on."""
        self._note("resume", lanes)
        with self._lock:
            self._scheduler.resume(lanes)

    def profile(self, lane: str, folder: Path, steps: int) -> None:
        """Have a lane train some steps under the profiler; its answer comes as an event."""
        self._note("profile", [lane])
        with self._lock:
            self._children.send(lane, Profile(folder=str(folder), steps=steps))

    def set_mode(self, mode: str) -> None:
        """Let the lanes train in turns or at once."""
        with self._lock:
            self._session.set_mode(mode)
            self._scheduler.set_mode(mode)

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Let one lane train by itself, in slices of so many seconds; "" ends that."""
        with self._lock:
            self._session.set_exclusive(lane)
            self._scheduler.set_exclusive(lane, slice_s)

    def restart(self, lanes: Sequence[str]) -> None:
        """End lanes and start them again with the settings that were asked for last."""
        self._note("restart", lanes)
        self._in_background(lambda: self._start_again(lanes))

    def _note(self, action: str, lanes: Sequence[str], scenario: str = "") -> None:
        at_ns = time.monotonic_ns()
        self._session.accept(UserRequested(at_ns=at_ns, action=action, lanes=tuple(lanes), scenario=scenario))

    def kill(self, lane: str) -> None:
        """End one lane: asked first, then by force; the others go on."""

        def end() -> None:
            with self._lock:
                child = self._children.find(lane)
            self._children.end([child] if child is not None else [])

        self._in_background(end)

    def ask_stack(self, lane: str) -> None:
        """Have a lane tell the stacks of its threads; the answer comes as an event, if it comes."""
        with self._lock:
            child = self._children.find(lane)
            if child is None or not self._session.snapshot().lane(lane).reports_stack:
                return
            if self._plan is not None and self._plan.command:
                self.send(lane, ReportStack())
                return
        work = (child, self._session.accept)
        threading.Thread(target=children.ask, args=work, name="tfmon-stack", daemon=True).start()

    # ------------------------------------------------------------ what the watchdog notices

    def note_stall(self, lane: str, since_ns: int) -> None:
        """Note that a lane hangs; the race goes on without it until it speaks."""
        with self._lock:
            if self._children.find(lane) is not None:
                self._accept(LaneStalled(lane=lane, at_ns=time.monotonic_ns(), since_ns=since_ns))

    def pass_over(self, lane: str) -> None:
        """End the turn of a lane that hung before and hangs still."""
        with self._lock:
            lanes = self._session.snapshot().lanes
            if any(one.spec.name == lane and one.heartbeat.stalled_since_ns is not None for one in lanes):
                self._scheduler.pass_over(lane)

    def count_memory_kills(self) -> None:
        """Look how many processes the kernel has killed for lack of memory."""
        with self._lock:
            self._memory_kills.count()

    # ------------------------------------------------------------ inside

    def _in_background(self, work: Callable[[], None]) -> None:
        """Do what must wait for a child's end: in a thread, one after another."""

        def run() -> None:
            with self._changing:
                work()

        threading.Thread(target=run, name="tfmon-change", daemon=True).start()

    def _change_race(self, plan: RacePlan) -> None:
        with self._lock:
            children = self._children.take()
        self._children.end(children)
        self.begin(plan)

    def _time_up(self, plan: RacePlan) -> None:
        """End the lanes of a race whose time is over; they keep their place and their figures."""
        with self._lock:
            children = [] if self._plan is not plan or self._stopped else self._children.all()
        self._children.end(children)

    def _start_again(self, lanes: Sequence[str]) -> None:
        with self._lock:
            for name in lanes:
                self._scheduler.restarting(name)
            children = self._children.take(lanes)
        self._children.end(children)
        with self._lock:
            if self._plan is None or self._stopped:
                return
            for lane in self._plan.lanes:
                if lane.spec.name in lanes and lane.spec.name not in self._children:
                    self._start(replace(lane, settings=dict(self._wanted[lane.spec.name])))
            self._prepare_spare()

    def _prepare_spare(self) -> None:
        spare = self._children.spare
        if spare is not None and self._plan is not None and not self._plan.command:
            spare.prepare(self._plan.python, quiet=self._scheduler.busy)

    def _start(self, lane: LanePlan) -> None:
        plan, name = self._plan, lane.spec.name
        assert plan is not None

        def hear(event: Event) -> None:
            # The pump may have read this while the lane was being taken from its child.
            with self._lock:
                if self._children.is_lane(name, started.process):
                    self._accept(self._explained(event))

        try:
            started = self._children.start(lane, plan, hear)
        except OSError as error:
            why = f"{plan.command[0] if plan.command else plan.python} did not start: {error.strerror or error}"
            self._accept(LaneFailed(lane=name, at_ns=time.monotonic_ns(), kind="error", message=why))
            return
        self._session.accept(
            LaneStarted(
                lane=name,
                at_ns=time.monotonic_ns(),
                pid=started.process.pid,
                settings=lane.settings,
                source=_digest(plan.scenario),
                command=shlex.join(plan.command),
            )
        )
        if started.hello is not None:
            self._session.accept(replace(started.hello, lane=name))
        self._children.listen(started)

    def _tell_gap(self, since_ns: int, until_ns: int, lasted_s: float) -> None:
        with self._lock:
            for name in self._wanted:
                self._session.accept(Suspended(lane=name, at_ns=until_ns, since_ns=since_ns, lasted_s=lasted_s))

    def _explained(self, event: Event) -> Event:
        """Add to a SIGKILL that nobody here sent what the kernel tells."""
        if isinstance(event, LaneEnded) and event.signal == "SIGKILL" and not event.requested:
            return replace(event, memory_kills=self._memory_kills.told())
        return event

    def _accept(self, event: Event) -> None:
        with self._lock:
            self._session.accept(event)
            match event:
                case LaneStalled():
                    self._scheduler.pass_over(event.lane)
                case PhaseEntered(phase=phase) if phase == READY:
                    self._scheduler.ready(event.lane)
                case PhaseEntered(phase=phase) if phase == PAUSED:
                    self._scheduler.stood_still(event.lane)
                case SliceEnded():
                    self._scheduler.stood_still(event.lane)
                case LaneEnded() | LaneFailed() | Finished():
                    self._scheduler.over(event.lane)
                case KnobRefused():
                    in_force = self._session.snapshot().lane(event.lane).settings
                    if event.knob in in_force:
                        self._wanted[event.lane][event.knob] = in_force[event.knob]
            if not isinstance(event, LaneStalled | BadLine) and not self._scheduler.heard(event.lane):
                self._session.accept(LaneStalled(lane=event.lane, at_ns=event.at_ns, since_ns=event.at_ns))

    # ------------------------------------------------------------ the scheduler's orders

    def send(self, lane: str, request: Request) -> None:
        """Send a request to a lane."""
        self._children.send(lane, request)

    def freeze(self, lane: str) -> None:
        """Stop a lane's process and all its threads."""
        self._children.freeze(lane)

    def thaw(self, lane: str) -> None:
        """Let a frozen lane's process go on."""
        self._children.thaw(lane)

    def started(self) -> None:
        """Note that the lanes got the start signal, and wind up the clock that ends the race."""
        self._session.start_clock(time.monotonic_ns())
        plan = self._plan
        if plan is not None and plan.seconds is not None:
            self.suspension.call_after(plan.seconds, lambda: self._in_background(lambda: self._time_up(plan)))

    def turn(self, lane: str) -> None:
        """Note whose turn it is."""
        self._session.grant_slice(lane)

    def paused(self, lane: str) -> None:
        """Note that a lane is paused which stood still already."""
        self._session.accept(PhaseEntered(lane=lane, at_ns=time.monotonic_ns(), phase=PAUSED))

    def measuring(self, *, yes: bool) -> None:
        """Let the spare load on while no lane trains."""
        spare = self._children.spare
        if spare is not None:
            spare.rest() if yes else spare.go_on()

    def lend(self) -> bool:
        """Give the spare some time between two rounds, if it needs more."""
        spare = self._children.spare
        if spare is None or not spare.loading:
            return False
        spare.go_on()
        timer = threading.Timer(LEND_S, self._take_back)
        timer.daemon = True
        timer.start()
        return True

    def _take_back(self) -> None:
        with self._lock:
            self.measuring(yes=True)
            self._scheduler.returned()

    # ------------------------------------------------------------ what others ask

    def pids(self) -> dict[str, int]:
        """Return the process that leads each lane that runs."""
        with self._lock:
            return self._children.pids()

    def processes(self) -> dict[str, int]:
        """Return the same, and under "" the child that is no lane yet."""
        with self._lock:
            spare = self._children.spare
            waiting = spare.child if spare is not None else None
            return {**self.pids(), **({"": waiting.pid} if waiting is not None else {})}

    @property
    def spare_ready(self) -> bool:
        """True when a child stands ready that has loaded TensorFlow."""
        with self._lock:
            spare = self._children.spare
            return spare is not None and spare.child is not None and not spare.loading

    @property
    def all_over(self) -> bool:
        """True when every child has ended."""
        with self._lock:
            return all(child.ended for child in self._children.all())

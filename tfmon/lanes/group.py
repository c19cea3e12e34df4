"""The lanes of a race, and the user's requests."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tfmon.errors import TfmonError
from tfmon.lanes.lane_process import Echo, LaneProcess, LocalProcess, Place, end_processes
from tfmon.lanes.launch import BOOTSTRAP
from tfmon.lanes.plan import LanePlan, RacePlan, assignment, digest, not_started, process_plan, started
from tfmon.lanes.scheduler import SLICE_S, Scheduler
from tfmon.lanes.suspend import Suspender
from tfmon.model.event_base import Event
from tfmon.model.events import (
    BadLine,
    EndRequested,
    KnobRequested,
    LaneEnded,
    LaneStalled,
    Suspended,
    UserRequested,
)
from tfmon.model.knobs import KnobValue, find
from tfmon.model.lane_events import PAUSED, READY, Finished, KnobRefused, LaneFailed, PhaseEntered, SliceEnded
from tfmon.model.lane_state import FAILED
from tfmon.model.periods import why_mode_stays
from tfmon.model.requests import SetKnob, TakeProfile
from tfmon.model.session import Session
from tfmon.system.limits import MemoryKills
from tfmon.system.threads import start_thread
from tfmon.system.view_files import new_store


class LaneGroup:
    """Runs one race after another; the screen's `Controls`. Thread: any; only `stop` waits."""

    def __init__(
        self,
        session: Session,
        plan: Callable[[str], RacePlan],
        script: Path = BOOTSTRAP,
        places: Mapping[str, Place] = types.MappingProxyType({}),
    ) -> None:
        """`plan` returns the default race of a scenario, and `places` are its hosts, which the caller connects."""
        self._session = session
        self._plan_race = plan
        self._script = script
        self._places = places
        self._lock = threading.RLock()
        self._changing = threading.Lock()
        self._plan: RacePlan | None = None
        self._settings: dict[str, dict[str, KnobValue]] = {}
        self._processes: dict[str, LaneProcess] = {}
        self._ending: list[LaneProcess] = []
        self._replaced: set[str] = set()
        self._restarting = 0
        self._finished: RacePlan | None = None
        self._stopped = False
        self._failure = ""
        self._request_numbers = itertools.count(1)
        self._memory_kills = MemoryKills()
        self._hurries = 0
        self.scheduler = Scheduler(session, self._processes, self._start_clock)
        self.suspension = Suspender(self._suspendable, self._record_suspension, self.thread_failed)
        self.echo: Echo = None
        self.echo_error: Echo = None

    def begin(self, plan: RacePlan) -> None:
        """Start a race, unless stopped."""
        with self._lock:
            if self._stopped or self._failure:
                return
            number = self._session.snapshot().race.number + 1
            views = {host: new_store(view, number) for host, view in plan.race.views.items()}
            self._plan = plan = replace(plan, race=replace(plan.race, views=views))
            self._replaced.clear()
            self._settings = {lane.spec.name: dict(lane.settings) for lane in plan.lanes}
            self._session.begin(plan.race, [lane.spec for lane in plan.lanes], digest(plan.scenario))
            known = self._session.snapshot()
            machines = {lane.spec.name: known.machine_key(lane) for lane in known.lanes}
            self.scheduler.begin(list(self._settings), plan.race.mode, plan.race.slice_s or SLICE_S, machines)
            self._start(plan, plan.lanes)

    def race(self, scenario: str) -> None:
        """Start the default race of another scenario, or raise TfmonError."""
        plan = self._plan_race(scenario)
        self._record_request("race", (), scenario)
        self._begin_next(plan)

    def _begin_next(self, plan: RacePlan) -> None:
        with self._lock:
            self._restarting += 1

        def begin() -> None:
            with self._lock:
                processes = self._take(list(self._processes))
            self._end(processes)
            self._connect_again(plan, [lane.spec.name for lane in plan.lanes])
            with self._lock:
                self._restarting -= 1
                self.begin(plan)

        self._in_background(begin)

    def finish(self, plan: RacePlan | None = None) -> None:
        """End this race, or `plan` if it still runs."""
        with self._lock:
            plan = plan or self._plan
            self._finished = plan
            if plan is self._plan:
                self._end_replaced()

        def end() -> None:
            with self._lock:
                current = self._plan is plan and not self._stopped
                processes = list(self._processes.values()) if current else []
            self._end(processes)

        self._in_background(end)

    def stop(self) -> None:
        """End every lane and wait."""
        with self._lock:
            self._stopped = True
            self._end_replaced()
            processes = [*self._processes.values(), *self._ending]
        self._end(processes)

    @property
    def all_over(self) -> bool:
        """Whether all processes have ended, or tfmon has failed."""
        with self._lock:
            ended = not self._replaced and all(process.ended for process in self._processes.values())
            return ended or bool(self._failure)

    @property
    def _over(self) -> bool:
        return not self._restarting and self._session.snapshot().over

    def pids(self) -> dict[str, int]:
        """Return the process of each local lane."""
        with self._lock:
            running = {name: process for name, process in self._processes.items() if not process.ended}
            return {name: process.pid for name, process in running.items() if isinstance(process, LocalProcess)}

    def _suspendable(self) -> list[LocalProcess | Place]:
        # Copied at once: a signal's handler may interrupt a change.
        local = [process for process in list(self._processes.values()) if isinstance(process, LocalProcess)]
        return [*local, *self._places.values()]

    def _process(self, lane: str) -> LaneProcess | None:
        process = self._processes.get(lane)
        return process if process is not None and not process.ended else None

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Request a setting; some restart the lane."""
        with self._lock:
            known = self._session.snapshot()
            if lane not in self._settings or (self._over and known.lane(lane).phase != FAILED):
                return
            process = self._process(lane)
            if process is None and self._plan is not None and self._plan.command:
                return  # only `restart` starts a user's command again
            reader = process if find(known.race.knobs, knob).kind == "live" else None
            requested = KnobRequested(lane=lane, request=next(self._request_numbers), knob=knob, value=value)
            if reader is not None:  # first, to be quick: its answer waits for the lock
                reader.send(SetKnob(request=requested.request, knob=knob, value=value))
            self._session.accept(requested)
            self._settings[lane][knob] = value
        if reader is None:
            self.restart([lane])

    def pause(self, lanes: Sequence[str]) -> None:
        """Pause at the next step boundary."""
        if not self._over:
            self._record_request("pause", lanes)
            with self._lock:
                self.scheduler.pause(lanes)

    def resume(self, lanes: Sequence[str]) -> None:
        """Resume lanes."""
        if not self._over:
            self._record_request("resume", lanes)
            with self._lock:
                self.scheduler.resume(lanes)

    def set_mode(self, mode: str) -> None:
        """Change the mode, unless `why_mode_stays` objects."""
        with self._lock:
            if why_mode_stays(self._session.snapshot().lanes):
                return
            self._session.set_mode(mode)
            self.scheduler.set_mode(mode)

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Train one lane alone, in slices of `slice_s` seconds; "" ends that."""
        with self._lock:
            self._session.set_exclusive(lane)
            self.scheduler.set_exclusive(lane, slice_s)

    def profile(self, lane: str, request: TakeProfile) -> None:
        """Profile some steps."""
        self._record_request("profile", [lane])
        on_gpu = self._session.snapshot().lane(lane).spec.kind == "gpu"
        with self._lock:
            if lane in self._processes:
                self._processes[lane].send(replace(request, on_gpu=on_gpu))

    def kill(self, lane: str) -> None:
        """End one lane; a second call skips the grace time."""
        self._record_request("end", [lane])
        with self._lock:
            process = self._process(lane)
            if self._session.snapshot().lane(lane).end.requested is not None:
                self.end_now()
                return
        self._in_background(lambda: self._end([process] if process is not None else []))

    def end_now(self) -> None:
        """End user's commands by SIGTERM and SIGKILL now."""
        self._hurries += 1

    def ask_stack(self, lane: str) -> None:
        """Request an event with the stacks of a lane."""
        with self._lock:
            process = self._process(lane)
            if process is not None and self._session.snapshot().lane(lane).process.reports_stack:
                process.ask_stacks()

    def restart(self, lanes: Sequence[str]) -> None:
        """Start lanes, or a finished race, again."""
        self._record_request("restart", lanes)
        with self._lock:
            plan, known = self._plan, self._session.snapshot()
            if plan is None:
                return
            if self._over and known.has_result:
                again = [replace(lane, settings=dict(self._settings[lane.spec.name])) for lane in plan.lanes]
                self._begin_next(replace(plan, race=replace(plan.race, mode=known.race.mode), lanes=tuple(again)))
                return
            lost: dict[str, list[str]] = {}
            for spec in (lane.spec for lane in plan.lanes if lane.spec.name in lanes):
                if spec.host and spec.host in known.hosts:
                    if known.hosts[spec.host].connecting:
                        return
                    if known.hosts[spec.host].lost:
                        lost.setdefault(spec.host, []).append(spec.name)
            self._restarting += 1 + len(lost)

        def reconnect(names: Sequence[str]) -> None:
            self._connect_again(plan, names)
            if plan is self._plan and not self._stopped:
                self._restart(names)
            else:
                with self._lock:
                    self._restarting -= 1

        for names in lost.values():
            start_thread("tfmon-reconnect", partial(reconnect, names), self.thread_failed)
        self._restart([name for name in lanes if not any(name in names for names in lost.values())])

    def repeat(self, lanes: Sequence[str]) -> None:
        """Restart lanes in new processes, unless the race has finished."""
        with self._lock:
            if self._finished is not self._plan:
                self._restarting += 1
                self._restart(lanes, renewed=True)

    def _restart(self, lanes: Sequence[str], *, renewed: bool = False) -> None:
        with self._lock:
            for name in lanes:
                self.scheduler.restarting(name)
            self._replaced.update(lanes)
            processes = self._take(lanes)

        def start_again() -> None:
            self._end(processes)
            with self._lock:
                self._restarting -= 1
                plan, names = self._plan, self._replaced.intersection(lanes)
                self._replaced -= names
                if plan is None or self._stopped:
                    return
                known = self._session.snapshot()
                again = []
                for lane in (lane for lane in plan.lanes if lane.spec.name in names):
                    measured = known.lane(lane.spec.name).totals.measured_steps if renewed else 0
                    steps = None if plan.race.steps is None else max(1, plan.race.steps - measured)
                    again.append(replace(lane, settings=dict(self._settings[lane.spec.name]), steps=steps))
                self._start(plan, again, renewed=renewed)

        self._in_background(start_again)

    def _record_request(self, action: str, lanes: Sequence[str], scenario: str = "") -> None:
        self._session.accept(UserRequested(action=action, lanes=tuple(lanes), scenario=scenario))

    def _start(self, plan: RacePlan, lanes: Sequence[LanePlan], *, renewed: bool = False) -> None:
        """The caller has the lock, so that no event overtakes LaneStarted."""
        if self._failure:
            return
        known = self._session.snapshot()
        for lane in lanes:
            number = known.lane(lane.spec.name).process.number + 1
            try:
                process = self._start_process(lane, plan, number)
            except (OSError, TfmonError) as error:
                self._accept(None, not_started(plan, lane, error))
                continue
            self._session.accept(started(plan, lane, process.pid, renewed=renewed))

    def _start_process(self, lane: LanePlan, plan: RacePlan, number: int) -> LaneProcess:
        process: LaneProcess
        start = process_plan(plan, lane, number, self._script)
        if lane.spec.host:
            process = self._places[lane.spec.host].start_lane(start, self._accept, self.echo)
        else:
            split = bool(plan.command) and self.echo_error is not None
            process = LocalProcess(replace(start, split=split), self._accept)
            process.output.echo, process.output.echo_error = self.echo, self.echo_error
            process.start_reading(self.thread_failed)
        self._processes[lane.spec.name] = process
        process.send(assignment(lane, plan))
        return process

    def _connect_again(self, plan: RacePlan, lanes: Sequence[str]) -> None:
        """Blocks, so the caller must not hold the lock."""
        for host in {lane.spec.host for lane in plan.lanes if lane.spec.name in lanes} - {""}:
            with contextlib.suppress(TfmonError):
                self._places[host].ensure()

    def _take(self, lanes: Sequence[str]) -> list[LaneProcess]:
        taken = [self._processes.pop(name) for name in lanes if name in self._processes]
        self._ending = [process for process in self._ending if not process.ended] + taken
        return taken

    def _end(self, processes: Sequence[LaneProcess]) -> None:
        """The caller must not hold the lock."""
        with self._lock:
            for process in processes:
                if process.grace_s is not None and not process.ended:
                    self._accept(None, EndRequested(lane=process.lane, grace_s=process.grace_s))
        hurries = self._hurries
        end_processes(processes, lambda: self._hurries > hurries)

    def _end_replaced(self) -> None:
        lanes = sorted(self._replaced)
        self._replaced.clear()
        for lane in lanes:
            ended = LaneEnded(lane=lane, exit_code=0, signal=None, requested=True)
            self._accept(None, ended)

    def _in_background(self, work: Callable[[], None]) -> None:
        def run() -> None:
            with self._changing:
                work()

        start_thread("tfmon-change", run, self.thread_failed)

    def thread_failed(self, reason: str) -> None:
        """Fail and end all lanes, because a thread of tfmon has died."""
        with self._lock:
            if self._failure or self._stopped:
                return
            self._failure = reason
            processes = list(self._processes.values())
            hint = "this is a mistake in tfmon; please report it"
            failed = LaneFailed(kind="error", message=reason, hint=hint)
            for lane in self._session.snapshot().lanes:
                if not lane.over:
                    self._session.accept(replace(failed, lane=lane.spec.name))
        start_thread("tfmon-end", lambda: self._end(processes), lambda _reason: None)

    def _accept(self, process: LaneProcess | None, event: Event) -> None:
        """`process` is `None` for an event of the group itself."""
        with self._lock:
            current = self._processes.get(event.lane)
            if process is not None and current is not process:
                return
            if isinstance(event, LaneEnded) and event.signal == "SIGKILL" and not event.requested:
                lane = self._session.snapshot().lane(event.lane)
                kills = "" if lane.spec.host else self._memory_kills.since(lane.heartbeat.heard_ns)
                event = replace(event, memory_kills=kills)
            hung_since_ns = None
            ends = current is not None and current.end_requested and not current.ended
            if ends and not isinstance(event, BadLine | LaneEnded):
                # The last output of an ending lane is not a sign of life.
                hung_since_ns = self._session.snapshot().lane(event.lane).heartbeat.stalled_since_ns
            self._session.accept(event)
            match event:
                case PhaseEntered(phase=phase) if phase == READY:
                    self.scheduler.ready(event.lane)
                case PhaseEntered(phase=phase) if phase == PAUSED:
                    self.scheduler.idle(event.lane)
                case SliceEnded():
                    self.scheduler.idle(event.lane)
                case EndRequested() if current is None:
                    pass  # restarting
                case EndRequested() | LaneEnded() | LaneFailed() | Finished():
                    self.scheduler.ended(event.lane)
                    if current is not None:
                        current.continue_()  # a script may continue without being measured
                    if self._session.snapshot().race.exclusive == event.lane:
                        self.set_exclusive("")
                case KnobRefused():
                    in_effect = self._session.snapshot().lane(event.lane).settings
                    if event.knob in in_effect:
                        self._settings[event.lane][event.knob] = in_effect[event.knob]
            if hung_since_ns is None and event.lane in self.scheduler.unresponsive:
                hangs = not isinstance(event, BadLine) and not self.scheduler.responded(event.lane)
                hung_since_ns = event.at_ns if hangs else None
            if hung_since_ns is not None:
                self._session.accept(LaneStalled(lane=event.lane, at_ns=event.at_ns, since_ns=hung_since_ns))

    def _start_clock(self) -> None:
        self._session.start_clock(time.monotonic_ns())
        plan = self._plan
        if plan is not None and plan.race.seconds is not None:
            self.suspension.call_after(plan.race.seconds, lambda: self.finish(plan))

    def _record_suspension(self, since_ns: int, until_ns: int, lasted_s: float) -> None:
        with self._lock:
            for name in self._settings:
                self._session.accept(Suspended(lane=name, at_ns=until_ns, since_ns=since_ns, lasted_s=lasted_s))

    def report_stall(self, lane: str, since_ns: int) -> None:
        """Record that a lane hangs."""
        with self._lock:
            if self._process(lane) is not None:
                self._session.accept(LaneStalled(lane=lane, since_ns=since_ns))
                self.scheduler.skip(lane)

    def skip(self, lane: str) -> None:
        """End the slice of a lane that still hangs."""
        with self._lock:
            lanes = self._session.snapshot().lanes
            if any(state.spec.name == lane and state.heartbeat.stalled_since_ns is not None for state in lanes):
                self.scheduler.skip(lane)

    def give_up(self, lane: str, silent_s: float) -> None:
        """Fail a lane that starts silently."""
        with self._lock:
            process = self._process(lane)
            if process is None:
                return
            phase = self._session.snapshot().lane(lane).phase
            message = f"it said nothing for {silent_s:.0f} s while it was {phase}"
            hint = "start_timeout in the settings allows more seconds"
            self._accept(None, LaneFailed(lane=lane, kind="error", message=message, hint=hint))
        self._in_background(lambda: self._end([process]))

    def count_memory_kills(self) -> None:
        """Read the number of kills for lack of memory."""
        with self._lock:
            self._memory_kills.count(time.monotonic_ns())

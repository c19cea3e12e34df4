"""The processes of the lanes and the spare workers: started, found, and ended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tfmon.lanes import script_input
from tfmon.lanes.launch import ASK_S, KILL_S, TERM_S, Command, ProcessLauncher
from tfmon.lanes.plan import LanePlan, RacePlan, command_of, device_word
from tfmon.lanes.process import LaneProcess, LocalProcess, Place
from tfmon.lanes.reader import PipeReader
from tfmon.lanes.spare import SpareWorker
from tfmon.model.events import EndRequested, Event
from tfmon.model.lane_events import Hello
from tfmon.model.requests import Assign, Request
from tfmon.model.threads import Failed, call_later, start_thread

SPARE_LOADS_S = 0.5
"""Loading time of the spare workers between two rounds: no slice is touched, the race takes a little longer."""


class Children:
    """One process for each lane of a race; carries out the scheduler's decisions.

    Thread: any; the caller holds the lock, except for `ensure`, `end` and `close`.
    """

    def __init__(
        self,
        script: Path,
        lock: threading.RLock,
        sink: Callable[[LaneProcess | None, Event], None],
        failed: Failed,
        *,
        keep_spare: bool,
        places: Callable[[str], Place] | None = None,
    ) -> None:
        """Start no process yet; `sink` takes all events, `places` finds a host, `None` if all lanes run here."""
        self._script = script
        self._place_of = places
        self._places: dict[str, Place] = {}
        self._lock = lock
        self._sink = sink
        self._failed = failed
        self._reader = PipeReader(failed)
        self.launcher = ProcessLauncher()
        self._processes: dict[str, LaneProcess] = {}
        self._ending: list[LaneProcess] = []
        self._hurries = 0
        self.echo: Callable[[bytes], object] | None = None
        """Takes the output of the lanes, unchanged."""
        self.echo_error: Callable[[bytes], object] | None = None
        self.spares = [SpareWorker(self._start_process, keep=keep_spare)]

    def __contains__(self, lane: str) -> bool:
        return lane in self._processes

    def find(self, lane: str) -> LaneProcess | None:
        """Return a lane's process, unless it has none or the process has ended."""
        process = self._processes.get(lane)
        return process if process is not None and not process.ended else None

    def all(self) -> list[LaneProcess]:
        """Return the lanes' processes, ended ones included."""
        return list(self._processes.values())

    def suspendable(self) -> list[LaneProcess | Place]:
        """Return the processes and hosts that are suspended along with tfmon."""
        return [*self._processes.values(), *self._places.values()]

    def pids(self) -> dict[str, int]:
        """Return the process that leads each lane that runs here, and under blank names the spare workers."""
        spares = [spare.process for spare in self.spares if spare.process is not None]
        named = [*self._processes.items(), *((" " * number, process) for number, process in enumerate(spares))]
        local = [(name, process) for name, process in named if isinstance(process, LocalProcess)]
        return {name: process.pid for name, process in local if not process.ended}

    @property
    def spare(self) -> SpareWorker:
        """The first spare worker."""
        return self.spares[0]

    @property
    def spares_loading(self) -> bool:
        """True while a spare worker needs more time."""
        return any(spare.loading for spare in self.spares)

    def prepare_spares(self, python: Path, *, quiet: bool, fresh: int = 0) -> None:
        """Start the spare worker that is kept, or `fresh` of them for lanes whose processes are replaced soon."""
        self.spares += [SpareWorker(self._start_process, keep=False) for _ in range(fresh - len(self.spares))]
        for spare in self.spares[: max(1, fresh)]:
            spare.prepare(python, quiet=quiet, once=fresh > 0)

    def ensure(self, hosts: Iterable[str]) -> None:
        """Connect again to lost hosts. Thread: without the lock; may block for seconds. Raises TfmonError."""
        for host in {*hosts} - {""}:
            self._place(host).ensure()

    def start(self, lane: LanePlan, plan: RacePlan) -> tuple[LaneProcess, Hello | None]:
        """Start a lane's process, or take the spare worker with its first event; raises OSError."""
        if lane.spec.host:
            return self._start_elsewhere(lane, plan), None
        command = None
        if plan.command:
            command = Command(command_of(plan, lane), device_word(lane), lane.settings, plan.grace_s, lane.view)
        spare = max(self.spares, key=lambda one: (one.ready, one.loading))
        process = None if command is not None else spare.take(lane, plan.python)
        hello, environment = None, {}
        if process is None:
            process = self._start_process(lane.spec.name, plan.python, lane.environment, command)
        else:
            hello = spare.hello
            environment = {key: value for key, value in lane.environment.items() if value is not None}
        self._processes[lane.spec.name] = process
        process.grace_s = plan.grace_s if plan.command else None
        process.send(assignment(lane, plan, environment))
        return process, hello

    def _start_elsewhere(self, lane: LanePlan, plan: RacePlan) -> LaneProcess:
        place = self._place(lane.spec.host)
        process = place.start_lane(lane, plan, self._script, self._sink, self._reader.note_end)
        self._processes[lane.spec.name] = process
        process.grace_s = plan.grace_s if plan.command else None
        process.output.echo = self.echo
        process.send(assignment(lane, plan, {}))
        passed = script_input.current() if plan.command else None
        if passed is not None and passed.is_sent:  # in a thread, which waits until the start is recorded
            start_thread("tfmon-input", lambda: process.tell_input(script_input.ELSEWHERE), self._failed)
        return process

    def _place(self, host: str) -> Place:
        assert self._place_of is not None, "a lane on a host, and no place for it"
        if host not in self._places:
            self._places[host] = self._place_of(host)
        return self._places[host]

    def _start_process(
        self, lane: str, python: Path, environment: dict[str, str | None], command: Command | None = None
    ) -> LaneProcess:
        split = command is not None and self.echo_error is not None
        process = self.launcher(
            LocalProcess, lane, python, environment, self._sink, self._script, command, split=split
        )
        process.output.echo, process.output.echo_error = self.echo, self.echo_error
        self._reader.watch(process)
        return process

    def take(self, lanes: Sequence[str] | None = None) -> list[LaneProcess]:
        """Take the processes of some lanes, or of all, out of the race: their events are ignored from then on."""
        names = list(self._processes) if lanes is None else [name for name in lanes if name in self._processes]
        taken = [self._processes.pop(name) for name in names]
        self._ending = [process for process in self._ending if not process.ended] + taken
        return taken

    def end(self, processes: Sequence[LaneProcess]) -> None:
        """End processes by a request, SIGTERM, SIGKILL, and wait for that. Thread: any, without the lock."""
        graces_s = [process.grace_s for process in processes if process.grace_s is not None]
        with self._lock:
            hurries = self._hurries
            for process in processes:
                if process.grace_s is not None and not process.ended:
                    at_ns = time.monotonic_ns()
                    self._sink(None, EndRequested(lane=process.lane, at_ns=at_ns, grace_s=process.grace_s))
        for process in processes:
            process.request_end()
        patience_s = max(graces_s, default=ASK_S)
        if self._reader.wait_ended(processes, patience_s, lambda: self._hurries > hurries):
            return
        for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
            for process in processes:
                if not process.ended:
                    process.kill(number)
            if self._reader.wait_ended(processes, patience_s):
                return

    def end_now(self) -> None:
        """Wait no longer for user's commands that are ending: they get SIGTERM, then SIGKILL."""
        self._hurries += 1
        self._reader.note_end()

    def close(self) -> None:
        """End every process there is, ending ones and the spare worker included. Thread: without the lock."""
        with self._lock:
            spares = [process for spare in self.spares if (process := spare.dismiss()) is not None]
            processes = [*self._processes.values(), *self._ending, *spares]
        self.end(processes)
        self._reader.close()
        self.launcher.close()

    def speaks_for_lane(self, process: LaneProcess, event: Event) -> bool:
        """Return whether an event is a lane's: a spare worker's is its own, and a replaced process has no lane."""
        spare = next((one for one in self.spares if one.process is process), None)
        if spare is not None:
            spare.hear(event)
        return spare is None and self._processes.get(process.lane) is process

    def send(self, lane: str, request: Request) -> None:
        """Send a request to a lane, if it has a process."""
        if lane in self._processes:
            self._processes[lane].send(request)

    def suspend(self, lane: str) -> None:
        """Stop a lane's process and all its threads."""
        if lane in self._processes:
            self._processes[lane].suspend()

    def continue_(self, lane: str) -> None:
        """Continue a lane's suspended process."""
        if lane in self._processes:
            self._processes[lane].continue_()

    def set_quiet(self, quiet: bool) -> None:
        """Suspend the spare workers while a lane trains."""
        for spare in self.spares:
            spare.suspend() if quiet else spare.continue_()

    def load_spare(self, done: Callable[[], None]) -> bool:
        """Give the spare workers some time between two rounds, and call `done` then, or return False."""
        if not self.spares_loading:
            return False
        self.set_quiet(False)

        def end() -> None:
            with self._lock:
                self.set_quiet(True)
                done()

        call_later("tfmon-spare", SPARE_LOADS_S, end, self._failed)
        return True


def assignment(lane: LanePlan, plan: RacePlan, environment: dict[str, str]) -> Assign:
    """Return the first request of a lane's process."""
    return Assign(
        scenario=str(plan.scenario),
        device=lane.spec.kind,
        devices=lane.spec.devices,
        settings=lane.settings,
        steps=lane.steps or plan.steps,
        environment=environment,
    )

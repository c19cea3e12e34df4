"""Connects session, lanes, experiments, probes and recorder."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tfmon import errors
from tfmon.analysis.analysis import Analysis, analyse, outlook, speeds
from tfmon.analysis.concern_ids import FAIL_ON
from tfmon.analysis.health import concerns
from tfmon.analysis.summarise import summarise
from tfmon.api import state
from tfmon.api.devices import Idle
from tfmon.api.notify import TERMINAL, Baseline, notices, run_command
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.planner import need_tensorflow, plan_race
from tfmon.api.profiling import Profiling
from tfmon.api.repeat_command import command_line
from tfmon.api.run_base import Run, connecting, say, tell_changes
from tfmon.api.settings import LimitOptions
from tfmon.api.state import Views
from tfmon.catalog import find_scenario
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import RacePlan, digest
from tfmon.lanes.suspend import Suspender
from tfmon.lanes.watchdog import Watchdog
from tfmon.model.event_base import Event
from tfmon.model.events import Interrupted, RaceBegan
from tfmon.model.folder_views import describe
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.header import Header
from tfmon.model.lane_events import PAUSED, SliceEnded
from tfmon.model.lane_state import ABSENT, DONE, FAILED
from tfmon.model.lane_texts import code_of_command
from tfmon.model.race import ScenarioInfo
from tfmon.model.readings import HostSample
from tfmon.model.requests import Command
from tfmon.model.session import Session
from tfmon.probes.base import Gpu, Probe, Ticker
from tfmon.probes.find_gpus import GpuSearch, find_gpus, gpu_probes, look, read_visibility, with_devices
from tfmon.probes.host_probe import HostProbe
from tfmon.probes.interpreter import read_wheel
from tfmon.probes.machine import read_machine
from tfmon.recordings.header_lines import header_of
from tfmon.recordings.recorder import Recorder
from tfmon.series.repeat import Repeat
from tfmon.series.series_control import ExperimentControl

if TYPE_CHECKING:
    from tfmon.api.race_hosts import Hosts
    from tfmon.lanes.remote.connection import Connection
    from tfmon.lanes.remote.remote_host import Host
    from tfmon.model.spec import LaneSpec

SAMPLE_EVERY_S = 1.0


class Program(Run):
    """A race, which ends with the last lane. Thread: `plan`, `begin` and `close` can block for seconds."""

    hint = "the lanes train the same model, to see which is faster; q ends them and leaves, ? lists all keys"

    def __init__(self, race_options: RaceOptions, purpose: Purpose | None = None) -> None:
        self._options, self._purpose = race_options, purpose or Purpose()
        self._machine = read_machine()
        self._latest: RacePlan | None = None
        self._analysis: Analysis | None = None
        self._search: GpuSearch | None = None
        self._searching = threading.Lock()
        minutes, tell = race_options.wait_idle, tell_changes()
        wait_s = None if minutes is None else 60 * minutes
        self._idle = Idle(self._look, wait_s, lambda line: (self.tell or tell)(line))
        self.session = Session(self._machine, time.monotonic_ns)
        self._recorder: Recorder | None = None
        if race_options.record:
            self._recorder = Recorder(self.session, race_options.interpreter, race_options.record_file)
        self._hosts: Hosts | None = None
        self._connections: dict[str, Connection] = {}
        self.lanes = LaneGroup(self.session, self._plan_next, places=self._connections)
        self.experiments = ExperimentControl(self.session, self.lanes)
        Repeat(self.session, self.lanes.repeat)
        self.profiles = Profiling(self.session, self.lanes)
        self._unhealthy = ""
        if race_options.until_ci is not None:
            self.session.listen(self._finish_when_narrow, SliceEnded)
        if race_options.fail_on:
            self.session.listen(self._finish_when_unhealthy, HostSample)
        self._outside = contextlib.ExitStack()
        if race_options.notify and race_options.notify not in TERMINAL:
            race = race_options.baseline_race
            baseline = Baseline(race, race_options.slower_than, lambda: self.header) if race is not None else None
            act = partial(run_command, race_options.notify)
            self._outside.enter_context(
                notices(self.session, act, lambda line: (self.tell or say)(line), baseline)
            )
        if race_options.metrics:
            from tfmon.api.metrics import give_metrics

            self._outside.callback(give_metrics(race_options.metrics, self.session.snapshot))
        self._views = Views(self.session, self._connections, race_options, restarts=self._purpose.restarts)
        self._tickers: list[Ticker] = []
        self._read_gpus: set[str] = set()
        self._closed = False
        self._header: Header | None = None
        record, slice_s = self.lanes.suspension.record, race_options.slice_s
        start_s = LimitOptions.of_user().start_timeout
        self._watchdog = Watchdog(self.session.snapshot, self.lanes, record, slice_s=slice_s, start_s=start_s)

    def announce(self) -> None:
        """Announce the race before its lanes are known."""
        self.session.begin(self._options.info.announced(self._options.mode), ())

    def plan(self, info: ScenarioInfo, race_options: RaceOptions | None = None) -> RacePlan:
        """Plan the race of a scenario; raises TfmonError."""
        race_options, connect = race_options or self._options, partial(self._connect, info)
        plan, no_gpu = plan_race(info, race_options, self._find_gpus, connect, self._idle, self._purpose)
        if not info.command and any(not lane.spec.host for lane in plan.lanes):
            need_tensorflow(plan.python)
        remote = any(lane.spec.host for lane in plan.lanes)
        wheel = read_wheel(plan.python) if remote else None
        machine = with_devices(self._machine, self._search or GpuSearch(), wheel)
        self.session.set_machine(replace(machine, no_gpu=no_gpu))
        if not info.command:
            hosts = self.session.snapshot().hosts
            between = state.recall([hosts[lane.spec.host].machine for lane in plan.lanes])
            plan = replace(plan, race=replace(plan.race, between=between))
        elif remote and self._hosts is not None:
            differs = tuple(itertools.chain(*self._hosts.differing.values()))
            plan = replace(plan, race=replace(plan.race, differs=differs))
        plan = self._views.plan(plan)
        self._latest = plan
        return plan

    def repeat(self) -> str:
        """Return the command that repeats the race; raises UsageError."""
        return command_line(self.session.snapshot(), self._latest)

    def begin(self, plan: RacePlan | None = None) -> None:
        """Start lanes, and with the first lanes watchdog and probes."""
        plan = plan or self.planned()
        self.lanes.begin(plan)
        if self._header is not None:
            return
        specs = tuple(lane.spec for lane in plan.lanes)
        began = RaceBegan(race=plan.race, specs=specs, source=digest(plan.scenario))
        self._header = header_of(began, self.session.snapshot(), plan.python)
        self._watchdog.start(self.lanes.thread_failed)
        if self._hosts is not None:
            self._hosts.begin_readings([lane.spec.host for lane in plan.lanes if lane.spec.host])
        gpus = self._search.sampled if self._search is not None else ()
        self._read_gpus = {gpu.uuid for gpu in gpus}
        for probe in (HostProbe(self.lanes.pids), *gpu_probes(gpus)):
            self._tick(probe)

    def planned(self) -> RacePlan:
        """Return the plan; raises TfmonError."""
        if self._latest is None:
            with connecting(self._options.lanes):
                return self.plan(self._options.info)
        return self._latest

    @property
    def notes(self) -> Sequence[str]:
        """Lines about differing files and views."""
        race = self.planned().race
        return *race.differs, *describe(race.views)

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code."""
        from tfmon.reports.race_report import to_text  # late: it is slow to load

        result, code = analyse(self.session.snapshot()), self._exit_code(interrupted)
        if not result.snapshot.lanes:
            return "", code
        return (summarise(result, self.header).to_json() if as_json else to_text(result)), code

    def join(self, timeout_s: float) -> bool:
        """Wait; return whether the race has ended."""
        time.sleep(timeout_s)
        return self.lanes.all_over

    def line(self) -> str:
        """Return speeds and remaining time."""
        self._analysis = analyse(self.session.snapshot(), self._analysis)
        return f"{speeds(self._analysis.snapshot)}{outlook(self._analysis)}"

    def end_now(self) -> None:
        """Kill ending commands."""
        self.lanes.end_now()

    @property
    def suspenders(self) -> Sequence[Suspender]:
        """The owner of the lanes' processes."""
        return (self.lanes.suspension,)

    def go_on_alone(self) -> bool:
        """Continue a command without a terminal."""
        if self._latest is None or not self.trains_command:
            return False
        self.alone = True
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            with contextlib.suppress(OSError):
                if os.isatty(fd) or os.fstat(fd).st_mode & stat.S_IFCHR:
                    os.dup2(nowhere, fd)
        os.close(nowhere)
        lanes = self.session.snapshot().lanes
        self.lanes.resume([lane.spec.name for lane in lanes if lane.phase == PAUSED])
        return True

    def perform(self, command: Command) -> str:
        """Carry out a request."""
        lanes, experiments = self.lanes, self.experiments
        match command:
            case Command("change knob", (lane,), knob, (value,)):
                lanes.set_knob(lane, knob, value)
            case Command("pause", names):
                lanes.pause(names)
            case Command("resume", names):
                lanes.resume(names)
            case Command("restart", names):
                lanes.restart(names)
            case Command("end", (lane,)):
                lanes.kill(lane)
            case Command("report stack", (lane,)):
                lanes.ask_stack(lane)
            case Command("change mode"):
                lanes.set_mode(command.name)
            case Command("begin race"):
                lanes.race(command.name)
            case Command("begin crossover", (), knob, (float(low), float(high))):
                experiments.start_crossover(knob, low, high)
            case Command("begin tuning", (lane,), _, (everything,)):
                experiments.start_tuning(lane, everything=bool(everything))
            case Command("profile lanes", names):
                return self.profiles.of_lanes(names)
            case Command("undo"):
                return experiments.undo()
            case Command("end series"):
                experiments.stop()
            case Command("repeat"):
                return self.repeat()
            case Command("examine"):
                return self.examine()
            case Command("watch gpus"):
                return self.watch_gpus()
            case Command("end now"):
                lanes.end_now()
            case _:
                raise errors.TfmonError(f"this run cannot do that: {command}")
        return ""

    def watch_gpus(self) -> str:
        """Read all GPUs; return why no GPU is readable."""
        search = self._find_gpus()
        with self._searching:
            visible = [gpu for gpu in search.sampled if gpu.uuid not in self._read_gpus]
            known = self._read_gpus | {gpu.uuid for gpu in visible}
            hidden = [gpu for gpu in read_visibility().physical_gpus if gpu.uuid not in known]
            for gpus, sink in ((visible, self.session.accept), (hidden, self._accept_hidden)):
                for probe in () if self._closed else gpu_probes(gpus):
                    self._tick(probe, sink)
                    self._read_gpus |= {gpu.uuid for gpu in gpus}
            return "" if self._read_gpus else search.reason

    def _accept_hidden(self, event: Event) -> None:
        self.session.accept(replace(event, hidden=True) if isinstance(event, GpuSample) else event)

    def _tick(self, probe: Probe, sink: Callable[[Event], object] | None = None) -> None:
        ticker = Ticker(probe, sink or self.session.accept, interval_s=SAMPLE_EVERY_S)
        self._tickers.append(ticker)
        ticker.start()

    def close(self, interrupted: str = "") -> None:
        """End everything, in at most 3 s plus the time of slow disks and commands."""
        if interrupted:
            self.session.accept(Interrupted(reason=interrupted))
        self.experiments.stop()
        self._watchdog.close()
        self.lanes.stop()
        self._views.close()
        if self._hosts is not None:
            self._hosts.close()
        for ticker in self._tickers:
            ticker.close()
        if self._recorder is not None:
            self._recorder.close()
        self._outside.close()
        if not self._closed:
            self._closed = True
            state.remember_race(self.session.snapshot())

    def examine(self) -> str:
        """Return the doctor's report."""
        from tfmon.api.race_hosts import examine

        return examine(self.session.snapshot(), self._options.interpreter, self._hosts)

    @property
    def header(self) -> Header | None:
        """The header of the recording. `None` before the start."""
        recorded = self._recorder.header if self._recorder is not None else None
        return recorded or self._header

    @property
    def trains_command(self) -> bool:
        """Whether a user's command trains or will train."""
        return bool((self._latest or self._options).command) and not self.session.snapshot().over

    def _plan_next(self, scenario: str) -> RacePlan:
        """Plan a later race, which has the default lanes."""
        race_options = RaceOptions(python=self._options.interpreter, fresh=self._options.fresh)
        return self.plan(find_scenario(scenario), race_options)

    def _connect(self, info: ScenarioInfo, specs: Sequence[LaneSpec]) -> None:
        from tfmon.api.race_hosts import Hosts
        from tfmon.api.settings import find_host
        from tfmon.lanes.remote.ray import gpus_needed

        def find(name: str) -> Host:
            return find_host(
                name, self._options.ray_cluster, gpus_needed(spec for spec in specs if spec.host == name)
            )

        if self._hosts is None:
            self._hosts = Hosts(self.session, self._connections)
        self._hosts.connect(list(dict.fromkeys(spec.host for spec in specs)), info, find)

    def _look(self, host: str, gpus: Sequence[Gpu]) -> Sequence[GpuSample]:
        return self._hosts.look(host, gpus) if host and self._hosts is not None else look(gpus)

    def _find_gpus(self, host: str = "") -> GpuSearch:
        if host and self._hosts is not None:
            return self._hosts.searches[host]
        with self._searching:
            if self._search is None:
                self._search = find_gpus(self._options.interpreter)
            return self._search

    @property
    def unhealthy(self) -> str:
        """The first lane and concern of `fail_on` so far, or ""."""
        fails = {FAIL_ON[name] for name in self._options.fail_on}
        snapshot = self.session.snapshot()
        lanes = snapshot.lanes if fails and not self._unhealthy else ()
        result = ((lane, concern) for lane in lanes for concern in concerns(snapshot, lane))
        texts = (f"{lane.title}: {concern.text}" for lane, concern in result if concern.id in fails)
        return next(texts, self._unhealthy)

    def _finish_when_narrow(self, _event: SliceEnded) -> None:
        ranking, most = analyse(self.session.snapshot()).verdict.ranking, self._options.until_ci or 0.0
        if ranking and all(rank.ratio.half_width <= most for rank in ranking):
            self.lanes.finish()

    def _finish_when_unhealthy(self, _event: HostSample) -> None:
        if not self._unhealthy and (result := self.unhealthy):
            self._unhealthy = result
            self.session.accept(Interrupted(reason=f"ended by --fail-on: {result}"))
            self.lanes.finish()

    def exit_code(self) -> int:
        """Return the exit code for the lanes."""
        phases = [lane.phase for lane in self.session.snapshot().lanes]
        if ABSENT in phases:
            return errors.EXIT_DEVICE_ABSENT
        return errors.EXIT_LANE_FAILED if FAILED in phases else errors.EXIT_FINE

    def _exit_code(self, interrupted: str) -> int:
        """Return the exit code of the race or command."""
        lanes, ours = self.session.snapshot().lanes, self.exit_code()
        if self.unhealthy:
            return errors.EXIT_UNHEALTHY
        command_ended = len(lanes) == 1 and lanes[0].script.command and lanes[0].end.event is not None
        if command_ended and ours != errors.EXIT_DEVICE_ABSENT:
            code, ended_well, trouble = code_of_command(lanes[0]), lanes[0].phase == DONE, lanes[0].trouble
            refused = trouble is not None and trouble.kind == "scenario"
            if code == errors.EXIT_INTERRUPTED and not interrupted and (ended_well or refused):
                return ours  # tfmon's own Ctrl+C ended it
            if code or ended_well:
                return code
        return errors.EXIT_INTERRUPTED if interrupted else ours

"""Connects the parts of a running tfmon: session, lanes, experiments, probes and recorder."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tfmon.api import state
from tfmon.api.devices import Idle
from tfmon.api.ending import Ending
from tfmon.api.notify import TERMINAL, Baseline, Notifier, run_command
from tfmon.api.options import RaceOptions
from tfmon.api.planner import need_tensorflow, plan_race
from tfmon.api.profiling import Profiling
from tfmon.api.repeat import command_line
from tfmon.api.run import say, tell_changes
from tfmon.api.settings import resolve
from tfmon.api.state import Tell, Views
from tfmon.catalog import ScenarioInfo, find_scenario
from tfmon.experiments.control import ExperimentControl
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import RacePlan, digest
from tfmon.lanes.watchdog import Watchdog
from tfmon.model.events import Event, Interrupted, RaceBegan
from tfmon.model.gpu import GpuSample
from tfmon.model.ports import Controls, Experiments
from tfmon.model.race import Race
from tfmon.model.session import Session
from tfmon.probes.base import Gpu, Probe, Ticker
from tfmon.probes.gpus import (
    GpuSearch,
    choose_gpu_probe,
    choose_probes,
    find_gpus,
    look,
    read_visibility,
    with_devices,
)
from tfmon.probes.interpreter import read_wheel
from tfmon.probes.machine import read_machine
from tfmon.recordings.header import Header, header_of
from tfmon.recordings.recorder import Recorder

if TYPE_CHECKING:
    from tfmon.api.hosts import Hosts
    from tfmon.lanes.remote.connection import Connection
    from tfmon.lanes.remote.host import Host
    from tfmon.model.spec import LaneSpec

SAMPLE_EVERY_S = 1.0
SPARE_NEEDS_BYTES = 4 * 2**30
"""A machine with less memory keeps no spare worker: a worker takes about 0.4 GiB."""
SPARE_TAKES_BYTES = 2**30


class Program:
    """One run of tfmon. Thread: `plan`, `begin` and `close` can block for seconds."""

    def __init__(self, race_options: RaceOptions, tell: Tell | None = None) -> None:
        """Connect all parts; `tell` displays a line, by default on the terminal."""
        self._options = race_options
        self._machine = read_machine()
        self._latest: RacePlan | None = None
        self._search: GpuSearch | None = None
        self._searching = threading.Lock()
        self.say: Callable[[str], object] = tell or say
        """Displays a line for the user while lanes train."""
        self._idle = Idle(self._look, race_options.wait_idle_s, tell or tell_changes())
        charted = race_options.watched or race_options.record
        self.session = Session(self._machine, time.monotonic_ns, charted=charted)
        self._recorder: Recorder | None = None
        if race_options.record:
            self._recorder = Recorder(self.session, race_options.python, race_options.record_file)
        spare = race_options.spare and self._machine.memory_bytes >= SPARE_NEEDS_BYTES
        self._hosts: Hosts | None = None
        self.lanes = LaneGroup(self.session, self._plan_next, keep_spare=spare, places=self._place)
        self.experiments = ExperimentControl(self.session, self.lanes)
        self.profiles = Profiling(self.session, self.lanes)
        self.ending = Ending(self.session, self.lanes, race_options)
        self._outside = contextlib.ExitStack()
        if race_options.notify and race_options.notify not in TERMINAL:
            act = partial(run_command, race_options.notify)
            held = race_options.baseline and Baseline(*race_options.baseline, lambda: self.header)
            self._outside.callback(Notifier(self.session, act, lambda line: self.say(line), held).close)
        if race_options.metrics:
            from tfmon.api.metrics import give_metrics  # late: few races need it

            self._outside.callback(give_metrics(race_options.metrics, self.session.snapshot))
        self._views = Views(self.session, self._place, kept=race_options.record)
        self._tickers: list[Ticker] = []
        self._read_gpus: set[str] = set()
        self._closed = False
        self._header: Header | None = None
        self._watchdog = Watchdog(
            self.session.snapshot,
            self.lanes.running,
            self.lanes.running.suspension.record,
            slice_s=race_options.slice_s,
            start_s=float(resolve("start_timeout").value),
        )

    def announce(self, info: ScenarioInfo) -> None:
        """Announce the race to the session, before its lanes are known."""
        race = Race(scenario=info.name, title=info.title, mode=self._options.mode, knobs=info.knobs)
        self.session.begin(race, ())

    def plan(self, info: ScenarioInfo, race_options: RaceOptions | None = None) -> RacePlan:
        """Plan the race of a scenario, by default with the command's options; raises TfmonError."""
        plan, no_gpu = plan_race(
            info,
            race_options or self._options,
            self._find_gpus,
            lambda specs: self._connect(specs, info),
            self._idle,
        )
        if not info.command and any(not lane.spec.host for lane in plan.lanes):
            need_tensorflow(plan.python)
        remote = any(lane.spec.host for lane in plan.lanes)
        wheel = read_wheel(plan.python) if remote else None
        machine = with_devices(self._machine, self._search or GpuSearch(), wheel)
        self.session.set_machine(replace(machine, no_gpu=no_gpu))
        if not info.command:
            hosts = self.session.snapshot().hosts
            machines = [hosts[lane.spec.host].machine for lane in plan.lanes]
            between = state.recall(machines, info.name, [lane.spec.kind for lane in plan.lanes])
            plan = replace(plan, race=replace(plan.race, between=between))
        elif remote and self._hosts is not None:
            plan = replace(plan, race=replace(plan.race, differs=self._hosts.differing_files()))
        plan = self._views.plan(plan, in_place=(race_options or self._options).in_place)
        if plan.race.fresh:
            more = (machine.memory_bytes - SPARE_NEEDS_BYTES) // SPARE_TAKES_BYTES
            here = sum(not lane.spec.host for lane in plan.lanes)
            plan = replace(plan, fresh_spares=max(0, min(here, more + 1)))
        self._latest = plan
        return plan

    def repeat(self) -> str:
        """Return the command that repeats this race with the settings in effect, or ""; raises UsageError."""
        return command_line(self.session.snapshot(), self._latest, self._options.until_ci)

    def begin(self, plan: RacePlan) -> None:
        """Start the lanes, the watchdog and the probes."""
        self.lanes.begin(plan)
        specs = tuple(lane.spec for lane in plan.lanes)
        began = RaceBegan(at_ns=time.monotonic_ns(), race=plan.race, specs=specs, source=digest(plan.scenario))
        self._header = header_of(began, self.session.snapshot(), plan.python)
        self._watchdog.start(self.lanes.running.thread_failed)
        if self._hosts is not None:
            self._hosts.begin_readings([lane.spec.host for lane in plan.lanes if lane.spec.host])
        gpus = self._search.sampled if self._search is not None else ()
        self._read_gpus = {gpu.uuid for gpu in gpus}
        for probe in choose_probes(self.lanes.running.processes, gpus):
            self._tick(probe)

    def requests(self) -> dict[str, Callable[..., object]]:
        """Return the viewers' possible requests by name: the controls that do not end the run."""
        parts = (("controls", Controls, self.lanes), ("experiments", Experiments, self.experiments))
        methods = {
            f"{part}.{name}": getattr(target, name)
            for part, protocol, target in parts
            for name in vars(protocol)
            if not name.startswith("_") and f"{part}.{name}" not in ENDING
        }
        return {
            **methods,
            "repeat": self.repeat,
            "end_now": self.lanes.end_now,
            "suspend": self.lanes.running.suspension.suspend_lanes,
            "continue": self.lanes.running.suspension.continue_lanes,
            "examine": self.examine,
            "profile": self.profiles.text,
            "profile_pair": self.profiles.pair,
            "watch_gpus": self.watch_gpus,
        }

    @property
    def all_over(self) -> bool:
        """Whether every lane has ended."""
        return self.lanes.running.all_over

    def watch_gpus(self) -> str:
        """Start reading all GPUs, also hidden ones; return why there are none, or ""; can take seconds."""
        search = self._find_gpus()
        with self._searching:
            visible = [gpu for gpu in search.sampled if gpu.uuid not in self._read_gpus]
            known = self._read_gpus | {gpu.uuid for gpu in visible}
            hidden = [gpu for gpu in read_visibility().physical_gpus if gpu.uuid not in known]
            for gpus, sink in ((visible, self.session.accept), (hidden, self._accept_hidden)):
                probe = None if self._closed else choose_gpu_probe(gpus)
                if probe is not None:
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
        """End every lane, the probes and the recording: at most 3 s, plus slow disks and `--notify` commands."""
        if interrupted:
            self.session.accept(Interrupted(at_ns=time.monotonic_ns(), reason=interrupted))
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
            state.remember_lanes(self.session.snapshot())

    def examine(self) -> str:
        """Return the doctor's report of the race's machines as text."""
        from tfmon.api.hosts import examine

        processes = self.lanes.running.processes().values()
        return examine(self.session.snapshot(), self._options.python, processes, self._hosts)

    @property
    def header(self) -> Header | None:
        """The race and its circumstances for the recording. `None` before it begins."""
        recorded = self._recorder.header if self._recorder is not None else None
        return recorded or self._header

    @property
    def trains_command(self) -> bool:
        """Whether a user's own command trains or will train."""
        plan, lanes = self._latest, self.session.snapshot().lanes
        return plan is not None and bool(plan.command) and not (lanes and all(lane.over for lane in lanes))

    def _plan_next(self, scenario: str) -> RacePlan:
        """Plan the default race of another scenario; explicit lanes are only for the first one."""
        return self.plan(
            find_scenario(scenario), RaceOptions(python=self._options.python, fresh=self._options.fresh)
        )

    def _connect(self, specs: Sequence[LaneSpec], info: ScenarioInfo) -> None:
        from tfmon.api.hosts import Hosts
        from tfmon.api.settings import find_host
        from tfmon.lanes.remote.connection import Connection  # late: most races need none of it
        from tfmon.lanes.remote.ray import gpus_needed

        def find(name: str) -> Host:
            return find_host(name, self._options.ray, gpus_needed(one for one in specs if one.host == name))

        if self._hosts is None:
            # What starts the lanes there, `ssh` or another launcher, may run them at its own priority.
            self._hosts = Hosts(self.session, partial(Connection, launcher=self.lanes.running.children.launcher))
        self._hosts.connect(list(dict.fromkeys(spec.host for spec in specs)), info, find)

    def _place(self, host: str) -> Connection:
        assert self._hosts is not None, "a host without a connection"
        return self._hosts.place(host)

    def _look(self, host: str, gpus: Sequence[Gpu]) -> Sequence[GpuSample]:
        return self._hosts.look(host, gpus) if host and self._hosts is not None else look(gpus)

    def _find_gpus(self, host: str = "") -> GpuSearch:
        if host and self._hosts is not None:
            return self._hosts.search(host)
        with self._searching:
            if self._search is None:
                self._search = find_gpus(self._options.python)
            return self._search


ENDING = ("controls.stop", "controls.end_now")
"""Viewers call `end` and `end_now` instead, which also finish the recording."""

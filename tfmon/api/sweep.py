"""Connects a sweep's plan, places and file."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.analysis.intervals import FEW
from tfmon.api import devices
from tfmon.api.options import SweepOptions, raced
from tfmon.api.planner import check_settings
from tfmon.api.sweep_places import END_S, PlaceStation, close_all, open_stations
from tfmon.catalog import ScenarioInfo, command_scenario, find_scenario
from tfmon.errors import UsageError
from tfmon.experiments.sweep import Station, Sweep
from tfmon.lanes.plan import digest
from tfmon.lanes.suspend import Suspender
from tfmon.model.events import RecordingChanged, change_of
from tfmon.model.knobs import KnobError, KnobValue, Settings, guess_settings, parse_settings
from tfmon.model.race import RecordingState
from tfmon.model.series import SweepPlan, SweepState
from tfmon.model.session import Session
from tfmon.model.spec import KINDS, SpecError, counted, devices_of, obstacle
from tfmon.model.views import View
from tfmon.probes.machine import read_machine
from tfmon.recordings import sweeps


class SweepProgram:
    """One run of `tfmon sweep`. Thread: its creation and `close` can block for seconds."""

    def __init__(self, options: SweepOptions) -> None:
        """Connect to the places, and create or read the file; a resumed sweep only takes its places.

        Raises: TfmonError if it cannot be swept.
        """
        self._stations: list[PlaceStation] = []
        self.session = Session(read_machine(), time.monotonic_ns)
        """A session without a race, for viewers; see `publish`."""
        self.file: sweeps.SweepFile | None = None
        try:
            if options.resume is not None:
                state, self.file = sweeps.resume(_last() if str(options.resume) == "last" else options.resume)
                race = replace(
                    options.race,
                    settings=state.plan.settings,
                    slice_s=state.plan.slice_s,
                    python=Path(state.plan.python),
                )
                options = replace(options, places=options.places or state.plan.words, race=race)
                self._info = _with_scope(
                    _same_scenario(state.plan, options.scenario, options.command), options, state.plan.over
                )
                self._stations = open_stations(self._info, options.places, options.race, state.plan.over)
                new = [one.kind for one in self._stations if one.kind not in state.plan.kinds]
                if new:
                    known = " and ".join(state.plan.kinds)
                    raise UsageError(f"this sweep is on {known}, not on {new[0]}", "begin another one for it")
            else:
                result = raced(options.scenario, options.command, "sweep")
                swept = [word.partition("=")[0].strip() for word in options.over]
                options = replace(options, places=options.places or ("gpu" if "gpus" in swept else "cpu",))
                self._info = _with_scope(result, options, swept)
                over, baseline = read_options(self._info, options)
                self._stations = open_stations(self._info, options.places, options.race, over)
                state = _planned(self._info, options, over, baseline, self._stations)
                self.file = sweeps.create(options.file, state, self._info.name)
            stations: list[Station] = [*self._stations]
            self.sweep = Sweep(state, stations, self.file.write)
            self._published = state
            begun = self.session.snapshot()
            titled = replace(begun.race, scenario=self.title)
            self.session.restore(replace(begun, race=titled, sweep=state))
            self.publish()
        except BaseException:
            self.close()
            raise

    @property
    def title(self) -> str:
        """The scenario or command."""
        return self._info.name

    @property
    def views(self) -> dict[str, View]:
        """The views of the working folder for a user's lanes, by host."""
        return {host: view for station in self._stations for host, view in station.views.items()}

    @property
    def suspensions(self) -> list[Suspender]:
        """The objects that suspend the lanes along with tfmon."""
        return [station.suspension for station in self._stations]

    @property
    def trains_command(self) -> bool:
        """Whether it sweeps the user's command."""
        return bool(self._info.command)

    @property
    def all_over(self) -> bool:
        """Whether the measurement has ended."""
        return self.sweep.join(0)

    def publish(self) -> None:
        """Publish the state of the sweep in the session, for its followers."""
        assert self.file is not None, "it is there once the places are"
        state, before, at_ns = self.sweep.state, self._published, time.monotonic_ns()
        if state is not before:
            self._published = state
            self.session.accept(change_of(before, state, at_ns))
        recording = RecordingState(str(self.file.path), reason=self.file.failure)
        if recording != self.session.snapshot().recording:
            self.session.accept(RecordingChanged(at_ns=at_ns, recording=recording))

    def requests(self) -> dict[str, Callable[..., object]]:
        """Return the viewers' possible requests by name."""
        return {"suspend": self._suspend, "continue": self._continue, "end_now": int}

    def _suspend(self) -> None:
        for one in self.suspensions:
            one.suspend_lanes()

    def _continue(self) -> None:
        for one in self.suspensions:
            one.continue_lanes()

    def close(self, reason: str = "stopped by the user") -> None:
        """End the sweep and every process; what was measured is in the file."""
        sweep = getattr(self, "sweep", None)
        if sweep is not None:
            sweep.stop(reason)
            sweep.join(END_S + 5)
        close_all(self._stations)
        if self.file is not None:
            self.file.close()


def _last() -> Path:
    files = sorted(sweeps.folder().glob(f"*{sweeps.SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise UsageError(f"there is no sweep in {sweeps.folder()}", "name the file of one")
    return files[-1]


def read_options(
    info: ScenarioInfo, options: SweepOptions
) -> tuple[dict[str, tuple[KnobValue, ...]], dict[str, KnobValue]]:
    """Return the values of each knob, and the known settings of the baseline; raises UsageError."""
    from tfmon.analysis.sweep import parse_over

    try:
        over = parse_over(None if info.command else info.knobs, options.over)
        own = (
            guess_settings(options.race.settings)
            if info.command
            else parse_settings(info.knobs, options.race.settings)
        )
    except KnobError as error:
        hint = "such as --over lr=1e-3,1e-4" if info.command else f"tfmon show {info.name} lists the knobs"
        raise UsageError(str(error), hint) from error
    counts = {name: min(values) for name, values in over.items() if name in KINDS}
    return over, {**info.defaults(), **own, **counts}


def _with_scope(info: ScenarioInfo, options: SweepOptions, swept: Iterable[str]) -> ScenarioInfo:
    places = [word.partition("*")[0].strip() for one in options.places for word in one.split(",")]
    try:
        return devices.with_scope(info, ["2xcpu"] if {*swept} & {*KINDS} else places)
    except SpecError:
        return info  # opening the places says what is wrong with them


def _planned(
    info: ScenarioInfo,
    options: SweepOptions,
    over: dict[str, tuple[KnobValue, ...]],
    baseline: dict[str, KnobValue],
    stations: Sequence[PlaceStation],
) -> SweepState:
    from tfmon.analysis.sweep import combine

    plan = SweepPlan(
        scenario=shlex.join(info.command) if info.command else _name(info),
        over=over,
        baseline=baseline,
        places=tuple(station.place for station in stations),
        words=options.places,
        kinds=tuple(dict.fromkeys(station.kind for station in stations)),
        settings=options.race.settings,
        until_ci=options.until_ci,
        each_s=options.each_s,
        everything=options.everything or bool(counted(over)),  # a curve needs each point
        slice_s=options.race.slice_s,
        command=info.command,
        source=digest(info.path),
        python=str(options.race.python),
        machines={station.place: station.device for station in stations},
        hardware={station.place: station.hardware for station in stations},
    )

    least_s = 2 * FEW * plan.slice_s
    if plan.each_s < least_s:
        raise UsageError(
            f"--limit {plan.each_s:g} is too short for a ratio: it takes {FEW} pairs of slices",
            f"--limit {least_s:g} is the least, or a shorter --slice",
        )

    def check(settings: Settings, kind: str) -> str:
        count = devices_of(settings, kind)
        absent = [
            station.absent[count] for station in stations if station.kind == kind and count in station.absent
        ]
        try:
            check_settings(info, settings, count)
        except UsageError as error:
            return error.message
        return next(iter(absent), "") or obstacle(settings, count)

    try:
        return SweepState(plan, combine(plan, baseline, check))
    except KnobError as error:
        raise UsageError(str(error), "fewer values, or fewer knobs at once") from error


def _name(info: ScenarioInfo) -> str:
    return str(info.path) if info.origin == "file" else info.name


def _same_scenario(plan: SweepPlan, scenario: str | None, command: tuple[str, ...]) -> ScenarioInfo:
    """Return the scenario of a resumed sweep; raises UsageError if it is another or has changed."""
    if plan.command:
        if scenario is not None or (command and command != plan.command):
            raise UsageError(f"this sweep is of another command: {plan.scenario}", "leave the command out")
        return command_scenario(plan.command)
    info = find_scenario(plan.scenario)
    named = find_scenario(scenario) if scenario is not None else info
    if command or named.path != info.path:
        raise UsageError(f"this sweep is of another scenario: {plan.scenario}", "leave the scenario out")
    if plan.source and digest(info.path) != plan.source:
        raise UsageError(
            f"{info.path} has changed since: what is measured does not belong to it", "begin another sweep"
        )
    return info

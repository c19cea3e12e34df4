"""Connects a sweep's plan, places and file."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.analysis.intervals import FEW
from tfmon.api import devices
from tfmon.api.options import SweepOptions
from tfmon.api.planner import check_settings
from tfmon.api.run_base import LocalRun
from tfmon.api.sweep_places import END_S, PlaceStation, close_all, open_stations
from tfmon.catalog import ScenarioInfo, command_scenario, find_scenario
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_FINE, EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError, UsageError
from tfmon.lanes.plan import digest
from tfmon.lanes.suspend import Suspender
from tfmon.model.control_messages import ControlMessage, Perform
from tfmon.model.events import RecordingChanged
from tfmon.model.folder_views import View, describe
from tfmon.model.knobs import KnobError, KnobValue, Settings, guess_settings, parse_settings
from tfmon.model.race import RecordingState
from tfmon.model.series import SWEEP, SeriesEnded, SeriesPlan, SeriesState, SeriesStep
from tfmon.model.session import Session
from tfmon.model.spec import KINDS, SpecError, counted, devices_of, obstacle
from tfmon.probes.machine import read_machine
from tfmon.recordings import sweeps
from tfmon.series.engine import Station
from tfmon.series.sweep import Sweep

CHOOSES_ITSELF = "a sweep chooses its settings itself: no key changes its lanes"


class SweepProgram(LocalRun):
    """A sweep. Thread: its creation and `close` can block."""

    def __init__(self, options: SweepOptions) -> None:
        self._stations: list[PlaceStation] = []
        self.session = Session(read_machine(), time.monotonic_ns)
        """Without a race, for viewers."""
        self.file: sweeps.SweepFile | None = None
        try:
            if options.resume is not None:
                path = _last() if options.resume == "last" else Path(options.resume)
                state, self.file = sweeps.resume(path)
                options = replace(
                    options,
                    on=options.on or state.plan.words,
                    settings=state.plan.settings,
                    slice_s=state.plan.slice_s,
                    python=state.plan.python,
                )
                self._info = _with_scope(
                    _same_scenario(state.plan, options.scenario, options.command), options, state.plan.over
                )
                self._stations = open_stations(self._info, options.on, options.race, state.plan.over)
                new = [station.kind for station in self._stations if station.kind not in state.plan.kinds]
                if new:
                    known = " and ".join(state.plan.kinds)
                    raise UsageError(f"this sweep is on {known}, not on {new[0]}", "begin another one for it")
            else:
                result = options.info
                swept = [word.partition("=")[0].strip() for word in options.over]
                options = replace(options, on=options.on or ("gpu" if "gpus" in swept else "cpu",))
                self._info = _with_scope(result, options, swept)
                over, baseline = _read_options(self._info, options)
                self._stations = open_stations(self._info, options.on, options.race, over)
                state = _planned(self._info, options, over, baseline, self._stations)
                self.file = sweeps.create(Path(options.record) if options.record else None, state, self._info.name)
            stations: list[Station] = [*self._stations]
            begun = self.session.snapshot()
            titled = replace(begun.race, scenario=self.title)
            self.session.restore(replace(begun, race=titled, experiment=state))
            self.sweep = Sweep(state, stations, self._keep)
            self._known, self._unsaved = self.sweep.ranking, ""
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
        """The views of the working folder."""
        return {host: view for station in self._stations for host, view in station.views.items()}

    @property
    def trains_command(self) -> bool:
        """Whether it sweeps the user's command."""
        return bool(self._info.command)

    def publish(self) -> None:
        """Publish whether the file is written."""
        assert self.file is not None, "it is there once the places are"
        recording = RecordingState(str(self.file.path), reason=self.file.failure)
        if recording != self.session.snapshot().recording:
            self.session.accept(RecordingChanged(at_ns=time.monotonic_ns(), recording=recording))

    def _keep(self, step: SeriesStep) -> None:
        assert self.file is not None, "it is there once the places are"
        if not isinstance(step, SeriesEnded):
            self.file.write(step)
        self.session.advance_series(step)

    def begin(self) -> None:
        """Start the workers."""
        self.sweep.start()

    def join(self, timeout_s: float) -> bool:
        """Wait; return whether it has ended."""
        return self.sweep.join(timeout_s)

    def line(self) -> str:
        """Return the progress and the best."""
        from tfmon.reports.series_report import progress_line

        return progress_line(self.sweep.ranking)

    def news(self) -> Iterator[str]:
        """Yield settled combinations, losses, and errors."""
        from tfmon.reports.series_report import happened

        before, self._known = self._known, self.sweep.ranking
        yield from happened(before, self._known)
        file = self.file
        if file is not None and file.failure != self._unsaved:
            self._unsaved = file.failure
            yield self._unsaved or f"{file.path} has all again"

    @property
    def notes(self) -> Sequence[str]:
        """The lanes' views."""
        return describe(self.views)

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code."""
        from tfmon.analysis.sweep_ranking import FAILED
        from tfmon.reports.series_json import sweep_to_json
        from tfmon.reports.series_report import to_text

        result, file = self.sweep.ranking, self.file
        lost = result.state.lost or any(row.outcome == FAILED for row in result.rows)
        fine = EXIT_FINE if result.answered else EXIT_CANNOT_TELL
        code = EXIT_LANE_FAILED if self.sweep.failure or lost else fine
        printed = (sweep_to_json if as_json else to_text)(result, str(file.path) if file is not None else "")
        return printed, EXIT_INTERRUPTED if interrupted else code

    def perform(self, message: ControlMessage) -> str:
        """Carry out a request."""
        match message:
            case Perform("end_now" | "repeat"):
                pass
            case _:
                raise TfmonError(CHOOSES_ITSELF)
        return ""

    @property
    def suspenders(self) -> Sequence[Suspender]:
        """Of all places."""
        return [station.suspension for station in self._stations]

    def close(self, reason: str = "") -> None:
        """End the sweep and every process."""
        sweep = getattr(self, "sweep", None)
        if sweep is not None:
            sweep.stop(reason or "stopped by the user")
            sweep.join(END_S + 5)
        close_all(self._stations)
        if self.file is not None:
            self.file.close()


def _last() -> Path:
    files = sorted(sweeps.folder().glob(f"*{sweeps.SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise UsageError(f"there is no sweep in {sweeps.folder()}", "name the file of one")
    return files[-1]


def _read_options(
    info: ScenarioInfo, options: SweepOptions
) -> tuple[dict[str, tuple[KnobValue, ...]], dict[str, KnobValue]]:
    from tfmon.analysis.sweep_ranking import parse_over

    try:
        over = parse_over(None if info.command else info.knobs, options.over)
        own = guess_settings(options.settings) if info.command else parse_settings(info.knobs, options.settings)
    except KnobError as error:
        hint = "such as --over lr=1e-3,1e-4" if info.command else f"tfmon show {info.name} lists the knobs"
        raise UsageError(str(error), hint, options=("over",)) from error
    counts = {name: min(values) for name, values in over.items() if name in KINDS}
    return over, {**info.defaults(), **own, **counts}


def _with_scope(info: ScenarioInfo, options: SweepOptions, swept: Iterable[str]) -> ScenarioInfo:
    places = [word.partition("*")[0].strip() for one in options.on for word in one.split(",")]
    try:
        return devices.with_scope(info, ["2xcpu"] if {*swept} & {*KINDS} else places)
    except SpecError:
        return info  # reported when the places are opened


def _planned(
    info: ScenarioInfo,
    options: SweepOptions,
    over: dict[str, tuple[KnobValue, ...]],
    baseline: dict[str, KnobValue],
    stations: Sequence[PlaceStation],
) -> SeriesState:
    from tfmon.analysis.sweep_ranking import combine

    plan = SeriesPlan(
        SWEEP,
        scenario=shlex.join(info.command) if info.command else _name(info),
        over=over,
        baseline=baseline,
        places=tuple(station.place for station in stations),
        words=options.on,
        kinds=tuple(dict.fromkeys(station.kind for station in stations)),
        settings=options.settings,
        until_ci=options.until_ci,
        each_s=options.limit_s,
        everything=options.everything or bool(counted(over)),  # a curve needs each point
        slice_s=options.slice_s,
        command=info.command,
        source=digest(info.path),
        python=str(options.interpreter),
        machines={station.place: station.device for station in stations},
        hardware={station.place: station.hardware for station in stations},
    )

    least_s = 2 * FEW * plan.slice_s
    if plan.each_s < least_s:
        raise UsageError(
            f"--limit {plan.each_s:g} is too short for a ratio: it takes {FEW} pairs of slices",
            f"--limit {least_s:g} is the least, or a shorter --slice",
            options=("limit_s", "slice_s"),
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
        return SeriesState(plan, combine(plan, baseline, check))
    except KnobError as error:
        raise UsageError(str(error), "fewer values, or fewer knobs at once") from error


def _name(info: ScenarioInfo) -> str:
    return str(info.path) if info.origin == "file" else info.name


def _same_scenario(plan: SeriesPlan, scenario: str | None, command: tuple[str, ...]) -> ScenarioInfo:
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

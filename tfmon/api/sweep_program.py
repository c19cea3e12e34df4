"""Connects a sweep's plan, places and file."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfmon import errors
from tfmon.analysis.intervals import FEW
from tfmon.analysis.sweep_ranking import FAILED, Ranking, combine, parse_over, rank
from tfmon.api import devices
from tfmon.api.options import Purpose, RaceOptions, SweepOptions
from tfmon.api.planner import check_settings
from tfmon.api.program import Program
from tfmon.api.run_base import Run
from tfmon.catalog import command_scenario, find_scenario
from tfmon.errors import DeviceAbsentError, TfmonError, UsageError
from tfmon.lanes.plan import digest
from tfmon.lanes.remote.remote_host import is_ray, word_of
from tfmon.lanes.suspend import Suspender
from tfmon.model.events import RecordingChanged
from tfmon.model.folder_views import describe
from tfmon.model.knobs import KnobError, KnobValue, Settings, exact, guess_settings, parse_settings
from tfmon.model.race import RecordingState, ScenarioInfo
from tfmon.model.requests import Command
from tfmon.model.series import SWEEP, Attempt, SeriesEnded, SeriesPlan, SeriesState, SeriesStep, kind_of
from tfmon.model.session import Session
from tfmon.model.spec import KINDS, SpecError, counted, devices_of, obstacle
from tfmon.probes.machine import read_machine
from tfmon.recordings import sweeps
from tfmon.reports import series_report
from tfmon.series.engine import RaceStation, Series
from tfmon.series.sweep import SweepPolicy

if TYPE_CHECKING:
    from tfmon.lanes.plan import RacePlan
    from tfmon.lanes.remote.ray import RayCluster
    from tfmon.model.spec import LaneSpec

END_S = 10.0
POLL_S = 0.05
MOST_WORKERS = 128
AT_ONCE = 16
ON = ("on",)


class SweepProgram(Run):
    """A sweep. Thread: creation and `close` can block."""

    def __init__(self, options: SweepOptions) -> None:
        self.session = Session(read_machine(), time.monotonic_ns)
        with contextlib.ExitStack() as undo:
            if options.resume is not None:
                state, self.file = sweeps.resume(_last() if options.resume == "last" else Path(options.resume))
                undo.callback(self.file.close)
                options = replace(
                    options,
                    on=options.on or state.plan.words,
                    settings=state.plan.settings,
                    slice_s=state.plan.slice_s,
                    python=state.plan.python,
                )
                info = _same_scenario(state.plan, options.scenario, options.command)
                self._info = _with_scope(info, options, state.plan.over)
                self.stations = open_stations(self._info, options.on, options.race, state.plan.over)
                undo.callback(close_all, self.stations)
                new = [station.kind for station in self.stations if station.kind not in state.plan.kinds]
                if new:
                    known = " and ".join(state.plan.kinds)
                    raise UsageError(f"this sweep is on {known}, not on {new[0]}", "begin another one for it")
            else:
                swept = [word.partition("=")[0].strip() for word in options.over]
                options = replace(options, on=options.on or ("gpu" if "gpus" in swept else "cpu",))
                self._info = _with_scope(options.info, options, swept)
                over, baseline = _read_options(self._info, options)
                self.stations = open_stations(self._info, options.on, options.race, over)
                undo.callback(close_all, self.stations)
                state = _planned(self._info, options, over, baseline, self.stations)
                self.file = sweeps.create(Path(options.record) if options.record else None, state, self._info.name)
            begun = self.session.snapshot()
            titled = replace(begun.race, scenario=self._info.name)
            self.session.restore(replace(begun, race=titled, experiment=state))
            self.sweep = Series(state, SweepPolicy(), self.stations, self._keep)
            self._known, self._unsaved = rank(state), ""
            self._told: dict[int, str] = {}
            self._publish()
            undo.pop_all()

    def begin(self) -> None:
        """Start the workers."""
        self.sweep.start()

    def join(self, timeout_s: float) -> bool:
        """Wait; return whether the sweep has ended."""
        return self.sweep.join(timeout_s)

    @property
    def suspenders(self) -> Sequence[Suspender]:
        """The owners of the lanes' processes."""
        return [station.program.lanes.suspension for station in self.stations]

    @property
    def trains_command(self) -> bool:
        """Whether a user's command is swept."""
        return bool(self._info.command)

    @property
    def ranking(self) -> Ranking:
        """The results so far."""
        return rank(self.sweep.state, self._known)

    def _publish(self) -> None:
        recording = RecordingState(str(self.file.path), reason=self.file.failure)
        if recording != self.session.snapshot().recording:
            self.session.accept(RecordingChanged(recording=recording))

    def _keep(self, step: SeriesStep) -> None:
        if not isinstance(step, SeriesEnded):
            self.file.write(step)
            self._publish()
        self.session.advance_series(step)

    def line(self) -> str:
        """Return the progress and the best combination."""
        return series_report.progress_line(self.ranking)

    def news(self) -> Iterator[str]:
        """Yield lines about finished combinations and errors."""
        before, self._known = self._known, self.ranking
        yield from series_report.happened(before, self._known, self._told)
        if self.file.failure != self._unsaved:
            self._unsaved = self.file.failure
            yield self._unsaved or f"{self.file.path} has all again"

    @property
    def notes(self) -> Sequence[str]:
        """The lanes' views."""
        races = [station.program.planned().race for station in self.stations]
        return describe({host: view for race in races for host, view in race.views.items()})

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code."""
        result = self.ranking
        lost = result.state.lost or any(row.outcome == FAILED for row in result.rows)
        fine = errors.EXIT_FINE if result.answered else errors.EXIT_CANNOT_TELL
        code = errors.EXIT_LANE_FAILED if self.sweep.failure or lost else fine
        write = series_report.sweep_to_json if as_json else series_report.to_text
        return write(result, str(self.file.path)), errors.EXIT_INTERRUPTED if interrupted else code

    def perform(self, command: Command) -> str:
        """Carry out a request."""
        if command.action not in ("end now", "repeat"):
            raise TfmonError("a sweep chooses its settings itself: no key changes its lanes")
        return ""

    def close(self, reason: str = "") -> None:
        """End the sweep and every process."""
        self.sweep.stop(reason or "stopped by the user")
        self.sweep.join(END_S + 5)
        close_all(self.stations)
        self.file.close()
        self._publish()


def _last() -> Path:
    files = sorted(sweeps.folder().glob(f"*{sweeps.SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise UsageError(f"there is no sweep in {sweeps.folder()}", "name the file of one")
    return files[-1]


def _read_options(
    info: ScenarioInfo, options: SweepOptions
) -> tuple[dict[str, tuple[KnobValue, ...]], dict[str, KnobValue]]:
    try:
        over = parse_over(None if info.command else info.knobs, options.over)
        common = guess_settings(options.settings) if info.command else parse_settings(info.knobs, options.settings)
    except KnobError as error:
        hint = "such as --over lr=1e-3,1e-4" if info.command else f"tfmon show {info.name} lists the knobs"
        raise UsageError(str(error), hint, options=("over",)) from error
    counts = {name: min(values) for name, values in over.items() if name in KINDS}
    return over, {**info.defaults(), **common, **counts}


def _with_scope(info: ScenarioInfo, options: SweepOptions, swept: Iterable[str]) -> ScenarioInfo:
    places = [word.partition("*")[0].strip() for option in options.on for word in option.split(",")]
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
        text = f"--limit {plan.each_s:g} is too short for a ratio: it takes {FEW} pairs of slices"
        hint = f"--limit {least_s:g} is the least, or a shorter --slice"
        raise UsageError(text, hint, options=("limit_s", "slice_s"))

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
    requested = find_scenario(scenario) if scenario is not None else info
    if command or requested.path != info.path:
        raise UsageError(f"this sweep is of another scenario: {plan.scenario}", "leave the scenario out")
    if plan.source and digest(info.path) != plan.source:
        raise UsageError(
            f"{info.path} has changed since: what is measured does not belong to it", "begin another sweep"
        )
    return info


class PlaceStation(RaceStation):
    """One place of a sweep."""

    def __init__(
        self, info: ScenarioInfo, word: str, race: RaceOptions, number: int = 1, counts: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self._options = race
        self.program = Program(race, Purpose(watched=False, restarts=True))
        self.session = self.program.session
        self._info = info
        self._counts = counts
        self._word = word
        self.absent: dict[int, str] = {}
        """Errors by unavailable number of devices."""
        try:
            spec = self._find(word)
        except BaseException:
            self.program.close()
            raise
        if not counts:
            self._word = spec.place  # both lanes need the same GPU
        self.place = f"{self._word} #{number}" if number > 1 else self._word
        self.kind = spec.kind if counts else kind_of(spec)
        self.hardware = machine = self.session.snapshot().hosts[spec.host].machine
        self.machine = machine.boot or spec.host
        self.device = machine.cpu_name if spec.kind == "cpu" else next(iter(machine.gpus[spec.index :]), "")

    def _find(self, word: str) -> LaneSpec:
        for count in sorted(self._counts, reverse=True)[:-1]:  # reserves the largest number in Ray
            try:
                self._planned(_with_count(word, count))
            except DeviceAbsentError as error:
                self.absent[count] = error.message
        return self._planned(_with_count(word, min(self._counts)) if self._counts else word).lanes[0].spec

    def _planned(self, *lanes: str) -> RacePlan:
        return self.program.plan(self._info, replace(self._options, lanes=lanes))

    def begin(self, attempt: Attempt) -> tuple[str, str]:
        """Start both lanes; return their names."""
        settings = attempt.settings
        knobs = [f"{knob}={exact(value)}" for knob, value in settings.items() if knob not in KINDS]
        base, changed = self._word, self._word
        if self._counts:
            base, changed = _with_count(base, min(self._counts)), _with_count(base, devices_of(settings))
        plan = self._planned(base, ",".join([changed, *knobs]))
        self.program.begin(plan)
        first, second = plan.lanes
        return first.spec.name, second.spec.name

    def end(self) -> None:
        """End both lanes, and wait."""
        self.program.lanes.finish()
        deadline = time.monotonic() + END_S
        while not self.program.join(POLL_S) and time.monotonic() < deadline:
            pass


def _with_count(word: str, count: int) -> str:
    host, slash, kind = word.rpartition("/")
    return f"{host}{slash}{count}x{kind}"


def split_places(
    requested: Sequence[str], cluster: RayCluster | None = None, most: int = 0
) -> list[tuple[str, int]]:
    """Return each place with the number among equal places; raises TfmonError.

    A place of Ray expands to the free places, or to N with `*N`.
    """
    places: list[tuple[str, int]] = []
    unlimited: list[str] = []
    for word in [part.strip() for option in requested for part in option.split(",")]:
        name, star, times = word.partition("*")
        if not name or "=" in name or (star and not (times.isdecimal() and int(times) > 0)):
            raise UsageError(
                f"--on {word} is not a place", "such as --on cpu, --on gpu:0,gpu2/gpu, --on ray/gpu*2", options=ON
            )
        on_ray = is_ray(name.partition("/")[0])
        if star and not on_ray:
            raise UsageError(
                f"--on {word}: only a Ray cluster has a place several times", f"--on {name}", options=ON
            )
        if on_ray and not star:
            _check_disjoint(name, unlimited)
            unlimited.append(name)
        count = int(times) if star else _room(_with_count(name, most) if most else name, cluster) if on_ray else 1
        already = sum(known == name for known, _ in places)
        places += [(name, already + number) for number in range(1, min(count, 2 * MOST_WORKERS) + 1)]
        if len(places) > MOST_WORKERS:
            text, hint = f"{word} is too many: {MOST_WORKERS} workers are the most", f"--on {name}*{MOST_WORKERS}"
            raise UsageError(text, hint, options=ON)
    return places


def _check_disjoint(name: str, known: Sequence[str]) -> None:
    host, _, kind = name.rpartition("/")
    for other in known:
        other_host, _, other_kind = other.rpartition("/")
        kind_of_node, before = word_of(host), word_of(other_host)
        if kind == other_kind and (kind_of_node == before or not kind_of_node or not before):
            raise UsageError(
                f"--on {other} and {name} have devices in common", f"say how many: --on {name}*2", options=ON
            )


def _room(word: str, cluster: RayCluster | None) -> int:
    from tfmon.lanes.remote.ray import RayCluster

    room = (cluster or RayCluster()).workers(word)
    if not room:
        hint = f"--on {word}*1 waits for it; tfmon hosts --ray lists it"
        raise DeviceAbsentError(f"Ray has no room for {word} now", hint, options=ON)
    return min(room, MOST_WORKERS)


def open_stations(
    info: ScenarioInfo, requested: Sequence[str], race: RaceOptions, over: Mapping[str, Sequence[KnobValue]]
) -> list[PlaceStation]:
    """Connect to the places; raises TfmonError."""
    name = counted(over)
    counts = [int(value) for value in over.get(name, ())]
    places = split_places(requested, race.ray_cluster, max(counts, default=0))
    for word, _ in places:
        if name and word.rpartition("/")[2] != KINDS[name]:
            hint = f"such as --on {KINDS[name]} or HOST/{KINDS[name]}"
            raise UsageError(f"--on {word} has no number of {name} to sweep over", hint, options=ON)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-connect") as pool:
        waiting = [pool.submit(PlaceStation, info, word, race, number, counts) for word, number in places]
        try:
            return [future.result() for future in waiting]
        except BaseException:  # also Ctrl+C
            for future in waiting:
                future.cancel()
            opened, _ = wait(waiting)
            close_all(
                [future.result() for future in opened if not future.cancelled() and future.exception() is None]
            )
            raise


def close_all(stations: Sequence[PlaceStation]) -> None:
    """Close stations at the same time."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-close") as pool:
        list(pool.map(lambda station: station.program.close(), stations))

"""Wires a sweep: its places, each with the lanes and probes of a race, its file, and the end of all of them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfmon.catalog import ScenarioInfo, command_scenario, find_scenario
from tfmon.errors import TfmonError, UsageError
from tfmon.experiments.sweep import Station, Sweep
from tfmon.lanes.plan import digest
from tfmon.lanes.suspend import Suspender
from tfmon.model.knobs import KnobError, KnobValue, Settings, guess_settings, parse_settings, show
from tfmon.model.session import Session
from tfmon.model.sweep import SweepPlan, SweepState, kind_of
from tfmon.recordings import library, sweeps
from tfmon.runner.planner import RaceOptions, check_settings
from tfmon.runner.program import Program

if TYPE_CHECKING:
    from tfmon.hosts.ray_cluster import RayCluster

END_S = 10.0
"""How long a place may take to end its lanes."""
POLL_S = 0.05
MOST_WORKERS = 128


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What the command line says of a sweep."""

    over: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    """Devices as a lane names them, each with how often it is there, as in `gpu2/gpu*4`; none for the CPU."""
    race: RaceOptions = field(default_factory=lambda: RaceOptions(watched=False))
    """What every race has: the settings of the baseline, the slice, the interpreter."""
    until_ci: float = 0.03
    each_s: float = 60.0
    everything: bool = False


class PlaceStation:
    """One place: a program of its own, whose races are the visits. It is the sweep's `Station`."""

    def __init__(self, info: ScenarioInfo, word: str, options: SweepOptions, number: int = 1) -> None:
        """Connect to the place, and find out what it is; raises TfmonError where it cannot be used."""
        self._info = info
        self._options = replace(options.race, lanes=(word,))
        self._program = Program(self._options)
        self._began = False
        try:
            plan = self._program.plan(info)
        except BaseException:
            self._program.close()
            raise
        spec = plan.lanes[0].spec
        self._word = spec.place  # a word that means any free GPU has become one: both lanes need the same
        self.place = f"{spec.place} #{number}" if number > 1 else spec.place
        self.kind = kind_of(spec)
        self.session: Session = self._program.session
        known = self.session.snapshot()
        host = known.hosts.get(spec.host)
        machine = host.machine if host is not None else known.machine
        self.machine = machine.boot or spec.host
        self.device = machine.cpu_name if spec.kind == "cpu" else next(iter(machine.gpus[spec.index :]), "")

    @property
    def suspension(self) -> Suspender:
        """What suspends its lanes along with tfmon."""
        return self._program.lanes.suspension

    def begin(self, settings: Settings) -> tuple[str, str]:
        """Start fresh processes of the baseline and of a combination, and return the names of the lanes."""
        words = ",".join([self._word, *(f"{knob}={_exact(value)}" for knob, value in settings.items())])
        plan = self._program.plan(self._info, replace(self._options, lanes=(self._word, words)))
        if self._began:
            self._program.lanes.begin(plan)
        else:
            self._began = True
            self._program.begin(plan)
        base, changed = plan.lanes
        return base.spec.name, changed.spec.name

    def end(self) -> None:
        """End both lanes, and return when their processes are gone."""
        if self._began:
            self._program.lanes.finish()
            deadline = time.monotonic() + END_S
            while not self._program.lanes.all_over and time.monotonic() < deadline:
                time.sleep(POLL_S)

    def close(self) -> None:
        """End everything here."""
        self._program.close()


class SweepProgram:
    """One run of `tfmon sweep`.

    Thread: making it and `close` may block for seconds.
    """

    def __init__(
        self,
        scenario: str | None,
        command: tuple[str, ...],
        options: SweepOptions,
        *,
        file: Path | None = None,
        resume: Path | None = None,
    ) -> None:
        """Connect to all places, and make the file or read the one to go on with; nothing is measured yet.

        Args:
            scenario: Its name or file; None for a command, or for the one of the file.
            command: The user's own command; empty for a scenario.
            options: What is swept. Of those that go on only the places count, and those that are not given there
                are as before.
            file: The new file; None for one among the user's.
            resume: The file of a sweep to go on with.

        Raises:
            TfmonError: It cannot be swept.
        """
        self._stations: list[PlaceStation] = []
        self.file: sweeps.SweepFile | None = None
        try:
            if resume is not None:
                state, self.file = sweeps.resume(resume)
                self._info = _same_scenario(state.plan, scenario, command)
                options = _as_before(state.plan, options)
                self._stations = _open_stations(self._info, options)
                new = [one.kind for one in self._stations if one.kind not in state.plan.kinds]
                if new:
                    known = " and ".join(state.plan.kinds)
                    raise UsageError(f"this sweep is on {known}, not on {new[0]}", "begin another one for it")
            else:
                self._info = command_scenario(command) if command else find_scenario(str(scenario))
                over, baseline = read_options(self._info, options)
                self._stations = _open_stations(self._info, options)
                state = _planned(self._info, options, over, baseline, self._stations)
                name = self._info.name
                self.file = (
                    sweeps.create(file, state) if file is not None else sweeps.create_in(folder(), name, state)
                )
            stations: list[Station] = [*self._stations]
            self.sweep = Sweep(state, stations, self.file.write)
        except BaseException:
            self.close()
            raise

    @property
    def title(self) -> str:
        """What is swept."""
        return self._info.name

    @property
    def suspensions(self) -> list[Suspender]:
        """What suspends the lanes along with tfmon."""
        return [station.suspension for station in self._stations]

    def close(self, reason: str = "stopped") -> None:
        """End the sweep and every process; what was measured is in the file."""
        sweep = getattr(self, "sweep", None)
        if sweep is not None:
            sweep.stop(reason) if not sweep.join(0) else None
            sweep.join(END_S + 5)
        for station in self._stations:
            station.close()
        if self.file is not None:
            self.file.close()


def folder() -> Path:
    """Return where sweeps are kept; it may not exist yet."""
    return library.folder().with_name("sweeps")


def read_options(
    info: ScenarioInfo, options: SweepOptions
) -> tuple[dict[str, tuple[KnobValue, ...]], dict[str, KnobValue]]:
    """Return the values of each knob, and the baseline's settings as far as they are known.

    Raises:
        UsageError: what the options say is not possible.
    """
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
    return over, {**info.defaults(), **own}


def split_places(words: Sequence[str], workers: Callable[[str], int] = lambda word: 1) -> list[tuple[str, int]]:
    """Return each place with its number among those of the same name, from 1.

    Raises:
        UsageError: one is empty, has settings, or there are too many.
    """
    places: list[tuple[str, int]] = []
    for word in [part.strip() for one in words for part in one.split(",")]:
        name, star, times = word.partition("*")
        if not name or "=" in name or (star and not (times.isdecimal() and int(times) > 0)):
            raise UsageError(f"--on {word} is no place", "such as --on cpu, --on gpu:0,gpu:1 or --on gpu2/gpu*2")
        already = sum(one == name for one, _ in places)
        places += [(name, already + number) for number in range(1, (int(times) if star else workers(name)) + 1)]
        if len(places) > MOST_WORKERS:
            raise UsageError(f"{len(places)} workers are too many; {MOST_WORKERS} is the most")
    return places


def _workers(word: str, cluster: RayCluster | None) -> int:
    """Return for how many workers a word stands: on a Ray cluster, as many as there is room for now.

    Raises:
        TfmonError: the cluster has no room, or cannot be asked.
    """
    from tfmon.hosts.ray_cluster import RayCluster
    from tfmon.hosts.reservation import is_ray

    if not is_ray(word.partition("/")[0]):
        return 1
    room = (cluster or RayCluster()).workers(word)
    if not room:
        raise TfmonError(
            f"Ray has no room for {word} now", f"--on {word}*1 waits for it; tfmon hosts --ray lists it"
        )
    return min(room, MOST_WORKERS)


def _open_stations(info: ScenarioInfo, options: SweepOptions) -> list[PlaceStation]:
    """Connect to the places; what was opened is closed where one of them cannot be used."""
    places = split_places(options.places or ("cpu",), lambda word: _workers(word, options.race.ray))
    with ThreadPoolExecutor(min(16, len(places)), thread_name_prefix="tfmon-connect") as pool:
        waiting = [pool.submit(PlaceStation, info, word, options, number) for word, number in places]
    errors = [error for one in waiting if (error := one.exception()) is not None]
    if errors:
        for one in waiting:
            if one.exception() is None:
                one.result().close()
        raise errors[0]
    return [one.result() for one in waiting]


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
        words=options.places or ("cpu",),
        kinds=tuple(dict.fromkeys(station.kind for station in stations)),
        settings=options.race.settings,
        until_ci=options.until_ci,
        each_s=options.each_s,
        everything=options.everything,
        slice_s=options.race.slice_s,
        command=info.command,
        source=digest(info.path),
        python=str(options.race.python),
        machines={station.place: station.device for station in stations},
    )

    def check(settings: Settings) -> str:
        try:
            check_settings(info, settings)
        except UsageError as error:
            return error.message
        return ""

    try:
        return SweepState(plan, combine(plan, baseline, check))
    except KnobError as error:
        raise UsageError(str(error), "fewer values, or fewer knobs at once") from error


def _name(info: ScenarioInfo) -> str:
    """Return what finds a scenario again from anywhere."""
    return str(info.path) if info.origin == "file" else info.name


def _same_scenario(plan: SweepPlan, scenario: str | None, command: tuple[str, ...]) -> ScenarioInfo:
    """Return the scenario of a sweep that goes on.

    Raises:
        UsageError: another one is named, or it has changed since.
    """
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


def _as_before(plan: SweepPlan, options: SweepOptions) -> SweepOptions:
    """Return the options of a sweep that goes on: its own, in other places if some are given."""
    if options.over or options.race.settings:
        raise UsageError("--resume goes on with the same combinations", "leave --over and --set out")
    race = replace(options.race, settings=plan.settings, slice_s=plan.slice_s, python=Path(plan.python))
    return replace(options, places=options.places or plan.words, race=race)


def _exact(value: KnobValue) -> str:
    """Write a value so that the same is read: all digits of a float."""
    return repr(value) if isinstance(value, float) else show(value)

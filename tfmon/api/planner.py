"""From the options to a plan: which lanes race a scenario on this machine, and with which settings."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfmon.api import devices
from tfmon.api.idle import Idle
from tfmon.api.settings import resolve
from tfmon.catalog import ScenarioInfo, command_scenario, find_scenario
from tfmon.errors import UsageError
from tfmon.lanes.plan import LanePlan, RacePlan, lane_environment
from tfmon.lanes.spare import FRESH_EVERY_S
from tfmon.model.knobs import BATCH_SCOPE, KnobError, Settings, guess_settings, parse_settings
from tfmon.model.race import MARGIN, TURNS, Race
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, IntervalKind
from tfmon.model.spec import ANY_GPU, SCOPE_HINT, LaneSpec, SpecError, name_lanes, parse_lane, step_batch

if TYPE_CHECKING:
    from tfmon.lanes.remote.ray import RayCluster
    from tfmon.probes.gpus import GpuSearch

MOST_LANES = 16
"""More lanes are rejected: none of them would get a share of the machine worth measuring."""


HEADLESS_SECONDS = 30.0
"""Length of a race without a screen for which no end is given."""
LEAST_CI = 0.025
"""No interval of one process of each lane becomes narrower: see `analysis.statistics.between_processes`."""
PROCESSES_DIFFER = "equal processes differ, so one process of each lane can tell no less"
LEAST_MARGIN = 0.001
FRESH_FROM_S = 60.0
"""Races that nobody watches and that are as long get fresh processes, if the user does not say otherwise."""


@dataclass(frozen=True, slots=True)
class RaceOptions:
    """What the command line says of a race."""

    lanes: tuple[str, ...] = ()
    """Specs of the lanes, such as `gpu:0,batch_size=256`; empty for the default lanes."""
    settings: tuple[str, ...] = ()
    """Settings of every lane, such as `prefetch=auto`."""
    python: Path = Path(sys.executable)
    """The interpreter that trains."""
    seconds: float | None = None
    """Length of the race; None for no limit."""
    steps: int | None = None
    """Steps of each lane; None for no limit."""
    mode: str = TURNS
    """`turns` or `concurrent`."""
    slice_s: float = 0.5
    """Length of a slice."""
    until_ci: float | None = None
    """The race ends when half the width of every interval over its ratio is as small as this."""
    margin: float = MARGIN
    """Lanes whose ratio differs from 1 by less are the same."""
    watched: bool = True
    """Whether somebody sees the verdict before the end: it must hold then, too."""
    varied_knob: str = ""
    """The knob that a crossover varies; the default lanes do not differ by it."""
    one_lane: bool = False
    """Whether there is one default lane, which trains on whatever the command finds."""
    fresh: bool = False
    """Whether fresh processes replace those of the lanes from time to time; never those of a user's script."""
    spare: bool = False
    """Whether a spare worker that has loaded TensorFlow is kept ready."""
    ray: RayCluster | None = None
    """The cluster of lanes such as `ray/gpu`; None for the one that the environment names or that runs here."""
    in_place: bool | None = None
    """Whether the lanes of a user's command share the working folder; None for: where there is one lane."""
    record: bool = False
    """Whether the race is recorded."""
    wait_idle_s: float | None = None
    """For how long to wait until a GPU is free; None for not at all."""
    record_file: Path | None = None
    """The file of the recording; None for a new one among the user's recordings."""


def unwatched(race_options: RaceOptions, info: ScenarioInfo) -> RaceOptions:
    """Return the options of a race that nobody watches: it has an end, and one interval, at the end."""
    endless = race_options.seconds is None and race_options.steps is None and race_options.until_ci is None
    seconds = HEADLESS_SECONDS if endless and not info.command else race_options.seconds
    return replace(race_options, seconds=seconds, spare=False, watched=False)


def raced(scenario: str | None, command: Sequence[str]) -> ScenarioInfo:
    """Return the scenario to race: the named one, the one that is set, or that of a user's command.

    Raises:
        UsageError: both are named, or there is no such scenario.
    """
    if not command:
        return find_scenario(str(resolve("scenario", scenario).value))
    if scenario is not None:
        raise UsageError(
            f"race a scenario, {scenario}, or a command of your own: not both", "leave one of them out"
        )
    return command_scenario(tuple(command))


def check(race_options: RaceOptions, info: ScenarioInfo, fresh: bool | None) -> None:
    """Raise UsageError for options that exclude each other."""
    if info.command and race_options.steps is not None:
        raise UsageError("--steps is for scenarios; a script sets its own number of steps", "--seconds ends it")
    if info.command and fresh:
        raise UsageError("--fresh is for scenarios; a script cannot be restarted while it runs", "leave it out")
    if race_options.seconds is not None and race_options.steps is not None:
        raise UsageError("--seconds and --steps exclude each other", "leave one of them out")
    if race_options.mode == TURNS:
        return
    if fresh:
        raise UsageError("--fresh needs --mode turns", "fresh processes come between two rounds")
    if race_options.until_ci is not None:
        raise UsageError("--until-ci needs --mode turns", "a contended ratio is not that of each lane by itself")


def with_fresh(race_options: RaceOptions, fresh: bool | None) -> RaceOptions:
    """Return the options with fresh processes or without; None for: in long races that nobody watches."""
    long = race_options.steps is None and (race_options.seconds or FRESH_FROM_S) >= FRESH_FROM_S
    return replace(race_options, fresh=not race_options.watched and long if fresh is None else fresh)


def plan_race(
    info: ScenarioInfo,
    race_options: RaceOptions,
    search: Callable[[str], GpuSearch],
    connect: Callable[[Sequence[LaneSpec]], None] = lambda specs: None,
    idle: Idle | None = None,
) -> tuple[RacePlan, str]:
    """Return the plan, and why it has no GPU lane (empty if it has one, or its lanes were named).

    The default lanes are the CPU and the idlest GPU; without a GPU, the two sides of the scenario's contrast on
    the CPU.

    Args:
        info: The scenario.
        race_options: What the command line says.
        search: Finds the GPUs of a host, "" for this machine; called only where that matters: it may take seconds.
        connect: Connects to the hosts of lanes, if there are any, before their GPUs are looked for.
        idle: Chooses the GPUs of lanes that name none; None for the first one.

    Raises:
        GpusBusyError: no GPU became free for as long as the race was to wait.
        UsageError: a lane, a knob or a value is not possible.
        DeviceAbsentError: a lane names a GPU that is not there.
        TfmonError: a host cannot be used.
    """
    try:
        if info.command:
            common = guess_settings(race_options.settings)
            specs = [_lane_of_command(text) for text in race_options.lanes]
        else:
            info = devices.with_scope(info, race_options.lanes)
            common = parse_settings(info.knobs, race_options.settings)
            specs = [parse_lane(text, info.knobs) for text in race_options.lanes]
    except SpecError as error:
        raise UsageError(str(error), "such as cpu, or gpu:0,batch_size=256") from error
    except KnobError as error:
        hint = "such as learning_rate=0.01" if info.command else f"tfmon show {info.name} lists the knobs"
        hint = SCOPE_HINT if repr(BATCH_SCOPE.name) in str(error) else hint
        raise UsageError(str(error), hint) from error
    if len(specs) > MOST_LANES:
        raise UsageError(f"{len(specs)} lanes are too many; {MOST_LANES} is the most that can be raced")
    if elsewhere := [spec for spec in specs if spec.host]:
        connect(elsewhere)
    no_gpu, as_is = "", False
    if not specs:
        found = search("")
        no_gpu = "" if found.usable else found.reason
        taken = {*common, race_options.varied_knob}
        specs = _default_lanes(info, ANY_GPU if found.usable else "", taken)
        waits = race_options.wait_idle_s is not None
        as_is = bool(info.command) and not waits and (race_options.one_lane or not found.usable)
        if race_options.one_lane:
            specs = [LaneSpec(ANY_GPU if found.usable or waits else "cpu")]
    if as_is:
        every = found.whole or found.usable[:1]
        chosen = [(LaneSpec(devices.device_of(every, found) if every else "cpu"), every)]
    else:
        chosen = (idle or Idle()).choose(specs, search)
    lanes = []
    for spec, (_, gpus) in zip(name_lanes([spec for spec, _ in chosen]), chosen, strict=True):
        settings = {**info.defaults(), **common, **spec.settings}
        check_settings(info, settings, spec.devices)
        devices.check_together(spec, settings)
        uuids = ",".join(gpu.uuid for gpu in gpus) or None
        numbers = [gpu.physical_gpu for gpu in gpus]
        environment = {} if as_is else lane_environment(spec, uuids, numbers)
        lanes.append(LanePlan(spec, settings, environment, as_is=as_is))
    race = Race(
        scenario=info.name,
        title=info.title,
        mode=race_options.mode,
        knobs=info.knobs,
        seconds=race_options.seconds,
        steps=race_options.steps,
        interval=_interval_kind(race_options),
        margin=race_options.margin,
        until_ci=race_options.until_ci,
        slice_s=race_options.slice_s,
        fresh=race_options.fresh and not info.command and race_options.mode == TURNS,
    )
    plan = RacePlan(
        race=race,
        scenario=info.path,
        lanes=tuple(lanes),
        python=race_options.python,
        command=info.command,
        steps=race_options.steps,
        slice_s=race_options.slice_s,
        seconds=race_options.seconds,
        grace_s=float(resolve("grace").value),
        fresh_every_s=FRESH_EVERY_S if race.fresh else None,
    )
    return plan, no_gpu


def _interval_kind(race_options: RaceOptions) -> IntervalKind:
    """Return how the intervals of a race are looked at."""
    if race_options.until_ci is not None:
        return ALWAYS_VALID
    if not race_options.watched:
        return FIXED
    return ALWAYS_VALID if race_options.seconds is None else SPENDING


def find_python(text: str, option: str = "--python") -> Path:
    """Return the interpreter that a path or a command names; `option` is where.

    Raises:
        UsageError: there is none, or it cannot be run.
    """
    path = shutil.which(os.path.expanduser(text))  # noqa: PTH111 - a bare command name must stay one
    if path is None:
        has = "TensorFlow" if option == "--python" else "Ray"
        raise UsageError(f"{option} {text} is not a program that can be run", f"name a Python that has {has}")
    # The link of a virtual environment is not followed: Python finds the packages by where the link is.
    return Path(path).absolute()


def interpreter(python: str | None, command: Sequence[str] = ()) -> Path:
    """Return the Python that trains: the one that is named, else the one a command begins with, else this one.

    Raises:
        UsageError: `python` cannot be run.
    """
    if python:
        return find_python(python)
    found = shutil.which(command[0]) if command and Path(command[0]).name.startswith("python") else None
    return Path(found).absolute() if found else Path(sys.executable)


def ray_cluster(
    address: str | None, python: str | None, cpus: float, option: str = "--ray-python"
) -> RayCluster | None:
    """Return the Ray cluster that options name; None if they name none.

    Raises:
        UsageError: `python` cannot be run; `option` is where it was named.
    """
    if (address, python, cpus) == (None, None, 1.0):
        return None
    from tfmon.lanes.remote.ray import RayCluster  # late: most races need none of it

    return RayCluster(address or "", str(find_python(python, option)) if python else sys.executable, cpus)


def _default_lanes(info: ScenarioInfo, gpu: str, taken: Set[str]) -> list[LaneSpec]:
    """Return the CPU and the GPU; without a GPU, the first contrast that sets none of the knobs `taken`."""
    if gpu:
        return [LaneSpec("cpu"), LaneSpec(gpu)]
    if info.command:
        return [LaneSpec("cpu")]
    for contrast in (info.contrast, ("prefetch=off", "prefetch=auto")):
        try:
            lanes = [parse_lane(f"cpu,{side}", info.knobs) for side in contrast]
        except (SpecError, KnobError) as error:
            raise UsageError(f"the contrast of {info.path.name}: {error}") from error
        if not any(knob in taken for lane in lanes for knob in lane.settings):
            return lanes
    return [LaneSpec("cpu")]


def _lane_of_command(text: str) -> LaneSpec:
    """Return the spec of a lane of a user's script, whose knobs are not known before it runs."""
    device, *words = [part.strip() for part in text.split(",")]
    return replace(parse_lane(device, ()), settings=guess_settings([word for word in words if word]))


def check_settings(info: ScenarioInfo, settings: Settings, count: int = 1) -> None:
    """Raise UsageError for a number that no message or JSON can hold, and for a batch larger than the data.

    `count` is on how many devices the lane trains.
    """
    for name, value in settings.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name}={value} is not possible; {name} takes no infinite number")
    size, whole, most = settings.get("batch_size"), step_batch(settings, count), info.examples
    if most is not None and isinstance(size, int) and whole is not None and whole > most:
        most = most * size // whole
        raise UsageError(f"batch_size={size} is larger than the data of {info.name}; it can be at most {most}")

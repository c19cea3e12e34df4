"""The options of a race and of a sweep, from the command line or Python, and their mutual exclusions.

Values follow `tfmon.api.rules`. Messages contain flags; `rules.named_as_arguments` replaces them by arguments.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.api.rules import flag
from tfmon.api.settings import resolve
from tfmon.catalog import ScenarioInfo, command_scenario, find_scenario
from tfmon.errors import UsageError
from tfmon.model.race import MARGIN, TURNS

if TYPE_CHECKING:
    from tfmon.lanes.remote.ray import RayCluster
    from tfmon.recordings.figures import RaceFigures

HEADLESS_SECONDS = 30.0
"""Length of a race without a screen, if no end is set."""
FRESH_FROM_S = 60.0
"""Unwatched races of this length or more use fresh processes by default."""
AS_BEFORE = ("over", "settings", "until_ci", "limit_s", "everything", "slice_s", "python", "record")
"""Options that a resumed sweep keeps, so that they exclude `resume`."""
SLOWER_THAN = 0.05
"""Default share of its speed that a lane can lose against a baseline."""
ALONE = "leave one of them out"


@dataclass(frozen=True, slots=True)
class RaceOptions:
    """The options of a race."""

    lanes: tuple[str, ...] = ()
    """Such as `gpu:0,batch_size=256`. Empty for the default lanes."""
    settings: tuple[str, ...] = ()
    """Such as `prefetch=auto`, for every lane."""
    python: Path = Path(sys.executable)
    seconds: float | None = None
    steps: int | None = None
    mode: str = TURNS
    slice_s: float = 0.5
    until_ci: float | None = None
    """The race ends when half the width of every interval over its ratio is at most this."""
    fail_on: tuple[str, ...] = ()
    """Concerns that end the race, with their own exit code."""
    notify: str = ""
    """A command for notices, or a name of `tfmon.api.notify.TERMINAL`. Empty for none."""
    baseline: tuple[RaceFigures, float] | None = None
    """The baseline race, and the share of its speed that a lane can lose without a notice."""
    metrics: str = ""
    """A port, an address with a port, or the path of a file. Empty for none."""
    margin: float = MARGIN
    watched: bool = True
    """Whether somebody sees the verdict before the end, so that it must be valid at any time."""
    varied_knob: str = ""
    """The knob that a crossover varies; the default lanes have it in common."""
    one_lane: bool = False
    """Whether there is one default lane, on the device that the command finds."""
    fresh: bool | None = None
    """Whether fresh processes replace those of the lanes from time to time, not those of a user's script; None for
    long races that nobody watches."""
    spare: bool = False
    ray: RayCluster | None = None
    """The cluster of lanes such as `ray/gpu`. `None` for the default cluster."""
    in_place: bool | None = None
    """Whether a user's lanes share the working folder; `None`: only a single lane does."""
    record: bool = False
    wait_idle_s: float | None = None
    record_file: Path | None = None
    """`None` for a new file among the user's recordings."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """The options of a sweep."""

    over: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    """Devices in the notation of lanes with their count, as in `ray/gpu*4`. Empty for the CPU."""
    race: RaceOptions = field(default_factory=lambda: RaceOptions(watched=False))
    """Options in common with races: the baseline's settings, the slice, the interpreter."""
    until_ci: float = 0.03
    each_s: float = 60.0
    everything: bool = False
    file: Path | None = None
    """The new file. `None` for one among the user's files."""
    resume: Path | None = None
    scenario: str | None = None
    """Name or file. `None` for a command, or for that of a resumed sweep."""
    command: tuple[str, ...] = ()


def raced(scenario: str | None, command: Sequence[str], verb: str = "race") -> ScenarioInfo:
    """Return the scenario of the arguments or of a user's command, or the default one; raises UsageError."""
    check_one(scenario, command, verb)
    if command:
        return command_scenario(tuple(command))
    return find_scenario(str(resolve("scenario", scenario).value))


def check_one(scenario: str | None, command: Sequence[str], verb: str) -> None:
    """Raise UsageError if there are both a scenario and a command, or neither, unless it is a race."""
    if command and scenario is not None:
        raise UsageError(f"{verb} a scenario, or a command of your own: not both", ALONE)
    if verb != "race" and not command and scenario is None:
        raise UsageError(f"{verb} a scenario, or a command of your own", "name one of them")


def race_options(given: Mapping[str, Any], info: ScenarioInfo, **more: Any) -> RaceOptions:  # noqa: ANN401
    """Return the options of a race from the caller's arguments of `tfmon.race`; raises UsageError."""
    known = {name: value for name, value in given.items() if value is not None}
    _check(known, info)
    same = ("lanes", "seconds", "steps", "until_ci", "margin", "fresh", "fail_on", "metrics")
    notify = str(resolve("notify", given["notify"]).value) if "notify" in given else ""
    record, minutes = known.get("record", True), known.get("wait_idle")
    return RaceOptions(
        **{
            **{name: known[name] for name in same if name in known},
            **({"mode": known.get("mode") or str(resolve("mode").value)} if "mode" in given else {}),
            **_of_every_race(given, info.command),
            "in_place": known.get("in_place") or None,
            "notify": notify,
            "baseline": _baseline(given, info, notify) if known.get("baseline") else None,
            "record": not known.get("no_record") and record is not False,
            "record_file": None if isinstance(record, bool) else Path(record),
            "wait_idle_s": None if minutes is None else 60 * minutes,
            **more,
        }
    )


def _baseline(given: Mapping[str, Any], info: ScenarioInfo, notify: str) -> tuple[RaceFigures, float]:
    """Return the baseline race; raises TfmonError if there is none, or no receiver of the result."""
    from tfmon.api.notify import TERMINAL
    from tfmon.recordings.figures import read_race
    from tfmon.recordings.library import find

    if notify in ("", *TERMINAL):
        raise UsageError("--baseline needs --notify COMMAND, which is run where a lane is slower", "name one")
    figures, _ = read_race(find(given["baseline"]))
    if figures.scenario != info.name:
        raise UsageError(f"the baseline is of {figures.scenario}, and this is {info.name}", "name one of the same")
    return figures, SLOWER_THAN if given.get("slower_than") is None else given["slower_than"]


def _of_every_race(given: Mapping[str, Any], command: Sequence[str]) -> dict[str, Any]:
    """Return the options common to races and sweeps; settings count for options that the caller omits."""
    result: dict[str, Any] = {
        "settings": given.get("settings") or (),
        "python": interpreter(given.get("python", ""), command),
        "ray": ray_cluster(given.get("ray"), given.get("ray_python"), given.get("ray_cpus")),
    }
    if "slice_s" in given:
        result["slice_s"] = resolve("slice", given["slice_s"]).value
    return result


def _check(known: Mapping[str, Any], info: ScenarioInfo) -> None:
    """Raise UsageError for options that exclude each other."""
    if known.get("no_record") and "record" in known:
        raise UsageError("--record and --no-record exclude each other", ALONE)
    if "slower_than" in known and "baseline" not in known:
        raise UsageError("--slower-than needs --baseline", "tfmon diff compares races that are over")
    if info.command and "steps" in known:
        raise UsageError("--steps is for scenarios; a script sets its own number of steps", "--seconds ends it")
    if info.command and known.get("fresh"):
        raise UsageError("--fresh is for scenarios; a script cannot be restarted while it runs", "leave it out")
    if "seconds" in known and "steps" in known:
        raise UsageError("--seconds and --steps exclude each other", ALONE)
    if known.get("mode", TURNS) == TURNS:
        return
    if known.get("fresh"):
        raise UsageError("--fresh needs --mode turns", "fresh processes come between two rounds")
    if "until_ci" in known:
        raise UsageError("--until-ci needs --mode turns", "a contended ratio is not that of each lane by itself")


def unwatched(options: RaceOptions, info: ScenarioInfo) -> RaceOptions:
    """Return the options of an unwatched race: with an end, one interval, and fresh processes if it is long."""
    endless = options.seconds is None and options.steps is None and options.until_ci is None
    seconds = HEADLESS_SECONDS if endless and not info.command else options.seconds
    long = options.steps is None and (seconds or FRESH_FROM_S) >= FRESH_FROM_S
    fresh = long if options.fresh is None else options.fresh
    return replace(options, seconds=seconds, spare=False, watched=False, fresh=fresh)


def sweep_options(given: Mapping[str, Any], scenario: str | None, command: Sequence[str]) -> SweepOptions:
    """Return the options of a sweep from the caller's arguments of `tfmon.sweep`; raises UsageError."""
    resume = given.get("resume")
    if resume is None:
        check_one(scenario, command, "sweep")
    elif kept := [flag(name) for name in AS_BEFORE if given.get(name)]:
        raise UsageError("--resume goes on as the sweep began", f"leave {' and '.join(kept)} out")
    race = RaceOptions(**_of_every_race(given, command), watched=False, in_place=bool(given.get("in_place")))
    names = {"over": "over", "on": "places", "until_ci": "until_ci", "limit_s": "each_s"}
    return SweepOptions(
        race=race,
        file=given.get("record") and Path(given["record"]),
        resume=resume and Path(resume),
        scenario=scenario,
        command=tuple(command),
        everything=bool(given.get("everything")),
        **{option: given[name] for name, option in names.items() if given.get(name)},
    )


def find_python(text: str, option: str = "--python") -> Path:
    """Return the interpreter at a path or of a command; raises UsageError if it cannot be run."""
    path = shutil.which(os.path.expanduser(text))  # noqa: PTH111 - a bare command name must stay one
    if path is None:
        has = "TensorFlow" if option == "--python" else "Ray"
        raise UsageError(f"{option} {text} is not a program that can be run", f"name a Python that has {has}")
    # The link of a virtual environment is not followed: Python finds the packages by where the link is.
    return Path(path).absolute()


def interpreter(python: str | None, command: Sequence[str] = ()) -> Path:
    """Return the Python that trains: the argument (or, for `None`, the setting), a command's, or this one.

    Raises: UsageError if `python` cannot be run.
    """
    if named := str(resolve("python").value) if python is None else python:
        return find_python(named)
    result = shutil.which(command[0]) if command and Path(command[0]).name.startswith("python") else None
    return Path(result).absolute() if result else Path(sys.executable)


def ray_cluster(address: str | None, python: str | None = None, cpus: float | None = None) -> RayCluster | None:
    """Return the Ray cluster of the options, or None; raises UsageError if `python` cannot be run."""
    if address is None and python is None and cpus in (None, 1.0):
        return None
    from tfmon.lanes.remote.ray import RayCluster  # late: most races need none of it

    result = str(find_python(python, "--ray-python")) if python else sys.executable
    return RayCluster(address or "", result, 1.0 if cpus is None else cpus)

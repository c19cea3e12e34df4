"""The options of commands and functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import KW_ONLY, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfmon.analysis.concern_ids import FAIL_ON
from tfmon.api import value_rules
from tfmon.api.value_rules import PATH, YES_OR_NO, Option, Options, ValueRule, find_program
from tfmon.errors import EXIT_UNHEALTHY, UsageError, flag
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import KnobValue
from tfmon.model.race import MARGIN, MODES, TURNS

if TYPE_CHECKING:
    from tfmon.analysis.result import RaceResult
    from tfmon.api.change import Change
    from tfmon.lanes.remote.ray import RayCluster
    from tfmon.model.race import ScenarioInfo

HEADLESS_SECONDS = 30.0
FRESH_FROM_S = 60.0
LEAST_CI = 0.025
"""Least half width with one process of each lane. Source: `analysis.statistics.between_processes`."""
LEAST_CI_OF_SWEEP = 0.01
SHARE = value_rules.share(0.001)
ALONE = "leave one of them out"


@dataclass(frozen=True, slots=True)
class Purpose:
    """The purpose of a program's lanes, by command."""

    watched: bool = True
    """Whether the verdict must be valid at any time."""
    one_lane: bool = False
    varied_knob: str = ""
    restarts: bool = False
    """Whether a single lane needs a view."""
    change: Change | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class LaneOptions(Options):
    """The options of everything that trains."""

    settings: Option[Mapping[str, KnobValue] | tuple[str, ...] | None, tuple[str, ...]] = Option(
        ValueRule("dict", 'a dict, such as {"prefetch": 2}', value_rules.settings_of),
        (),
        "Set a knob in every lane. Repeatable.",
        commands="race watch crossover tune sweep profile try",
        metavar="KNOB=VALUE",
        multiple=True,
    )
    command: Option[Sequence[str] | None, tuple[str, ...]] = Option(
        value_rules.texts('["python", "train.py"]'),
        (),
        "A training script of your own to race instead of a scenario, as a list of words.",
    )
    slice_s: Option[float | None, float] = Option(
        value_rules.seconds(0.2, 60),
        0.5,
        "Length of one lane's slice in seconds, from 0.2 to 60.",
        commands="race crossover sweep try config",
        shown="0.5",
    )
    in_place: Option[bool | None, bool] = Option(
        YES_OR_NO,
        False,
        "Let all lanes of a script write to the working folder. By default each lane gets a copy-on-write view.",
        commands="race tune sweep",
    )
    link: Option[Sequence[str] | None, tuple[str, ...]] = Option(
        ValueRule("list", 'a list of paths in the working folder, such as ["data"]', value_rules.links_of),
        (),
        "Share PATH of the folder with lanes that get copies of it: large data that the script only reads. "
        "Repeatable.",
        commands="race tune sweep try",
        metavar="PATH",
        multiple=True,
    )
    python: Option[str | os.PathLike[str] | None, str] = Option(
        ValueRule(PATH, "a program that can be run; name a Python that has TensorFlow", value_rules.program_of),
        "",
        "The Python interpreter that trains. It needs TensorFlow. By default it is the one that runs tfmon.",
        commands="race crossover tune sweep profile verify doctor config",
    )
    ray: Option[str | None, str | None] = Option(
        ValueRule("address", "HOST:PORT of the head of a cluster", value_rules.text_of),
        None,
        "The Ray cluster of lanes such as ray/gpu or ray:H100/gpu: HOST:PORT of its head. Default: RAY_ADDRESS, "
        "otherwise the cluster on this machine.",
        commands="race watch crossover tune sweep profile",
    )
    ray_python: Option[str | os.PathLike[str] | None, str | None] = Option(
        ValueRule(PATH, "a program that can be run; name a Python that has Ray", value_rules.program_of),
        None,
        "The Python that has Ray, if this one has none or another version than the cluster.",
        commands="race watch crossover tune sweep profile hosts",
    )
    ray_cpus: Option[float | None, float] = Option(
        value_rules.number("number", "a number of CPUs", 0.0, 100_000),
        1.0,
        "How many CPUs are reserved for the lanes with one name of Ray's, such as ray:H100.",
        commands="race watch crossover tune sweep profile",
        shown="1",
    )

    @cached_property
    def interpreter(self) -> Path:
        """The Python that trains."""
        return interpreter(self.python, self.command)

    @cached_property
    def ray_cluster(self) -> RayCluster | None:
        """The Ray cluster, or `None` for the default."""
        if self.ray is None and self.ray_python is None and self.ray_cpus == 1.0:
            return None
        return ray_cluster(self.ray, self.ray_python, self.ray_cpus)


@dataclass(eq=False, repr=False)
class RaceOptions(LaneOptions):
    """The options of a race, series or profile."""

    scenario: Option[str | os.PathLike[str] | None, str] = Option(
        ValueRule("scenario", "a name that `tfmon list` knows, or the path of a scenario", value_rules.text_of),
        "small-dense",
        "What is raced: a name from `tfmon list`, or the file of a scenario.",
        commands="race config",
        flag=None,
    )
    _: KW_ONLY
    lanes: Option[Sequence[str] | None, tuple[str, ...]] = Option(
        value_rules.texts('["cpu", "gpu:0,batch_size=256"]', "; None stands for the default lanes"),
        (),
        "A lane: [HOST/]DEVICE[,KNOB=VALUE…], such as gpu:0,batch_size=256, gpu:0+1, 2xcpu, me@gpu2/gpu or "
        "ray/gpu. Give it once for each lane.",
        commands="race watch crossover tune profile try",
        metavar="SPEC",
        multiple=True,
    )
    seconds: Option[float | None, float | None] = Option(
        value_rules.seconds(0.0, above=True), None, "Stop after this many seconds.", commands="race watch try"
    )
    steps: Option[int | None, int | None] = Option(
        value_rules.whole(1), None, "Stop after this many steps in each lane.", commands="race"
    )
    mode: Option[Literal["turns", "concurrent"] | None, str] = Option(
        value_rules.one_of("mode", lambda: MODES),
        TURNS,
        "Lanes train one at a time in short slices (turns), which is fair, or all at once (concurrent).",
        commands="race config",
        metavar=f"[{'|'.join(MODES)}]",
        shown="turns",
    )
    until_ci: Option[float | None, float | None] = Option(
        value_rules.share(LEAST_CI, "equal processes differ, so one process per lane gives no narrower interval"),
        None,
        "Stop when every ratio is known to within ± PERCENT, such as 5%.",
        commands="race",
    )
    margin: Option[float | None, float] = Option(
        SHARE,
        MARGIN,
        "Lanes that differ by less than ± PERCENT are called the same.",
        commands="race try",
        shown="3%",
    )
    fresh: Option[bool | None, bool | None] = Option(
        YES_OR_NO,
        None,
        "Restart the lanes in new processes, after 20 s or more, if the difference between equal processes is a "
        "large part of the interval. Weights are initialised again. Default: without a screen, in races of 60 s "
        "and more.",
        commands="race",
        flag="--fresh/--no-fresh",
    )
    fail_on: Option[Sequence[str] | None, tuple[str, ...]] = Option(
        ValueRule(
            "concerns", f"one or more of {','.join(FAIL_ON)}", value_rules.concerns_of,
            parse=lambda text: text.split(","), choices=lambda: FAIL_ON,
        ),
        (),
        f"End the race with exit code {EXIT_UNHEALTHY} as soon as a lane has one of these: {', '.join(FAIL_ON)}.",
        commands="race watch",
        metavar="CONCERN,…",
    )  # fmt: skip
    ignored_causes: Option[Sequence[str] | None, tuple[str, ...]] = Option(
        ValueRule("ids", "ids of causes, such as epoch_first,steps_small", value_rules.causes_of),
        (),
        "Do not report these causes. docs/causes.md has the ids; the setting `ignored_causes` keeps them.",
        commands="race watch config",
        flag="--ignore-causes",
        metavar="ID,…",
    )
    notify: Option[str | None, str] = Option(
        ValueRule("command", "a command, or bell, osc9 or osc777", value_rules.line_of),
        "",
        "Run COMMAND when something happens to a lane, such as a stall, a failure or its end. It gets the facts "
        "as JSON on standard input. `bell`, `osc9` and `osc777` notify through the terminal.",
        commands="race watch config",
    )
    baseline: Option[str | os.PathLike[str] | None, str | None] = Option(
        ValueRule(PATH, "a recording, or the id of a run", value_rules.text_of),
        None,
        "Notify if a lane is slower than in this earlier race, given as for `tfmon diff`.",
        commands="race watch",
        metavar="RECORDING",
    )
    slower_than: Option[float | None, float] = Option(
        SHARE, 0.05, "Notify if a lane is slower by more than PERCENT. Default: 5%.", commands="race watch"
    )
    metrics: Option[str | os.PathLike[str] | None, str | None] = Option(
        ValueRule("address", "a port, an address with a port, or the path of a file", value_rules.text_of),
        None,
        "Serve OpenMetrics for Prometheus on this port of 127.0.0.1, or on ADDRESS:PORT; or write them to FILE "
        "every few seconds.",
        commands="race watch",
        metavar="PORT|FILE",
    )
    record: Option[bool | str | os.PathLike[str] | None, bool | Path] = Option(
        ValueRule(PATH, "True, False, or the path of a new file", value_rules.file_or_bool),
        True,
        "Record the race into this new file; a name ending in .gz is compressed. Without it, the race is recorded "
        "among those that `tfmon runs` lists.",
        commands="race watch crossover tune try",
        metavar="FILE",
        off="--no-record",
    )
    wait_idle: Option[float | None, float | None] = Option(
        value_rules.number("minutes", "a time in minutes", 0.0, value_rules.WEEK_MIN),
        None,
        "Wait up to this many minutes until the lanes' GPUs are free, and report who uses them.",
        commands="race watch",
    )

    @cached_property
    def info(self) -> ScenarioInfo:
        """The scenario or command; raises UsageError."""
        return _scenario_of(self.scenario, self.command)

    @property
    def record_file(self) -> Path | None:
        """The path of the recording, or `None` for a new path."""
        return None if isinstance(self.record, bool) else self.record

    @cached_property
    def baseline_race(self) -> RaceResult | None:
        """The race for comparison; raises TfmonError."""
        if not self.baseline:
            return None
        from tfmon.recordings.library import find
        from tfmon.recordings.results import read_race

        result, _ = read_race(find(self.baseline))
        if result.scenario != self.info.name:
            raise UsageError(
                f"the baseline is of {result.scenario}, and this is {self.info.name}", "name one of the same"
            )
        return result

    def unwatched(self) -> RaceOptions:
        """Return the options of a race with an end."""
        endless = self.seconds is None and self.steps is None and self.until_ci is None
        seconds = HEADLESS_SECONDS if endless and not self.command else self.seconds
        long = self.steps is None and (seconds or FRESH_FROM_S) >= FRESH_FROM_S
        return replace(self, seconds=seconds, fresh=long if self.fresh is None else self.fresh)

    def validate(self, command: str, names: frozenset[str]) -> None:
        """Raise UsageError for a conflict."""
        _check_scenario(names, command, needed=command in ("tune", "profile"))
        if "slower_than" in names and not self.baseline:
            text, hint = "--slower-than needs --baseline", "tfmon diff compares races that are over"
            raise UsageError(text, hint, options=("slower_than", "baseline"))
        if self.command and self.steps is not None:
            text = "--steps is for scenarios; a script sets its own number of steps"
            raise UsageError(text, "--seconds ends it", options=("steps", "seconds"))
        if self.command and self.fresh:
            text = "--fresh is for scenarios; a script cannot be restarted while it runs"
            raise UsageError(text, "leave it out", options=("fresh",))
        if self.seconds is not None and self.steps is not None:
            raise UsageError("--seconds and --steps exclude each other", ALONE, options=("seconds", "steps"))
        if self.fresh and self.mode != TURNS:
            text, hint = "--fresh needs --mode turns", "new processes start between two rounds"
            raise UsageError(text, hint, options=("fresh", "mode"))
        if self.until_ci is not None and self.mode != TURNS:
            text, hint = "--until-ci needs --mode turns", "a contended ratio is not that of each lane by itself"
            raise UsageError(text, hint, options=("until_ci", "mode"))
        if self.baseline:
            from tfmon.api.notify import TERMINAL

            if self.notify in ("", *TERMINAL):
                text = "--baseline needs --notify COMMAND, which is run where a lane is slower"
                raise UsageError(text, "name one", options=("baseline", "notify"))
            _ = self.baseline_race


@dataclass(eq=False, repr=False)
class SweepOptions(LaneOptions):
    """The options of a sweep."""

    scenario: Option[str | os.PathLike[str] | None, str | None] = Option(
        RaceOptions.declaration("scenario").rule,
        None,
        "What is measured: a name from `tfmon list`, or the file of a scenario. Not for a command or with resume.",
        flag=None,
    )
    over: Option[Mapping[str, Sequence[KnobValue] | str] | tuple[str, ...] | None, tuple[str, ...]] = Option(
        ValueRule(
            "dict",
            'a dict of lists or ranges, {"batch_size": [32, 128]} or {"batch_size": "16..4096"}',
            value_rules.values_of,
        ),
        (),
        "A knob and its values: batch_size=32,128 or batch_size=16..4096 (powers of two); or gpus=1,2,4,8, the "
        "number of GPUs that a lane has. Repeatable: all combinations are measured.",
        commands="sweep",
        metavar="KNOB=VALUES",
        multiple=True,
    )
    _: KW_ONLY
    on: Option[str | Sequence[str] | None, tuple[str, ...]] = Option(
        ValueRule("place", 'a place, or a list of places, such as ["cpu", "gpu:0"]', value_rules.places_of),
        (),
        "Where to measure; repeatable, or with commas between. Default: cpu. A combination is measured on each "
        "kind of device; ray/gpu*2 is two workers on a Ray cluster.",
        commands="sweep",
        metavar="[HOST/]DEVICE",
        multiple=True,
    )
    until_ci: Option[float | None, float] = Option(
        value_rules.share(LEAST_CI_OF_SWEEP),
        0.03,
        "Measure each combination until its ratio is known to within ± PERCENT.",
        commands="sweep",
        shown="3%",
    )
    limit_s: Option[float | None, float] = Option(
        value_rules.seconds(1.0),
        60.0,
        "Time limit for each combination in seconds, from 1.",
        commands="sweep",
        shown="60",
    )
    everything: Option[bool | None, bool] = Option(
        YES_OR_NO, False, "Disable early stopping: measure every combination fully.", commands="sweep"
    )
    record: Option[str | os.PathLike[str] | None, str | None] = Option(
        ValueRule(PATH, "the path of a new file", value_rules.text_of),
        None,
        "Keep the sweep in this new file; by default it is kept among your sweeps.",
        commands="sweep",
        metavar="FILE",
    )
    resume: Option[str | os.PathLike[str] | None, str | None] = Option(
        ValueRule(PATH, "the file of a sweep, or `last`", value_rules.text_of),
        None,
        "Go on with a sweep that was interrupted, by default the last one; nothing is measured twice.",
        commands="sweep",
        metavar="[FILE]",
        optional_value="last",
    )

    @cached_property
    def info(self) -> ScenarioInfo:
        """The scenario or command; raises UsageError."""
        return _scenario_of(self.scenario or "", self.command)

    @property
    def race(self) -> RaceOptions:
        """The options of each race."""
        common = {option.name: getattr(self, option.name) for option in LaneOptions.declared()}
        return RaceOptions(record=False, **common)

    def validate(self, command: str, names: frozenset[str]) -> None:
        """Raise UsageError for a conflict."""
        _check_scenario(names, command, needed=not self.resume)
        fixed = ("over", "settings", "until_ci", "limit_s", "everything", "slice_s", "python", "record")
        if self.resume and (kept := tuple(name for name in fixed if name in names)):
            hint = f"leave {' and '.join(map(flag, kept))} out"
            raise UsageError(
                "--resume continues a sweep with the settings that it began with", hint, options=("resume", *kept)
            )


def _scenario_of(scenario: str, command: Sequence[str]) -> ScenarioInfo:
    from tfmon.catalog import command_scenario, find_scenario

    return command_scenario(tuple(command)) if command else find_scenario(scenario)


def _check_scenario(names: Set[str], verb: str, *, needed: bool) -> None:
    if {"scenario", "command"} <= names:
        raise UsageError(f"{verb} a scenario, or a command of your own: not both", ALONE)
    if needed and not {"scenario", "command"} & names:
        raise UsageError(f"{verb} a scenario, or a command of your own", "name one of them")


def interpreter(python: str, command: Sequence[str] = ()) -> Path:
    """Return the Python that trains: a program, or that of a command, or this one."""
    named = python or (command[0] if command and Path(command[0]).name.startswith("python") else "")
    # A virtual environment's link is not followed: Python finds packages by its location.
    return Path(find_program(named) or sys.executable).absolute()


def ray_cluster(address: str | None, python: str | None = None, cpus: float = 1.0) -> RayCluster:
    """Return a Ray cluster."""
    from tfmon.lanes.remote.ray import RayCluster

    return RayCluster(address or "", str(interpreter(python or "")), cpus)

"""The command that repeats a race."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.analysis.analysis import Analysis
from tfmon.api.settings import resolve
from tfmon.catalog import find_scenario
from tfmon.errors import UsageError
from tfmon.lanes.plan import RacePlan
from tfmon.model.knobs import KnobValue, exact
from tfmon.model.lane_relations import distinct
from tfmon.model.lane_state import LaneState
from tfmon.model.race import TURNS
from tfmon.model.series import CROSSOVER
from tfmon.model.session import Snapshot


def command_of(analysis: Analysis) -> str:
    """Return the command for a recording; raises UsageError."""
    snapshot, series = analysis.snapshot, analysis.snapshot.experiment
    if not analysis.is_series or series is None:
        return command_line(snapshot)
    lanes, doing = list(snapshot.lanes), ["tune"]
    if series.plan.policy == CROSSOVER:
        low, high = exact(series.values[0]), exact(series.values[-1])
        doing = ["crossover", "--knob", series.knob, "--from", low, "--to", high]
        for index, lane in enumerate(lanes):
            settings = {name: value for name, value in lane.settings.items() if name != series.knob}
            lanes[index] = replace(lane, settings=settings)
    elif series.attempts:
        first = series.attempts[0].of_lane
        lanes = [replace(lane, settings=first.before) if lane.spec.name == first.lane else lane for lane in lanes]
    return command_line(replace(snapshot, lanes=tuple(lanes)), doing=doing)


def command_line(snapshot: Snapshot, plan: RacePlan | None = None, doing: Sequence[str] = ()) -> str:
    """Return the command for a race, or ""; raises UsageError."""
    race, lanes = snapshot.race, snapshot.lanes
    if not lanes or not race.scenario:
        return ""
    if plan is not None and plan.race.scenario != race.scenario:
        plan = None
    planned = shlex.join(plan.command) if plan else ""
    command = next((lane.script.command for lane in lanes if lane.script.command), planned)
    watched = bool(command) and len(lanes) == 1 and race.steps is None
    verb, *bounds = doing or ("watch" if watched else "race",)
    argv = ["tfmon", verb]
    if not command:
        argv.append(_scenario(race.scenario, plan.scenario if plan is not None else None))
    argv += [*bounds, *_lanes(snapshot)]
    if verb == "race" and race.mode != resolve("mode").value:
        argv += ["--mode", race.mode]
    if plan is not None and verb == "race":
        argv += _of_plan(plan)
    for flag, value in (("--seconds", race.seconds), ("--steps", race.steps)):
        if value is not None:
            argv += [flag, f"{value:.12g}" if isinstance(value, float) else str(value)]
    if race.until_ci is not None and race.mode == TURNS:
        argv += ["--until-ci", f"{100 * race.until_ci:.12g}%"]
    line = shlex.join(argv)
    return f"{line} -- {command}" if command else line


def _scenario(name: str, path: Path | None) -> str:
    if path is None:
        return name
    try:
        known = find_scenario(name).path.resolve()
    except UsageError:
        known = None
    return name if known == path.resolve() else str(path)


def _of_plan(plan: RacePlan) -> list[str]:
    argv = []
    if plan.race.slice_s not in (None, resolve("slice").value):
        argv += ["--slice", f"{plan.race.slice_s:.12g}"]
    usual = shutil.which(str(resolve("python").value or sys.executable))
    if not plan.command and usual is not None and plan.python != Path(usual).absolute():
        argv += ["--python", str(plan.python)]
    return argv


def _lanes(snapshot: Snapshot) -> list[str]:
    defaults = {knob.name: knob.default for knob in snapshot.race.knobs}
    script = any(lane.script.command for lane in snapshot.lanes)
    every = [_settings(lane, defaults, script=script) for lane in snapshot.lanes]
    shared = {
        name: value
        for name, value in every[0].items()
        if all(distinct(settings.get(name)) == distinct(value) for settings in every)
    }
    argv: list[str] = []
    for lane, settings in zip(snapshot.lanes, every, strict=True):
        assignments = [_word(name, value) for name, value in settings.items() if name not in shared]
        if torn := next((word for word in assignments if "," in word), ""):
            raise UsageError(f"{torn} cannot be set for one lane on a command line", "its value has a comma")
        argv += ["--lane", ",".join([lane.spec.place, *assignments])]
    for name, value in shared.items():
        if script or name not in defaults or distinct(defaults[name]) != distinct(value):
            argv += ["--set", _word(name, value)]
    return argv


def _settings(lane: LaneState, defaults: Mapping[str, KnobValue], *, script: bool) -> dict[str, KnobValue]:
    known = {**lane.spec.settings, **lane.settings}
    if script:
        return {name: value for name, value in known.items() if name in defaults or name in lane.spec.settings}
    return {name: known.get(name, default) for name, default in defaults.items()}


def _word(name: str, value: KnobValue) -> str:
    return f"{name}={exact(value)}"

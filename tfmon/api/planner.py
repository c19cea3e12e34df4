"""Converts options to a plan."""

from __future__ import annotations

import importlib.util
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path

from tfmon.api import devices
from tfmon.api.change import Files
from tfmon.api.devices import Idle
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.settings import LimitOptions
from tfmon.errors import TfmonError, UsageError
from tfmon.lanes.plan import INTERPRETER, LanePlan, RacePlan, lane_environment
from tfmon.model.knobs import BATCH_SCOPE, PYTHON, KnobError, Settings, guess_settings, parse_settings
from tfmon.model.race import TURNS, Race, ScenarioInfo
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, IntervalKind
from tfmon.model.spec import ANY_GPU, SCOPE_HINT, LaneSpec, SpecError, name_lanes, obstacle, parse_lane, step_batch
from tfmon.probes.find_gpus import GpuSearch

MOST_LANES = 16


def plan_race(
    info: ScenarioInfo,
    race_options: RaceOptions,
    search: Callable[[str], GpuSearch],
    connect: Callable[[Sequence[LaneSpec]], None] = lambda specs: None,
    idle: Idle | None = None,
    purpose: Purpose | None = None,
) -> tuple[RacePlan, str]:
    """Return the plan, and why it has no GPU lane.

    The default lanes are the CPU and the idlest GPU, or the scenario's contrast on the CPU. `search` may take
    seconds, and is called only if necessary. Raises: TfmonError, also GpusBusyError and DeviceAbsentError.
    """
    purpose = purpose or Purpose()
    try:
        if info.command:
            common = guess_settings(race_options.settings)
            specs = [_lane_of_command(text, info.command) for text in race_options.lanes]
        else:
            info = devices.with_scope(info, race_options.lanes)
            common = parse_settings(info.knobs, race_options.settings)
            specs = [parse_lane(text, info.knobs) for text in race_options.lanes]
    except SpecError as error:
        raise UsageError(str(error), "such as cpu, or gpu:0,batch_size=256") from error
    except KnobError as error:
        hint = "such as learning_rate=0.01" if info.command else f"tfmon show {info.name} lists the knobs"
        hint = SCOPE_HINT if repr(BATCH_SCOPE.name) in str(error) else hint
        raise UsageError(str(error), hint, options=("lanes",)) from error
    if len(specs) > MOST_LANES:
        raise UsageError(f"{len(specs)} lanes are too many; {MOST_LANES} is the most that can be raced")
    if remote := [spec for spec in specs if spec.host]:
        connect(remote)
    no_gpu, as_is = "", False
    if not specs:
        result = search("")
        no_gpu = "" if result.usable else result.reason
        taken = {*common, purpose.varied_knob}
        specs = _default_lanes(info, ANY_GPU if result.usable else "", taken)
        waits = race_options.wait_idle is not None
        as_is = bool(info.command) and not waits and (purpose.one_lane or not result.usable)
        if purpose.one_lane or purpose.change is not None:
            specs = [LaneSpec(ANY_GPU if result.usable or waits else "cpu")]
    if as_is:
        every = result.whole or result.usable[:1]
        chosen = [(LaneSpec(devices.device_of(every, result) if every else "cpu"), every)]
    else:
        chosen = (idle or Idle()).choose(specs, search)
    files: Sequence[Files] = ({},) * len(chosen)
    if (change := purpose.change) is not None:
        if len(chosen) > 1 or specs[0].host:
            raise UsageError("both lanes of a try have the same device of this machine", "name one with --lane")
        chosen = [(replace(spec, label=label), gpus) for spec, gpus in chosen for label, _ in change.sides]
        files = [changed for _, changed in change.sides]
    lanes = []
    planned = name_lanes([spec for spec, _ in chosen])
    for spec, (_, gpus), changed in zip(planned, chosen, files, strict=True):
        settings = {**info.defaults(), **common, **spec.settings}
        check_settings(info, settings, spec.devices)
        reason = obstacle(settings, spec.devices)
        if reason:
            raise UsageError(f"{spec.place}: {reason}")
        uuids = ",".join(gpu.uuid for gpu in gpus) or None
        numbers = [gpu.physical_gpu for gpu in gpus]
        environment = {} if as_is else lane_environment(spec, uuids, numbers)
        lanes.append(LanePlan(spec, settings, environment, as_is=as_is, files=changed))
    race = Race(
        scenario=info.name,
        title=info.title,
        mode=race_options.mode,
        knobs=info.knobs,
        seconds=race_options.seconds,
        steps=race_options.steps,
        interval=_interval_kind(race_options, purpose),
        margin=race_options.margin,
        ignored_causes=race_options.ignored_causes,
        until_ci=race_options.until_ci,
        slice_s=race_options.slice_s,
        fresh=bool(race_options.fresh) and not info.command and race_options.mode == TURNS,
    )
    plan = RacePlan(
        race=race,
        scenario=info.path,
        lanes=tuple(lanes),
        python=race_options.interpreter,
        command=info.command,
        grace_s=LimitOptions.of_user().grace,
    )
    return plan, no_gpu


def _interval_kind(race_options: RaceOptions, purpose: Purpose) -> IntervalKind:
    if race_options.until_ci is not None:
        return ALWAYS_VALID
    if not purpose.watched:
        return FIXED
    return ALWAYS_VALID if race_options.seconds is None else SPENDING


def _default_lanes(info: ScenarioInfo, gpu: str, taken: Set[str]) -> list[LaneSpec]:
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


def _lane_of_command(text: str, command: Sequence[str]) -> LaneSpec:
    device, *assignments = [part.strip() for part in text.split(",")]
    spec = parse_lane(device, ())
    settings = guess_settings([word for word in assignments if word])
    if (python := settings.get(PYTHON)) is not None:
        if not INTERPRETER.fullmatch(Path(command[0]).name):
            raise KnobError(f"python={python} is for a command that begins with a Python, not with {command[0]}")
        if not spec.host and shutil.which(Path(str(python)).expanduser()) is None:
            raise KnobError(f"python={python}: there is no such program; name the interpreter of an environment")
    return replace(spec, settings=settings)


def check_settings(info: ScenarioInfo, settings: Settings, count: int = 1) -> None:
    """Raise UsageError for an infinite number or too large a batch."""
    for name, value in settings.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name}={value} is not possible; {name} takes no infinite number")
    size, whole, most = settings.get("batch_size"), step_batch(settings, count), info.examples
    if most is not None and isinstance(size, int) and whole is not None and whole > most:
        most = most * size // whole
        raise UsageError(f"batch_size={size} is larger than the data of {info.name}; it can be at most {most}")


MOST = 3
_BESIDE = (".venv", "venv", "env", ".env")
_BELOW_HOME = (
    ".virtualenvs/*", ".venvs/*", "venvs/*", ".pyenv/versions/*", ".local/share/virtualenvs/*", ".conda/envs/*",
    "miniconda3", "miniconda3/envs/*", "anaconda3", "anaconda3/envs/*", "miniforge3", "miniforge3/envs/*",
    "mambaforge/envs/*", "micromamba/envs/*", "*/.venv", "*/venv",
)  # fmt: skip


def need_tensorflow(python: Path) -> None:
    """Raise TfmonError if this Python has no TensorFlow."""
    if python != Path(sys.executable) or importlib.util.find_spec("tensorflow") is not None:
        return
    pythons = [shlex.quote(str(interpreter)) for interpreter in find_tensorflow()]
    install = f"install it here: {sys.executable} -m pip install tensorflow"
    if not pythons:
        raise TfmonError(f"{sys.executable} has no TensorFlow, and no other Python with it was found", install)
    more = f" (also in {', '.join(pythons[1:])})" if pythons[1:] else ""
    hint = f"{pythons[0]} has: add --python {pythons[0]}{more}; or {install}"
    raise TfmonError(f"{sys.executable} has no TensorFlow", hint, options=("python",))


def find_tensorflow() -> list[Path]:
    """Return other Pythons with TensorFlow, the likeliest first."""
    home, folder = Path.home(), Path.cwd()
    prefixes = [Path(path) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if (path := os.environ.get(name))]
    prefixes += [parent / name for parent in (folder, *folder.parents) for name in _BESIDE]
    pythons = [prefix.absolute() / "bin" / "python" for prefix in prefixes]
    for name in ("python3", "python", *(f"python3.{minor}" for minor in range(14, 9, -1))):
        if path := shutil.which(name):
            pythons += [Path(path).absolute(), Path(path).resolve()]
    pythons += [prefix / "bin/python" for pattern in _BELOW_HOME for prefix in sorted(home.glob(pattern))]
    result: dict[Path, Path] = {}
    for python in pythons:
        prefix = python.parents[1]
        if prefix not in result and os.access(python, os.X_OK) and _has_tensorflow(prefix):
            result[prefix] = python
    return list(result.values())[:MOST]


def _has_tensorflow(prefix: Path) -> bool:
    folders = (f"{lib}/python3*/*-packages" for lib in ("lib", "lib64", "local/lib"))
    return any((path / "tensorflow/__init__.py").is_file() for folder in folders for path in prefix.glob(folder))

"""From words to a race plan: which lanes run a scenario on this machine, and with which settings."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path

from tfmon.catalog import ScenarioInfo
from tfmon.errors import DeviceAbsentError, UsageError
from tfmon.lanes.plan import LanePlan, RacePlan, lane_environment
from tfmon.model.knobs import KnobError, Settings, guess_settings, parse_settings
from tfmon.model.session import TURNS, Race
from tfmon.model.spec import LaneSpec, SpecError, name_lanes, parse_lane
from tfmon.probes.gpus import GpuSearch

MOST_LANES = 16
"""More lanes than this are refused: none of them would get a share of the machine worth measuring."""


@dataclass(frozen=True, slots=True)
class RaceOptions:
    """What the command line says of a race."""

    lanes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    python: Path = Path(sys.executable)
    seconds: float | None = None
    steps: int | None = None
    mode: str = TURNS
    slice_s: float = 0.5
    until_ci: float | None = None
    """Half the width of every interval over its ratio, at which the race ends."""
    swept: str = ""
    """The knob that a crossover races over; lanes that nobody named do not differ by it."""
    one_lane: bool = False
    """One lane is wanted: where nobody named it, on the first GPU, or else on the CPU."""
    spare: bool = False
    """Whether a child is kept ready that has loaded TensorFlow."""
    record: bool = False
    """Whether the race is recorded."""
    record_file: Path | None = None
    """Where to; None for the user's own folder."""


def plan_race(
    info: ScenarioInfo, race_options: RaceOptions, search: Callable[[], GpuSearch]
) -> tuple[RacePlan, str]:
    """Return the plan, and why it has no GPU lane (empty if it has one or none was looked for).

    Without lanes on the command line these are the CPU and the first GPU; without a GPU, the two sides of the
    scenario's contrast on the CPU.

    Errors: UsageError for a lane, a knob or a value that is not possible; DeviceAbsentError for a GPU that
    was asked for by name and is not there.
    """
    try:
        if info.command:
            common = guess_settings(race_options.settings)
            specs = [_lane_of_command(text) for text in race_options.lanes]
        else:
            common = parse_settings(info.knobs, race_options.settings)
            specs = [parse_lane(text, info.knobs) for text in race_options.lanes]
    except SpecError as error:
        raise UsageError(str(error), "for example --lane cpu --lane gpu:0,batch_size=256") from error
    except KnobError as error:
        hint = "such as learning_rate=0.01" if info.command else f"tfmon show {info.name} lists the knobs"
        raise UsageError(str(error), hint) from error
    if len(specs) > MOST_LANES:
        raise UsageError(f"{len(specs)} lanes are too many; {MOST_LANES} is the most that can be raced")
    found = search() if not specs or any(spec.kind == "gpu" for spec in specs) else None
    no_gpu = ""
    if found is not None and not specs:
        no_gpu = "" if found.gpus else found.why
        taken = {*common, race_options.swept}
        specs = _default_lanes(info, bool(found.gpus), taken)
        if race_options.one_lane:
            specs = [LaneSpec("gpu:0" if found.gpus else "cpu")]
    lanes = []
    for spec in name_lanes(specs):
        settings = {**info.defaults(), **common, **spec.settings}
        _check_finite(settings)
        _check_batch(info, settings.get("batch_size"))
        lanes.append(LanePlan(spec, settings, lane_environment(spec, _uuid_of(spec, found))))
    race = Race(
        scenario=info.name,
        title=info.title,
        mode=race_options.mode,
        knobs=info.knobs,
        seconds=race_options.seconds,
        steps=race_options.steps,
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
    )
    return plan, no_gpu


def find_python(text: str) -> Path:
    """Return the interpreter that a user named by a path or a command.

    Errors: UsageError when there is none, or it cannot be run.
    """
    path = shutil.which(os.path.expanduser(text))  # noqa: PTH111 - a bare command name must stay one
    if path is None:
        raise UsageError(f"--python {text} is not a program that can be run", "name a Python that has TensorFlow")
    # Not resolved: a virtual environment's python is a link, and finds its packages by its own place.
    return Path(path).absolute()


def _default_lanes(info: ScenarioInfo, has_gpu: bool, taken: Set[str]) -> list[LaneSpec]:
    """Return the CPU and the GPU; or the first contrast by other knobs than those that are taken."""
    if has_gpu:
        return [LaneSpec("cpu"), LaneSpec("gpu:0")]
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
    """Read a lane of a user's script, whose knobs nobody knows before it runs."""
    device, *words = [part.strip() for part in text.split(",")]
    return replace(parse_lane(device, ()), settings=guess_settings([word for word in words if word]))


def _uuid_of(spec: LaneSpec, found: GpuSearch | None) -> str | None:
    if spec.kind != "gpu" or found is None:
        return None
    for gpu in found.gpus:
        if gpu.index == spec.index:
            return gpu.uuid
    if not found.gpus:
        raise DeviceAbsentError(f"{spec.device} is not there: {found.why}", found.hint)
    known = ", ".join(f"gpu:{gpu.index} ({gpu.name})" for gpu in found.gpus)
    raise DeviceAbsentError(f"{spec.device} is not there", f"this machine has {known}")


def _check_finite(settings: Settings) -> None:
    """Refuse what neither the wire to the lane nor the result in JSON can carry."""
    for name, value in settings.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name}={value} is not possible; {name} takes no infinite number")


def _check_batch(info: ScenarioInfo, batch_size: object) -> None:
    if info.examples is not None and isinstance(batch_size, int) and batch_size > info.examples:
        raise UsageError(
            f"batch_size={batch_size} is larger than the data of {info.name}; it can be at most {info.examples}"
        )

"""The plan of a race, complete before a process is started."""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from tfmon.errors import TfmonError
from tfmon.lanes.launch import BOOTSTRAP, ProcessPlan
from tfmon.model.events import LaneStarted
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import PYTHON, KnobValue
from tfmon.model.lane_events import LaneFailed
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.race import Race
from tfmon.model.requests import Assign
from tfmon.model.spec import LaneSpec
from tfmon.system.lane_pipes import ANY, LANE, LANES, NUMBER, PORTS

BASE: dict[str, str | None] = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True, slots=True)
class LanePlan:
    """The plan of a lane."""

    spec: LaneSpec
    settings: dict[str, KnobValue]
    environment: dict[str, str | None] = field(default_factory=dict)
    steps: int | None = None
    as_is: bool = False
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    """Other contents of files in its view; `None` for a removed file."""


@dataclass(frozen=True, slots=True)
class RacePlan:
    """The plan of a race."""

    race: Race
    scenario: Path
    lanes: tuple[LanePlan, ...]
    python: Path
    command: tuple[str, ...] = ()
    grace_s: float = 30.0


def lane_environment(
    spec: LaneSpec, gpu_uuids: str | None, numbers: Sequence[int] = (0,)
) -> dict[str, str | None]:
    """Return the variables that show TensorFlow only the lane's devices.

    `gpu_uuids` selects NVIDIA GPUs; `None` without a driver. AMD GPUs use `numbers`, as ROCm counts. With memory
    growth, programs can share the GPU.
    """
    if spec.kind == "cpu":
        return {**BASE, "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    if gpu_uuids is None:
        return dict(BASE)
    if gpu_uuids.startswith("AMD-"):
        # ROCm reads CUDA's variable if its own is not set.
        shown = ",".join(map(str, numbers))
        visible: dict[str, str | None] = {"HIP_VISIBLE_DEVICES": shown, "CUDA_VISIBLE_DEVICES": None}
        return {**BASE, **visible, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**BASE, "CUDA_VISIBLE_DEVICES": gpu_uuids, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def device_word(lane: LanePlan) -> str:
    """Return the devices, such as `cpu`, `2xgpu` or `any`."""
    if lane.as_is:
        return ANY
    return lane.spec.kind if lane.spec.devices == 1 else f"{lane.spec.devices}x{lane.spec.kind}"


INTERPRETER = re.compile(r"python(\d+(\.\d+)*)?t?")


def command_of(plan: RacePlan, lane: LanePlan) -> tuple[str, ...]:
    """Return a user's command, with the lane's Python."""
    python = lane.settings.get(PYTHON)
    return (str(Path(str(python)).expanduser()), *plan.command[1:]) if python else plan.command


def process_plan(plan: RacePlan, lane: LanePlan, process: int = 1, script: Path = BOOTSTRAP) -> ProcessPlan:
    """Return how a process of a lane is started; `process` counts them."""
    spec = lane.spec
    number = [lane.spec.name for lane in plan.lanes].index(spec.name)
    view = plan.race.views.get(spec.host)
    variables: dict[str, str | None] = {}
    if plan.command:
        ports = view.ports if view is not None else None
        variables = {LANE: spec.id, NUMBER: str(number), LANES: str(len(plan.lanes)), PORTS: ports}
    return ProcessPlan(
        lane=spec.name,
        python=str(plan.python),
        environment={**lane.environment, **variables},
        script=str(script),
        scenario="" if plan.command else str(plan.scenario),
        argv=command_of(plan, lane) if plan.command else (),
        device=device_word(lane),
        settings=lane.settings,
        grace_s=plan.grace_s if plan.command else None,
        view=view.of_lane(spec.id or str(number), process) if view is not None else None,
        files={name: None if text is None else text.decode("latin-1") for name, text in lane.files.items()},
    )


def assignment(lane: LanePlan, plan: RacePlan) -> Assign:
    """Return a process's first request."""
    return Assign(
        scenario=str(plan.scenario),
        device=lane.spec.kind,
        devices=lane.spec.devices,
        settings=lane.settings,
        steps=lane.steps or plan.race.steps,
    )


def started(plan: RacePlan, lane: LanePlan, pid: int, *, renewed: bool) -> LaneStarted:
    """Return the event of a started process."""
    return LaneStarted(
        lane=lane.spec.name,
        pid=pid,
        settings=lane.settings,
        source=digest(plan.scenario),
        command=shlex.join(command_of(plan, lane)),
        renewed=renewed,
    )


def not_started(plan: RacePlan, lane: LanePlan, error: OSError | TfmonError) -> LaneFailed:
    """Return the event of a process that did not start."""
    name, at_ns = lane.spec.name, time.monotonic_ns()
    if isinstance(error, TfmonError):
        return LaneFailed(lane=name, at_ns=at_ns, kind=HOST_LOST, message=error.message, hint=error.hint)
    why = error.strerror or str(error)
    program = command_of(plan, lane)[0] if plan.command else "Python" if lane.spec.host else plan.python
    there = f" on {lane.spec.host}" if lane.spec.host else ""
    return LaneFailed(lane=name, at_ns=at_ns, kind="error", message=f"{program} did not start{there}: {why}")


def digest(path: Path) -> str:
    """Return a file's digest, or ""."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""

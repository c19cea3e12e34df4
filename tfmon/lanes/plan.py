"""What is to be raced: everything that must be settled before a child is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tfmon.model.knobs import KnobValue
from tfmon.model.session import Race
from tfmon.model.spec import LaneSpec


@dataclass(frozen=True, slots=True)
class LanePlan:
    """One lane: its spec, and the value of every knob at the start."""

    spec: LaneSpec
    settings: dict[str, KnobValue]
    environment: dict[str, str | None] = field(default_factory=dict)
    """What the lane's environment has besides the monitor's; None takes a variable away."""


@dataclass(frozen=True, slots=True)
class RacePlan:
    """One race."""

    race: Race
    scenario: Path
    lanes: tuple[LanePlan, ...]
    python: Path
    """The interpreter that trains; it has TensorFlow."""
    command: tuple[str, ...] = ()
    """The user's own command that each lane runs; empty for a scenario."""
    steps: int | None = None
    """Steps after which each lane finishes by itself."""
    slice_s: float = 0.5
    """How long a lane trains when it is its turn."""
    seconds: float | None = None
    """Time after the start signal when all lanes are ended."""


def lane_environment(spec: LaneSpec, gpu_uuid: str | None) -> dict[str, str | None]:
    """Return what makes only the lane's device visible to TensorFlow, before it loads.

    A GPU is named by its UUID, which means the same in every order of devices and in a container. Memory
    growth lets the lanes and the user's other programs share it.
    """
    common: dict[str, str | None] = {"PYTHONUNBUFFERED": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if spec.kind == "cpu":
        return {**common, "CUDA_VISIBLE_DEVICES": "-1"}
    if gpu_uuid is None:
        return common
    return {**common, "CUDA_VISIBLE_DEVICES": gpu_uuid, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}

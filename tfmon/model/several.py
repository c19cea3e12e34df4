"""Lanes on several devices: the examples of a step, what they cannot train under, and sweeps over their number."""

from __future__ import annotations

from collections.abc import Iterable

from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE, PER_REPLICA, Knob, KnobError, Settings
from tfmon.model.spec import MOST_DEVICES

SCOPE_HINT = (
    f"{BATCH_SCOPE.name} is for races with a lane on several devices, such as --lane 2xcpu or --lane gpu:all"
)
KINDS = {"gpus": "gpu", "cpus": "cpu"}
"""What counts devices in `--over`, and the kind of device."""
KNOBS = tuple(
    Knob(name, default=1, help=f"On how many devices {kind} a lane trains.", low=1, high=MOST_DEVICES)
    for name, kind in KINDS.items()
)


def step_batch(settings: Settings, devices: int) -> int | None:
    """Return the examples of one step of all devices together; None for a scenario without a batch size."""
    size = settings.get(BATCH_SIZE.name)
    if not isinstance(size, int):
        return None
    return size * devices if settings.get(BATCH_SCOPE.name) == PER_REPLICA else size


def obstacle(settings: Settings, devices: int) -> str:
    """Return why that many devices cannot train together under these settings; empty if they can."""
    if devices == 1:
        return ""
    if settings.get("xla"):
        return "xla=on compiles a step for one device, and this lane has several: it needs xla=off"
    if settings.get("mixed_precision") == "float16":
        return (
            "mixed_precision=float16 spoils the weights on several devices, because Keras looks for overflow on "
            "the first one only; bfloat16 does not"
        )
    size = step_batch(settings, devices)
    if size is not None and size < devices:
        return (
            f"batch_size={size} is too small for {devices} devices; it must be at least {devices}, "
            f"or {BATCH_SCOPE.name}={PER_REPLICA} gives each device so many"
        )
    return ""


def counted(names: Iterable[str]) -> str:
    """Return which of these names counts devices: `gpus`, `cpus` or "".

    Raises: KnobError for both.
    """
    found = [name for name in names if name in KINDS]
    if len(set(found)) > 1:
        raise KnobError("gpus and cpus are on different devices; sweep one of them")
    return found[0] if found else ""


def devices_of(settings: Settings, kind: str = "") -> int:
    """Return on how many devices a combination trains, in places such as `gpu` or `2xcpu`."""
    name = counted(settings)
    if name:
        return int(settings[name])
    count, times, _ = kind.partition("x")
    return int(count) if times and count.isdecimal() else kind.count("+") + 1

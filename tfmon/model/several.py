"""Lanes on several devices: the examples of a step, and the settings that they cannot train under. Pure."""

from __future__ import annotations

from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE, PER_REPLICA, Settings

SCOPE_HINT = (
    f"{BATCH_SCOPE.name} is for races with a lane on several devices, such as --lane 2xcpu or --lane gpu:all"
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

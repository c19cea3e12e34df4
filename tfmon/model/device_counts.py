"""Sweeps over the number of devices: `--over gpus=1,2,4,8`, or logical devices of the CPU with `cpus`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tfmon.model.knobs import Knob, KnobError, Settings
from tfmon.model.spec import MOST_DEVICES

KINDS = {"gpus": "gpu", "cpus": "cpu"}
"""What counts devices in `--over`, and the kind of device."""
KNOBS = tuple(
    Knob(name, default=1, help=f"On how many devices {kind} a lane trains.", low=1, high=MOST_DEVICES)
    for name, kind in KINDS.items()
)


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

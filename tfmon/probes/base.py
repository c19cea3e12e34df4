"""What every probe is, and how a GPU is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from tfmon.model.events import Event
from tfmon.model.readings import NOT_READ, Missing, Reading
from tfmon.model.samples import GpuFault, GpuSample


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that a lane could train on."""

    index: int
    """Its number in `gpu:0`, counted from 0 over the GPUs that are not hidden, as TensorFlow counts."""
    uuid: str
    """What a lane is given to see this GPU and no other."""
    name: str
    """The model, in the driver's words."""
    physical_gpu: int
    """The driver's own number for it, hidden GPUs counted too."""


class Probe(Protocol):
    """A source of readings.

    Thread: every method is called from one thread, that of the probe's ticker; only there may it block.
    """

    name: str
    """Names the thread and the probe in words, such as "host"."""

    def start(self) -> None:
        """Get ready. Called once, and again before the next sample if it failed."""

    def sample(self) -> Iterable[Event]:
        """Take one reading of everything. What cannot be read is `Missing`, and no error."""

    def missing(self, reason: str) -> Iterable[Event]:
        """Give every reading of this probe as `Missing(reason)`, for when `sample` failed as a whole."""

    def close(self) -> None:
        """Let go of the driver; nothing is asked of the probe afterwards."""


# ---------------- what is told of a GPU that cannot be read


_ALWAYS = ("busy_pct", "used_bytes", "total_bytes", "power_w", "power_limit_w", "temperature_c")
_READINGS = (*_ALWAYS, *(one.name for one in fields(GpuSample) if one.default is NOT_READ))
_KINDS = {"GPU": "nvidia", "MIG": "mig"}


def absent_gpu(
    gpu: Gpu, at_ns: int, reason: str, *, part_of: str = "", faults: Sequence[GpuFault] = ()
) -> GpuSample:
    """Return a sample of a GPU in which every reading is missing for one reason."""
    readings: dict[str, Any] = dict.fromkeys(_READINGS, Missing(reason))
    return GpuSample(
        at_ns=at_ns,
        key=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        kind=kind_of(gpu),
        part_of=part_of,
        busy_source="",
        held_why=reason,
        faults=tuple(faults),
        **readings,
    )


def kind_of(gpu: Gpu) -> str:
    """Return which kind of device a GPU is, as in `GpuSample.kind`."""
    return _KINDS.get(gpu.uuid.partition("-")[0], "apple")


# ---------------- counters that only grow, as rates


FIRST_SAMPLE = Missing("first sample")
TOO_SOON = Missing("sampled again too soon")
BEGAN_ANEW = Missing("the system's counter began anew")
SHORTEST_NS = 100_000_000
"""CPU time comes in ticks of 10 ms; over less than this they would say nothing."""


class CounterRate:
    """How fast one counter grows, from one sample to the next."""

    def __init__(self) -> None:
        self._before: tuple[float, int] | None = None

    def per_s(self, count: float, at_ns: int, wraps_at: float | None = None) -> Reading:
        """Return the growth a second since the sample before.

        `wraps_at` is the largest count of a counter that then goes on at 0.
        """
        before = self._before
        if before is not None and at_ns - before[1] < SHORTEST_NS:
            return TOO_SOON
        self._before = count, at_ns
        if before is None:
            return FIRST_SAMPLE
        grown = count - before[0]
        if grown < 0:
            if wraps_at is None:
                return BEGAN_ANEW
            grown += wraps_at
        return grown * 1e9 / (at_ns - before[1])

"""How throughput grows with the number of devices, where lanes differ in nothing else. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Estimate
from tfmon.model.session import Snapshot

Ratio = Callable[[LaneState, LaneState], Estimate | None]
"""Returns the throughput of one lane over that of another."""
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


@dataclass(frozen=True, slots=True)
class Scaling:
    """The throughput of a lane over that of the lane with the fewest devices."""

    lane: str
    devices: int
    over: int
    """Devices of the lane that it is compared with."""
    kind: str
    """`cpu` or `gpu`."""
    ratio: Estimate

    @property
    def of_linear(self) -> float:
        """What share of as many times the throughput as there are times the devices; 1 is linear."""
        return self.ratio.value * self.over / self.devices

    def text(self, interval: str) -> str:
        """Write "2 GPUs are 1.71× one (86 % of linear; 95 % CI 1.68 to 1.74)"; `interval` is the end of it."""
        factor, _ = units.ratio_in(self.ratio.value, self.ratio.low, self.ratio.high)
        fewer = _COUNTS[self.over] if self.over < len(_COUNTS) else str(self.over)
        linear = units.percent(100 * self.of_linear)
        return f"{self.devices} {self.what} are {factor} {fewer} ({linear} of linear; {interval})"

    @property
    def what(self) -> str:
        """What the devices are called: logical ones of the CPU share its cores."""
        return "GPUs" if self.kind == "gpu" else "logical CPUs"


def scaling_of(snapshot: Snapshot, lanes: Sequence[LaneState], ratio: Ratio) -> tuple[Scaling, ...]:
    """Return the scaling of lanes that differ in nothing but the number of their devices, the fewest first.

    Empty where they differ in more, or are on as many, or have no interval yet.
    """
    ordered = sorted(lanes, key=lambda lane: lane.spec.devices)
    counts = [lane.spec.devices for lane in ordered]
    alike = {(lane.spec.host, lane.spec.kind) for lane in lanes}
    if len(set(counts)) < len(counts) or len(alike) != 1 or snapshot.differing or _models(snapshot, lanes) > 1:
        return ()
    least, *more = ordered
    found = [(lane, ratio(lane, least)) for lane in more]
    return tuple(
        Scaling(lane.spec.name, lane.spec.devices, least.spec.devices, lane.spec.kind, estimate)
        for lane, estimate in found
        if estimate is not None
    )


def _models(snapshot: Snapshot, lanes: Sequence[LaneState]) -> int:
    """Return how many models of GPU the lanes train on."""
    return len({gpu.name for lane in lanes for gpu in snapshot.gpus_of(lane)})

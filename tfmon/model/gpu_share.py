"""What of a GPU belongs to one lane, as far as its driver lets see it. Pure."""

from __future__ import annotations

from collections.abc import Collection

from tfmon.model.readings import Missing, Reading
from tfmon.model.samples import GpuSample

DRIVER = "driver"
ONLY_PROCESS = "only process"
ALLOCATOR = "TensorFlow's allocator"
DEVICE_CHANGE = "device change"

HIDDEN = Missing("hidden by the container (run it with --pid=host)")
NOT_LISTED = Missing("the driver lists no memory for this lane")
NO_SHARE = Missing("the driver lists no process of this lane")


def held_bytes(
    sample: GpuSample,
    pids: Collection[int],
    *,
    alone: bool,
    peak_bytes: int | None,
    before_bytes: float | None,
) -> tuple[Reading, str]:
    """Return the GPU memory of a lane, and where the figure is from; the first that holds.

    `driver`: what it lists for the lane's processes. `only process`: in a container, where processes may have
    the host's numbers, the one that is listed, if no other lane is on this GPU. `TensorFlow's allocator`: its
    peak, a lower bound without the CUDA context. `device change`: what the whole GPU uses more than before
    the lane opened it (`before_bytes`), if no other lane is on it. A listed process without an amount tells
    nothing: newer drivers list a container's own numbers that way.
    """
    told = [amount for pid in pids if (amount := sample.held_by_pid.get(pid))]
    if told:
        return float(sum(told)), DRIVER
    listed = [amount for amount in sample.held_by_pid.values() if amount]
    if sample.foreign_pids and alone and len(listed) == len(sample.held_by_pid) == 1:
        return float(listed[0]), ONLY_PROCESS
    if peak_bytes:
        return float(peak_bytes), ALLOCATOR
    used = sample.used_bytes
    if alone and before_bytes is not None and not isinstance(used, Missing) and used > before_bytes:
        return used - before_bytes, DEVICE_CHANGE
    return _why(sample, NOT_LISTED), ""


def busy_pct(sample: GpuSample, pids: Collection[int], *, alone: bool) -> Reading:
    """Return the share of the GPU's time that a lane's processes took, in percent."""
    shares = sample.busy_by_pid
    if isinstance(shares, Missing):
        return shares
    own = [shares[pid] for pid in pids if pid in shares]
    if own:
        return sum(own)
    if sample.foreign_pids and alone and len(shares) == 1:
        return next(iter(shares.values()))
    return HIDDEN if sample.foreign_pids else NO_SHARE


def _why(sample: GpuSample, otherwise: Missing) -> Missing:
    if sample.held_why:
        return Missing(sample.held_why)
    return HIDDEN if sample.foreign_pids else otherwise

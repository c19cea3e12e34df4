"""The activity of a busy GPU: the limit that it is near, if any.

Shares are of the time in which kernels ran. Sources: Nsight Compute (a limit from 60 % of the peak on), DCGM's
manual (less than half of the multiprocessors is ineffective use).
"""

from __future__ import annotations

from collections.abc import Mapping

from tfmon.model.lane_use import GpuUse
from tfmon.model.windows import Mean

LIMIT_PCT = 60.0
SMALL_PCT, IDLE_PCT = 50.0, 50.0
"""Maximum use of the multiprocessors by small kernels, and maximum time of kernels of a waiting GPU."""
LEAST_SAMPLES, LEAST_KERNELS_PCT, LEAST_BUSY_PCT = 3, 2.0, 20.0
NO_TENSOR_PCT = 1.0

LARGER = "a larger batch, or fused operations, give each more to do"
TENSOR = "16 bits, or TF32, use them where dimensions are multiples of 8"
FEWER_BYTES = "fused operations, or 16 bits, move fewer bytes"


def _shares_while_busy(use: GpuUse) -> Mapping[str, float] | None:
    means = {name: mean.value for name, mean in use.racing_activity.items() if mean.samples >= LEAST_SAMPLES}
    kernels = means.get("kernels_pct")
    if kernels is None or kernels < LEAST_KERNELS_PCT:
        return None
    known = {name: value for name, value in means.items() if value is not None}
    return {name: value if name == "kernels_pct" else 100 * value / kernels for name, value in known.items()}


def activity_text(use: GpuUse, *, all_the_time: bool = False) -> str:
    """Return the activity as text. With `all_the_time`, an idle GPU waits for its lane."""
    busy, kernels = use.racing_busy_pct.value or 0.0, use.racing_activity.get("kernels_pct", Mean()).value
    if kernels is not None and busy >= LEAST_BUSY_PCT and kernels < busy / 10:
        return f"the GPU copies more than it computes: busy {busy:.0f} %, kernels run {kernels:.0f} % of the time"
    shares = _shares_while_busy(use)
    if shares is None:
        return ""
    sm, tensor, memory = (shares.get(name, 0.0) for name in ("sm_pct", "tensor_pct", "memory_pct"))
    units, bits = max((shares.get(f"fp{bits}_pct", 0.0), bits) for bits in (64, 32, 16))
    rest = f"; tensor cores are idle: {TENSOR}" if tensor < NO_TENSOR_PCT else ""
    if memory >= LIMIT_PCT:
        return f"kernels use {memory:.0f} % of the GPU memory's bandwidth, which limits them: {FEWER_BYTES}"
    if tensor >= LIMIT_PCT:
        return f"the tensor cores work {tensor:.0f} % of the time of kernels: near the GPU's peak"
    if units >= LIMIT_PCT:
        return f"the units for {bits} bits work {units:.0f} % of the time of kernels: near their peak{rest}"
    if sm < SMALL_PCT:
        waits = all_the_time and shares["kernels_pct"] < IDLE_PCT
        run = f"run {_share(shares['kernels_pct'])} of the time, and are small" if waits else "run, but small ones"
        return f"kernels {run}: they fill {_share(sm)} of the multiprocessors; {LARGER}"
    figures = f"multiprocessors {sm:.0f} %, memory {memory:.0f} %, tensor cores {tensor:.0f} %"
    return f"kernels are near no limit of the GPU ({figures}){rest}"


def _share(percent: float) -> str:
    return f"{percent:.0f} %" if percent >= 1 else "less than 1 %"

"""The lines of a pane about its GPU, and where the lane trains on several, with each of them in one row. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tfmon import units
from tfmon.model.lane_state import LaneState
from tfmon.model.lane_use import NO_GPU
from tfmon.model.readings import NOT_SAMPLED, GpuSample, Missing, Reading, known, summed
from tfmon.model.session import Snapshot
from tfmon.ui.render.readings import LABEL_CELLS, UNKNOWN, WIDE, bar, labelled
from tfmon.ui.render.rows import BLANK, Row, cells
from tfmon.ui.render.style import DIM, TEXT, WARN, banded

_EIGHTHS = "▁▂▃▄▅▆▇█"
_UNITS = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20))


def load_row(lane: LaneState, snapshot: Snapshot, width: int, accent: str) -> Row:
    """Show the share of time in which each GPU ran anything; readings that are too old show their age."""
    gpus = snapshot.gpus_of(lane)
    if lane.spec.devices == 1 or lane.spec.kind != "gpu":
        gpu = next(iter(gpus), None)
        return gpu_row(lane, gpu, width, accent, snapshot.stale_s(gpu) if gpu is not None else None)
    if not gpus:
        return labelled("gpu", (units.absent(NOT_SAMPLED), DIM))
    ages = [age for age in map(snapshot.stale_s, gpus) if age is not None]
    if ages:
        return labelled("gpu", (f"stale: read {units.seconds(max(ages))} ago", WARN))
    values = _each(lane, gpus, [gpu.busy_pct for gpu in gpus])
    found = [value for value in values if value is not None]
    if not found:
        return labelled("gpu", (units.absent(_first_missing([gpu.busy_pct for gpu in gpus])), DIM))
    numbers = [UNKNOWN if value is None else f"{value:.0f}" for value in values]
    named = " · ".join(f"{name}: {number}" for name, number in zip(_names(lane, gpus), numbers, strict=True))
    bars = tuple(
        (UNKNOWN, DIM) if value is None else (_EIGHTHS[min(7, int(value / 12.5))], banded(accent, value / 100))
        for value in values
    )
    power = known(summed([gpu.power_w for gpu in gpus])) if len(gpus) == lane.spec.devices else None
    drawn = "" if power is None else f" · {units.count(round(power))} W"
    return _fitting(
        width,
        labelled("gpu", (f"{named} % busy{drawn}", TEXT)),
        labelled("gpu", (f"{named} % busy", TEXT)),
        labelled("gpu", (" ".join(numbers) + " % busy", TEXT)),
        labelled("gpu", (" ".join(numbers) + " %", TEXT)),
        labelled("gpu", *bars, (f" {_span(found, 0)} % busy", TEXT)),
        labelled("gpu", *bars, (f" {_span(found, 0)} %", TEXT)),
    )


def memory_row(lane: LaneState, snapshot: Snapshot, width: int) -> Row:
    """Show the memory that the lane uses on each GPU, or where the driver does not say, what all processes use."""
    gpus = snapshot.gpus_of(lane)
    if lane.spec.devices == 1 or lane.spec.kind != "gpu":
        return gpu_memory_row(lane, next(iter(gpus), None), width)
    if not gpus:
        return labelled("gpu mem", (units.absent(NOT_SAMPLED), DIM))
    own = [
        lane.gpu_use.parts[gpu.key].used_bytes if gpu.key in lane.gpu_use.parts else NOT_SAMPLED for gpu in gpus
    ]
    by_lane = all(not isinstance(one, Missing) for one in own)
    shown = own if by_lane else [gpu.used_bytes for gpu in gpus]
    values = _each(lane, gpus, shown)
    found = [value for value in values if value is not None]
    if not found:
        return labelled("gpu mem", (units.absent(_first_missing(shown)), DIM))
    unit, size = next((one for one in _UNITS if max(found) >= one[1]), _UNITS[-1])
    digits = 0 if min(found) / size >= 9.95 else 1
    numbers = [UNKNOWN if value is None else f"{value / size:.{digits}f}" for value in values]
    totals = {known(gpu.total_bytes) for gpu in gpus}
    total = next(iter(totals))
    after = f" {unit} used" if by_lane else f" {unit} used by all programs"
    each = f", each has {units.memory(total)}" if len(totals) == 1 and total is not None else ""
    allocated = lane.gpu_use.allocated_bytes
    more = "" if allocated is None else f" · {units.memory(allocated)} allocated"
    span = f"{_span([value / size for value in found], digits)} {unit}"
    ends = (after + each + more, after + each, after + more, after, f" {unit}")
    return _fitting(
        width,
        *(labelled("gpu mem", (" ".join(numbers) + end, TEXT)) for end in ends),
        labelled("gpu mem", (f"{len(found)}x {span}", TEXT)),
    )


# ---------------- one GPU


def gpu_row(lane: LaneState, gpu: GpuSample | None, width: int, accent: str, stale_s: float | None = None) -> Row:
    """Show the share of time in which the GPU ran anything, and its power; one quiet line in a CPU lane.

    Readings that should be younger are not shown, but their age.
    """
    if lane.spec.kind != "gpu":
        return labelled("gpu", (units.absent(NO_GPU), DIM))
    if gpu is None:
        return labelled("gpu", (units.absent(NOT_SAMPLED), DIM))
    if stale_s is not None:
        return labelled("gpu", (f"stale: read {units.seconds(stale_s)} ago", WARN))
    if isinstance(gpu.busy_pct, Missing):
        return labelled("gpu", (units.absent(gpu.busy_pct), DIM))
    age_s = gpu.age_s("load")
    words = f"{gpu.busy_pct:4.0f} %, {age_s:.0f} s ago" if age_s >= 1 else f"{gpu.busy_pct:4.0f} % busy"
    power, limit = known(gpu.power_w), known(gpu.power_limit_w)
    room = width - LABEL_CELLS
    if power is not None and limit is not None and room >= WIDE:
        words += f" · {power:.0f} W of {limit:.0f}" + (" (whole GPU)" if gpu.part_of else "")
    return labelled("gpu", *bar(gpu.busy_pct / 100, words, room, accent))


def gpu_memory_row(lane: LaneState, gpu: GpuSample | None, width: int) -> Row:
    """Show GPU memory: used by the lane, and allocated by TensorFlow."""
    if lane.spec.kind != "gpu":
        return BLANK
    used, allocated, peak = _gpu_used(lane, gpu), "", ""
    if lane.gpu_use.allocated_bytes is not None:
        allocated = f"{units.memory(lane.gpu_use.allocated_bytes)} allocated"
        if lane.gpu_use.peak_bytes is not None:
            peak = f" (peak {units.memory(lane.gpu_use.peak_bytes)})"
    row: Row = ()
    for parts in ((used, allocated + peak), (used, allocated), (used.removesuffix(" used"), allocated)):
        words = " · ".join(filter(None, parts))
        row = labelled("gpu mem", (words, TEXT) if words else (units.absent(NOT_SAMPLED), DIM))
        if cells(row) <= width:
            break
    return row


def _gpu_used(lane: LaneState, gpu: GpuSample | None) -> str:
    """Return what the lane uses, or where the driver does not say, what all processes use."""
    by_lane = known(lane.gpu_use.used_bytes)
    if by_lane is not None:
        source = lane.gpu_use.source
        return f"{units.memory(by_lane)} used" + (f" ({source})" if source not in ("", "driver") else "")
    if gpu is None:
        return ""
    used, total = gpu.used_bytes, gpu.total_bytes
    if isinstance(used, Missing) or isinstance(total, Missing):
        return units.reading(used, units.memory)
    return f"GPU {units.memory(used)} of {units.memory(total)}"


# ---------------- several


def _each(lane: LaneState, gpus: Sequence[GpuSample], shown: Sequence[Reading]) -> list[float | None]:
    """Return a value for each GPU of the lane; None for one that is not read, also where it was never sampled."""
    values = [known(one) for one in shown]
    return values + [None] * (lane.spec.devices - len(values))


def _names(lane: LaneState, gpus: Sequence[GpuSample]) -> list[str]:
    sampled = [gpu.index for gpu in gpus]
    return [str(index) for index in (*sampled, *(one for one in sorted(lane.spec.indexes) if one not in sampled))]


def _first_missing(shown: Sequence[Reading]) -> Missing:
    return next((one for one in shown if isinstance(one, Missing)), NOT_SAMPLED)


def _span(values: Sequence[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _fitting(width: int, *rows: Row) -> Row:
    """Return the first row that fits, else the last."""
    return next((row for row in rows if cells(row) <= width), rows[-1])

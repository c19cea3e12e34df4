"""The lines of a pane about its GPU, and where the lane trains on several, with each of them in one row. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tfmon import units
from tfmon.model.gpu_parts import summed
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import GpuSample, Missing, Reading, known
from tfmon.model.session import Snapshot
from tfmon.ui.render import readings
from tfmon.ui.render.readings import UNKNOWN, labelled
from tfmon.ui.render.rows import Row, cells
from tfmon.ui.render.style import DIM, TEXT, WARN, banded

_EIGHTHS = "▁▂▃▄▅▆▇█"
_UNITS = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20))


def load_row(lane: LaneState, snapshot: Snapshot, width: int, accent: str) -> Row:
    """Show the share of time in which each GPU ran anything; readings that are too old show their age."""
    gpus = snapshot.gpus_of(lane)
    if lane.spec.devices == 1 or lane.spec.kind != "gpu":
        gpu = next(iter(gpus), None)
        return readings.gpu_row(lane, gpu, width, accent, snapshot.stale_s(gpu) if gpu is not None else None)
    if not gpus:
        return labelled("gpu", (units.absent(readings.NO_SAMPLE), DIM))
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
        return readings.gpu_memory_row(lane, next(iter(gpus), None), width)
    if not gpus:
        return labelled("gpu mem", (units.absent(readings.NO_SAMPLE), DIM))
    own = [
        lane.gpu_use.parts[gpu.key].used_bytes if gpu.key in lane.gpu_use.parts else readings.NO_SAMPLE
        for gpu in gpus
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


def _each(lane: LaneState, gpus: Sequence[GpuSample], shown: Sequence[Reading]) -> list[float | None]:
    """Return a value for each GPU of the lane; None for one that is not read, also where it was never sampled."""
    values = [known(one) for one in shown]
    return values + [None] * (lane.spec.devices - len(values))


def _names(lane: LaneState, gpus: Sequence[GpuSample]) -> list[str]:
    sampled = [gpu.index for gpu in gpus]
    return [str(index) for index in (*sampled, *(one for one in sorted(lane.spec.indexes) if one not in sampled))]


def _first_missing(shown: Sequence[Reading]) -> Missing:
    return next((one for one in shown if isinstance(one, Missing)), readings.NO_SAMPLE)


def _span(values: Sequence[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _fitting(width: int, *rows: Row) -> Row:
    """Return the first row that fits, else the last."""
    return next((row for row in rows if cells(row) <= width), rows[-1])

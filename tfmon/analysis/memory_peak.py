"""The peak of memory in a profile, by layers."""

from __future__ import annotations

from collections.abc import Sequence

from tfmon import units
from tfmon.analysis.compare_profiles import DASH, ProfiledSide, layer
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.profile import NAMELESS, NO_MEMORY, Allocated, MemoryPeak, Profile
from tfmon.model.readings import Missing

BEFORE, UNKNOWN, REST = "allocated before the profile", "not in the trace", "others"
MOST_NAMED, LEAST_SHARE = 3, 0.05


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A part of the peak."""

    name: str
    allocated_bytes: int
    share: float
    largest: str = ""
    """The largest operation with its shape."""


def memory_rows(peak: MemoryPeak) -> list[MemoryRow]:
    """Return a peak by layers, largest first."""
    layers: dict[str, list[Allocated]] = {}
    for operation in peak.operations:
        layers.setdefault(layer(operation.name), []).append(operation)
    whole = peak.allocated_bytes or 1
    rows = []
    for name, operations in layers.items():
        size = sum(op.allocated_bytes for op in operations)
        largest = f"{operations[0].name.rpartition('/')[2]} {operations[0].shape}" if operations[0].shape else ""
        rows.append(MemoryRow(name, size, size / whole, largest))
    for name, size in ((BEFORE, peak.before_bytes), (UNKNOWN, peak.unknown_bytes)):
        rows += [MemoryRow(name, size, size / whole)] if size else []
    return sorted(rows, key=lambda row: (-row.allocated_bytes, row.name))


def memory_sentence(peak: MemoryPeak) -> str:
    """Return text such as "the peak of 9.1 GiB on GPU:0: 62 % block_3, 20 % …"."""
    rows = memory_rows(peak)
    largest = [row for row in rows[:MOST_NAMED] if row.share >= LEAST_SHARE]
    parts = [f"{units.percent(100 * row.share)} {row.name}" for row in largest]
    rest = 1 - sum(row.share for row in largest)
    if len(largest) < len(rows):
        parts.append(f"{units.percent(100 * rest)} {REST}")
    return f"the peak of {units.memory(peak.allocated_bytes)} on {peak.place}: {', '.join(parts)}"


def latest_peaks(profiles: Sequence[Profile]) -> tuple[MemoryPeak, ...] | Missing:
    """Return the latest peaks, the computing device's first."""
    return profiles[-1].memory or NO_MEMORY


def memory_lines(side: ProfiledSide, name: str = "") -> list[str]:
    """Return the peaks as text, or why they are unknown."""
    peaks = latest_peaks(side.profiles)
    if isinstance(peaks, Missing):
        return [f"{name}{units.absent(peaks)}"] if peaks != NO_MEMORY else []
    lines = [f"{name}{memory_sentence(peak)}" for peak in peaks]
    first = peaks[0]
    where = "where the trace names no operation" if first.reached_in == NAMELESS else f"in {first.reached_in}"
    reached = f"{name}reached {where}" if first.reached_in else f"{name}at the beginning"
    higher = f"; before, the process had {units.memory(first.highest_bytes)}"
    lines.insert(1, reached + (higher if first.highest_bytes > first.allocated_bytes else ""))
    return lines


def memory_beside(sides: Sequence[ProfiledSide]) -> list[tuple[MemoryRow | None, ...]]:
    """Return each side's first peak by parts."""
    parts: list[dict[str, MemoryRow]] = []
    for peaks in (latest_peaks(side.profiles) for side in sides):
        parts.append({} if isinstance(peaks, Missing) else {row.name: row for row in memory_rows(peaks[0])})
    names = dict.fromkeys(name for side in parts for name in side)
    beside = [tuple(side.get(name) for side in parts) for name in names]
    return sorted(beside, key=lambda rows: -max(row.allocated_bytes for row in rows if row is not None))


def memory_heads(sides: Sequence[ProfiledSide]) -> list[str]:
    """Return the headers of `memory_cells`."""
    return ["layer", *(text for side in sides for text in (side.id, "share"))]


def memory_cells(rows: Sequence[MemoryRow | None]) -> list[str]:
    """Return a part as a table row."""
    cells = [next(row.name for row in rows if row is not None)]
    for row in rows:
        cells += [DASH, ""] if row is None else [units.memory(row.allocated_bytes), units.percent(100 * row.share)]
    return cells

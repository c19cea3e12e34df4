"""The peak of an allocator's memory during the captured steps, and its operations.

Each GPU has a BFC allocator; on the CPU oneDNN has one for larger blocks. Source: traces of TensorFlow 2.21, whose
`bytes_reserved` is always 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from tfmon.model.profile import NAMELESS, Allocated, MemoryPeak
from tfmon.model.readings import Missing
from tfmon.profile.loop_thread import LoopThread, host_lines
from tfmon.profile.operations import CPU, RUN_ASYNC
from tfmon.profile.parts import LONGEST_NAME, MOST_PARTS, SMALLER
from tfmon.profile.trace import ALLOCATION, DEALLOCATION, PIPELINE, Interval, Space, Stat

PIPELINE_NAME = "input pipeline"
NO_CPU_EVENTS = Missing(
    "no allocator reports anything: on the CPU only oneDNN's does, for blocks of at least 256 KiB"
)
"""Source: `kSmallAllocationsThreshold` in `mkl_cpu_allocator.h`; blocks of 256,000 and of 262,144 bytes traced."""
NO_GPU_EVENTS = Missing("the GPU's allocator reports nothing; TensorFlow's BFC allocator would")
_GPU = re.compile(r"GPU_(\d+)_bfc")
_ON_CPU = {"mklcpu": f"{CPU} in blocks from 256 KiB on", "cpu": CPU, "bfc_cpu_allocator_for_gpu": CPU}
_FUNCTION = re.compile(r"__inference_(.+)_\d+")
"""The name of XLA's function; the number differs between processes."""


class _Change(NamedTuple):
    at_ps: int
    bytes: int
    """Negative if freed."""
    after_bytes: int
    address: int
    feeds: bool
    stats: Mapping[str, Stat]

    @property
    def operation(self) -> str:
        name = PIPELINE_NAME if self.feeds else str(self.stats.get("tf_op") or NAMELESS)[:LONGEST_NAME]
        function = _FUNCTION.fullmatch(name)
        return function[1] if function else name


def memory_peaks(space: Space, loop: LoopThread, *, on_gpu: bool) -> tuple[MemoryPeak, ...] | Missing:
    """Return the peak of each allocator."""
    changes: dict[str, list[_Change]] = {}
    for allocator, change in _changes(space):
        changes.setdefault(allocator, []).append(change)
    every = [_peak(_device_name(name), allocations, loop.window[0]) for name, allocations in changes.items()]
    peaks = [peak for peak in every if peak is not None]
    peaks.sort(key=lambda peak: (not _is_gpu(peak), not peak.place.startswith(CPU), -peak.allocated_bytes))
    if on_gpu and not any(map(_is_gpu, peaks)):
        return NO_GPU_EVENTS
    return tuple(peaks) or NO_CPU_EVENTS


def _is_gpu(peak: MemoryPeak) -> bool:
    return peak.place.startswith("GPU:")


def _device_name(allocator: str) -> str:
    gpu = _GPU.fullmatch(allocator)
    return f"GPU:{gpu[1]}" if gpu else _ON_CPU.get(allocator, allocator[:LONGEST_NAME])


def _changes(space: Space) -> Iterator[tuple[str, _Change]]:
    """Yield allocator and change of each complete event."""
    lines = host_lines(space)
    started = {event.stats.get("id", "") for line in lines for event in line.events if event.name == RUN_ASYNC}
    for line in lines:
        of_pipeline = line.name.startswith(PIPELINE)
        for event in line.events:
            if event.name not in (ALLOCATION, DEALLOCATION):
                continue
            stats = event.stats
            size, total_bytes = _number(stats, "allocation_bytes"), _number(stats, "bytes_allocated")
            if size > 0 and total_bytes >= 0:
                size = size if event.name == ALLOCATION else -size
                feeds = of_pipeline or stats.get("id") in started
                change = _Change(event.start_ps, size, total_bytes, _number(stats, "addr"), feeds, stats)
                yield str(stats.get("allocator_name", "")), change


def _number(stats: Mapping[str, Stat], name: str) -> int:
    value = stats.get(name)
    return value if isinstance(value, int) else -1


def _peak(device: str, changes: list[_Change], window: Interval) -> MemoryPeak | None:
    """Return the last peak in the window: most operations are known then."""
    changes.sort(key=attrgetter("at_ps"))
    within = [
        (change.after_bytes + max(0, -change.bytes), number)
        for number, change in enumerate(changes)
        if window[0] <= change.at_ps < window[1]
    ]
    if not within:
        return None
    peak_bytes, number = max(within)
    present: dict[int, _Change] = {}
    before_bytes, latest = changes[0].after_bytes - changes[0].bytes, None
    for change in changes[: number + (changes[number].bytes > 0)]:
        if change.bytes > 0:
            present[change.address] = latest = change
        elif present.pop(change.address, None) is None:
            before_bytes += change.bytes
    stats = changes[number].stats
    named_bytes = sum(change.bytes for change in present.values())
    return MemoryPeak(
        place=device,
        allocated_bytes=peak_bytes,
        before_bytes=before_bytes,
        unknown_bytes=peak_bytes - before_bytes - named_bytes,
        operations=_by_operation(present.values()),
        reached_in="" if latest is None else latest.operation,
        highest_bytes=max(peak_bytes, _number(stats, "peak_bytes_in_use")),
    )


def _by_operation(present: Collection[_Change]) -> tuple[Allocated, ...]:
    groups: dict[str, list[_Change]] = {}
    for change in present:
        groups.setdefault(change.operation, []).append(change)
    result = []
    for name, blocks in groups.items():
        shape = str(max(blocks, key=lambda change: change.bytes).stats.get("shape", ""))[:LONGEST_NAME]
        result.append(Allocated(name, sum(change.bytes for change in blocks), len(blocks), shape))
    result.sort(key=lambda allocated: (-allocated.allocated_bytes, allocated.name))
    if more := result[MOST_PARTS:]:
        size, count = sum(part.allocated_bytes for part in more), sum(part.blocks for part in more)
        result[MOST_PARTS:] = [Allocated(SMALLER, size, count)]
    return tuple(result)

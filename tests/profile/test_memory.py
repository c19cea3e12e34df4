"""The peak of memory, on traces in which every block is known; and in words."""

import pytest
from made_lanes import Mark, calling, each_step, gpu, mark, marker, plane, space, trace, waiting

from tfmon.analysis.memory_peak import memory_rows
from tfmon.model.profile import MemoryPeak
from tfmon.model.readings import Missing
from tfmon.profile import memory
from tfmon.profile.breakdown import profile_of
from tfmon.profile.operations import RUN_ASYNC, tells
from tfmon.profile.trace import ALLOCATION, DEALLOCATION, Space
from tfmon.reports.profile_report import to_json, to_text

MIB = 1 << 20


class Allocator:
    """Writes the events of an allocator as TensorFlow's does, for blocks of whole MiB."""

    def __init__(self, before: int = 0) -> None:
        self.allocated, self.highest = before * MIB, before * MIB
        self.sizes: dict[int, int] = {}

    def take(self, at: float, address: int, size: int, name: str, shape: str = "", **stats: object) -> Mark:
        self.sizes[address] = size * MIB
        return self._event(ALLOCATION, at, address, size * MIB, tf_op=name, shape=shape, **stats)

    def free(self, at: float, address: int, size: int = 0, **stats: object) -> Mark:
        return self._event(DEALLOCATION, at, address, -(self.sizes.pop(address, 0) or size * MIB), **stats)

    def _event(self, kind: str, at: float, address: int, size: int, **stats: object) -> Mark:
        self.allocated += size
        self.highest = max(self.highest, self.allocated)
        return mark(
            kind, at, 0, allocator_name="GPU_0_bfc", bytes_allocated=self.allocated, allocation_bytes=abs(size),
            peak_bytes_in_use=self.highest, bytes_reserved=0, bytes_available=10_000 * MIB - self.allocated,
            requested_bytes=abs(size) - 8, addr=address, **stats,
        )  # fmt: skip


def traced(*events: Mark, steps: int = 1, **lines: list[Mark]) -> Space:
    """Return a trace of steps of 1000 µs, with these events on an executor's thread, and a kernel."""
    loop = each_step(steps, lambda n, at: [marker(n, at), *waiting(at, 10), *calling(at + 10, 900, n + 1)])
    kernels = {"Stream #1(Kernel)": [mark("k", 500, 10)]}
    return trace({"python": loop, "tf_Compute/1": list(events), **lines}, gpu(kernels))


def one_step(pool: Allocator, at: float = 0) -> list[Mark]:
    """Two activations are kept for the gradients, which are most where the second one is computed."""
    relu, gradient = "net/large/Relu", "gradient_tape/net/large/MatMul/MatMul"
    return [
        pool.take(at + 100, 1, 40, relu, "[1024,10240]"),
        pool.take(at + 200, 2, 10, "net/small/Relu"),
        pool.take(at + 300, 3, 5, "net/small/BiasAdd"),
        pool.free(at + 310, 3, tf_op="net/other/Softmax"),
        pool.take(at + 400, 3, 20, gradient, "[1024,5120]"),
        pool.free(at + 500, 2),
        pool.take(at + 600, 2, 8, "adam/Sqrt"),
        *[pool.free(at + 700 + address, address) for address in (1, 2, 3)],
    ]


def peak_of(space_: Space) -> MemoryPeak:
    peaks = profile_of(space_, parts=True).memory
    assert not isinstance(peaks, Missing), peaks.reason
    return peaks[0]


def named(peak: MemoryPeak) -> dict[str, int]:
    return {operation.name: operation.allocated_bytes // MIB for operation in peak.operations}


class TestThePeak:
    def test_what_is_allocated_then_has_the_name_of_its_operation_also_in_words(self):
        trace = traced(*one_step(Allocator(before=30)))
        peak = peak_of(trace)
        assert (peak.place, peak.allocated_bytes // MIB, peak.before_bytes // MIB) == ("GPU:0", 100, 30)
        assert named(peak) == {
            "net/large/Relu": 40, "gradient_tape/net/large/MatMul/MatMul": 20, "net/small/Relu": 10
        }  # fmt: skip
        assert (peak.unknown_bytes, peak.reached_in) == (0, "gradient_tape/net/large/MatMul/MatMul")
        text = to_text(profile_of(trace, parts=True))
        start = text.index("memory at its peak, by layer")
        assert text[start:].splitlines() == [
            "memory at its peak, by layer",
            "  the peak of 100 MiB on GPU:0: 60 % net/large, 30 % allocated before the profile, 10 % net/small",
            "  reached in gradient_tape/net/large/MatMul/MatMul",
            "",
            "  layer                         memory  share  most of it in",
            "  net/large                     60 MiB   60 %  Relu [1024,10240]",
            "  allocated before the profile  30 MiB   30 %",
            "  net/small                     10 MiB   10 %",
        ]

    def test_of_equal_peaks_it_is_the_last_when_what_earlier_steps_left_has_a_name(self):
        pool = Allocator(before=30)
        kept = pool.free(50, 99, 10), pool.take(990, 98, 10, "net/state/Assign")
        peak = peak_of(traced(kept[0], *one_step(pool), kept[1], *one_step(pool, 1000), steps=2))
        assert peak.before_bytes == 20 * MIB and named(peak)["net/state/Assign"] == 10
        assert peak.allocated_bytes == 100 * MIB and peak.unknown_bytes == 0

    @pytest.mark.parametrize(("lost", "unknown"), [(1, 10), (3, -5)])
    def test_what_the_profiler_lost_is_unknown_and_not_counted_as_weights(self, lost, unknown):
        events = one_step(Allocator(before=30))
        del events[lost]
        if lost == 3:
            events[3].stats["addr"] = 33
        peak = peak_of(traced(*events))
        assert (peak.allocated_bytes // MIB, peak.before_bytes // MIB) == (100, 30)
        assert peak.unknown_bytes == unknown * MIB
        rows = {row.name: row.allocated_bytes for row in memory_rows(peak)}
        assert rows["not in the trace"] == unknown * MIB and sum(rows.values()) == 100 * MIB

    def test_what_feeds_the_loop_is_the_input_pipeline(self):
        pool = Allocator(before=30)
        batch = pool.take(20, 60, 3, "")
        parsed = pool.take(30, 61, 4, "map/Decode", id=77)
        starts = mark(RUN_ASYNC, 25, 1, id=77)
        peak = peak_of(traced(parsed, *one_step(pool), **{"tf_data_1": [batch, starts]}))
        assert named(peak)["input pipeline"] == 7
        assert all(tells("tf_data_1", name, ()) for name in (ALLOCATION, DEALLOCATION))


def test_on_a_cpu_whose_allocator_is_silent_the_reason_is_told():
    loop = [marker(0, 0), *calling(10, 900, 1)]
    profile = profile_of(space(plane("/host:CPU", {"python": loop})), parts=True)
    assert profile.memory == memory.NO_CPU_EVENTS
    assert "only oneDNN's does" in to_text(profile)
    assert to_json(profile)["memory"] is None and "oneDNN" in to_json(profile)["missing"]["memory"]

"""The peak of memory, on traces in which every block is known; and in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_lanes import calling, mark, marker, plane, space
from made_memory import CPU_POOL, MIB, Allocator, one_step, traced

from tfmon.analysis.memory_peak import latest_peaks, memory_rows, memory_sentence
from tfmon.model import codec
from tfmon.model.lane_events import Profiled
from tfmon.model.profile import NO_MEMORY, MemoryPeak, Profile
from tfmon.model.readings import Missing
from tfmon.profile import memory
from tfmon.profile.breakdown import profile_of
from tfmon.profile.operations import RUN_ASYNC, tells
from tfmon.profile.parts import MOST_PARTS, SMALLER
from tfmon.profile.trace import ALLOCATION, DEALLOCATION, Space
from tfmon.reports.profile import to_json, to_text


def peak_of(space_: Space) -> MemoryPeak:
    peaks = profile_of(space_, parts=True).memory
    assert not isinstance(peaks, Missing), peaks.reason
    return peaks[0]


def named(peak: MemoryPeak) -> dict[str, int]:
    """Return the operations with their MiB."""
    return {one.name: one.allocated_bytes // MIB for one in peak.operations}


class TestThePeak:
    def test_what_is_allocated_then_has_the_name_of_its_operation(self):
        peak = peak_of(traced(*one_step(Allocator(before=30))))
        assert (peak.place, peak.allocated_bytes // MIB, peak.before_bytes // MIB) == ("GPU:0", 100, 30)
        assert named(peak) == {
            "net/large/Relu": 40, "gradient_tape/net/large/MatMul/MatMul": 20, "net/small/Relu": 10
        }  # fmt: skip
        assert (peak.unknown_bytes, peak.reached_in) == (0, "gradient_tape/net/large/MatMul/MatMul")

    def test_blocks_of_several_threads_are_put_in_the_order_of_time(self):
        first, *others = one_step(Allocator(before=30))
        peak = peak_of(traced(*others[1::2], **{"tf_Compute/2": [first, *others[::2]]}))
        assert peak == peak_of(traced(*one_step(Allocator(before=30))))

    def test_of_equal_peaks_it_is_the_last_when_what_earlier_steps_left_has_a_name(self):
        pool = Allocator(before=30)
        kept = pool.free(50, 99, 10), pool.take(990, 98, 10, "net/state/Assign")
        peak = peak_of(traced(kept[0], *one_step(pool), kept[1], *one_step(pool, 1000), steps=2))
        assert peak.before_bytes == 20 * MIB and named(peak)["net/state/Assign"] == 10
        assert peak.allocated_bytes == 100 * MIB and peak.unknown_bytes == 0

    def test_what_is_between_capture_and_steps_is_no_peak_but_its_blocks_have_names(self):
        pool = Allocator(before=30)
        early = [pool.take(-50, 50, 500, "init"), pool.take(-40, 51, 7, "batch"), pool.free(-30, 50)]
        peak = peak_of(traced(*early, *one_step(pool)))
        assert peak.allocated_bytes == 107 * MIB and named(peak)["batch"] == 7 and "init" not in named(peak)
        assert peak.highest_bytes == 537 * MIB

    def test_memory_that_is_only_given_back_has_its_peak_before(self):
        peak = peak_of(traced(Allocator(before=30).free(100, 7, 10)))
        assert (peak.allocated_bytes, peak.before_bytes, peak.operations) == (30 * MIB, 30 * MIB, ())
        assert "at the beginning" in to_text(profile_of(traced(Allocator(before=30).free(100, 7, 10)), parts=True))

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

    def test_what_xla_allocates_has_the_name_of_its_function_in_every_process(self):
        pool = Allocator()
        peak = peak_of(traced(pool.take(100, 1, 4, "__inference_my_step_123"), pool.take(200, 2, 1, "")))
        assert named(peak) == {"my_step": 4, "no operation named": 1}

    def test_the_least_of_many_operations_are_one(self):
        pool = Allocator()
        events = [pool.take(100 + n / 10, n, 1 + (n < 3), f"op_{n}") for n in range(MOST_PARTS + 20)]
        peak = peak_of(traced(*events))
        assert len(peak.operations) == MOST_PARTS + 1 and named(peak)[SMALLER] == 20
        assert sum(one.allocated_bytes for one in peak.operations) == peak.allocated_bytes


class TestAllocators:
    def test_that_of_the_device_that_computes_comes_first(self):
        host, other = Allocator(CPU_POOL, before=900), Allocator("gpu_host_bfc", before=2000)
        mine, second = Allocator(before=30), Allocator("GPU_1_bfc", before=40)
        beside = [host.take(100, 1, 1, "a"), other.take(100, 1, 1, "b"), second.take(100, 1, 1, "net/x/Relu")]
        peaks = profile_of(traced(*beside, *one_step(mine)), parts=True).memory
        assert [peak.place for peak in peaks] == [
            "GPU:0",
            "GPU:1",
            "CPU in blocks from 256 KiB on",
            "gpu_host_bfc",
        ]

    def test_the_same_address_of_two_allocators_is_two_blocks(self):
        host, mine = Allocator(CPU_POOL), Allocator()
        events = [host.take(90, 1, 1, "a"), *one_step(mine)[:2], host.free(250, 1)]
        assert named(peak_of(traced(*events))) == {"net/large/Relu": 40, "net/small/Relu": 10}

    def test_a_lane_on_a_gpu_whose_allocator_is_silent_has_no_peak_of_the_host_instead(self):
        host = Allocator(CPU_POOL)
        assert profile_of(traced(host.take(100, 1, 1, "a")), parts=True).memory == memory.NO_GPU_EVENTS

    def test_on_a_cpu_whose_allocator_is_silent_the_reason_is_told(self):
        loop = [marker(0, 0), *calling(10, 900, 1)]
        profile = profile_of(space(plane("/host:CPU", {"python": loop})), parts=True)
        assert profile.memory == memory.NO_CPU_EVENTS
        assert "only oneDNN's does" in to_text(profile)
        assert to_json(profile)["memory"] is None and "oneDNN" in to_json(profile)["missing"]["memory"]

    def test_events_without_their_numbers_are_skipped(self):
        broken = [mark(ALLOCATION, 50, 0), mark(DEALLOCATION, 60, 0, allocation_bytes="x", bytes_allocated="y")]
        assert peak_of(traced(*broken, *one_step(Allocator()))).allocated_bytes == 70 * MIB


class TestInWords:
    def profile(self) -> Profile:
        return profile_of(traced(*one_step(Allocator(before=30))), parts=True)

    def test_a_gradient_belongs_to_its_layer_and_the_parts_add_up(self):
        peak = peak_of(traced(*one_step(Allocator(before=30))))
        rows = memory_rows(peak)
        assert [(row.name, row.allocated_bytes // MIB) for row in rows] == [
            ("net/large", 60), ("allocated before the profile", 30), ("net/small", 10)
        ]  # fmt: skip
        assert sum(row.share for row in rows) == pytest.approx(1) and rows[0].largest == "Relu [1024,10240]"

    def test_a_sentence(self):
        peak = peak_of(traced(*one_step(Allocator(before=30))))
        large, weights = "60 % net/large", "30 % allocated before the profile"
        assert memory_sentence(peak) == f"the peak of 100 MiB on GPU:0: {large}, {weights}, 10 % net/small"
        small = replace(peak, allocated_bytes=1000 * MIB, before_bytes=930 * MIB)
        others = "93 % allocated before the profile, 6 % net/large, 1 % others"
        assert memory_sentence(small) == f"the peak of 1000 MiB on GPU:0: {others}"

    def test_text(self):
        text = to_text(self.profile())
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

    def test_a_recording_has_it_and_an_older_one_says_that_it_has_not(self):
        event = Profiled(lane="cpu", at_ns=1, folder="x", profile=self.profile())
        plain = codec.parse(codec.encode(event))
        assert codec.read(plain, Profiled) == event
        del plain["profile"]["memory"]
        assert latest_peaks([codec.read(plain, Profiled).profile]) == NO_MEMORY

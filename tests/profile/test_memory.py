"""The peak of memory, on traces in which every block is known; and in words."""

import pytest
from made_lanes import calling, mark, marker, plane, space
from made_memory import MIB, Allocator, one_step, traced

from tfmon.analysis.memory_peak import latest_peaks, memory_rows
from tfmon.model import codec
from tfmon.model.lane_events import Profiled
from tfmon.model.profile import NO_MEMORY, MemoryPeak, Profile
from tfmon.model.readings import Missing
from tfmon.profile import memory
from tfmon.profile.breakdown import profile_of
from tfmon.profile.operations import RUN_ASYNC, tells
from tfmon.profile.trace import ALLOCATION, DEALLOCATION, Space
from tfmon.reports.profile_report import to_json, to_text


def peak_of(space_: Space) -> MemoryPeak:
    peaks = profile_of(space_, parts=True).memory
    assert not isinstance(peaks, Missing), peaks.reason
    return peaks[0]


def named(peak: MemoryPeak) -> dict[str, int]:
    """Return the operations with their MiB."""
    return {operation.name: operation.allocated_bytes // MIB for operation in peak.operations}


class TestThePeak:
    def test_what_is_allocated_then_has_the_name_of_its_operation(self):
        peak = peak_of(traced(*one_step(Allocator(before=30))))
        assert (peak.place, peak.allocated_bytes // MIB, peak.before_bytes // MIB) == ("GPU:0", 100, 30)
        assert named(peak) == {
            "net/large/Relu": 40, "gradient_tape/net/large/MatMul/MatMul": 20, "net/small/Relu": 10
        }  # fmt: skip
        assert (peak.unknown_bytes, peak.reached_in) == (0, "gradient_tape/net/large/MatMul/MatMul")

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


class TestInWords:
    def profile(self) -> Profile:
        return profile_of(traced(*one_step(Allocator(before=30))), parts=True)

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

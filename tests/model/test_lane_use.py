"""The use of its machine by a lane: CPU and memory of its processes, and its GPUs."""

from dataclasses import fields, replace

import pytest
from support.events import GPU, HIDDEN, gpu_sample, phase, reread, tree_sample, window

from tfmon.model.events import HostConnected, LaneStarted
from tfmon.model.gpu_samples import GpuActivity, GpuProcesses
from tfmon.model.lane_events import BUILDING, IMPORTING, RACING, LibrariesLoaded
from tfmon.model.lane_use import ACTIVITY, NO_SHARE, NOT_ALL, NOT_LISTED, busy_pct, used_bytes_of_lane
from tfmon.model.lane_use import HIDDEN as BY_CONTAINER
from tfmon.model.race import Machine, Race
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes

SAMPLE = reread(GPU, used_bytes=900.0)


def used(pids=(7, 8), *, only_lane=True, peak=None, before=None, **changes):
    sample = reread(SAMPLE, **changes)
    return used_bytes_of_lane(sample, pids, only_lane=only_lane, peak_bytes=peak, before_bytes=before)


class TestMemory:
    def test_in_a_container_the_only_listed_process_is_the_lanes(self):
        inside = {"used_by_pid": {31_337: 500}, "foreign_pids": True}
        assert used(**inside) == (500.0, "only process")
        assert used(**inside, only_lane=False) == (BY_CONTAINER, "")
        assert used(**{**inside, "foreign_pids": False}) == (NOT_LISTED, "")
        assert used(used_by_pid={31_337: 500, 31_338: 1}, foreign_pids=True) == (BY_CONTAINER, "")
        assert used(used_by_pid={7: 0}, foreign_pids=True) == (BY_CONTAINER, ""), "its amount is not told"

    def test_the_change_of_the_device_comes_last_and_only_for_one_lane(self):
        assert used(before=250.0) == (650.0, "device change")
        assert used(before=250.0, peak=300) == (300.0, "TensorFlow's allocator")
        assert used(before=250.0, only_lane=False) == used(before=950.0) == (NOT_LISTED, "")


class TestBusy:
    def test_it_is_the_sum_over_the_lanes_processes(self):
        on_it = GpuProcesses(busy_by_pid={7: 30.0, 8: 0.0, 9: 60.0})
        busy = [busy_pct(on_it, pids, only_lane=True) for pids in ((7, 8), (8,), (1,))]
        assert busy == [30, 0, NO_SHARE]
        assert busy_pct(GpuProcesses(busy_by_pid=HIDDEN), (7,), only_lane=True) == HIDDEN

    def test_in_a_container_the_only_process_is_the_lanes(self):
        sample = reread(SAMPLE, busy_by_pid={31_337: 30.0}, foreign_pids=True)
        assert [busy_pct(sample.processes, (7,), only_lane=only) for only in (True, False)] == [30, BY_CONTAINER]
        assert busy_pct(reread(sample, busy_by_pid={}).processes, (7,), only_lane=True) == BY_CONTAINER


def begin(*devices: str) -> Session:
    session = Session(Machine(), lambda: 0)
    session.begin(Race(), name_lanes([LaneSpec(device) for device in devices]))
    for lane in session.snapshot().lanes:
        session.accept(LaneStarted(lane=lane.spec.name, at_ns=1, pid=7, settings={}))
    session.accept(tree_sample(pids=(7,), lane="gpu:0"))
    return session


class TestInASession:
    def test_the_device_change_is_since_before_the_lane_opened_the_gpu(self):
        session = begin("cpu", "gpu:0")
        session.accept(phase(IMPORTING, lane="gpu:0"))
        session.accept(reread(SAMPLE, used_bytes=100.0))
        session.accept(reread(SAMPLE, used_bytes=180.0))  # the first one counts: importing may open the GPU
        session.accept(phase(BUILDING, lane="gpu:0"))
        session.accept(SAMPLE)
        assert isinstance(session.snapshot().lane("gpu:0").gpu_use.used_bytes, Missing)
        session.accept(phase(RACING, lane="gpu:0"))
        session.accept(SAMPLE)
        lane = session.snapshot().lane("gpu:0")
        assert (lane.gpu_use.used_bytes, lane.gpu_use.source) == (800.0, "device change")
        session.accept(reread(SAMPLE, used_by_pid={7: 120}))
        assert session.snapshot().lane("gpu:0").gpu_use.source == "driver"

    @pytest.mark.parametrize(("devices", "samples"), [(("cpu", "gpu:0"), 1), (("gpu:0", "gpu:0"), 0)])
    def test_the_activity_of_a_gpu_is_only_that_of_a_lane_which_has_it_alone(self, devices, samples):
        session = begin(*devices)
        for lane in session.snapshot().lanes:
            session.accept(phase(RACING, lane=lane.spec.name))
        activity = GpuActivity(**{field.name: 50.0 for field in fields(GpuActivity)})
        session.accept(replace(SAMPLE, activity=activity))
        means = session.snapshot().lanes[1].gpu_use.racing_activity
        assert [mean.samples for mean in means.values()] == [samples] * (len(ACTIVITY) if samples else 0)

    def test_of_a_lane_on_two_gpus_each_is_accounted_for_and_both_together(self):
        session = begin("gpu:0+2", "gpu:1")

        def lane():
            return session.snapshot().lane("gpu:0+2")

        session.accept(tree_sample(pids=(7,), lane="gpu:0+2"))
        session.accept(phase(RACING, lane="gpu:0+2"))
        listed = {"used_by_pid": {7: 120}, "busy_by_pid": {7: 30.0}, "busy_pct": 40.0}
        session.accept(gpu_sample("GPU-a", 0, **listed))
        assert lane().gpu_use.used_bytes == NOT_ALL, "half of it is not a figure"
        session.accept(gpu_sample("GPU-b", 1, **listed))
        session.accept(gpu_sample("GPU-c", 2, used_by_pid={7: 80}, busy_by_pid={7: 50.0}, busy_pct=60.0))
        assert (lane().gpu_use.used_bytes, lane().gpu_use.source) == (200.0, "driver")
        assert [part.lane_busy_pct for part in lane().gpu_use.parts.values()] == [30.0, 50.0]
        assert lane().gpu_use.racing_busy_pct.value == 50.0
        assert [gpu.key for gpu in session.snapshot().gpus_of(lane())] == ["GPU-a", "GPU-c"]
        assert session.snapshot().device_name(lane()) == "2x A GPU"
        session.accept(window(lane="gpu:0+2", gpu_memory_peak_bytes=170))
        session.accept(gpu_sample("GPU-c", 2, busy_pct=60.0))
        assert (lane().gpu_use.used_bytes, lane().gpu_use.source) == (170.0, "TensorFlow's allocator")

    def test_gpus_taken_by_their_index_give_way_to_those_that_cuda_tells(self):
        session = begin("gpu:0+1")
        for key, index in (("GPU-a", 0), ("GPU-b", 1), ("GPU-c", 2)):
            session.accept(gpu_sample(key, index, used_by_pid={7: 50 + index}))
        versions = {"tensorflow": "2", "keras": "3", "numpy": "2", "device_name": "2x L4"}
        session.accept(LibrariesLoaded(lane="gpu:0+1", at_ns=2, gpu_uuids=("GPU-c", "GPU-a"), **versions))
        session.accept(tree_sample(pids=(7,), lane="gpu:0+1"))
        for key, index in (("GPU-a", 0), ("GPU-c", 2)):
            session.accept(gpu_sample(key, index, used_by_pid={7: 50 + index}))
        lane = session.snapshot().lanes[0]
        assert (set(lane.gpu_use.parts), lane.gpu_use.used_bytes) == ({"GPU-a", "GPU-c"}, 102.0)
        assert session.snapshot().device_name(lane) == "2x L4"

    def test_two_names_of_one_machine_share_its_gpu(self):
        """GPU memory that is known only for a GPU with one lane is unknown if two hosts are the same machine."""
        session = Session(Machine(boot="a"), lambda: 0)
        for host in ("gpu2", "alias"):
            session.accept(HostConnected(at_ns=7, host=host, machine=Machine(boot="b")))
        session.begin(Race(), name_lanes([LaneSpec("gpu:0", host=host) for host in ("gpu2", "alias")]))
        there, alias = (lane.spec.name for lane in session.snapshot().lanes)
        for name in (there, alias):
            session.accept(phase(RACING, 8, lane=name))
        crowded = gpu_sample(host="gpu2", foreign_pids=True, used_by_pid={99: 2**30})
        session.accept(crowded)
        assert session.snapshot().lane(there).gpu_use.source == ""
        session.accept(phase("failed", 9, lane=alias))
        session.accept(replace(crowded, at_ns=2))
        assert session.snapshot().lane(there).gpu_use.source == "only process"

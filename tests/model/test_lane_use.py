"""What a lane uses of its machine: CPU and memory of its processes, and its GPUs."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from support.events import GPU, HIDDEN, gpu_sample, phase, reread, tree_sample, window
from support.ui import SECOND, Demo

from tfmon.model.events import LaneStarted
from tfmon.model.gpu import GpuActivity, GpuProcesses
from tfmon.model.lane_events import LibrariesLoaded
from tfmon.model.lane_state import BUILDING, IMPORTING, RACING, LaneState
from tfmon.model.lane_use import ACTIVITY, NO_SHARE, NOT_ALL, NOT_LISTED, WAITS, busy_pct, used_bytes_of_lane
from tfmon.model.lane_use import HIDDEN as BY_CONTAINER
from tfmon.model.race import Machine, Race
from tfmon.model.readings import Missing, TreeSample
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes

SAMPLE = reread(GPU, used_bytes=900.0)


def used(pids=(7, 8), *, only_lane=True, peak=None, before=None, **changes):
    sample = reread(SAMPLE, **changes)
    return used_bytes_of_lane(sample, pids, only_lane=only_lane, peak_bytes=peak, before_bytes=before)


class TestMemory:
    def test_the_drivers_figures_for_the_lanes_processes_come_first(self):
        assert used(used_by_pid={7: 100, 8: 20, 9: 5_000}, peak=3) == (120.0, "driver")

    def test_in_a_container_the_only_listed_process_is_the_lanes(self):
        inside = {"used_by_pid": {31_337: 500}, "foreign_pids": True}
        assert used(**inside) == (500.0, "only process")
        assert used(**inside, only_lane=False) == (BY_CONTAINER, "")
        assert used(**{**inside, "foreign_pids": False}) == (NOT_LISTED, "")
        assert used(used_by_pid={31_337: 500, 31_338: 1}, foreign_pids=True) == (BY_CONTAINER, "")

    @pytest.mark.parametrize("amount", [0, None])
    def test_a_listed_process_without_an_amount_says_nothing(self, amount):
        listed = {"used_by_pid": {7: amount}, "foreign_pids": True}
        assert used(**listed) == (BY_CONTAINER, "")
        assert used(**listed, peak=300) == (300.0, "TensorFlow's allocator")

    def test_the_change_of_the_device_comes_last_and_only_for_one_lane(self):
        assert used(before=250.0) == (650.0, "device change")
        assert used(before=250.0, peak=300) == (300.0, "TensorFlow's allocator")
        assert used(before=250.0, only_lane=False) == used(before=950.0) == (NOT_LISTED, "")

    def test_the_drivers_own_reason_is_given(self):
        assert used(no_list_reason="too old a driver") == (Missing("too old a driver"), "")


class TestBusy:
    def test_it_is_the_sum_over_the_lanes_processes(self):
        on_it = GpuProcesses(busy_by_pid={7: 30.0, 8: 0.0, 9: 60.0})
        assert [busy_pct(on_it, pids, only_lane=True) for pids in ((7, 8), (8,), (1,))] == [
            30,
            0,
            NO_SHARE,
        ]
        assert busy_pct(GpuProcesses(busy_by_pid=HIDDEN), (7,), only_lane=True) == HIDDEN

    def test_in_a_container_the_only_process_is_the_lanes(self):
        sample = reread(SAMPLE, busy_by_pid={31_337: 30.0}, foreign_pids=True)
        assert [busy_pct(sample.processes, (7,), only_lane=only) for only in (True, False)] == [30, BY_CONTAINER]
        assert busy_pct(reread(sample, busy_by_pid={}).processes, (7,), only_lane=True) == BY_CONTAINER


@pytest.fixture
def begin():
    def begin(*devices: str) -> Session:
        session = Session(Machine(), lambda: 0)
        session.begin(Race(), name_lanes([LaneSpec(device) for device in devices]))
        for lane in session.snapshot().lanes:
            session.accept(LaneStarted(lane=lane.spec.name, at_ns=1, pid=7, settings={}))
        session.accept(tree_sample(pids=(7,), lane="gpu:0"))
        return session

    return begin


def gpu_lane(session: Session) -> LaneState:
    return session.snapshot().lane("gpu:0")


class TestInASession:
    def test_the_device_change_is_since_before_the_lane_opened_the_gpu(self, begin):
        session = begin("cpu", "gpu:0")
        session.accept(phase(IMPORTING, lane="gpu:0"))
        session.accept(reread(SAMPLE, used_bytes=100.0))
        session.accept(reread(SAMPLE, used_bytes=180.0))  # the first one counts: importing may open the GPU
        session.accept(phase(BUILDING, lane="gpu:0"))
        session.accept(SAMPLE)
        assert isinstance(gpu_lane(session).gpu_use.used_bytes, Missing)
        session.accept(phase(RACING, lane="gpu:0"))
        session.accept(SAMPLE)
        lane = gpu_lane(session)
        assert (lane.gpu_use.used_bytes, lane.gpu_use.source) == (800.0, "device change")
        session.accept(reread(SAMPLE, used_by_pid={7: 120}))
        assert gpu_lane(session).gpu_use.source == "driver"

    def test_it_is_unknown_for_two_lanes_on_one_gpu(self, begin):
        session = begin("gpu:0", "gpu:0")
        session.accept(reread(SAMPLE, used_bytes=100.0))
        for lane in session.snapshot().lanes:
            session.accept(phase(RACING, lane=lane.spec.name))
        session.accept(SAMPLE)
        assert {lane.gpu_use.source for lane in session.snapshot().lanes} == {""}

    @pytest.mark.parametrize(("devices", "samples"), [(("cpu", "gpu:0"), 1), (("gpu:0", "gpu:0"), 0)])
    def test_the_activity_of_a_gpu_is_only_that_of_a_lane_which_has_it_alone(self, begin, devices, samples):
        session = begin(*devices)
        for lane in session.snapshot().lanes:
            session.accept(phase(RACING, lane=lane.spec.name))
        activity = GpuActivity(**{one.name: 50.0 for one in fields(GpuActivity)})
        session.accept(replace(SAMPLE, activity=activity))
        means = session.snapshot().lanes[1].gpu_use.racing_activity
        assert [mean.samples for mean in means.values()] == [samples] * (len(ACTIVITY) if samples else 0)

    def test_busy_time_belongs_to_the_lane_that_trains_on_the_gpu(self, begin):
        session = begin("cpu", "gpu:0")
        session.accept(reread(SAMPLE, busy_pct=5.0, busy_by_pid={7: 35.0, 8: 20.0}))
        for pct, index in ((40.0, 0), (60.0, 0), (90.0, 1)):
            session.accept(phase(RACING, lane="gpu:0"))
            session.accept(gpu_sample(f"GPU-{index}", index, busy_pct=pct, busy_by_pid={7: 35.0, 8: 20.0}))
        assert gpu_lane(session).gpu_use.parts["GPU-0"].lane_busy_pct == 35
        assert gpu_lane(session).gpu_use.racing_busy_pct.value == 50, "averaged while it races"
        cpu = session.snapshot().lane("cpu")
        assert (cpu.gpu_use.parts, cpu.gpu_use.racing_busy_pct.value) == ({}, None)

    def test_a_mig_instance_is_recognised_by_the_uuid_that_cuda_gives(self, begin):
        session = begin("cpu", "gpu:0")
        physical, instance = gpu_sample("GPU-1"), gpu_sample("MIG-2", part_of="GPU-1")
        session.accept(physical)
        session.accept(instance)
        assert session.snapshot().gpus_of(gpu_lane(session))[0] == physical
        versions = {"tensorflow": "2", "keras": "3", "numpy": "2", "device_name": "A GPU"}
        session.accept(LibrariesLoaded(lane="gpu:0", at_ns=2, gpu_uuid="GPU-2", **versions))
        assert session.snapshot().gpus_of(gpu_lane(session))[0] == instance

    def test_of_a_lane_on_two_gpus_each_is_accounted_for_and_both_together(self, begin):
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
        session.accept(window(lane="gpu:0+2", gpu_memory_peak_bytes=170))
        session.accept(gpu_sample("GPU-c", 2, busy_pct=60.0))
        assert (lane().gpu_use.used_bytes, lane().gpu_use.source) == (170.0, "TensorFlow's allocator")

    def test_gpus_taken_by_their_index_give_way_to_those_that_cuda_tells(self, begin):
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


# ---------------- CPU of a lane that trains in slices: what it uses while it has them


LANES = (LaneSpec("cpu", {"batch_size": 10}), LaneSpec("cpu", {"batch_size": 20}))


def racing(mode: str = "turns", lanes=LANES) -> Demo:
    demo = Demo(lanes, mode=mode).go()
    return demo


def sample(demo: Demo, place: int, cpu_pct: float) -> None:
    demo.session.accept(
        TreeSample(lane=demo.names[place], at_ns=demo.clock(), cpu_pct=cpu_pct, private_bytes=1e6, processes=1)
    )


def alternate(demo: Demo, seconds: int, first_s: float = 0.5) -> None:
    """Let the first lane train for `first_s` of every second, and the second for the rest."""
    for _ in range(seconds):
        demo.session.grant_slice(demo.names[0])
        demo.clock.ahead(first_s)
        demo.session.grant_slice(demo.names[1])
        demo.clock.ahead(1 - first_s)


def cpu(demo: Demo, place: int = 0):
    return demo.session.snapshot().lanes[place].tree.cpu_pct


@pytest.mark.parametrize("first_s", [0.5, 0.2])
def test_in_turns_the_time_in_which_the_other_lane_trains_does_not_count(first_s):
    demo = racing()
    alternate(demo, 1, first_s)
    for place in (0, 1):
        sample(demo, place, 7.0)
    alternate(demo, 1, first_s)
    sample(demo, 0, 100 * first_s)
    sample(demo, 1, 150 * (1 - first_s))
    assert (cpu(demo, 0), cpu(demo, 1)) == (pytest.approx(100), pytest.approx(150))


def test_a_sample_in_the_middle_of_a_slice_counts_both_of_its_parts():
    demo = racing()
    sample(demo, 0, 7.0)
    demo.session.grant_slice(demo.names[0])
    demo.clock.ahead(0.25)
    sample(demo, 0, 100.0)
    demo.clock.ahead(0.25)
    demo.session.grant_slice(demo.names[1])
    demo.clock.ahead(0.75)
    sample(demo, 0, 25.0)
    assert cpu(demo) == pytest.approx(100)


def test_cpu_in_slices_is_that_of_all_cores_at_most():
    demo = racing()
    cores = demo.session.snapshot().machine.cores
    sample(demo, 0, 7.0)
    alternate(demo, 1, 0.5)
    sample(demo, 0, 90.0 * cores)
    assert cpu(demo) == 100 * cores > 0


def test_while_a_lane_waits_its_last_figure_stays_and_the_mean_does_not_fall():
    demo = racing()
    sample(demo, 0, 0.0)
    alternate(demo, 1)
    sample(demo, 0, 60.0)
    demo.clock.ahead(1)
    sample(demo, 0, 0.0)
    lane = demo.session.snapshot().lanes[0]
    assert (lane.tree.cpu_pct, lane.tree.racing_cpu_pct.samples) == (pytest.approx(120), 2)
    assert lane.tree.clock.in_slices(5.0, demo.clock() + SECOND) == WAITS


def test_a_paused_lane_uses_what_it_uses():
    demo = racing()
    sample(demo, 0, 0.0)
    demo.enter(demo.names[0], "paused")
    demo.clock.ahead(1)
    sample(demo, 0, 3.0)
    assert cpu(demo) == 3.0

"""What of a GPU belongs to a lane: in the open, in containers, on drivers that hide it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfmon.model.events import LaneStarted
from tfmon.model.gpu_accounting import HIDDEN, NO_SHARE, NOT_LISTED, busy_pct, used_bytes_of_lane
from tfmon.model.lane_events import Built, LibrariesLoaded, PhaseEntered, Window
from tfmon.model.lane_state import BUILDING, IMPORTING, RACING, LaneState
from tfmon.model.race import Machine, Race
from tfmon.model.readings import GpuSample, Missing, TreeSample
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes

SECOND = 1_000_000_000
NOT_TOLD = Missing("not told")
SAMPLE = GpuSample(
    at_ns=1, key="GPU-a", index=0, name="Board", busy_pct=5.0, busy_source="samples", used_bytes=900.0,
    total_bytes=NOT_TOLD, power_w=NOT_TOLD, power_limit_w=NOT_TOLD, temperature_c=NOT_TOLD,
)  # fmt: skip


def held(sample=SAMPLE, pids=(7, 8), *, alone=True, peak=None, before=None, **changes):
    sample = replace(sample, **changes)
    return used_bytes_of_lane(sample, pids, alone=alone, peak_bytes=peak, before_bytes=before)


class TestHeld:
    def test_what_the_driver_lists_for_the_lanes_processes(self):
        assert held(used_by_pid={7: 100, 8: 20, 9: 5_000}, peak=3) == (120.0, "driver")

    def test_in_a_container_the_only_process_with_the_hosts_number(self):
        inside = {"used_by_pid": {31_337: 500}, "foreign_pids": True}
        assert held(**inside) == (500.0, "only process")
        assert held(**inside, alone=False) == (HIDDEN, "")
        assert held(**{**inside, "foreign_pids": False}) == (NOT_LISTED, "")

    def test_in_a_container_one_of_several_processes_is_not_guessed(self):
        assert held(used_by_pid={31_337: 500, 31_338: 1}, foreign_pids=True) == (HIDDEN, "")

    @pytest.mark.parametrize("amount", [0, None])
    def test_own_numbers_without_an_amount_tell_nothing(self, amount):
        listed = {"used_by_pid": {7: amount}, "foreign_pids": True}
        assert held(**listed) == (HIDDEN, "")
        assert held(**listed, peak=300) == (300.0, "TensorFlow's allocator")

    def test_change_of_the_device_comes_last_and_only_for_a_lane_alone(self):
        assert held(before=250.0) == (650.0, "device change")
        assert held(before=250.0, peak=300) == (300.0, "TensorFlow's allocator")
        assert held(before=250.0, alone=False) == (NOT_LISTED, "")
        assert held(before=950.0) == (NOT_LISTED, "")

    def test_the_reason_is_the_drivers_own_where_it_has_one(self):
        assert held(no_processes_reason="this driver does not tell") == (Missing("this driver does not tell"), "")


class TestBusy:
    def test_sum_over_the_lanes_processes(self):
        sample = replace(SAMPLE, busy_by_pid={7: 30.0, 8: 0.0, 9: 60.0})
        assert busy_pct(sample, (7, 8), alone=True) == 30
        assert busy_pct(sample, (8,), alone=True) == 0
        assert busy_pct(sample, (1,), alone=True) == NO_SHARE

    def test_in_a_container(self):
        sample = replace(SAMPLE, busy_by_pid={31_337: 30.0}, foreign_pids=True)
        assert busy_pct(sample, (7,), alone=True) == 30
        assert busy_pct(sample, (7,), alone=False) == HIDDEN
        assert busy_pct(replace(sample, busy_by_pid={}), (7,), alone=True) == HIDDEN

    def test_not_told(self):
        assert busy_pct(replace(SAMPLE, busy_by_pid=NOT_TOLD), (7,), alone=True) == NOT_TOLD


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def phase(name: str, at_ns=1) -> PhaseEntered:
    return PhaseEntered(lane="gpu:0", at_ns=at_ns, phase=name)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def begin(clock):
    def begin(*devices: str) -> Session:
        session = Session(Machine(), clock)
        session.begin(Race(), name_lanes([LaneSpec(device) for device in devices]))
        return session

    return begin


def gpu_lane(session: Session) -> LaneState:
    return session.snapshot().lane("gpu:0")


class TestInASession:
    @pytest.fixture
    def session(self, begin):
        session = begin("cpu", "gpu:0")
        session.accept(LaneStarted(lane="gpu:0", at_ns=1, pid=7, settings={}))
        session.accept(TreeSample(lane="gpu:0", at_ns=1, cpu_pct=1.0, private_bytes=1.0, processes=1, pids=(7,)))
        return session

    def test_change_of_the_device_since_before_the_lane_opened_it(self, session):
        session.accept(phase(IMPORTING))
        session.accept(replace(SAMPLE, used_bytes=100.0))
        session.accept(replace(SAMPLE, used_bytes=180.0))  # the first one counts: importing may open the GPU
        session.accept(phase(BUILDING))
        session.accept(replace(SAMPLE, used_bytes=900.0))
        assert isinstance(gpu_lane(session).gpu_memory_used_bytes, Missing)
        session.accept(phase(RACING))
        session.accept(replace(SAMPLE, used_bytes=900.0))
        lane = gpu_lane(session)
        assert (lane.gpu_memory_used_bytes, lane.gpu_memory_source) == (800.0, "device change")

    def test_two_lanes_on_one_gpu_leave_it_unknown(self, begin):
        session = begin("gpu:0", "gpu:0")
        for lane in session.snapshot().lanes:
            session.accept(LaneStarted(lane=lane.spec.name, at_ns=1, pid=7, settings={}))
        session.accept(replace(SAMPLE, used_bytes=100.0))
        for lane in session.snapshot().lanes:
            session.accept(PhaseEntered(lane=lane.spec.name, at_ns=1, phase=RACING))
        session.accept(SAMPLE)
        assert {lane.gpu_memory_source for lane in session.snapshot().lanes} == {""}

    def test_share_of_the_gpus_time(self, session):
        session.accept(replace(SAMPLE, busy_by_pid={7: 35.0, 8: 20.0}))
        assert gpu_lane(session).gpu_lane_busy_pct == 35
        assert session.snapshot().lane("cpu").gpu_lane_busy_pct == Missing("no GPU in this lane")

    def test_an_instance_of_a_split_gpu_is_found_by_the_uuid_that_cuda_gives(self, session):
        whole = replace(SAMPLE, key="GPU-1")
        part = replace(SAMPLE, key="MIG-2", kind="mig", part_of="GPU-1")
        for sample in (whole, part):
            session.accept(sample)
        assert session.snapshot().gpu_of(gpu_lane(session)) == whole
        told = LibrariesLoaded(
            lane="gpu:0", at_ns=2, tensorflow="2", keras="3", numpy="2", device_name="Board", gpu_uuid="GPU-2"
        )
        session.accept(told)
        assert session.snapshot().gpu_of(gpu_lane(session)) == part

    def test_energy_of_1000_examples(self, session):
        session.accept(Built(lane="gpu:0", at_ns=2, parameters=1, examples=9, settings={}))
        session.accept(phase(RACING))
        assert isinstance(gpu_lane(session).gpu_j_per_1000_examples, Missing)
        for second in range(1, 12):
            at_ns = second * SECOND
            session.accept(
                Window(
                    lane="gpu:0",
                    at_ns=at_ns,
                    span_ns=SECOND,
                    steps=5,
                    examples=500,
                    step=5 * second,
                    input_ns=0,
                    call_ns=0,
                    sync_ns=0,
                    report_ns=0,
                    longest_ns=1,
                    histogram={1: 5},
                    loss=None,
                    settings={},
                )
            )
            session.accept(replace(SAMPLE, at_ns=at_ns, energy_j=200.0 * second))
        lane = gpu_lane(session)
        assert lane.gpu_training_w == pytest.approx(200)
        assert lane.gpu_j_per_1000_examples == pytest.approx(400)
        cpu = session.snapshot().lane("cpu")
        assert cpu.gpu_j_per_1000_examples == Missing("no GPU in this lane")
        session.set_mode("concurrent")
        assert isinstance(gpu_lane(session).gpu_j_per_1000_examples, Missing), "what was before is another thing"

    def test_a_sample_that_is_not_followed_by_others_grows_stale(self, session, clock):
        session.accept(replace(SAMPLE, at_ns=SECOND))
        clock.now_ns = 4 * SECOND
        assert session.snapshot().stale_s(session.snapshot().gpus[0]) is None
        clock.now_ns = 12 * SECOND
        snapshot = session.snapshot()
        assert snapshot.stale_s(snapshot.gpus[0]) == pytest.approx(11)
        assert snapshot.stale_s(replace(snapshot.gpus[0], every_s=5.0)) is None

"""Several machines in one session: whose samples, disturbances and GPUs are whose, and what a connection tells."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from support.events import SECOND, gpu_sample, window

from tfmon.model.events import HostConnected, HostConnecting, HostLost, LinkMeasured
from tfmon.model.gpu import ClockReason
from tfmon.model.hosts import GPU_THROTTLED, SWAPPING
from tfmon.model.lane_events import LibrariesLoaded, PhaseEntered
from tfmon.model.lane_state import RACING
from tfmon.model.race import TURNS, Machine, Race
from tfmon.model.readings import HostSample
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes

HERE, THERE = "cpu", "gpu2/gpu:0"


@pytest.fixture
def session():
    session = Session(Machine(cpu_name="this CPU", boot="a"), itertools.count(100).__next__)
    specs = [LaneSpec("cpu"), LaneSpec("gpu:0", host="gpu2"), LaneSpec("gpu:0", host="alias")]
    for host in ("gpu2", "alias"):
        machine = Machine(cpu_name="that CPU", boot="b", usable_cores=8)
        session.accept(HostConnected(at_ns=7, host=host, machine=machine))
    session.begin(Race(mode=TURNS), name_lanes(specs))
    for lane in session.snapshot().lanes:
        session.accept(PhaseEntered(lane=lane.spec.name, at_ns=8, phase=RACING))
    return session


def host_sample(at_ns: int, host: str, swapped: float = 0.0) -> HostSample:
    return HostSample(
        at_ns=at_ns, host=host, cpu_pct=1.0, memory_used_bytes=2.0, memory_total_bytes=3.0,
        swap_in_bytes_per_s=swapped,
    )  # fmt: skip


def test_each_lane_has_the_machine_and_the_samples_of_its_host(session):
    session.accept(host_sample(1, ""))
    session.accept(host_sample(2, "gpu2"))
    known = session.snapshot()
    here, there, _ = known.lanes
    assert [known.device_name(lane) for lane in (here, there)] == ["this CPU", ""]
    assert [known.machine_of(lane).usable_cores for lane in known.lanes] == [0, 8, 8]
    assert [sample and sample.at_ns for sample in (known.place_of(lane).sample for lane in known.lanes)] == [
        1,
        2,
        None,
    ]
    assert [known.machine_key(lane) for lane in known.lanes] == ["a", "b", "b"]
    assert (known.machines, known.machine.cpu_name) == (2, "this CPU")


def test_a_disturbance_counts_for_the_lanes_of_its_host_alone(session):
    for lane in (HERE, THERE):
        session.accept(window(lane=lane, at_ns=SECOND))
    for host in ("", "gpu2"):
        session.accept(host_sample(1, host))
    session.accept(host_sample(2 * SECOND, "gpu2", swapped=1e9))
    known = session.snapshot()
    assert [known.lane(lane).measurements.discarded for lane in (HERE, THERE)] == [{}, {SWAPPING: 1}]


def test_a_gpu_that_is_throttled_disturbs_no_lane_on_a_gpu_of_that_number_elsewhere(session):
    hot = (ClockReason("HW thermal slowdown", "alarm"),)
    session.accept(window(lane=THERE, at_ns=SECOND))
    for sample in (gpu_sample(at_ns=1), gpu_sample(at_ns=2 * SECOND, reasons=hot)):
        session.accept(sample)
    assert session.snapshot().lane(THERE).measurements.discarded == {}
    for sample in (gpu_sample(at_ns=1), gpu_sample(at_ns=2 * SECOND, reasons=hot)):
        session.accept(replace(sample, host="gpu2"))
    assert session.snapshot().lane(THERE).measurements.discarded == {GPU_THROTTLED: 1}


def test_two_names_of_one_machine_share_its_gpu(session):
    """GPU memory that only a GPU with one lane tells is nobody's where two names lead to it."""
    for lane in session.snapshot().lanes[1:]:
        session.accept(
            LibrariesLoaded(
                lane=lane.spec.name,
                at_ns=9,
                tensorflow="2",
                keras="3",
                numpy="2",
                device_name="A GPU",
                gpu_uuid="GPU-a",
            )
        )
    crowded = gpu_sample(host="gpu2", foreign_pids=True, used_by_pid={99: 2**30})
    session.accept(crowded)
    assert session.snapshot().lane(THERE).gpu_use.source == ""
    session.accept(PhaseEntered(lane="alias/gpu:0", at_ns=9, phase="failed"))
    session.accept(replace(crowded, at_ns=2))
    assert session.snapshot().lane(THERE).gpu_use.source == "only process"


def test_what_a_connection_tells_is_kept_until_it_is_made_again(session):
    link = LinkMeasured(at_ns=10, host="gpu2", round_trip_ns=800_000, offset_ns=-5, error_ns=400_000)
    session.accept(link)
    session.accept(HostLost(at_ns=20, host="gpu2", reason="gpu2 said nothing for 6 s"))
    lost = session.snapshot().hosts["gpu2"]
    assert (lost.link, lost.lost, lost.lost_ns, lost.machine.boot) == (link, "gpu2 said nothing for 6 s", 20, "b")
    session.accept(HostConnecting(at_ns=30, host="gpu2"))
    again = session.snapshot().hosts["gpu2"]
    assert (again.link, again.lost, again.connected_ns) == (None, "", None)
    session.accept(HostConnected(at_ns=40, host="gpu2", machine=Machine(boot="c")))
    assert session.snapshot().hosts["gpu2"].connected_ns == 40
    assert session.snapshot().machines == 3


def test_slices_of_several_machines_run_at_once(session):
    session.grant_slice(HERE)
    session.grant_slice(THERE, beside=(HERE,))
    assert session.snapshot().race.training == (THERE, HERE)
    session.grant_slice("", beside=(THERE,))
    assert session.snapshot().race.training == (THERE,)
    session.grant_slice("")
    assert session.snapshot().race.training == ()

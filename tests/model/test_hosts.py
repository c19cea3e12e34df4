"""Several machines in one session: their samples, disturbances and GPUs, and the state of a connection."""

import itertools
from dataclasses import replace

import pytest
from support.events import gpu_sample

from tfmon.model.events import HostConnected, HostConnecting, HostLost, LinkMeasured
from tfmon.model.lane_events import LibrariesLoaded, PhaseEntered
from tfmon.model.lane_state import RACING
from tfmon.model.race import TURNS, Machine, Race
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes

THERE = "gpu2/gpu:0"


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


def test_two_names_of_one_machine_share_its_gpu(session):
    """GPU memory that is known only for a GPU with one lane is unknown if two hosts are the same machine."""
    for lane in session.snapshot().lanes[1:]:
        versions = {"tensorflow": "2", "keras": "3", "numpy": "2", "device_name": "A GPU", "gpu_uuid": "GPU-a"}
        session.accept(LibrariesLoaded(lane=lane.spec.name, at_ns=9, **versions))
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

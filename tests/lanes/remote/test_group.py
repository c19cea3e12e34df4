"""Lanes of a race on this machine and on hosts: who trains when, and the loss of a host."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.hosts import FakeSsh
from support.lanes import RacingGroup
from support.waiting import PATIENCE_S, wait_for

from tfmon.errors import TfmonError
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import RacePlan
from tfmon.model.events import HostConnected, SliceGranted
from tfmon.model.lane_state import DONE, FAILED, HOST_LOST, RACING
from tfmon.model.race import TURNS

pytestmark = pytest.mark.process


class SpreadGroup(RacingGroup):
    """A group of fake trainers on this machine and on hosts."""

    def __init__(self, logs, ssh: FakeSsh, *hosts: str) -> None:
        super().__init__(logs)
        self.links = {host: ssh.link(host) for host in hosts}
        for link in self.links.values():
            link.listener = self.session.accept
            link.ensure()
        self._place_of = self.links.__getitem__

    def plan(self, *lanes: str, **more) -> RacePlan:
        found = super().plan(*lanes, **more)
        logged = [replace(lane, environment={"LOG": self.log_of(lane)}) for lane in found.lanes]
        return replace(found, lanes=tuple(logged))

    def log_of(self, lane) -> str:
        return str(self.logs / lane.spec.name.replace("/", "-"))


@pytest.fixture
def spread(tmp_path, ssh) -> Iterator[SpreadGroup]:
    group = SpreadGroup(tmp_path, ssh, "gpu2", "gpu3")
    yield group
    group.stop()


def test_lanes_here_and_there_race_in_turns_and_end(spread):
    granted = []
    spread.session.listen(lambda event: granted.append(event) if isinstance(event, SliceGranted) else None)
    spread.begin(spread.plan("cpu", "gpu2/cpu", "gpu3/cpu", mode=TURNS))
    for name in ("cpu", "gpu2/cpu", "gpu3/cpu"):
        spread.wait_for_steps(name, 30)
    two = {"gpu2/cpu", "gpu3/cpu"}
    assert granted and not any(two <= {event.lane, *event.beside} for event in granted), "two names of one machine"
    slices = [len(lane.slices) for lane in spread.session.snapshot().lanes]
    assert max(slices) - min(slices) <= 2, "each round has a slice of every lane"
    spread.set_knob("gpu2/cpu", "prefetch", "auto")
    wait_for(lambda: spread.lane("gpu2/cpu").settings["prefetch"] == "auto", what="the knob is in effect there")
    spread.set_knob("gpu3/cpu", "width", 64)
    wait_for(lambda: spread.lane("gpu3/cpu").settings["width"] == 64, what="restarted there")
    spread.wait_for(RACING, "gpu3/cpu")
    spread.finish()
    spread.wait_for(DONE, "cpu", "gpu2/cpu", "gpu3/cpu")
    wait_for(lambda: spread.all_over, what="all have ended")


def test_a_lost_host_fails_its_lanes_only_and_r_connects_again(spread):
    names = ("cpu", "gpu2/cpu", "gpu3/cpu")
    spread.begin(spread.plan(*names, mode=TURNS))
    for name in names:
        spread.wait_for_steps(name, 20)
    measured = spread.lane("gpu2/cpu").totals.steps
    spread.links["gpu2"].agent.kill()
    spread.wait_for(FAILED, "gpu2/cpu")
    lost = spread.lane("gpu2/cpu")
    assert lost.trouble.kind == HOST_LOST and "gpu2 is lost" in lost.trouble.message
    assert lost.totals.steps >= measured > 0, "what was measured stays"
    spread.wait_for_steps("cpu", 20)
    spread.wait_for_steps("gpu3/cpu", 20)
    spread.restart(["gpu2/cpu"])
    wait_for(lambda: spread.lane("gpu2/cpu").phase == RACING, what="it races again")
    spread.wait_for_steps("gpu2/cpu", 5)
    assert isinstance(spread, LaneGroup) and not spread.links["gpu2"].lost


@pytest.fixture
def apart(tmp_path, ssh) -> Iterator[SpreadGroup]:
    """Lanes here and on two hosts, which count as separate machines."""
    apart = SpreadGroup(tmp_path, ssh, "gpu2", "gpu3")
    for host, link in apart.links.items():
        apart.session.accept(HostConnected(at_ns=1, host=host, machine=replace(link.machine, boot=host)))
    yield apart
    apart.stop()


def test_lanes_of_two_machines_train_at_the_same_time_round_by_round(apart):
    granted = []
    apart.session.listen(lambda event: granted.append(event) if isinstance(event, SliceGranted) else None)
    apart.begin(apart.plan("gpu2/cpu", "gpu3/cpu", mode=TURNS))
    for name in ("gpu2/cpu", "gpu3/cpu"):
        apart.wait_for_steps(name, 100)
    assert any(event.lane and event.beside for event in granted)
    rounds = [{part.round for part in lane.slices} for lane in apart.session.snapshot().lanes]
    assert len(rounds[0] ^ rounds[1]) <= 2


def test_while_a_host_is_connected_to_again_the_others_train_and_a_host_that_stays_away_says_why(apart):
    names = ("cpu", "gpu2/cpu", "gpu3/cpu")
    apart.begin(apart.plan(*names, mode=TURNS))
    for name in names:
        apart.wait_for_steps(name, 20)
    link, tried, answer = apart.links["gpu2"], threading.Event(), threading.Event()
    link.agent.kill()
    apart.wait_for(FAILED, "gpu2/cpu")
    before = apart.lane("gpu2/cpu").totals.steps

    def open_again() -> None:
        tried.set()
        answer.wait(PATIENCE_S)
        raise TfmonError("gpu2 cannot be reached: no route to host", "look at the cable")

    link._open = open_again
    apart.restart(["gpu2/cpu"])
    wait_for(tried.is_set, what="it is tried")
    apart.wait_for_steps("cpu", 20)
    apart.wait_for_steps("gpu3/cpu", 20)
    answer.set()
    wait_for(lambda: "no route" in apart.lane("gpu2/cpu").trouble.message, what="the reason is told")
    away = apart.lane("gpu2/cpu")
    assert (away.phase, away.trouble.kind, away.trouble.hint) == (FAILED, HOST_LOST, "look at the cable")
    assert away.totals.steps >= before, "what was measured stays"
    assert apart.session.snapshot().hosts["gpu2"].lost == "gpu2 cannot be reached: no route to host"
    apart.wait_for_steps("cpu", 20)

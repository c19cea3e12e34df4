"""Lanes of a race on this machine and on hosts: who trains when, and the loss of a host."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.hosts import FakeSsh
from support.lanes import RacingGroup
from support.waiting import PATIENCE_S, wait_for

from tfmon.errors import TfmonError
from tfmon.model.events import HostConnected, SliceGranted
from tfmon.model.lane_events import RACING
from tfmon.model.lane_state import DONE, FAILED, HOST_LOST
from tfmon.model.race import TURNS

pytestmark = pytest.mark.process


class SpreadGroup(RacingGroup):
    def __init__(self, logs, ssh: FakeSsh, *hosts: str) -> None:
        super().__init__(logs)
        self.granted: list[SliceGranted] = []
        self.session.listen(lambda event: self.granted.append(event) if isinstance(event, SliceGranted) else None)
        self.links = {host: ssh.link(host) for host in hosts}
        for link in self.links.values():
            link.listener = self.session.accept
            link.ensure()
        self._places = self.links


@pytest.fixture
def spread(tmp_path, ssh) -> Iterator[SpreadGroup]:
    group = SpreadGroup(tmp_path, ssh, "gpu2", "gpu3")
    yield group
    group.stop()


def test_lanes_here_and_there_race_in_turns_and_end(spread):
    spread.begin(spread.plan("cpu", "gpu2/cpu", "gpu3/cpu", mode=TURNS))
    for name in ("cpu", "gpu2/cpu", "gpu3/cpu"):
        spread.wait_for_steps(name, 30)
    two = {"gpu2/cpu", "gpu3/cpu"}
    granted = spread.granted
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


def test_a_lost_host_fails_its_lanes_only_says_why_it_stays_away_and_is_connected_again(spread):
    for host, link in spread.links.items():  # as separate machines
        spread.session.accept(HostConnected(at_ns=1, host=host, machine=replace(link.machine, boot=host)))
    names = ("cpu", "gpu2/cpu", "gpu3/cpu")
    spread.begin(spread.plan(*names, mode=TURNS))
    for name in names:
        spread.wait_for_steps(name, 20)
    assert any(event.lane and event.beside for event in spread.granted), "two machines train at the same time"
    link, tried, answer = spread.links["gpu2"], threading.Event(), threading.Event()
    link.agent.kill()
    spread.wait_for(FAILED, "gpu2/cpu")
    lost, before = spread.lane("gpu2/cpu").trouble, spread.lane("gpu2/cpu").totals.steps
    assert lost.kind == HOST_LOST and "gpu2 is lost" in lost.message

    def open_again() -> None:
        tried.set()
        answer.wait(PATIENCE_S)
        raise TfmonError("gpu2 cannot be reached: no route to host", "look at the cable")

    own, link._open = link._open, open_again
    spread.restart(["gpu2/cpu"])
    wait_for(tried.is_set, what="it is tried")
    spread.wait_for_steps("cpu", 20)
    spread.wait_for_steps("gpu3/cpu", 20)
    answer.set()
    wait_for(lambda: "no route" in spread.lane("gpu2/cpu").trouble.message, what="the reason is told")
    away = spread.lane("gpu2/cpu")
    assert (away.phase, away.trouble.kind, away.trouble.hint) == (FAILED, HOST_LOST, "look at the cable")
    assert away.totals.steps >= before > 0, "what was measured stays"
    assert spread.session.snapshot().hosts["gpu2"].lost == "gpu2 cannot be reached: no route to host"
    spread.wait_for_steps("cpu", 20)
    link._open = own
    spread.restart(["gpu2/cpu"])
    spread.wait_for(RACING, "gpu2/cpu")
    spread.wait_for_steps("gpu2/cpu", 5)
    assert not link.lost

"""Lanes of hosts in one group: who trains when, and what waits for a host that stays away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.waiting import PATIENCE_S, wait_for

from tfmon.errors import TfmonError
from tfmon.model.events import HostConnected, SliceGranted
from tfmon.model.lane_state import FAILED, HOST_LOST
from tfmon.model.race import TURNS

from .test_group import SpreadGroup

pytestmark = pytest.mark.process


@pytest.fixture
def group(tmp_path, ssh) -> Iterator[SpreadGroup]:
    """Lanes here and on two hosts, which count as machines of their own."""
    group = SpreadGroup(tmp_path, ssh, "gpu2", "gpu3")
    for host, link in group.links.items():
        group.session.accept(HostConnected(at_ns=1, host=host, machine=replace(link.machine, boot=host)))
    yield group
    group.stop()


def test_lanes_of_two_machines_train_at_the_same_time_round_by_round(group):
    granted = []
    group.session.listen(lambda event: granted.append(event) if isinstance(event, SliceGranted) else None)
    group.begin(group.plan("gpu2/cpu", "gpu3/cpu", mode=TURNS))
    for name in ("gpu2/cpu", "gpu3/cpu"):
        group.wait_for_steps(name, 100)
    assert any(event.lane and event.beside for event in granted)
    rounds = [{one.round for one in lane.slices} for lane in group.session.snapshot().lanes]
    assert len(rounds[0] ^ rounds[1]) <= 2


def test_while_a_host_is_connected_to_again_the_others_train_and_a_host_that_stays_away_says_why(group):
    names = ("cpu", "gpu2/cpu", "gpu3/cpu")
    group.begin(group.plan(*names, mode=TURNS))
    for name in names:
        group.wait_for_steps(name, 20)
    link, tried, answer = group.links["gpu2"], threading.Event(), threading.Event()
    link.agent.kill()
    group.wait_for(FAILED, "gpu2/cpu")
    before = group.lane("gpu2/cpu").steps

    def ensure() -> None:
        tried.set()
        answer.wait(PATIENCE_S)
        raise TfmonError("gpu2 cannot be reached: no route to host", "look at the cable")

    link.ensure = ensure
    group.restart(["gpu2/cpu"])
    wait_for(tried.is_set, what="it is tried")
    group.wait_for_steps("cpu", 20)
    group.wait_for_steps("gpu3/cpu", 20)
    answer.set()
    wait_for(lambda: "no route" in group.lane("gpu2/cpu").trouble.message, what="the reason is told")
    away = group.lane("gpu2/cpu")
    assert (away.phase, away.trouble.kind, away.trouble.hint) == (FAILED, HOST_LOST, "look at the cable")
    assert away.steps >= before, "what was measured stays"
    assert group.session.snapshot().hosts["gpu2"].lost == "gpu2 cannot be reached: no route to host"
    group.wait_for_steps("cpu", 20)

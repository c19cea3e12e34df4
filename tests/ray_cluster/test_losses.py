"""What dies in a Ray cluster, and what dies with it: children that listen, that defy signals, suspended ones."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
from support.hosts import MONITOR, all_gone, read_pids, start_all_kinds
from support.processes import gone
from support.waiting import wait_for

from tfmon.errors import TfmonError
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.requests import Stop

from .clusters import Nodes

pytestmark = [pytest.mark.ray, pytest.mark.process]

LATE_S = 30.0
"""Additional time on a busy machine. Ray itself notices a silent node after 65 s."""
TOLD_S = 6.0
GONE_S = 12.0 + LATE_S


def test_a_node_that_is_killed_fails_its_lanes_only_and_leaves_nothing(cluster):
    address = cluster.add()
    there, here = cluster.connect(f"ray:{address}"), cluster.connect(f"ray:{cluster.head}")
    children, other = start_all_kinds(there), here.start("a_beat")
    other.wait_for_phase("listening")
    processes = cluster.kill(address)
    told = there.wait_for_loss(TOLD_S + LATE_S)
    assert told.reason == f"{address} is no longer in the cluster"
    failures = [child.failure for child in children]
    assert {(failed.kind, failed.message) for failed in failures} == {(HOST_LOST, told.reason)}
    assert {failed.hint for failed in failures} == {"a new race finds another"}, "no key can help"
    wait_for(
        lambda: all_gone(children, *(process.pid for process in processes)), GONE_S, "all of the node is gone"
    )
    assert not here.lost and other.process.send(Stop())
    other.wait_for_phase("heard")
    cluster.forget(address)
    wait_for(lambda: address not in [node.address for node in cluster.ray.nodes()], 30, "Ray knows of it")
    with pytest.raises(TfmonError, match="the node of this lane is no longer in the cluster"):
        there.ensure()


def test_a_node_that_is_stopped_is_told_within_six_seconds_and_ends_its_lanes_when_it_goes_on(cluster):
    address = cluster.add()
    link = cluster.connect(f"ray:{address}")
    children, agent = start_all_kinds(link), link.agent
    there = cluster.processes(address)
    began = time.monotonic()
    try:
        cluster.signal(there, signal.SIGSTOP)
        wait_for(lambda: link.lost, TOLD_S + LATE_S, "the loss is told")
        assert time.monotonic() - began > 4
        assert link.wait_for_loss().reason == "nothing was received for 5 s"
        assert not gone(agent.pid), "it is stopped"
    finally:
        cluster.signal(there, signal.SIGCONT)
    wait_for(lambda: all_gone(children, agent.pid), GONE_S, "all are gone")
    cluster.forget(address)


@pytest.mark.parametrize("dies", ["bridge", "agent", "Ray's process"])
def test_what_carries_a_lane_dies_and_the_lane_with_it_and_r_connects_again_to_the_same_node(cluster, dies):
    link = cluster.connect("ray")
    children, agent, node = start_all_kinds(link), link.agent, link.host.ray.node
    if dies == "bridge":
        os.kill(link._wire.popen.pid, signal.SIGKILL)
    elif dies == "agent":
        agent.kill()
    else:
        (worker,) = [parent for parent in agent.parents() if parent.name().startswith("ray::")]
        worker.kill()
    link.wait_for_loss(TOLD_S + LATE_S)
    said = {child.failure.message for child in children}
    if dies == "Ray's process":
        assert all(one.startswith("Ray lost its process on ") for one in said), "the host is there"
    assert {child.failure.hint for child in children} == {""}, "r helps"
    wait_for(lambda: all_gone(children, agent.pid), GONE_S, "all are gone")
    link.ensure()
    assert not link.lost and link.host.ray.node == node
    link.start("a_beat").wait_for_phase("listening")


def test_a_lane_never_goes_on_with_another_gpu(cluster):
    link, other = cluster.connect("ray:H100", gpus=1), cluster.connect("ray:H100:2", gpus=1)
    before, taken = link.host, other.host.ray.visible
    os.kill(link._wire.popen.pid, signal.SIGKILL)
    link.wait_for_loss()
    link.host = replace(before, ray=replace(before.ray, visible=taken))
    with pytest.raises(TfmonError, match=r"Ray gives another GPU of .* than before"):
        link.ensure()
    link.host = before
    link.ensure()
    assert link.host.ray.visible == before.ray.visible != taken


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_monitor_that_is_killed_leaves_nothing_on_the_node_and_prints_no_word_of_rays(cluster, how):
    address = cluster.add()
    before = {process.pid for process in cluster.processes(address)}
    command = [sys.executable, str(MONITOR), "kinds", f"ray:{address}"]
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as monitor:
        pids = read_pids(monitor)
        assert len(pids) > 4, monitor.stderr.read()
        monitor.send_signal(how)
        out, err = monitor.communicate()
        assert (out, err) == ("", "")
    wait_for(lambda: all(map(gone, pids)), GONE_S, "the lanes are gone")

    def others() -> list[psutil.Process]:
        names = ("ray::IDLE", "ray::Dashboard", "ray::RuntimeEnv")
        new = [process for process in cluster.processes(address) if process.pid not in before]
        return [one for one in new if not gone(one.pid) and not one.name().startswith(names)]

    wait_for(lambda: not others(), GONE_S, "nothing of it is left on the node")
    cluster.forget(address)


def test_a_head_that_is_killed_is_named_and_nothing_is_left_and_a_sweep_keeps_what_it_has(cluster, tmp_path):
    """Ray itself notices after a minute."""
    own, file = Nodes(), tmp_path / "night.sweep"
    try:
        link = own.connect(f"ray:{own.add()}")
        children, agent = start_all_kinds(link), link.agent
        with own.sweep(file, f"ray:{own.head}/cpu", long=True) as sweep:
            wait_for(lambda: file.exists() and b"PairMeasured" in file.read_bytes(), 60, "something is measured")
            own.kill_head()
            told = link.wait_for_loss(TOLD_S + LATE_S)
            assert told.reason == f"the head of the Ray cluster, {own.address}, is gone"
            assert all(child.failure.kind == HOST_LOST for child in children)
            wait_for(lambda: all_gone(children, agent.pid), GONE_S - TOLD_S, "all are gone")
            out, err = sweep.communicate(timeout=60)
        assert sweep.returncode == 1, err
        assert f"tfmon: ray:{own.head}/cpu is not used any more: no Ray cluster answers at {own.address}" in err
        found = json.loads(out)
        assert f"no Ray cluster answers at {own.address}" in found["interrupted"]
        assert sum(one["pairs"] for one in found["combinations"]) == file.read_text().count("PairMeasured") > 0
    finally:
        own.end()

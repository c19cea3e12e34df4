"""Lanes on the nodes of a Ray cluster: their nodes, their environment, and races over them."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner
from lanes.remote.test_group import SpreadGroup
from support.lanes import CHILDREN
from support.nvml import BUSY, IDLE
from support.waiting import wait_for

from tfmon.cli.main import cli
from tfmon.errors import TfmonError
from tfmon.lanes.remote import questions
from tfmon.model.events import HostConnected, SliceGranted
from tfmon.model.lane_events import Hello
from tfmon.model.lane_state import DONE
from tfmon.model.race import TURNS

from .clusters import FAKE_TFMON

pytestmark = [pytest.mark.ray, pytest.mark.process]


def look(link, **environment: str | None) -> dict[str, object]:
    """Return the environment of a child there, after its hello."""
    child = link.start("a_look_around", **environment)

    def hellos() -> list[Hello]:
        return [event for event in child.events if isinstance(event, Hello)]

    wait_for(lambda: child.printed and hellos(), what="its surroundings and its hello, which take two ways")
    (hello,) = hellos()
    return {**json.loads(child.printed[0]), "unlike": hello.unlike}


def look_here(**environment: str) -> dict[str, object]:
    read, write = os.pipe()
    script = str(CHILDREN / "speaker.py")
    variables = {**os.environ, "SAYS": "a_look_around", **environment}
    command = [sys.executable, script, str(write), str(read)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(read, write), env=variables) as child:
        found = json.loads(child.stdout.readline())
        child.kill()
    return found


@pytest.mark.parametrize("threads", [None, "3"])
def test_a_lane_has_the_surroundings_of_one_that_is_started_here(cluster, monkeypatch, threads):
    """Ray's processes have a nice value of 15 and OMP_NUM_THREADS=1."""
    if threads:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    link = cluster.connect(f"ray:{cluster.last}")
    found = look(link, CUDA_VISIBLE_DEVICES="-1")
    here = look_here(CUDA_VISIBLE_DEVICES="-1")
    assert found.pop("unlike") == ()
    assert found.pop("rays") == [] != here.pop("rays"), "Ray's own are for its processes alone"
    assert found == here
    assert found["OMP_NUM_THREADS"] == threads
    link.host = replace(link.host, ray=replace(link.host.ray, nice=-3))
    assert look(link, CUDA_VISIBLE_DEVICES="-1")["unlike"] == ("nice value 0 in place of -3",)


def test_lanes_of_one_name_share_a_node_and_its_gpus_which_no_other_lane_gets(cluster):
    first = cluster.connect("ray:H100", gpus=1)
    second = cluster.connect("ray:h100:2", gpus=1)
    assert first.host.ray.node == second.host.ray.node != ""
    assert sorted([first.host.ray.visible, second.host.ray.visible]) == ["0", "1"]
    (gpu,), (other,) = (link.ask(questions.gpus)[0].gpus for link in (first, second))
    assert {gpu.uuid, other.uuid} == {BUSY.uuid, IDLE.uuid} and (gpu.index, other.index) == (0, 0)
    assert cluster.ray.workers("ray:H100/gpu") == 0
    with pytest.raises(TfmonError, match=r"no node has a free GPU now: after 1 s of waiting 0 of 2 GPUs are free"):
        cluster.connect("ray:H100:3", gpus=1, wait_s=1.0)
    first.close()
    wait_for(lambda: cluster.ray.workers("ray:H100/gpu") == 1, what="its GPU is free again")


def test_a_token_or_a_version_that_does_not_fit_has_its_line(cluster, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", "0" * 64)
        with pytest.raises(TfmonError) as refused:
            cluster.ray.nodes()
        assert "RAY_AUTH_TOKEN_PATH=FILE" in refused.value.hint
    (tmp_path / "sitecustomize.py").write_text("import ray\nray.__version__ = '1.0.0'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(TfmonError, match=r"runs Ray 2\.\S+ with Python \S+; this is Ray 1\.0\.0 with Python 3"):
        cluster.connect("ray")


def test_the_nodes_are_listed_with_what_is_free(cluster):
    wait_for(
        lambda: sum(node.free_cpus for node in cluster.ray.nodes()) == 4,
        what="what the tests before had is free again",
    )
    found = CliRunner().invoke(cli, ["hosts", "--ray", cluster.address, "--json"])
    assert found.exit_code == 0, found.output
    head, other = json.loads(found.stdout)["nodes"]
    assert (head["address"], head["cpus"], head["free_cpus"], head["gpus"]) == (cluster.head, 2, 2, 0)
    assert (other["address"], other["gpus"], other["free_gpus"], other["kinds"]) == (cluster.last, 2, 2, ["H100"])
    text = CliRunner().invoke(cli, ["hosts", "--ray", cluster.address]).stdout
    assert "2 of 2 free" in text and "H100" in text


@pytest.mark.parametrize("separate", [False, True])
def test_a_race_over_both_nodes_takes_turns_on_one_machine_and_runs_at_once_on_two(cluster, tmp_path, separate):
    group = SpreadGroup(tmp_path, cluster, "ray", "ray:2")
    for host, link in group.links.items() if separate else ():
        group.session.accept(HostConnected(at_ns=1, host=host, machine=replace(link.machine, boot=host)))
    granted = []
    group.session.listen(lambda event: granted.append(event) if isinstance(event, SliceGranted) else None)
    names = ("ray/cpu", "ray:2/cpu")
    try:
        assert len({link.host.ray.node for link in group.links.values()}) == 2, "Ray spreads them"
        group.begin(group.plan(*names, mode=TURNS))
        for name in names:
            group.wait_for_steps(name, 60)
        rounds = [{part.round for part in lane.slices} for lane in group.session.snapshot().lanes]
        assert len(rounds[0] ^ rounds[1]) <= 2
        assert any(event.lane and event.beside for event in granted) is separate
        group.set_knob("ray:2/cpu", "prefetch", "auto")
        wait_for(
            lambda: group.lane("ray:2/cpu").settings["prefetch"] == "auto", what="the knob is in effect there"
        )
        group.finish()
        group.wait_for(DONE, *names)
    finally:
        group.stop()


def test_a_race_of_the_whole_program_prints_its_result_and_no_word_of_rays(cluster):
    lanes = ["--lane", "cpu", "--lane", f"ray:{cluster.head}/cpu", "--lane", "ray:H100/gpu"]
    command = [sys.executable, str(FAKE_TFMON), "race", "small-dense", *lanes, "--ray", cluster.address]
    words = [*command, "--seconds", "3", "--no-record", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert [lane["host"] for lane in told["lanes"]] == ["", f"ray:{cluster.head}", "ray:H100"]
    assert all(lane["steps"] and not lane["disturbed_by"] for lane in told["lanes"])
    assert told["lanes"][2]["device_name"] in ("NVIDIA Busy", "NVIDIA Idle")
    assert told["hosts"]["ray:H100"]["machine"]["nice"] == told["machine"]["nice"]

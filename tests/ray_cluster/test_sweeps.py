"""Sweeps on the nodes of a Ray cluster: a worker for each that is free, and what goes on when a node dies."""

import json

import pytest
from support.waiting import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.process]


@pytest.mark.parametrize(("places", "devices"), [("ray/cpu", 1), ("ray:H100/gpu*2", 2)])
def test_a_sweep_has_a_worker_for_each_node_or_gpu_and_finds_the_best(cluster, tmp_path, places, devices):
    with cluster.sweep(tmp_path / "night.sweep", places) as sweep:
        out, err = sweep.communicate(timeout=240)
    assert sweep.returncode == 0, err
    assert [line.endswith(", measured") for line in err.splitlines()] == [True] * 3, err
    found = json.loads(out)
    assert len(found["places"]) == 2
    assert len({one["device_name"] for one in found["places"]}) == devices, "no GPU is given twice"
    assert [one["settings"]["batch_size"] for one in found["combinations"]] == [64, 128, 16]


def test_what_a_node_that_is_killed_was_measuring_is_measured_on_another(cluster, tmp_path):
    address, file = cluster.add(), tmp_path / "night.sweep"
    there = f"ray:{address}/cpu"
    sizes = "8,16,32,64,128,256,512,1000"
    with cluster.sweep(file, f"{there},ray:{cluster.head}/cpu", sizes=sizes) as sweep:

        def measures_there() -> bool:
            """Return whether its first combination is under way: most are left when the node is tried again."""
            lines = (file.read_text() if file.exists() else "").split("\n")[:-1]
            events = [json.loads(line) for line in lines]
            begun = next((event["number"] for event in events if event.get("place") == there), None)
            visit = [event["type"] for event in events if begun is not None and event.get("number") == begun]
            return "PairMeasured" in visit and "VisitEnded" not in visit

        wait_for(measures_there, 60, "it measures on the node")
        cluster.kill(address)
        out, err = sweep.communicate(timeout=240)
    cluster.forget(address)
    found = json.loads(out)
    assert sweep.returncode == 1, err
    assert f"tfmon: {there} is not used any more: the node of this lane is no longer in the cluster\n" in err
    assert list(found["lost_places"]) == [there] and found["settled"] == 8
    assert [one["settings"]["batch_size"] for one in found["combinations"]][:3] == [64, 128, 16]

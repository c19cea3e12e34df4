"""What differs between the machines of a race, and when that is no explanation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import gpu_sample

from tfmon.analysis.verdict_notes import machine_differences
from tfmon.model.hosts import HostState
from tfmon.model.lane_state import LaneState
from tfmon.model.race import Machine, Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import name_lanes, parse_lane

HERE = Machine(
    cores=8, boot="a", nice=0, driver="550", tensorflow="2.20.0", gpus=("H100",), power_limits_w=(700.0,)
)


def told(*lanes: str, model: str = "H100", tensorflow: str = "", **there: object) -> list[str]:
    """Return what is said to differ between this machine and a host that differs in these facts."""
    states = [LaneState(spec) for spec in name_lanes([parse_lane(text, ()) for text in lanes])]
    states = [
        replace(one, versions={**one.versions, "tensorflow": tensorflow}) if one.spec.host else one
        for one in states
    ]
    states = [replace(one, device_name=model if one.spec.host else "H100") for one in states]
    hosts = {"": HostState(HERE), "gpu2": HostState(replace(HERE, **{"boot": "b", **there}))}
    return [one.text for one in machine_differences(Snapshot(0, Race(), tuple(states), hosts), states)]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"cores": 32}, "cores: 8 here, 32 on gpu2"),
        ({"quota_cores": 2.5}, "quota: none here, 2.5 cores on gpu2"),
        ({"nice": 15}, "nice: 0 here, 15 on gpu2"),
        ({"driver": "535"}, "driver: 550 here, 535 on gpu2"),
        ({"power_limits_w": (350.0,)}, "power limit: 700 W here, 350 W on gpu2"),
    ],
)
def test_each_fact_that_may_explain_a_ratio_is_told(facts, line):
    assert told("gpu", "gpu2/gpu", **facts) == [line]
    assert told("gpu", "gpu2/gpu", **{"boot": "a", **facts}) == [], "two names of one machine differ in nothing"
    assert told("gpu", "gpu2/gpu") == []


def test_the_tensorflow_that_a_lane_loaded_counts_before_the_installed_one():
    assert told("cpu", "gpu2/cpu", tensorflow="2.17.0") == ["TensorFlow: 2.20.0 here, 2.17.0 on gpu2"]


def test_what_comes_with_another_device_is_no_difference_of_its_own():
    facts = {"driver": "535", "power_limits_w": (350.0,)}
    assert told("cpu", "gpu2/gpu", **facts) == [], "one lane has no driver"
    assert told("gpu", "gpu2/gpu", model="L4", power_limits_w=(72.0,)) == [], "another model has another limit"


@pytest.mark.parametrize("facts", [{"cores": 0}, {"nice": None}, {"driver": ""}, {"power_limits_w": ()}])
def test_what_is_not_known_of_a_machine_does_not_differ(facts):
    assert [line for line in told("gpu", "gpu2/gpu", **facts) if not line.startswith("quota")] == []


def test_the_limit_that_is_read_now_counts_before_the_one_at_the_start():
    states = [LaneState(spec) for spec in name_lanes([parse_lane(text, ()) for text in ("gpu", "gpu2/gpu")])]
    there = HostState(replace(HERE, boot="b"), gpus=(gpu_sample(host="gpu2", power_limit_w=300.0),))
    here = HostState(HERE, gpus=(gpu_sample(power_limit_w=700.0),))
    known = Snapshot(0, Race(), tuple(states), {"": here, "gpu2": there})
    assert [one.text for one in machine_differences(known, states)] == ["power limit: 700 W here, 300 W on gpu2"]


def test_the_limit_of_the_first_gpu_is_not_taken_for_that_of_an_instance():
    assert told("MIG-1111", "gpu2/MIG-1111", power_limits_w=(350.0,)) == []

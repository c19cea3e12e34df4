"""`tfmon verify`: confirmed claims, refuted claims, and claims that this machine cannot test."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfmon.api import verification
from tfmon.api.program import Program
from tfmon.catalog import find_scenario
from tfmon.errors import DeviceAbsentError
from tfmon.model.race import Claim
from tfmon.model.readings import SPENDING

SCENARIO = '''"""Claims about one net."""
import numpy as np, tensorflow as tf
from tfmon.trainer import Claim, Scenario

class Three(Scenario):
    claims = (
        Claim(id="graph-wins", source="a test", says="a graph is faster", first="cpu", second="cpu,graph=off"),
        Claim(id="cpu-wins", source="a test", says="the CPU is faster", first="cpu", second="gpu:63", needs="gpu"),
        Claim(id="wrong", source="a test", says="the earth is flat", corrected="it is round"),
    )
    def data(self):
        return np.ones((64, 8), "float32"), np.zeros(64, "int64")
    def model(self):
        model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(2, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
        return model
'''


@pytest.fixture
def three(tmp_path) -> str:
    path = tmp_path / "three.py"
    path.write_text(SCENARIO)
    return str(path)


def test_a_claim_that_cannot_be_raced_says_why_and_a_corrected_one_is_not_raced(tfmon, three, monkeypatch):
    def plan(self, info, options):
        raise DeviceAbsentError(f"{options.lanes[1]} is not there")

    monkeypatch.setattr(Program, "plan", plan)
    done = tfmon("verify", three, "--json")
    assert done.code == 0, done.err
    claims = {claim["id"]: claim for claim in json.loads(done.out)["claims"]}
    for id, lane in (("graph-wins", "cpu,graph=off"), ("cpu-wins", "gpu:63")):
        told = claims[id]
        assert (told["outcome"], told["ratio"], told["interval_kind"]) == ("not testable here", None, None)
        assert told["reason"] == f"{lane} is not there"
    assert (claims["wrong"]["outcome"], claims["wrong"]["reason"]) == ("corrected", "it is round")


def test_a_signal_ends_the_verification_and_drops_the_claim_that_was_measured(tfmon, three, monkeypatch):
    monkeypatch.setattr(verification, "run_until_over", lambda run: "interrupted by SIGINT")
    done = tfmon("verify", three)
    assert done.code == 130
    assert done.out == "no claim was measured\ninterrupted by SIGINT\n"


@pytest.mark.process
@pytest.mark.usefixtures("scripted")
def test_each_claim_gets_its_outcome_from_a_race_and_one_whose_lane_fails_is_not_testable(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTER", "graph=False:0.5")
    monkeypatch.setenv("DIES", "prefetch=3")
    path = tmp_path / "three.py"
    path.write_text(SCENARIO)
    info, slower = find_scenario(str(path)), "cpu,graph=off"
    claims = (
        Claim("supported", first="cpu", second=slower, at_least=1.2),
        Claim("not testable here", first="cpu", second="cpu,prefetch=3"),
        Claim("contradicted", first="cpu", second=slower, at_least=2.5),
        Claim("too close to call", first="cpu", second=slower, at_least=2.0, seconds=3.0),
    )
    (supported, dead, *more), _ = verification.verify_claims([replace(info, claims=claims)], Path(sys.executable))
    for result in (supported, dead, *more):
        assert result.outcome == result.claim.id
    assert supported.ratio.kind == SPENDING and supported.ratio.pairs >= 3, "a race may end before its length"
    assert supported.ratio.low < 2 < supported.ratio.high < 2.2
    assert "SIGKILL" in dead.reason


@pytest.mark.parametrize(("left_s", "races", "start_s", "length_s"), [(540, 20, 5, 12), (540, 45, 4, 8)])
def test_all_claims_fit_into_ten_minutes_if_no_length_is_given(left_s, races, start_s, length_s):
    assert verification.length_of(left_s, races, start_s) == length_s
    assert verification.length_of(10, races, start_s) == verification.SHORTEST_S


def test_the_race_of_a_long_claim_has_new_processes_from_time_to_time(tfmon, three, monkeypatch):
    planned = []

    def plan(self, info, options):
        planned.append((options.seconds, options.fresh))
        raise DeviceAbsentError("no")

    monkeypatch.setattr(Program, "plan", plan)
    assert [tfmon("verify", three, "--seconds", length).code for length in ("59", "60")] == [0, 0]
    assert planned == [(59, False)] * 2 + [(60, True)] * 2

"""`tfmon verify`: confirmed claims, refuted claims, and claims that this machine cannot test."""

import json

import pytest

from tfmon.api import verification
from tfmon.api.program import Program
from tfmon.errors import DeviceAbsentError

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
def test_a_claim_is_measured_by_a_race(tfmon, three, scripted, monkeypatch):
    monkeypatch.setenv("FASTER", "graph=False:0.5")
    done = tfmon("verify", three, "--seconds", "6", "--json")
    assert done.code == 0, done.err
    claim = json.loads(done.out)["claims"][0]
    low, high = claim["ratio_ci95"]
    assert claim["outcome"] == "supported" and claim["pairs"] >= 3
    assert low < claim["ratio"] < high and claim["ratio"] == pytest.approx(2, rel=0.1)

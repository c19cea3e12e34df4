"""`tfmon verify`: what holds, what does not, what cannot be tested here."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tfmon.api import verification
from tfmon.errors import DeviceAbsentError
from tfmon.model.lane_events import SliceEnded
from tfmon.model.lane_state import FAILED, RACING, LaneState, Trouble
from tfmon.model.lane_statistics import Measurements, SliceSpeed
from tfmon.model.race import Race
from tfmon.model.readings import SPENDING
from tfmon.model.spec import LaneSpec

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


def raced(speed: float, slices: int = 12, phase: str = RACING) -> LaneState:
    """A lane that ran slices at this speed."""
    speeds = tuple(SliceSpeed(at, at * 10**9, round(1_000 * speed), 10**9) for at in range(slices))
    trouble = Trouble("out of memory") if phase == FAILED else None
    spec = LaneSpec("cpu", name="cpu")
    return LaneState(spec, phase=phase, measurements=Measurements(slices=speeds), trouble=trouble)


@pytest.fixture
def races(monkeypatch):
    """Return a list of what the races lead to: lanes, or an error of the plan."""
    outcomes: list[object] = []
    closed: list[str] = []

    class Program:
        def __init__(self, race_options) -> None:
            self.lanes, self.outcome = race_options.lanes, outcomes.pop(0)
            self.race = Race(seconds=race_options.seconds, started_ns=0, interval=SPENDING)
            self.session = self

        def snapshot(self) -> SimpleNamespace:
            return SimpleNamespace(lanes=self.outcome, race=self.race, raced_s=1.0)

        def listen(self, listener) -> None:
            self.hear = listener

        def plan(self, info) -> None:
            if isinstance(self.outcome, Exception):
                raise self.outcome

        def close(self) -> None:
            closed.append("closed")

    monkeypatch.setattr(verification, "Program", Program)
    monkeypatch.setattr(verification, "run_until_over", lambda run, quiet: "")
    return outcomes


@pytest.mark.parametrize(
    ("outcome", "found", "reason"),
    [
        ((raced(2.0), raced(1.0)), "supported", None),
        ((raced(1.0), raced(2.0)), "contradicted", None),
        ((raced(1.0), raced(1.0)), "too close to call", None),
        ((raced(2.0, slices=2), raced(1.0, slices=2)), "not testable here", "too few slices were measured"),
        ((raced(2.0), raced(1.0, phase=FAILED)), "not testable here", "failed: out of memory"),
        (DeviceAbsentError("gpu:0 is not there"), "not testable here", "gpu:0 is not there"),
    ],
)
def test_each_claim_gets_its_outcome(tfmon, three, races, outcome, found, reason):
    races += [outcome, DeviceAbsentError("gpu:63 is not there")]
    done = tfmon("verify", three, "--json")
    assert done.code == 0, done.err
    claims = {claim["id"]: claim for claim in json.loads(done.out)["claims"]}
    assert claims["graph-wins"]["outcome"] == found
    told = claims["graph-wins"]["reason"]
    assert told is None if reason is None else reason in told
    assert (claims["graph-wins"]["ratio"] is None) == (found == "not testable here")
    kind = None if found == "not testable here" else "spending"
    assert claims["graph-wins"]["interval_kind"] == kind, "it may end before its length"
    assert (claims["cpu-wins"]["outcome"], claims["cpu-wins"]["ratio"]) == ("not testable here", None)
    assert (claims["wrong"]["outcome"], claims["wrong"]["reason"]) == ("corrected", "it is round")


def test_a_signal_ends_the_verification_and_drops_the_claim_that_was_measured(tfmon, three, races, monkeypatch):
    races += [(raced(2.0), raced(1.0))]
    monkeypatch.setattr(verification, "run_until_over", lambda run, quiet: "interrupted by SIGINT")
    done = tfmon("verify", three)
    assert done.code == 130
    assert done.out == "no claim was measured\ninterrupted by SIGINT\n"


@pytest.mark.parametrize(
    ("outcome", "ends"),
    [
        ((raced(2.0), raced(1.0)), True),
        ((raced(1.0), raced(1.0)), False),
        ((raced(2.0, slices=2), raced(1.0, slices=2)), False),
    ],
)
def test_a_race_ends_when_its_claim_is_decided(tfmon, three, races, monkeypatch, outcome, ends):
    finished = []

    def run_until_over(run, quiet):
        program = run.program
        program.lanes = SimpleNamespace(finish=lambda: finished.append(True))
        program.hear(SliceEnded(lane="cpu", at_ns=1, round=1))
        return ""

    monkeypatch.setattr(verification, "run_until_over", run_until_over)
    races += [outcome, DeviceAbsentError("gpu:63 is not there")]
    assert tfmon("verify", three).code == 0
    assert bool(finished) is ends


def test_all_claims_fit_into_ten_minutes_where_the_length_is_not_given():
    assert verification._length_s(540, 20, 5) == verification.LONGEST_S
    assert verification._length_s(540, 45, 4) == 8
    assert verification._length_s(10, 45, 4) == verification.SHORTEST_S


@pytest.mark.process
def test_a_claim_is_measured_by_a_race(tfmon, three, scripted, monkeypatch):
    monkeypatch.setenv("FASTER", "graph=False:0.5")
    done = tfmon("verify", three, "--seconds", "6", "--json")
    assert done.code == 0, done.err
    claim = json.loads(done.out)["claims"][0]
    low, high = claim["ratio_ci95"]
    assert claim["outcome"] == "supported" and claim["pairs"] >= 3
    assert low < claim["ratio"] < high and claim["ratio"] == pytest.approx(2, rel=0.1)

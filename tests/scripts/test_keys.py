"""What the keys ask of a real script: the learning rate, the end after the epoch, a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfmon.model.lane_events import KnobApplied, KnobRefused, Profiled, ProfileFailed, Window
from tfmon.model.lane_state import DONE
from tfmon.profile.breakdown import analyse
from tfmon.profile.xspace import read_space
from tfmon.script.meter import NO_TENSORFLOW

from .conftest import SHAPES

pytestmark = [pytest.mark.tf, pytest.mark.trainer]

FIT = """
import keras
import numpy as np

COUNT, BATCH, EPOCHS = 3_200, 32, 100_000
x = np.random.default_rng(0).random((COUNT, 16)).astype("float32")
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
history = model.fit(x, x.sum(axis=1), batch_size=BATCH, epochs=EPOCHS, verbose=0)
print(len(history.epoch), len(history.epoch) * COUNT // BATCH, float(model.optimizer.learning_rate))
"""
REPORTS = (
    (SHAPES / "gradient_tape.py").read_text().replace("COUNT, EPOCHS = 2_010, 8", "COUNT, EPOCHS = 2_010, 10**6")
)
NO_TF = """
import time
from tfmon import report
while True:
    time.sleep(0.002)
    report.step(examples=4)
"""
STEPS = 6


def test_the_learning_rate_changes_while_fit_runs_and_it_ends_after_the_epoch(watch, script):
    race = watch(script(FIT))
    race.until(lambda: race.lane.steady.windows >= 2, "steady windows")
    assert race.lane.settings == {"learning_rate": 0.01, "stop_after_epoch": False}
    race.lanes.set_knob(race.name, "learning_rate", 0.125)
    applied = race.until_event(KnobApplied)
    assert (applied.knob, applied.value) == ("learning_rate", 0.125)
    race.until(lambda: race.lane.steady.windows >= 4, "windows after it")
    assert {window.settings["learning_rate"] for window in race.of(Window)} == {0.01, 0.125}
    assert race.lane.discarded["knob change"] == 1
    race.lanes.set_knob(race.name, "learning_rate", -1.0)
    assert "learning_rate takes a number from 0" in race.until_event(KnobRefused).reason
    race.lanes.set_knob(race.name, "stop_after_epoch", True)
    race.until(lambda: race.lane.ended is not None, "the end")
    epochs, steps, rate = race.lane.ended.output_tail[-1].split()
    assert (race.lane.phase, race.lane.steps, race.lane.progress.epoch) == (DONE, int(steps), int(epochs))
    assert float(rate) == 0.125


@pytest.mark.parametrize("text", [FIT, REPORTS], ids=["fit", "report"])
def test_a_profile_holds_the_steps_that_were_asked_for(watch, script, tmp_path, text):
    race = watch(script(text))
    race.until(lambda: race.lane.steady.windows >= 2, "steady windows")
    folder = tmp_path / "profile"
    folder.mkdir()
    race.lanes.profile(race.name, folder, STEPS)
    profiled = race.until_event(Profiled)
    assert profiled.folder == str(folder)
    found = analyse(read_space(Path(profiled.path)))
    assert (found.steps, found.mode) == (STEPS, "graph")
    assert found.verdict.bound in ("compute", "dispatch", "mixed", "input")
    assert any("MatMul" in op.type for op in found.ops.top)
    at = race.lane.steps
    race.until(lambda: race.lane.steps > at, "it trains on")


def test_without_tensorflow_there_is_no_profile_and_it_says_why(watch, script, tmp_path):
    race = watch(script(NO_TF))
    race.until(lambda: race.lane.steady.windows >= 1, "steady windows")
    race.lanes.profile(race.name, tmp_path, STEPS)
    assert race.until_event(ProfileFailed).reason == NO_TENSORFLOW
    assert list(tmp_path.glob("plugins")) == []

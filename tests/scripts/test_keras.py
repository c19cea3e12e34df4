"""Keras scripts in a lane: tfmon's counts equal the script's, and keys change the training.

Several scripts run one after the other in one process, because loading TensorFlow takes longer than most of them.
"""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from support.processes import run_python, suspended
from support.waiting import wait_for

from tfmon.analysis.causes import causes_of
from tfmon.analysis.run_account import account_of
from tfmon.model import account as groups
from tfmon.model import lane_events
from tfmon.model.lane_events import Built, KnobApplied, KnobRefused, Profiled, Progressed, Window
from tfmon.model.lane_state import DONE
from tfmon.model.readings import Missing
from tfmon.model.requests import TakeProfile

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

ALL_OF = """
import runpy, sys
for name in sys.argv[1:]:
    runpy.run_path(name)
"""
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
IN_ONE_CALL = """
import sys
import keras
import numpy as np

BATCHES = 30
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).random((BATCHES * 32 - 5, 16)).astype("float32")
y = x.sum(axis=1)
layers = [keras.Input((16,)), keras.layers.Dense(8), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile(keras.optimizers.SGD(0.01), "mse")

class Own(keras.callbacks.Callback):
    calls = 0
    def on_train_batch_end(self, batch, logs=None):
        Own.calls += 1
    def on_test_begin(self, logs=None):
        assert model.steps_per_execution == 1
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = Own.calls < BATCHES * (epoch + 1) - 200 or epoch + 1 == int(sys.argv[1])

done = model.fit(x, y, verbose=0, epochs=100_000, callbacks=[Own()], validation_data=(x[:40], y[:40]))
assert model.steps_per_execution == 1
model.fit(x, y, verbose=0)
weights = float(abs(model.layers[0].kernel).numpy().sum())
print(len(done.epoch), (len(done.epoch) + 1) * BATCHES, Own.calls, weights)
"""
IN_PHASES = """
import sys
import time
from pathlib import Path
import keras
import numpy as np
import tensorflow as tf

def phase(name):
    Path(sys.argv[1], name).touch()
    while Path(sys.argv[1], name).exists():
        time.sleep(0.001)

def batches():
    for number in range(50):
        if number == 10 and Phases.epochs == 2:
            phase("input")
        yield x[:32], y[:32]

class Phases(keras.callbacks.Callback):
    epochs = 0
    def on_epoch_begin(self, epoch, logs=None):
        Phases.epochs += 1
        if epoch == 1:
            phase("between epochs")
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            phase("callback")
    def on_test_begin(self, logs=None):
        if Phases.epochs == 2:
            phase("validation")
    def on_train_batch_end(self, batch, logs=None):
        if batch == 30 and Phases.epochs == 2:
            phase("step")

x = np.random.default_rng(0).random((64, 8)).astype("float32")
y = x.sum(axis=1)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = tf.data.Dataset.from_generator(batches, output_types=("float32", "float32"), output_shapes=((32, 8), (32,)))
held_out = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
# Freeing an iterator waits for the autotuner, which sleeps for up to seconds: that is no suspension.
options = tf.data.Options()
options.autotune.enabled = False
phase("before the first step")
data, held_out = data.with_options(options), held_out.with_options(options)
model.fit(data, epochs=3, validation_data=held_out, callbacks=[Phases()], verbose=0)
phase("after the last step")
"""
PHASES = (
    "before the first step", "between epochs", "input", "step", "validation", "callback", "after the last step",
)  # fmt: skip
STOP_S = 1.5
STEPS = 6


def trained(race) -> tuple[int, int]:
    """Wait for the end; return the examples and steps that the scripts say they trained."""
    race.until(lambda: race.lane.end.event is not None, "the end")
    lane = race.lane
    assert (lane.phase, lane.end.event.exit_code) == (DONE, 0), lane.end.event.output_tail[-5:]
    said = re.findall(r"trained (\d+) examples in (\d+) steps", "\n".join(lane.end.event.output_tail))
    return sum(int(examples) for examples, _ in said), sum(int(steps) for _, steps in said)


def counted(race) -> tuple[int, int]:
    windows = race.of(Window)
    assert all(window.step >= window.steps for window in windows)
    assert all(window.call_ns <= window.span_ns for window in windows)
    return sum(window.examples + window.sampled_examples for window in windows), race.lane.totals.steps


def scripts(*names: str) -> list[str]:
    return [str(Path(__file__).parent / f"{name}.py") for name in names]


@pytest.mark.pythons
def test_fits_of_every_kind_of_data_are_counted_and_followed(watch, script):
    race = watch(script(ALL_OF), *scripts("kinds_of_data", "public/transfer"))
    assert trained(race) == counted(race)
    lane = race.lane
    assert "steps" not in lane.script.not_measured
    versions = lane.process.versions
    assert 0 < lane.totals.losses.last < 5 and versions["tensorflow"] and versions["keras"]
    assert race.of(Built)[-1].parameters == (3 * 3 * 8 * 8 + 8) + 2 * 8 + (8 + 1), "two layers stay frozen"
    files = [place.partition(":")[0] for place in lane.script.places]
    assert list(dict.fromkeys(files)) == ["kinds_of_data.py", "transfer.py"]
    progress = lane.script.progress
    assert (progress.epoch, progress.epochs, progress.batch, progress.batches) == (12, 12, 8, 8)
    assert set(progress.metrics) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert progress.validation_ns > 0
    assert {"validation", "evaluate", "predict"} <= {event.doing for event in race.of(Progressed)}


TRUE = {"retrace_shape", "epoch_first", "epoch_callback", "epoch_validation", "iterator_freed"}
"""Causes that are true of the scripts of `public`: a last batch is smaller, a callback predicts, a busy machine
traces long. TensorFlow waits for its autotuner at random when it frees an iterator, in a plain run as well.
"""


@pytest.mark.slow
def test_scripts_in_the_manner_of_public_ones_are_counted_and_no_cause_is_told_that_is_not_theirs(watch, script):
    race = watch(script(ALL_OF), *scripts("public/replay_buffer", "public/transfer"))
    assert trained(race) == counted(race)
    assert {cause.id for cause in causes_of(race.lane)} <= TRUE


@pytest.mark.slow
def test_several_steps_in_one_call_are_a_knob_and_train_the_same(watch, script):
    path = script(IN_ONE_CALL)
    race = watch(path, "0")
    race.until(lambda: race.lane.steady.windows >= 2, "steady windows")
    race.lanes.set_knob(race.name, "steps_per_execution", 8)
    assert race.until_event(KnobApplied).value == 8
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert race.lane.phase == DONE, race.lane.end.event.output_tail
    epochs, steps, calls, weights = race.lane.end.event.output_tail[-1].split()
    assert race.lane.totals.steps == int(steps) and int(calls) < int(epochs) * 30 - 200
    assert not [cause for cause in race.lane.script.causes if cause.cause == "retrace_keras"]
    assert run_python(path, epochs).stdout.split()[-1] == weights


def test_keys_change_a_fit_profile_it_and_end_it_after_the_epoch(watch, script, tmp_path):
    race = watch(script(FIT))
    race.until(lambda: race.lane.steady.windows >= 2, "steady windows")
    assert race.lane.settings.items() >= {"learning_rate": 0.01, "stop_after_epoch": False}.items()
    race.lanes.set_knob(race.name, "learning_rate", 0.125)
    applied = race.until_event(KnobApplied)
    assert (applied.knob, applied.value) == ("learning_rate", 0.125)
    race.until(lambda: race.lane.steady.windows >= 4, "windows after it")
    assert {window.settings["learning_rate"] for window in race.of(Window)} == {0.01, 0.125}
    assert race.lane.measurements.discarded["knob change"] == 1
    race.lanes.set_knob(race.name, "learning_rate", -1.0)
    assert "learning_rate takes a number from 0" in race.until_event(KnobRefused).reason

    folder = tmp_path / "profile"
    folder.mkdir()
    race.lanes.profile(race.name, TakeProfile(folder=str(folder), steps=STEPS))
    profiled = race.until_event(Profiled)
    assert profiled.folder == str(folder)
    found = profiled.profile
    assert 0 < found.steps <= STEPS, "an epoch that ends meanwhile ends the profile"
    assert found.mode == "graph"
    assert any("MatMul" in op.kind for op in found.ops.top)
    assert not isinstance(found.input.wait_ns, Missing) and 0 < found.input.wait_ns < found.step_ns

    race.lanes.set_knob(race.name, "stop_after_epoch", True)
    race.until(lambda: race.lane.end.event is not None, "the end")
    lane = race.lane
    epochs, steps, rate = lane.end.event.output_tail[-1].split()
    assert (lane.phase, lane.totals.steps, lane.script.progress.epoch) == (DONE, int(steps), int(epochs))
    assert float(rate) == 0.125


def test_no_duration_has_a_time_in_it_in_which_the_lane_was_stopped(watch, script, tmp_path):
    race = watch(script(IN_PHASES), str(tmp_path))
    for name in PHASES:
        race.until(lambda name=name: (tmp_path / name).exists(), name)
        pid = race.lane.process.pid
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda pid=pid: suspended(pid), what=f"stopped: {name}")
        time.sleep(STOP_S)
        (tmp_path / name).unlink()
        os.kill(pid, signal.SIGCONT)
    trained(race)
    lane, progress = race.lane, race.lane.script.progress
    assert (lane.totals.steps, lane.process.last_bad_line) == (150, "")
    within = len(PHASES) - 2
    assert lane.measurements.discarded_ns[lane_events.STOPPED] >= within * STOP_S * 1e9
    first, *windows = race.of(Window)
    causes = {cause.cause: cause.cost_ns for cause in lane.script.causes if cause.cause != "epoch_first"}
    durations = {
        **causes, **lane.measurements.discarded_ns, "fit": progress.between_ns, "test": progress.validation_ns,
        "wait": sum(window.input_ns for window in windows),
        "call": sum(window.call_ns for window in windows), "trace": first.traced_ns,
    }  # fmt: skip
    durations.pop(lane_events.STOPPED)
    durations.pop("warm-up")
    assert max(durations.values()) < STOP_S * 1e9, durations
    assert lane.measurements.ran_ns + within * STOP_S * 1e9 <= lane.measurements.span_ns


SLACK_S = 0.1
SAMPLES_S, IN_STEPS_S = 0.4, 1.5
"""Errors besides 5 % of times from samples: a busy machine delays them, and in steps there is one a second."""


@pytest.mark.slow
def test_the_parts_of_a_run_agree_with_the_clock_of_the_script(watch):
    began_s = time.monotonic()
    race = watch(*scripts("clocked"))
    trained(race)
    took_s = time.monotonic() - began_s
    output = "\n".join(race.lane.end.event.output_tail)
    own = json.loads(output.partition("own clock ")[2])
    account = account_of(race.lane)
    assert account.over
    assert sum(row.seconds for row in account.rows) == pytest.approx(account.wall_s)
    assert account.wall_s <= took_s + SLACK_S

    def seconds(group: str, part: str = "", line: str = "") -> float:
        rows = (row for row in account.rows if row.group == group and line in row.place)
        return sum(row.seconds for row in rows if not part or row.part == part)

    for name, group, part, line, slack_s in (
        ("imports", groups.START, groups.IMPORTS, "", SAMPLES_S),
        ("loading", groups.BEFORE, groups.LINE, "sleep", SAMPLES_S),
        ("callback", groups.CALLBACKS, "Slow", "", SLACK_S),
        ("between", groups.OUTSIDE, groups.LINE, "sleep", SAMPLES_S),
        ("after", groups.AFTER, groups.LINE, "sleep", IN_STEPS_S),
    ):
        assert seconds(group, part, line) == pytest.approx(own[name], rel=0.05, abs=slack_s), name
    steps_s = seconds(groups.STEPS, groups.CALL) + seconds(groups.STEPS, groups.INPUT)
    # What else tfmon has seen in the steps is in them or between them by the clock of the script.
    others_s = seconds(groups.STEPS) - steps_s + seconds(groups.OWN, "measuring")
    assert steps_s == pytest.approx(own["own steps"] + own["steps of fit"], rel=0.05, abs=SLACK_S + others_s)
    # The wait for a batch is longer than the work of the generator.
    assert seconds(groups.BEFORE, groups.FIRST_BATCH) >= own["first batch"] - SLACK_S
    assert seconds(groups.STEPS, groups.INPUT) >= 0.95 * own["input"] - SLACK_S

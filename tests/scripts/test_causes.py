"""Slow scripts: each cause is reported with its line and its remedy."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes import run_python

from tfmon.hooks.cause_reports import causes as recorded
from tfmon.hooks.epochs import BATCH, Epochs

CAUSES = Path(__file__).parent / "causes"
pytestmark = pytest.mark.tensorflow


def causes_in(name: str, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return the causes that `tfmon watch --json` names of a script, by their ids."""
    return {one["id"]: one for one in lane_of(name, *arguments)["causes"]}


def lane_of(name: str, *arguments: str) -> dict[str, Any]:
    """Return the lane of a script that `tfmon watch --json` reports."""
    words = ["-m", "tfmon", "watch", "--json", "--no-record", "--", sys.executable, name, *arguments]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "CUDA_VISIBLE_DEVICES": "-1"}
    ran = run_python(*words, folder=CAUSES, **environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lanes: list[dict[str, Any]] = json.loads(ran.stdout)["lanes"]
    return lanes[0]


def line_of(name: str, text: str) -> str:
    """Return the place of the line of a script that holds a text."""
    lines = (CAUSES / name).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if text in line)
    return f"{name}:{number} "


@pytest.mark.slow
def test_what_retraces_is_named_with_the_argument_that_changed():
    causes = causes_in("retracing.py")
    value, shape, new = causes["retrace_value"], causes["retrace_shape"], causes["retrace_object"]
    assert "`step`: 22 → 23" in value["text"] and "a Python number retraces by_step, 23 times" in value["text"]
    assert value["place"].startswith(line_of("retracing.py", "def by_step"))
    assert "tf.constant(step)" in value["code"][0]
    assert "`x`: (16, 20) → (4, 20), the last batch of an epoch" in shape["text"] and shape["count"] == 1
    assert shape["place"].startswith(line_of("retracing.py", "def by_batch"))
    assert "drop_remainder=True" in shape["code"][0]
    assert "a new object retraces by_object, 7 times: `config`" in new["text"]
    xla, made, keras = causes["retrace_xla"], causes["retrace_function"], causes["retrace_keras"]
    assert "XLA compiles by_xla for each shape, 7 times: `x`: (16,) → (17,)" in xla["text"]
    assert made["count"] == 7 and line_of("retracing.py", "made(tf").strip() in made["text"]
    assert keras["place"].startswith(line_of("retracing.py", "model.predict"))
    assert "Keras traces predict again and again, 7 times" in keras["text"]
    assert sum(cause["share_pct"] for cause in causes.values()) <= 100


def test_xla_that_compiles_without_a_trace_is_named_with_the_size():
    again = causes_in("xla_sizes.py")["retrace_xla"]
    assert "XLA compiles score for each shape, 7 times: (16, 3) → (17, 3), without a trace" in again["text"]
    assert again["place"].startswith(line_of("xla_sizes.py", "def score"))


@pytest.mark.slow
def test_predict_between_the_steps_and_two_traces_are_no_retracing():
    lane = lane_of("predicting.py")
    assert lane["steps"] == 272 and "retracing" not in (lane["bottleneck"] or "")
    causes = {one["id"]: one for one in lane["causes"]}
    assert not any(cause.startswith("retrace_") for cause in causes), "no step is traced again and again"
    assert "`predict` is called outside the steps, 12 times" in causes["between_call"]["text"]
    assert causes["between_call"]["place"].startswith(line_of("predicting.py", "model.predict"))


@pytest.mark.slow
def test_slow_epochs_are_named():
    causes = causes_in("epochs.py", "first_epoch")
    assert causes["input_python_function"]["place"].startswith(line_of("epochs.py", ".map(slow).cache()"))
    assert "epoch_first" not in causes, "the line that fills the cache explains it"
    later = causes_in("epochs.py", "later_epochs")["epoch_later"]
    assert " % of it for input" in later["text"]
    assert later["place"].startswith(line_of("epochs.py", "train(rows_, target)"))


@pytest.mark.slow
def test_small_steps_and_calls_for_one_sample_are_named():
    causes = causes_in("epochs.py", "small_steps")
    small, one = causes["steps_small"], causes["one_sample"]
    assert "steps_per_execution=32" in small["code"][0]
    assert small["place"].startswith(line_of("epochs.py", "epochs=150"))
    assert "`predict` is called for one sample, 30 times" in one["text"]
    assert one["place"].startswith(line_of("epochs.py", "model.predict"))


@pytest.mark.slow
def test_pauses_between_epochs_are_named_by_what_fills_them():
    causes = causes_in("epochs.py", "pauses")
    assert "validation_freq" in causes["epoch_validation"]["code"][0]
    assert "the callback Reports takes long, 4 times; that took 3." in causes["epoch_callback"]["text"]
    assert causes["epoch_callback"]["cost_s"] == pytest.approx(3.2, abs=1.0)
    assert causes["input_python_function"]["place"].startswith(line_of("epochs.py", ".map(slow).shuffle"))
    assert "epoch_batch" not in causes, "the line that fills the buffer explains it"


def test_the_wait_of_an_epoch_excludes_the_waits_before_it():
    """As in a loop after a `fit` that waited for ten seconds."""
    epochs = Epochs("train.py:1")
    seconds = 1_000_000_000
    for number in range(2):
        waited_ns = (10 + number) * seconds
        epochs.begins(lambda waited_ns=waited_ns: waited_ns)
        epochs.first_step(lambda waited_ns=waited_ns: waited_ns + 3_000_000)
        epochs.ends(10, lambda waited_ns=waited_ns: waited_ns + 12_000_000)
    (batch,) = [new for new in recorded.news(all_of_them=True) if new.cause == BATCH]
    assert batch.cost_ns == 3_000_000


@pytest.mark.slow
def test_slow_steps_are_named_with_the_line_that_makes_them_so():
    name = "slow_steps.py"
    seen = lane_of(name, "calls_back", "adapts")["causes"]
    causes = {one["id"]: one for one in seen}
    assert causes["adapt_slow"]["place"].startswith(line_of(name, "scale.adapt("))
    assert "`Normalization.adapt`" in causes["adapt_slow"]["text"] and causes["adapt_slow"]["gain_s"] > 0
    slow, local, saves = (
        next(one for one in seen if one["id"] == "batch_callback" and one["place"].startswith(line_of(name, text)))
        for text in ("LambdaCallback(", "def on_train_batch_begin", "save_freq=5")
    )
    assert "LambdaCallback.on_train_batch_end works in each batch, 80 times" in slow["text"]
    assert slow["cost_s"] == pytest.approx(1.6, abs=0.5)
    assert local["count"] == 79, "the first call is before the first step"
    assert "ModelCheckpoint.on_train_batch_end" in saves["text"]

    lane = lane_of(name, "only_adapts")
    ids = [one["id"] for one in lane["causes"]]
    assert lane["steps"] is None and ids[0] == "adapt_slow" and set(ids[1:]) <= {"iterator_freed"}
    assert sum(row["seconds"] for row in lane["account"]["rows"]) == pytest.approx(lane["account"]["wall_s"])

    causes = causes_in(name, "has_metrics")
    assert causes["step_metrics"]["place"].startswith(line_of(name, "model.compile(**"))
    assert causes["step_metrics"]["gain_pct"] <= causes["step_metrics"]["share_pct"] <= 100
    assert "step_not_fused" not in causes, "XLA is not the remedy"

    causes = causes_in(name, "looks_up")
    assert causes["update_dense"]["place"].startswith(line_of(name, "Embedding(200_000"))
    assert "updates all 200000 rows, of which a batch uses at most 0.13 %" in causes["update_dense"]["text"]

    causes = causes_in(name, "unrolls", "runs_eagerly")
    assert causes["trace_unrolled"]["place"].startswith(line_of(name, "while moment"))
    assert (
        "it pays below" in causes["trace_unrolled"]["text"] and "tf.range" in causes["trace_unrolled"]["code"][0]
    )
    assert causes["step_eager"]["place"].startswith(line_of(name, "optimizer.apply("))

    causes = causes_in(name, "makes_models")
    assert causes["retrace_keras"]["place"].startswith(line_of(name, "network(keras.layers.Dense(8)).fit"))
    assert "model.set_weights(start)" in " ".join(causes["retrace_keras"]["code"])

"""Slow scripts: each cause is reported with its line and its remedy."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes import run_python

from tfmon.hooks import object_causes
from tfmon.hooks.cause_reports import Causes
from tfmon.hooks.cause_reports import causes as recorded
from tfmon.hooks.device_causes import see, without_cudnn
from tfmon.hooks.epochs import BATCH, Epochs
from tfmon.hooks.object_causes import LOOKS, ObjectGrowth

TRAININGS = Path(__file__).with_name("trainings.py")
pytestmark = pytest.mark.tensorflow


def lane_of(*trainings: str) -> dict[str, Any]:
    words = ["-m", "tfmon", "watch", "--json", "--no-record", "--", sys.executable, TRAININGS, *trainings]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "CUDA_VISIBLE_DEVICES": "-1"}
    ran = run_python(*words, folder=TRAININGS.parent, **environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)["lanes"][0]


def causes_in(*trainings: str) -> dict[str, dict[str, Any]]:
    return {cause["id"]: cause for cause in lane_of(*trainings)["causes"]}


def line_of(cause: dict[str, Any]) -> str:
    number = cause["place"].partition(" ")[0].removeprefix("trainings.py:")
    return TRAININGS.read_text().splitlines()[int(number) - 1]


def check(cause: dict[str, Any], line: str, *texts: str) -> None:
    """Check the line that a cause names, and texts in its report or its code."""
    assert line in line_of(cause), cause["place"]
    for text in texts:
        assert text in "\n".join([cause["text"], *cause["code"]])


@pytest.mark.slow
def test_what_retraces_is_named_with_the_argument_that_changed():
    causes = causes_in("retraces")
    value = ("`step`: 22 → 23", "a Python number retraces by_step, 23 times", "tf.constant(step)")
    check(causes["retrace_value"], "def by_step", *value)
    shape = ("`x`: (16, 20) → (4, 20), the last batch of an epoch", "drop_remainder=True")
    check(causes["retrace_shape"], "def by_batch", *shape)
    assert (causes["retrace_shape"]["count"], causes["retrace_function"]["count"]) == (1, 7)
    check(causes["retrace_object"], "def by_object", "a new object retraces by_object, 7 times: `config`")
    check(causes["retrace_xla"], "def by_xla", "XLA compiles by_xla for each shape, 7 times: `x`: (16,) → (17,)")
    check(causes["retrace_function"], "made = tf.function", "`made(tf.ones(3))`")
    check(causes["retrace_keras"], "model.predict", "Keras traces predict again and again, 7 times")
    assert sum(cause["share_pct"] for cause in causes.values()) <= 100


def test_xla_that_compiles_without_a_trace_is_named_with_the_size():
    compiles = "XLA compiles score for each shape, 7 times: (16, 3) → (17, 3), without a trace"
    check(causes_in("compiles")["retrace_xla"], "def score", compiles)


@pytest.mark.slow
def test_predict_between_the_steps_and_two_traces_are_no_retracing():
    lane = lane_of("predicts")
    assert lane["steps"] == 272 and "retracing" not in (lane["bottleneck"] or "")
    causes = {cause["id"]: cause for cause in lane["causes"]}
    assert not any(cause.startswith("retrace_") for cause in causes), "no step is traced again and again"
    called = "`predict` is called outside the steps, 12 times"
    check(causes["between_call"], "model.predict(x[:5]", called)


@pytest.mark.slow
def test_slow_epochs_are_named():
    causes = causes_in("first_epoch")
    check(causes["input_python_function"], ".map(slow).cache()")
    assert "epoch_first" not in causes, "the line that fills the cache explains it"
    check(causes_in("later_epochs")["epoch_later"], "train(rows_, target)", " % of it for input")


@pytest.mark.slow
def test_small_steps_and_calls_for_one_sample_are_named():
    causes = causes_in("small_steps")
    check(causes["steps_small"], "epochs=150", "steps_per_execution=32")
    check(causes["one_sample"], "model.predict(x[:1]", "`predict` is called for one sample, 30 times")
    one = causes["one_sample"]
    assert one["cost_s"] / 2 < one["gain_s"] < one["cost_s"], "the model itself takes a small part of each call"


@pytest.mark.slow
def test_pauses_between_epochs_are_named_by_what_fills_them():
    causes = causes_in("pauses")
    assert "validation_freq" in causes["epoch_validation"]["code"][0]
    assert "the callback Reports takes long, 4 times; that took 3." in causes["epoch_callback"]["text"]
    assert causes["epoch_callback"]["cost_s"] == pytest.approx(3.2, abs=1.0)
    check(causes["input_python_function"], ".map(slow).shuffle")
    assert "epoch_batch" not in causes, "the line that fills the buffer explains it"


@pytest.mark.slow
def test_what_makes_input_slow_is_named_with_its_line_and_what_to_write():
    causes = causes_in("reads_in_python")
    reads = "from_generator(read) makes one example at a time in Python"
    check(causes["input_generator"], "from_generator(read", reads, "yield x[i")
    runs = "map(prepare) runs Python for one element at a time: tf.numpy_function"
    check(causes["input_python_function"], "map(prepare", runs)
    check(causes["input_sequential_map"], "map(augment", "num_parallel_calls")
    check(causes["input_no_prefetch"], "prefetch(32)")
    assert (causes["input_no_prefetch"]["knob"], causes["input_no_prefetch"]["value"]) == ("prefetch", "auto")


@pytest.mark.slow
@pytest.mark.trainer
def test_batches_made_in_python_are_counted_and_named():
    lane = lane_of("fits_arrays", "fits_made_batches")
    assert (lane["steps"], lane["examples"]) == (72 + 40 + 400, 72 * 32 + 40 * 16 + 20 * 640)
    assert lane["knobs"]["learning_rate"] == pytest.approx(0.01)
    assert lane["time_pct"]["input"] > 40, "a busy machine's steps leave less to wait for"
    causes = {cause["id"]: cause for cause in lane["causes"]}
    made = "Data makes its batches in one thread: workers=1"
    check(causes["input_py_dataset"], "def __getitem__", made, "workers=4")
    arrays = "each `fit` makes a dataset of its arrays, 19 times"
    check(causes["input_arrays"], "model.fit(rows", arrays, "from_tensor_slices")


@pytest.mark.slow
def test_slow_steps_are_named_with_the_line_that_makes_them_so():
    seen = lane_of("calls_back", "adapts")["causes"]
    (adapts,) = [cause for cause in seen if cause["id"] == "adapt_slow"]
    check(adapts, "scale.adapt(", "`Normalization.adapt`")
    assert adapts["gain_s"] > 0
    slow, local, saves = (
        next(cause for cause in seen if cause["id"] == "batch_callback" and text in line_of(cause))
        for text in ("LambdaCallback(", "def on_train_batch_begin", "save_freq=5")
    )
    assert "LambdaCallback.on_train_batch_end works in each batch, 80 times" in slow["text"]
    assert slow["cost_s"] == pytest.approx(1.6, abs=0.5)
    assert local["count"] == 79, "the first call is before the first step"
    assert "ModelCheckpoint.on_train_batch_end" in saves["text"]

    lane = lane_of("only_adapts")
    ids = [cause["id"] for cause in lane["causes"]]
    assert lane["steps"] is None and ids[0] == "adapt_slow" and set(ids[1:]) <= {"iterator_freed"}
    assert sum(row["seconds"] for row in lane["account"]["rows"]) == pytest.approx(lane["account"]["wall_s"])

    causes = causes_in("has_metrics", "looks_up")
    check(causes["step_metrics"], "model.compile(**")
    assert causes["step_metrics"]["gain_pct"] <= causes["step_metrics"]["share_pct"] <= 100
    assert "step_not_fused" not in causes, "XLA is not the remedy"
    rows = "updates all 200000 rows, of which a batch uses at most 0.13 %"
    check(causes["update_dense"], "Embedding(200_000", rows)

    causes = causes_in("makes_models", "unrolls", "runs_eagerly")
    check(causes["trace_unrolled"], "while moment", "it pays below", "tf.range")
    check(causes["step_eager"], "optimizer.apply(")
    check(causes["retrace_keras"], "network(keras.layers.Dense(8)).fit", "model.set_weights(start)")
    grown = re.search(r"memory grew by (\d+) MiB each time", causes["retrace_keras"]["text"])
    assert 14 <= int(grown[1]) <= 40, "16 MiB are kept"

    causes = causes_in("adapts_to_texts", "updates_a_table", "runs_functions_eagerly")
    check(causes["adapt_slow"], "StringLookup().adapt", "one example at a time")
    assert causes["adapt_slow"]["gain_s"] > 0.99 * causes["adapt_slow"]["cost_s"]
    check(causes["update_dense"], "optimizer.apply_gradients([(tape")
    check(causes["step_eager"], "run_functions_eagerly(True)", "functions_eagerly(False)")


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


@pytest.mark.parametrize("module", ["keras", "tf_keras"])
def test_recurrent_layers_that_cannot_use_cudnn_say_why(module):
    keras = pytest.importorskip(module)
    layers = keras.layers
    model = keras.Sequential([
        layers.Masking(),
        layers.LSTM(2, return_sequences=True, name="fine"),
        layers.LSTM(2, return_sequences=True, name="relu", activation="relu", recurrent_dropout=0.5),
        layers.Bidirectional(layers.GRU(2, return_sequences=True, name="pairs", reset_after=False)),
        layers.RNN(layers.LSTMCell(2), return_sequences=True, name="cell"),
        layers.GRU(2, name="unrolled", unroll=True, use_bias=False),
    ])  # fmt: skip
    result = dict(without_cudnn(model))
    assert result.pop("relu") == "activation=relu, recurrent_dropout=0.5"
    assert result.pop("unrolled") == "use_bias=False, unroll=True"
    assert result.pop("cell").startswith("it is an RNN around an LSTMCell")
    assert result and {*result.values()} == {"reset_after=False"} and all("pairs" in name for name in result)


def test_a_model_on_the_cpu_is_told_to_be_there_and_determinism_as_well(monkeypatch):
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    causes = Causes()
    monkeypatch.setattr("tfmon.hooks.device_causes.is_deterministic", lambda: True)
    see(causes, model, "train.py:7 `model.fit(x)`")
    told = {new.cause: new for new in causes.news()}
    assert told.keys() == {"gpu_weights_on_cpu", "gpu_deterministic"}
    assert told["gpu_weights_on_cpu"].what == "2 of 2"


class Held:
    """An object that a script keeps for each step."""

    def __init__(self) -> None:
        self.more = [1.5]


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
def test_the_kind_that_grows_is_told_only_while_it_grows(monkeypatch, keeps):
    seen, watch, kept = Causes(), ObjectGrowth(), []
    monkeypatch.setattr(object_causes, "causes", seen)
    for look in range(2 * LOOKS):
        kept = [*(kept if keeps else ()), *(Held() for _ in range(10_000))]
        watch._next_ns = 0
        watch.look(100 * look)
    told = [(new.cause, new.subject) for new in seen.news()]
    assert told == ([("memory_objects", "Held")] if keeps else [])

"""`tfmon crossover` and `tfmon tune`, from the words to the answer."""

import json
import sys

import pytest

from tfmon.recordings.player import play_all


@pytest.mark.process
def test_a_crossover_is_told_in_text_and_recorded(tfmon, scripted, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTER", "prefetch=auto:3")
    lanes = ("--lane", "cpu,prefetch=off", "--lane", "cpu,prefetch=auto")
    words = ("--from", "8", "--to", "16", "--slice", "0.2", "--record", tmp_path / "curve.jsonl")
    done = tfmon("crossover", "small-dense", *lanes, *words)
    assert done.code == 0, done.err
    assert "cpu prefetch=auto is faster than cpu prefetch=off throughout" in done.out
    assert "all is measured" in done.out and f"recorded in {tmp_path / 'curve.jsonl'}" in done.out
    _, end = play_all(tmp_path / "curve.jsonl")
    assert end.experiment.over and end.experiment.values == (8, 16)


LOOP = """
import numpy as np, tensorflow as tf, time
def slow(x):
    time.sleep(0.02)
    return x
data = tf.data.Dataset.from_tensor_slices(np.ones((1_000, 4), "float32")).batch(10)
data = data.map(lambda x: tf.ensure_shape(tf.numpy_function(slow, [x], tf.float32), [None, 4]))
options = tf.data.Options()
options.experimental_optimization.inject_prefetch = False
data, weights = data.with_options(options), tf.Variable(tf.ones((4, 1)))
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights))
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss
while True:
    for x in data:
        step(x)
        time.sleep(0.02)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_loop_of_ones_own_that_waits_for_its_input_is_given_a_prefetch(tfmon, tmp_path, monkeypatch):
    monkeypatch.setenv("TFMON_GRACE", "2")  # TensorFlow may hang at the exit where Python makes the data
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    done = tfmon("tune", "--no-record", "--json", "--lane", "cpu", "--", sys.executable, path)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    tried = {attempt["tried"]: attempt for attempt in found["attempts"]}
    assert tried["prefetch auto"]["outcome"] == "kept" and tried["prefetch auto"]["gain_ci95"][0] > 1
    assert found["best"]["settings"]["prefetch"] == "auto"
    assert any("prefetch(tf.data.AUTOTUNE)" in line for line in found["best"]["code"])


@pytest.mark.process
def test_a_tuning_that_tried_nothing_cannot_tell_and_says_why(tfmon, tmp_path):
    (tmp_path / "script.py").write_text("print('no step')")
    done = tfmon("tune", "--no-record", "--lane", "cpu", "--", sys.executable, tmp_path / "script.py")
    assert done.code == 5
    assert "nothing was tried\nended early: the script ended, and no training step was seen" in done.out

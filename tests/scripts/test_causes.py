"""Scripts that are slow for reasons of their own: each is named, with its line and what mends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.waiting import HANGS_S

CAUSES = Path(__file__).parent / "causes"
pytestmark = pytest.mark.tensorflow


def causes_in(name: str, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return the causes that `tfmon watch --json` names of a script, by their ids."""
    return {one["id"]: one for one in lane_of(name, *arguments)["causes"]}


def lane_of(name: str, *arguments: str) -> dict[str, Any]:
    """Return the lane of a script that `tfmon watch --json` reports."""
    command = [sys.executable, "-m", "tfmon", "watch", "--json", "--no-record", "--", sys.executable, name]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "CUDA_VISIBLE_DEVICES": "-1"}
    ran = subprocess.run(
        [*command, *arguments],
        cwd=CAUSES,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
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
    assert sum(one["share_pct"] for one in causes.values()) <= 100


def test_xla_that_compiles_without_a_trace_is_named_with_the_size():
    again = causes_in("xla_sizes.py")["retrace_xla"]
    assert "XLA compiles score for each shape, 7 times: (16, 3) → (17, 3), without a trace" in again["text"]
    assert again["place"].startswith(line_of("xla_sizes.py", "def score"))


@pytest.mark.slow
def test_predict_between_the_steps_and_two_traces_are_no_retracing():
    lane = lane_of("predicting.py")
    assert lane["steps"] == 272 and "retracing" not in (lane["bottleneck"] or "")
    causes = {one["id"]: one for one in lane["causes"]}
    assert not any(one.startswith("retrace_") for one in causes), "no step is traced again and again"
    assert "`predict` is called outside the steps, 12 times" in causes["between_call"]["text"]
    assert causes["between_call"]["place"].startswith(line_of("predicting.py", "model.predict"))


@pytest.mark.slow
def test_slow_epochs_are_named():
    causes = causes_in("epochs.py", "first_epoch", "later_epochs")
    first, later = causes["epoch_first"], causes["epoch_later"]
    assert "more waiting for its other batches" in first["text"]
    assert first["place"].startswith(line_of("epochs.py", "model.fit(data, epochs=6, verbose=0)"))
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
    assert causes["epoch_batch"]["place"].startswith(line_of("epochs.py", "callbacks=[Reports()]"))

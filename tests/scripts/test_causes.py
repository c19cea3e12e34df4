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


def causes_in(name: str, *words: str) -> dict[str, dict[str, Any]]:
    """Return the causes that `tfmon watch --json` names of a script with arguments, by their ids."""
    command = [sys.executable, "-m", "tfmon", "watch", "--json", "--no-record", "--", sys.executable, name, *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "CUDA_VISIBLE_DEVICES": "-1"}
    ran = subprocess.run(
        command, cwd=CAUSES, env=environment, capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    (lane,) = json.loads(ran.stdout)["lanes"]
    return {one["id"]: one for one in lane["causes"]}


def line_of(name: str, text: str) -> str:
    """Return the place of the line of a script that holds a text."""
    lines = (CAUSES / name).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if text in line)
    return f"{name}:{number} "


def test_what_retraces_is_named_with_the_argument_that_changed():
    causes = causes_in("retracing.py")
    value, shape, new = causes["retrace_value"], causes["retrace_shape"], causes["retrace_object"]
    assert "`step`: 22 → 23" in value["text"] and "by_step was traced 23 times more" in value["text"]
    assert value["place"].startswith(line_of("retracing.py", "def by_step"))
    assert "tf.constant(step)" in value["code"][0]
    assert "`x`: (16, 20) → (4, 20), the last batch of an epoch" in shape["text"] and shape["count"] == 1
    assert shape["place"].startswith(line_of("retracing.py", "def by_batch"))
    assert "drop_remainder=True" in shape["code"][0]
    assert "by_object was traced 7 times more for another object, `config`" in new["text"]
    xla, made, keras = causes["retrace_xla"], causes["retrace_function"], causes["retrace_keras"]
    assert "compiled 7 times more for another shape, `x`: (16,) → (17,)" in xla["text"]
    assert made["count"] == 7 and line_of("retracing.py", "made(tf").strip() in made["text"]
    assert keras["place"].startswith(line_of("retracing.py", "model.predict"))
    assert "predict 7 times" in keras["text"]
    assert sum(one["share_pct"] for one in causes.values()) < 100


def test_what_makes_input_slow_is_named_with_its_line_and_what_to_write():
    causes = causes_in(name := "input_in_python.py")
    read, python, one = (causes[f"input_{kind}"] for kind in ("generator", "python_function", "sequential_map"))
    assert "from_generator(read) makes one example at a time in Python" in read["text"]
    assert read["place"].startswith(line_of(name, "from_generator(read")) and "yield x[i" in read["code"][0]
    assert "map(prepare) calls tf.numpy_function" in python["text"]
    assert python["place"].startswith(line_of(name, "map(prepare"))
    assert one["place"].startswith(line_of(name, "map(augment")) and "num_parallel_calls" in one["code"][0]
    ahead = causes["input_no_prefetch"]
    assert ahead["place"].startswith(line_of(name, "prefetch(32)")) and ahead["knob"] == "prefetch auto"

    causes = causes_in(name := "input_by_example.py")
    decode, scale = causes["input_map_after_cache"], causes["input_map_before_batch"]
    assert decode["place"].startswith(line_of(name, "map(decode, num")) and ".cache()" in decode["code"][0]
    assert "map(scale) is called for each example, and would do the same for a batch of 32" in scale["text"]
    assert causes_in(name, "mended") == {}


def test_what_fit_reads_is_named_with_its_line_and_what_to_write():
    causes = causes_in(name := "input_of_fit.py")
    data, arrays = causes["input_py_dataset"], causes["input_arrays"]
    assert "Data makes its batches in one thread (workers=1)" in data["text"] and "workers=4" in data["code"][0]
    assert data["place"].startswith(line_of(name, "def __getitem__"))
    assert "made a dataset of its arrays 19 times more" in arrays["text"]
    assert arrays["place"].startswith(line_of(name, "model.fit(x")) and "from_tensor_slices" in arrays["code"][0]

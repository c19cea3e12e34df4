"""Scripts whose input is slow: what makes it so is named with its line, its share and what to write."""

from __future__ import annotations

import pytest

from .test_causes import causes_in, line_of

pytestmark = pytest.mark.tensorflow


def test_what_makes_input_slow_is_named_with_its_line_and_what_to_write():
    causes = causes_in(name := "input_in_python.py")
    read, python, one = (causes[f"input_{kind}"] for kind in ("generator", "python_function", "sequential_map"))
    assert "from_generator(read) makes one example at a time in Python" in read["text"]
    assert read["place"].startswith(line_of(name, "from_generator(read")) and "yield x[i" in read["code"][0]
    assert "map(prepare) runs Python for one element at a time: tf.numpy_function" in python["text"]
    assert python["place"].startswith(line_of(name, "map(prepare"))
    assert one["place"].startswith(line_of(name, "map(augment")) and "num_parallel_calls" in one["code"][0]
    ahead = causes["input_no_prefetch"]
    assert ahead["place"].startswith(line_of(name, "prefetch(32)")) and (ahead["knob"], ahead["value"]) == (
        "prefetch",
        "auto",
    )

    causes = causes_in(name := "input_by_example.py")
    decode, scale = causes["input_map_after_cache"], causes["input_map_before_batch"]
    assert decode["place"].startswith(line_of(name, "map(decode, num")) and ".cache()" in decode["code"][0]
    assert "map(scale) is called for each example: in batches of 32" in scale["text"]
    seen = [cause for cause, one in causes_in(name, "mended").items() if one["count"]]  # not only supposed
    assert not any(cause.startswith("input_") for cause in seen)


def test_what_fit_reads_is_named_with_its_line_and_what_to_write():
    causes = causes_in(name := "input_of_fit.py")
    data, arrays = causes["input_py_dataset"], causes["input_arrays"]
    assert "Data makes its batches in one thread: workers=1" in data["text"] and "workers=4" in data["code"][0]
    assert data["place"].startswith(line_of(name, "def __getitem__"))
    assert "each `fit` makes a dataset of its arrays, 19 times" in arrays["text"]
    assert arrays["place"].startswith(line_of(name, "model.fit(x")) and "from_tensor_slices" in arrays["code"][0]

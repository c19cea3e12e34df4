"""Scripts with slow input: the cause is reported with its line, its share and the remedy."""

import json

import pytest
from support.processes import run_python

from .test_causes import causes_in, line_of

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


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
    assert "map(scale) is called for each example: in batches of 256" in scale["text"]
    seen = [cause for cause, one in causes_in(name, "mended").items() if one["count"]]  # not only supposed
    assert not any(cause.startswith("input_") for cause in seen)


def test_what_fit_reads_is_named_with_its_line_and_what_to_write():
    name = "input_of_fit.py"
    data, arrays = causes_in(name, "dataset")["input_py_dataset"], causes_in(name, "arrays")["input_arrays"]
    assert "Data makes its batches in one thread: workers=1" in data["text"] and "workers=4" in data["code"][0]
    assert data["place"].startswith(line_of(name, "def __getitem__"))
    assert "each `fit` makes a dataset of its arrays, 19 times" in arrays["text"]
    assert arrays["place"].startswith(line_of(name, "model.fit(x")) and "from_tensor_slices" in arrays["code"][0]


WASTE = """
import json
import tensorflow as tf
from tfmon.hooks import input_causes, input_waste
from tfmon.hooks.patches import hooks
from tfmon.hooks.pipeline_knobs import Pipeline

def work(x, y, size=96):
    return tf.image.resize(tf.image.resize(x, (size, size)), (8, 8)), y

def random(x, y):
    return tf.image.random_brightness(x, 0.1), y

def third(x, y):
    return y == 3

images, labels, auto = tf.zeros((480, 64, 64, 3)), tf.range(480) % 10, tf.data.AUTOTUNE
data = tf.data.Dataset.from_tensor_slices((images, labels))
mapped = lambda: data.map(work, num_parallel_calls=auto)
random_first = data.map(random, num_parallel_calls=auto)
by_result = mapped().map(lambda x, y: (x, y + tf.cast(tf.reduce_mean(x), tf.int32)), num_parallel_calls=auto)
windows = tf.data.Dataset.range(300).window(9, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(9))
made = {
    "skip": mapped().skip(240).batch(4),
    "skip first": data.skip(240).map(work, num_parallel_calls=auto).batch(4),
    "take": mapped().take(240).batch(4),
    "filter": mapped().filter(third).batch(2),
    "filter by result": by_result.filter(third).batch(2),
    "filter first": data.filter(third).map(work, num_parallel_calls=auto).batch(2),
    "shard": mapped().shard(4, 0).batch(4),
    "again": mapped().shuffle(30).batch(4),
    "random": random_first.map(work, num_parallel_calls=auto).batch(4),
    "kept": mapped().cache().shuffle(30).batch(4),
    "not kept": mapped().cache().take(240).batch(4),
    "not kept, shuffled": data.map(lambda x, y: work(x, y, 512)).cache().take(400).shuffle(400).batch(4),
    "kept, shuffled": mapped().take(400).cache().map(random, num_parallel_calls=auto).shuffle(400).batch(4),
    "windows": windows.map(lambda x: x + 1).batch(4),
    "sums": tf.data.Dataset.range(300).map(lambda x: x + 1).batch(4),
}
told, pipeline = {}, Pipeline(hooks, lambda: None, None)
for number, (name, dataset) in enumerate(made.items()):
    dataset._tfmon_at = "", number
    if name in ("windows", "sums"):  # their maps are cheap, also on a busy machine
        input_causes.CHEAP_NS = input_waste.CHEAP_NS = 20_000_000
    for epoch in range(2):
        iterator, seen = iter(dataset), None
        pipeline._read_first_wait(iterator, dataset)
        input_waste.begin_pass(dataset)
        for number, _ in enumerate(iterator):
            if epoch and number >= 5:  # tf.data drops the counts of a source at its end
                early = pipeline._early.get(dataset._tfmon_at, ())
                seen = input_causes.causes_of(iterator, dataset, "auto", early)
                break
    told[name] = {one.cause: one.figures for one in seen}
print(json.dumps(told))
"""


def test_work_in_vain_is_found_with_what_its_change_gives_back():
    told = json.loads(run_python("-c", WASTE).stdout.splitlines()[-1])
    assert {name: [*one] for name, one in told.items()} == {
        "skip": ["input_dropped"],
        "skip first": ["input_no_cache"],
        "take": ["input_no_cache"],
        "filter": ["input_dropped"],
        "filter by result": ["input_dropped"],
        "filter first": ["input_no_cache"],
        "shard": ["input_dropped"],
        "again": ["input_no_cache"],
        "random": [],
        "kept": [],
        "not kept": ["input_cache_discarded"],
        "not kept, shuffled": ["input_cache_discarded"],
        "kept, shuffled": [],
        "windows": ["input_windows"],
        "sums": ["input_map_before_batch"],
    }
    skip, filtered, by_result = (told[name]["input_dropped"] for name in ("skip", "filter", "filter by result"))
    assert (
        skip["wasted"] == 0.5 and filtered["wasted"] > 0.8 and filtered["can be moved"] and filtered["gain"] == 1.0
    )
    assert "gain" not in by_result, "this filter needs what the map makes"
    assert told["not kept"]["input_cache_discarded"]["gain"] == 0.5
    again = told["again"]["input_no_cache"]
    assert again["fits in memory"] and not again["shuffled before"] and 0 < again["gain"] < 0.6
    assert told["windows"]["input_windows"]["of_input"] == 1.0
    assert all(sum(figures["of_input"] for figures in one.values()) <= 1.0 for one in told.values())

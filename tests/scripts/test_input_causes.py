"""Work of a pipeline in vain, and the parts of a step's graph and of its batches, each with its line and share."""

import json
from types import SimpleNamespace

import pytest
from support.processes import run_python

from tfmon.hooks import step_causes
from tfmon.hooks.cause_reports import Observation
from tfmon.hooks.patches import hooks
from tfmon.hooks.pipeline_knobs import Pipeline
from tfmon.system.lane_clock import lane_clock

pytestmark = pytest.mark.tensorflow


WASTE = """
import json
import tensorflow as tf
from tfmon.hooks import input_causes
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
large = data.map(lambda x, y: work(x, y, 512)).cache().take(400)
small = mapped().take(400).cache().map(random, num_parallel_calls=auto)
made = {
    "skip": (mapped().skip(240).batch(4), "input_dropped"),
    "skip first": (data.skip(240).map(work, num_parallel_calls=auto).batch(4), "input_no_cache"),
    "take": (mapped().take(240).batch(4), "input_no_cache"),
    "filter": (mapped().filter(third).batch(2), "input_dropped"),
    "filter by result": (by_result.filter(third).batch(2), "input_dropped"),
    "filter first": (data.filter(third).map(work, num_parallel_calls=auto).batch(2), "input_no_cache"),
    "shard": (mapped().shard(4, 0).batch(4), "input_dropped"),
    "again": (mapped().shuffle(30).batch(4), "input_no_cache"),
    "after cache": (data.cache().map(work, num_parallel_calls=auto).batch(4), "input_map_after_cache"),
    "random": (random_first.map(work, num_parallel_calls=auto).batch(4), None),
    "kept": (mapped().cache().shuffle(30).batch(4), None),
    "not kept": (mapped().cache().take(240).batch(4), "input_cache_discarded"),
    "not kept, shuffled": (large.shuffle(400).batch(4), "input_cache_discarded"),
    "kept, shuffled": (small.shuffle(400).batch(4), None),
    "windows": (windows.map(lambda x: x + 1).batch(4), "input_windows"),
    "sums": (tf.data.Dataset.range(300).map(lambda x: x + 1).batch(4), "input_map_before_batch"),
}
told, pipeline = {}, Pipeline(hooks, lambda: None, None)
for number, (name, (dataset, expected)) in enumerate(made.items()):
    dataset._tfmon_at = "", number
    if name in ("windows", "sums"):  # their maps are cheap, also on a busy machine
        input_causes.CHEAP_NS = 20_000_000
    for epoch in range(2):
        iterator, seen = iter(dataset), None
        pipeline._read_first_wait(iterator, dataset)
        input_causes.begin_pass(dataset)
        for number, _ in enumerate(iterator):
            if epoch and number >= 5:  # tf.data drops the counts of a source at its end
                early = pipeline._early.get(dataset._tfmon_at, ())
                seen = input_causes.causes_of(iterator, dataset, "auto", early)
                break
    told[name] = {cause.cause: cause.figures for cause in seen}
    assert [*told[name]] == [expected] * bool(expected), (name, told[name])
print(json.dumps(told))
"""


@pytest.mark.slow
def test_work_in_vain_is_found_with_what_its_change_gives_back():
    ran = run_python("-c", WASTE)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    skip, filtered, by_result = (told[name]["input_dropped"] for name in ("skip", "filter", "filter by result"))
    assert skip["wasted"] == 0.5 and filtered["wasted"] > 0.8
    assert filtered["can be moved"] and filtered["gain"] == 1.0
    assert "gain" not in by_result, "this filter needs what the map makes"
    assert told["not kept"]["input_cache_discarded"]["gain"] == 0.5
    again = told["again"]["input_no_cache"]
    assert again["fits in memory"] and not again["shuffled before"] and 0 < again["gain"] < 0.6
    assert told["windows"]["input_windows"]["of_input"] == 1.0
    assert all(sum(figures["of_input"] for figures in one.values()) <= 1.0 for one in told.values())


def test_waits_between_the_last_look_and_the_end_of_the_run_count():
    meter = SimpleNamespace(all_waits_ns=lambda: 400)
    pipeline = Pipeline(hooks, lambda: SimpleNamespace(meter=meter), None)
    pipeline._slow = [cause] = [Observation("input_no_cache", "", figures={"of_input": 0.5})]
    pipeline._settled_ns = lane_clock.now_ns()
    pipeline.look()
    assert cause.cost_ns == 0, "too soon after the last look"
    pipeline.look(0)
    assert cause.cost_ns == 200


def test_cores_that_other_programs_use_are_not_idle(monkeypatch):
    counted = SimpleNamespace(now_ns=0, all_ns=0, suspended_ns=0)
    monkeypatch.setattr(step_causes, "_busy_ns", lambda: (counted.all_ns, counted.suspended_ns))
    monkeypatch.setattr(step_causes, "_cpu_ns", lambda: (counted.now_ns, counted.now_ns))
    monkeypatch.setattr(step_causes, "lane_clock", SimpleNamespace(now_ns=lambda: counted.now_ns))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = step_causes.StepCauses()
    for all_ns, suspended_ns, idle in ((100, 0, 0.5), (300, 0, 0.0), (500, 70, 0.5)):
        counted.now_ns, counted.all_ns, counted.suspended_ns = counted.now_ns + 100, all_ns, suspended_ns
        found.settle(counted.now_ns, counted.now_ns)
        assert found._idle == idle


GRAPHS = """
import json
import keras, numpy as np, tensorflow as tf
from tfmon.hooks import divided_data, graph_causes, padding, script_lines
from tfmon.hooks.cause_reports import causes
from tfmon.hooks.dataset_chain import stages_of, transformations

script_lines.patch_makers(keras)
padding.patch(keras)
layers = keras.layers
images = tf.TensorSpec((8, 32, 32, 3))

def parts(step, *given):
    graph = tf.function(step).get_concrete_function(*given).graph
    return {one.cause: [one.line, one.subject, round(one.share, 1), one.operations or one.figures] for one in
            graph_causes.parts_of(graph, 8)}

def of(*inner, shape=(32, 32, 3)):
    model = keras.Sequential([keras.Input(shape), *inner])
    return lambda x: model(x, training=True)

mixed = keras.mixed_precision.Policy("mixed_float16")
metrics = [keras.metrics.Recall(thresholds=[0.1, 0.5, 0.9]) for _ in range(12)]
for one in metrics:
    one.update_state(tf.ones((8, 2)), tf.ones((8, 2)))

def measures(x):
    for one in metrics:
        one.update_state(x, x)  # measured here

def gradients_of(call):
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(call(x))
        return tape.gradient(loss, tape.watched_variables())
    return step

def maps(x):
    return tf.map_fn(lambda row: row * 2.0, x)  # mapped here

told = {
    "plain": parts(of(layers.Conv2D(2, 3)), images),
    "augmented": parts(of(layers.RandomRotation(0.1), layers.Conv2D(2, 3)), images),
    "mapped": parts(maps, tf.TensorSpec((None, 3))),
    "ranges": parts(lambda x: tf.while_loop(lambda i, x: i < 9, lambda i, x: (i + 1, x * 2.0), (0, x)),
                    tf.TensorSpec((8, 3))),
    "unrolled": parts(of(layers.SimpleRNN(4, unroll=True), shape=(400, 2)), tf.TensorSpec((8, 400, 2))),
    "in 16 bits": parts(of(layers.Dense(4, dtype=mixed), shape=(6,)), tf.TensorSpec((8, 6))),
    "gradients in 16 bits": parts(gradients_of(of(layers.Conv2D(4, 3, dtype=mixed))), images),
    "measured": parts(measures, tf.TensorSpec((8, 2))),
}

# All operations, also those without a stack.
graph_causes.SAMPLE, graph_causes.LEAST_OPERATIONS, graph_causes.LEAST_UNROLLED = 100_000, 0, 0
both = of(layers.Bidirectional(layers.LSTM(4)), shape=(40, 2))
told["in both directions"] = parts(both, tf.TensorSpec((8, 40, 2)))

lengths = [*[20] * 31, 400] * 2
def rows():
    for length in lengths:
        yield np.ones(length, "int64")

def padding_in(dataset):
    iterator = iter(dataset)
    next(iterator)
    nodes = transformations(dataset, stages_of(iterator))
    return [[round(one.figures["of_step"], 1), one.line] for one in padding.padding_of(nodes)]

data = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([None], tf.int64))
told["padded"] = padding_in(data.padded_batch(32))
told["by length"] = padding_in(data.bucket_by_sequence_length(tf.size, [64], [32, 2]))
arrays = [[5, 6, 7, 8] * (length // 4) for length in lengths]
padded = keras.utils.pad_sequences(arrays)  # padded here
told["arrays"] = padding_in(tf.data.Dataset.from_tensor_slices(padded).batch(8))
told["classes"] = padding_in(tf.data.Dataset.from_tensor_slices(np.eye(40, dtype="int32")).batch(8))

def divided(first, second):
    causes.begin()
    divided_data.read(first, trains=True)
    divided_data.read(second, trains=False)
    return [one.cause for one in causes.news(all_of_them=True)]

numbers = tf.data.Dataset.range(90)
anew, kept = numbers.shuffle(90), numbers.shuffle(90).cache()
once = numbers.shuffle(90, reshuffle_each_iteration=False)
told["divided"] = {
    "anew": divided(anew.skip(30).batch(3), anew.take(30)),
    "once": divided(once.skip(30), once.take(30)),
    "kept": divided(kept.skip(30), kept.take(30)),
    "first": divided((peeked := numbers.shuffle(90)).batch(3), peeked.take(1)),
    "before": divided(numbers.skip(30).shuffle(60), numbers.take(30)),
}
print(json.dumps(told))
"""


def test_the_parts_of_a_step_are_found_with_their_lines(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(GRAPHS)
    ran = run_python(script)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])

    assert told["plain"] == told["ranges"] == told["in both directions"] == {}
    (place, _, share, _) = told["augmented"]["step_augmentation"]
    assert "RandomRotation" in place and share >= 0.5
    assert "# mapped here" in told["mapped"]["step_map_fn"][0]
    place, layer, _, figures = told["unrolled"]["trace_unrolled"]
    assert "unroll=True" in place and layer.startswith("simple_rnn") and figures["unrolled layer"]
    assert told["in 16 bits"]["step_16_bits"][1:] == ["float16", 0.9, ["MatMul"]]
    assert told["gradients in 16 bits"]["step_16_bits"][3][:2] == ["Conv2D", "Conv2DBackpropFilter"]
    assert "# measured here" in told["measured"]["step_metrics"][0]

    ((share, _),) = told["padded"]
    assert share == 0.9
    ((share, place),) = told["arrays"]
    assert share == 0.9 and "# padded here" in place
    assert told["by length"] == told["classes"] == []
    assert told["divided"] == {"anew": ["validation_shared"], "once": [], "kept": [], "first": [], "before": []}

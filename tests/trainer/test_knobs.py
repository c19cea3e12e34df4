"""Every knob and every variant has its documented effect."""

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import run_python
from support.waiting import PATIENCE_S

from tfmon.catalog import read_scenario
from tfmon.trainer import Scenario
from tfmon.trainer.batch_feed import Pipelines
from tfmon.trainer.scenario import load
from tfmon.trainer.setups import Steps

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

FOLDER = Path(__file__).parents[2] / "scenarios"


def built(name: str, **settings: Any) -> tuple[Any, Any, list[Any], Steps]:
    """Build a scenario: itself, its feed, the specs of a batch, and its steps."""
    info = read_scenario(FOLDER / f"{name}.py", "built-in")
    values = {**info.defaults(), **settings}
    scenario = load(info.path)(values)
    pipelines = Pipelines(scenario)
    signature = pipelines.signature(values)
    return scenario, pipelines.open(values), signature, Steps(scenario, signature)


def operations(steps: Steps, **settings: Any) -> list[str]:
    return [op.type for op in graph(steps, **settings).get_operations()]


def graph(steps: Steps, **settings: Any) -> Any:
    return steps.make({**steps._scenario._settings, **settings}).get_concrete_function().graph


def mapped(function: Any, **settings: Any) -> Any:
    """Return the batches of a scenario whose `prepare` calls a Python function for each example."""
    pipelines, values = mapped_pipelines(function, **settings)
    return pipelines.open(values).batches


def mapped_pipelines(function: Any, **settings: Any) -> tuple[Pipelines, dict[str, Any]]:
    """Return the pipelines of such a scenario, and its settings."""
    import tensorflow as tf

    class Mapped(Scenario):
        def data(self) -> Any:
            return np.arange(4.0)

        def prepare(self, x: Any) -> Any:
            return tf.numpy_function(function, [x], tf.float64)

    values = {"batch_size": 2, "prefetch": "off", "parallel_calls": "off", "cache": False, **settings}
    return Pipelines(Mapped(values)), values


def test_parallel_calls_prepares_examples_side_by_side_and_off_one_after_the_other(tf):
    inside, met = itertools.count(1), threading.Event()

    def meet(x: Any) -> Any:
        if next(inside) == 2:
            met.set()
        assert met.wait(PATIENCE_S), "the second example was not begun while the first one was worked on"
        return x

    next(mapped(meet, parallel_calls=2))
    assert met.is_set()
    busy = threading.Lock()

    def enter(x: Any) -> Any:
        assert busy.acquire(blocking=False)
        threading.Event().wait(0.02)
        busy.release()
        return x

    assert len(list(itertools.islice(mapped(enter), 4))) == 4


def test_cache_prepares_each_example_once_and_only_the_latest_caches_are_kept(tf):
    """A dataset holds its own cache, with all the data, for as long as it lives."""
    seen: list[float] = []

    def note(x: Any) -> Any:
        seen.append(float(x))
        return x

    list(itertools.islice(mapped(note, cache=False), 6))
    assert len(seen) == 12
    pipelines, values = mapped_pipelines(note, cache=True)

    def prepared(batch_size: int) -> int:
        before = len(seen)
        list(itertools.islice(pipelines.open({**values, "batch_size": batch_size}).batches, 8))
        return len(seen) - before

    assert [prepared(size) for size in (1, 2, 1, 2)] == [4, 4, 0, 0], "one press back is quick"
    assert [prepared(size) for size in (4, 1)] == [4, 4]


@pytest.mark.slow
def test_threads_limits_what_one_op_may_use():
    code = (
        "from tfmon.trainer import runtime; import tensorflow as tf; "
        "runtime.choose_device('cpu', 3); tf.constant(1.0) + 1; "
        "print('threads', tf.config.threading.get_intra_op_parallelism_threads())"
    )
    done = run_python("-c", code, folder=FOLDER.parent)
    assert "threads 3" in done.stdout, done.stderr


def test_variants_change_the_batches_or_the_step(tf):
    for variant, dtype in (("in-model", "string"), ("in-tf-data", "int64")):
        assert built("text_tiny", variant=variant)[2][0].dtype.name == dtype
    for variant in ("1023", "1024"):
        _, _, signature, steps = built("tensor_core_shapes", variant=variant)
        assert signature[0].shape[1] == int(variant)
        assert max(weight.shape[0] for weight in steps._model.trainable_weights) == int(variant)
    for variant, loops in (("loop", True), ("unrolled", False)):
        _, _, signature, steps = built("sequential_rnn", variant=variant, sequence_length=8)
        assert signature[0].shape[1] == 8
        assert any("While" in kind for kind in operations(steps)) is loops


@pytest.mark.parametrize(("variant", "sorts"), [("map", False), ("in-step", True), ("sleep", False)])
def test_slow_preprocess_works_in_the_step_or_before_it(tf, variant, sorts):
    _, _, _, steps = built("slow_preprocess", variant=variant)
    functions = graph(steps).as_graph_def().library.function
    everything = operations(steps) + [node.op for function in functions for node in function.node_def]
    assert ("TopKV2" in everything) is sorts


@pytest.mark.parametrize(("variant", "kind"), [("add", "AddV2"), ("matmul", "MatMul")])
def test_fine_grained_ops_chains_a_hundred_of_its_kind(tf, variant, kind):
    _, _, _, steps = built("fine_grained_ops", variant=variant, size=12)
    chained = [op for op in graph(steps).get_operations() if op.type == kind]
    assert len(chained) == 100
    assert chained[-1].outputs[0].shape == (12, 12)


@pytest.mark.parametrize(
    ("variant", "same"), [("host-feed", False), ("host-batch", True), ("device-resident", True)]
)
def test_host_transfer_feeds_new_batches_or_one_again(tf, variant, same):
    _, feed, _, _ = built("host_transfer", variant=variant, element_kib=4)
    first, second = itertools.islice(feed.batches, 1, 3)
    assert (first[0] is second[0]) is same
    assert first[0][0].numpy().nbytes == 4 * 1024


@pytest.mark.parametrize(("variant", "pinned"), [("pinned", True), ("free", False)])
def test_op_placement_pins_one_op(tf, variant, pinned):
    _, _, _, steps = built("op_placement", variant=variant)
    devices = {op.device for op in graph(steps).get_operations() if op.type == "Relu"}
    assert any("CPU:0" in device for device in devices) is pinned


def test_model_creation_clones_or_builds_and_lets_go(tf, monkeypatch):
    cloned: list[Any] = []
    clone = tf.keras.models.clone_model
    monkeypatch.setattr(tf.keras.models, "clone_model", lambda model: cloned.append(model) or clone(model))
    for variant, clones in (("warm", 2), ("cold", 0)):
        cloned.clear()
        scenario, _, _, steps = built("model_creation", variant=variant, width=16, depth=3)
        step = steps.make(scenario._settings)
        step()
        step()
        assert len(cloned) == clones
    assert [layer.units for layer in scenario.build().layers] == [16, 16, 16, 10]


@pytest.mark.parametrize(("variant", "python"), [("loop", True), ("tf-data", False)])
def test_python_feed_loops_in_python_or_not(tf, variant, python):
    scenario, feed, _, steps = built("python_feed", variant=variant)
    step = steps.make(scenario._settings)
    assert getattr(step, "runs_in_python", False) is python
    assert isinstance(next(feed.batches)[0], np.ndarray) is python

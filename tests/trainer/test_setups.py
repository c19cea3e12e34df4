"""The training step in every form of the knobs: each has its effect, and the weights stay."""

import queue
import threading
from typing import Any

import numpy as np
import pytest
from support.waiting import PATIENCE_S, wait_for

from tfmon.model.knobs import KnobError
from tfmon.model.requests import SetKnob
from tfmon.trainer import Scenario, runs_in_python
from tfmon.trainer.batch_feed import BatchFeed, Pipelines
from tfmon.trainer.setups import SetupBuilder, Steps

from .running import OneStep
from .test_pipeline import scenario, settings

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

PLAIN = {"graph": True, "xla": False, "mixed_precision": "off", "sync_every_step": False}
BATCH = (np.ones((4, 8), np.float32), np.zeros(4, np.int64))


@pytest.fixture
def steps(tf: Any) -> Steps:
    class Net(Scenario):
        def model(self) -> Any:
            model = tf.keras.Sequential(
                [tf.keras.Input((8,)), tf.keras.layers.Dense(16), tf.keras.layers.Dense(2, activation="softmax")]
            )
            model.compile(tf.keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
            return model

    return Steps(Net(PLAIN), [tf.TensorSpec([None, 8]), tf.TensorSpec([None], tf.int64)])


def graph_of(step: Any) -> Any:
    return step.get_concrete_function().graph


def kernels(step: Any) -> set[str]:
    """Return the types that the products of a step's graph are computed in."""
    return {op.outputs[0].dtype.name for op in graph_of(step).get_operations() if op.type == "MatMul"}


def test_graph_runs_one_function_and_eager_none(tf, steps):
    inside: list[bool] = []
    steps._scenario.step = lambda _model: lambda x, y: inside.append(tf.executing_eagerly()) or tf.reduce_sum(x)
    steps.make(PLAIN)(*BATCH)
    steps.make(PLAIN)(*BATCH)
    assert inside == [False]
    steps.make({**PLAIN, "graph": False})(*BATCH)
    steps.make({**PLAIN, "graph": False})(*BATCH)
    assert inside == [False, True, True]


def test_xla_compiles_the_function(steps):
    def must_compile(settings: dict[str, Any]) -> bool:
        function = steps.make(settings).get_concrete_function()
        return bool(function.function_def.attr["_XlaMustCompile"].b)

    assert must_compile({**PLAIN, "xla": True})
    assert not must_compile(PLAIN)


def test_xla_needs_a_graph(steps):
    with pytest.raises(KnobError, match="graph=on"):
        steps.check({**PLAIN, "xla": True, "graph": False})
    steps.check({**PLAIN, "xla": True})


@pytest.mark.parametrize(
    ("value", "computed"), [("off", "float32"), ("bfloat16", "bfloat16"), ("float16", "float16")]
)
def test_mixed_precision_computes_in_16_bits_with_weights_in_32(steps, value, computed):
    step = steps.make({**PLAIN, "mixed_precision": value})
    assert kernels(step) == {computed}
    assert {variable.dtype for variable in steps._model.variables} == {"float32"}
    assert np.isfinite(float(step(*BATCH)))


def test_all_forms_train_the_same_weights_and_optimizer(steps):
    variables = [*steps._model.trainable_variables]
    optimizer = steps._model.optimizer
    losses = []
    for change in (
        {},
        {"graph": False},
        {"xla": True},
        {"mixed_precision": "bfloat16"},
        {"mixed_precision": "float16"},
    ):
        step = steps.make({**PLAIN, **change})
        losses += [float(step(*BATCH)) for _ in range(4)]
    assert all(now is before for now, before in zip(steps._model.trainable_variables, variables, strict=True))
    assert losses[-1] < losses[8] < losses[0]
    assert int(optimizer.iterations) == 20
    kept = steps.make(PLAIN)
    steps.make({**PLAIN, "mixed_precision": "bfloat16"})
    assert steps.make(PLAIN) is kept and kernels(kept) == {"float32"}


def test_a_step_that_runs_in_python_is_called_as_it_is(steps):
    @runs_in_python
    def own(x: Any, y: Any) -> int:
        return len(x)

    steps._scenario.step = lambda _model: own
    assert steps.make(PLAIN) is own


def start(pipelines: Pipelines) -> tuple[SetupBuilder, queue.Queue[Any]]:
    delivered: queue.Queue[Any] = queue.Queue()
    builder = SetupBuilder(
        pipelines, OneStep(print), lambda ready: delivered.put((ready.request, ready.result)), pytest.fail
    )
    builder.build(settings(4))
    builder.start()
    return builder, delivered


def test_a_request_does_not_wait_until_the_replaced_pipeline_is_destroyed(tf):
    ending, ended = threading.Event(), threading.Event()

    class Slow:
        def __del__(self) -> None:
            ending.set()
            ended.wait(PATIENCE_S)

    builder, delivered = start(Pipelines(scenario(np.arange(8.0))))
    try:
        builder.discard(BatchFeed(iter([Slow()]), 1))
        assert ending.wait(PATIENCE_S)
        request = SetKnob(request=1, knob="batch_size", value=2)
        builder.request(request)
        assert delivered.get(timeout=PATIENCE_S)[0] is request
        assert not builder.idle and builder.took_time() and builder.took_time(), "it is still being destroyed"
    finally:
        ended.set()
    wait_for(lambda: builder.idle, what="the end of the pipeline")
    assert builder.took_time() and not builder.took_time()

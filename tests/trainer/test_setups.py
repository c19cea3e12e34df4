"""The training step in every form of the knobs: each has its effect, and the weights stay."""

import ctypes
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tfmon.model.knobs import KnobError
from tfmon.trainer import Scenario, runtime
from tfmon.trainer.setups import Steps

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


def kernels(step: Any) -> set[str]:
    """Return the types that the products of a step's graph are computed in."""
    operations = step.get_concrete_function().graph.get_operations()
    return {op.outputs[0].dtype.name for op in operations if op.type == "MatMul"}


def test_graph_runs_one_function_and_eager_none(tf, steps):
    inside: list[bool] = []
    steps._scenario.step = lambda _model: lambda x, y: inside.append(tf.executing_eagerly()) or tf.reduce_sum(x)
    for graph in (True, True, False, False):
        steps.make({**PLAIN, "graph": graph})(*BATCH)
    assert inside == [False, True, True]


def test_xla_needs_a_graph(steps):
    with pytest.raises(KnobError, match="graph=on"):
        steps.check({**PLAIN, "xla": True, "graph": False})
    steps.check({**PLAIN, "xla": True})


def test_all_forms_have_their_effect_and_train_the_same_weights_and_optimizer(steps):
    variables = [*steps._model.trainable_variables]
    optimizer = steps._model.optimizer
    losses = []
    for change, computed in (
        ({}, "float32"),
        ({"graph": False}, None),
        ({"xla": True}, "float32"),
        ({"mixed_precision": "bfloat16"}, "bfloat16"),
        ({"mixed_precision": "float16"}, "float16"),
    ):
        step = steps.make({**PLAIN, **change})
        if computed is not None:
            assert kernels(step) == {computed}
            function = step.get_concrete_function().function_def
            assert bool(function.attr["_XlaMustCompile"].b) is ("xla" in change)
        losses += [float(step(*BATCH)) for _ in range(4)]
    assert {variable.dtype for variable in steps._model.variables} == {"float32"}
    assert all(now is before for now, before in zip(steps._model.trainable_variables, variables, strict=True))
    assert losses[-1] < losses[8] < losses[0] and np.isfinite(losses).all()
    assert int(optimizer.iterations) == 20
    kept = steps.make(PLAIN)
    steps.make({**PLAIN, "mixed_precision": "bfloat16"})
    assert steps.make(PLAIN) is kept and kernels(kept) == {"float32"}


class Cuda:
    """A CUDA library with one device, whose calls return these error codes."""

    def __init__(self, init: int = 0, get: int = 0, uuid: int = 0) -> None:
        self.cuInit = lambda _flags: init
        self.cuDeviceGet = lambda _device, _index: get
        self.cuDeviceGetUuid_v2 = lambda raw, _device: raw.__setitem__(slice(None), range(16)) or uuid


def test_the_uuid_is_as_the_driver_writes_it_and_none_where_cuda_does_not_tell_it(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Cuda())
    assert runtime.gpu_uuids() == ("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",)
    assert len(runtime.gpu_uuids(3)) == 3
    for call in ("init", "get", "uuid"):
        monkeypatch.setattr(ctypes, "CDLL", lambda _name, call=call: Cuda(**{call: 100}))
        assert runtime.gpu_uuids() == ()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())  # a library that is too old
    assert runtime.gpu_uuids() == ()
    monkeypatch.setattr(ctypes, "CDLL", Mock(side_effect=OSError("libcuda.so.1: cannot open shared object file")))
    assert runtime.gpu_uuids() == ()


def test_memory_that_tensorflow_does_not_tell_is_none_and_not_zero(tf):
    assert [runtime.gpu_memory(kind) for kind in ("cpu", "gpu")] == [(None, None)] * 2

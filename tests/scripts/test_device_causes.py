"""Causes of a badly used GPU, found in models of Keras. No GPU is needed."""

import pytest

from tfmon.hooks.cause_reports import Causes
from tfmon.hooks.device_causes import see, without_cudnn

pytestmark = pytest.mark.tensorflow


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

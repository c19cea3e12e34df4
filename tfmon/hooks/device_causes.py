"""Finds why a Keras model uses its GPU badly.

Source: `backend.tensorflow.rnn.cudnn_ok` and `inner_loop` of Keras 3, `_could_use_gpu_kernel` of legacy Keras.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfmon.hooks.apply_settings import compiled_by_xla, is_deterministic
from tfmon.hooks.cause_reports import Causes
from tfmon.model.knobs import show

_NEEDS = (("activation", "tanh"), ("recurrent_activation", "sigmoid"))
_VALUES = (("use_bias", True), ("unroll", False), ("recurrent_dropout", 0), ("reset_after", True))
_CELLS = ("LSTMCell", "GRUCell")


def see(causes: Causes, model: Any, line: str) -> None:
    """Report why the GPU is used badly."""
    for name, reason in without_cudnn(model):
        causes.saw("gpu_no_cudnn", line, subject=name, what=reason)
    if is_deterministic() and not compiled_by_xla(model):
        causes.saw("gpu_deterministic", line, subject="op determinism")
    on_cpu = [weight for weight in model.trainable_weights if _is_on_cpu(weight)]
    if on_cpu:
        causes.saw(
            "gpu_weights_on_cpu",
            line,
            subject=str(getattr(on_cpu[0], "path", on_cpu[0].name)),
            what=f"{len(on_cpu)} of {len(model.trainable_weights)}",
        )


def without_cudnn(model: Any) -> Iterator[tuple[str, str]]:
    """Yield layers that cannot use cuDNN, and why."""
    flatten = getattr(model, "_flatten_layers", None)
    for layer in flatten() if flatten is not None else ():
        kind = next((base.__name__ for base in type(layer).__mro__ if base.__name__ in ("LSTM", "GRU")), "")
        cell = type(getattr(layer, "cell", None)).__name__
        if not kind:
            if cell in _CELLS:
                yield layer.name, f"it is an RNN around an {cell}: only LSTM and GRU use cuDNN"
            continue
        reasons = []
        for name, needed in _NEEDS:
            actual = getattr(getattr(layer, name, None), "__name__", needed)
            if actual != needed:
                reasons.append(f"{name}={actual}")
        for name, value in _VALUES:
            actual = getattr(layer, name, value)
            if name in ("use_bias", "unroll", "reset_after"):
                actual = bool(actual)
            if actual != value and not (name == "reset_after" and kind == "LSTM"):
                reasons.append(f"{name}={actual if isinstance(actual, bool) else show(actual)}")
        if getattr(layer, "use_cudnn", "auto") is False:
            reasons.append("use_cudnn=False")
        if reasons:
            yield layer.name, ", ".join(reasons)


def _is_on_cpu(weight: Any) -> bool:
    inner = getattr(weight, "value", weight)
    device = str(getattr(inner() if callable(inner) else inner, "device", ""))
    return "CPU" in device.rpartition("/")[2].upper()

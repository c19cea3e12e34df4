"""Applies the settings of a lane through the public API of TensorFlow and Keras.

If the script overrides a lever, the lane ends.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfmon.hooks.optimizers import Offers
from tfmon.hooks.patches import Hooks, unseen
from tfmon.model.knobs import (
    ALLOCATOR,
    INTER_THREADS,
    LEVERS,
    MIXED_PRECISION,
    STEPS_PER_EXECUTION,
    THREADS,
    XLA,
    Knob,
    KnobError,
    KnobValue,
    show,
)
from tfmon.model.lane_events import COMPILES, EAGER, RUN_EAGERLY
from tfmon.system.lane_pipes import SETTINGS

ARGUMENTS = {XLA.name: "jit_compile", STEPS_PER_EXECUTION.name: "steps_per_execution"}
POLICIES = {"off": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
VARIABLE = "TF_GPU_ALLOCATOR"
FROM_START = "{} takes effect when the script starts: end it, and start it with --set {}={}"
SETS_ITSELF = "the script sets it to {} itself, or used TensorFlow before it could be set"
EAGERLY = "the script compiles the model with run_eagerly=True"
NO_XLA = "Keras turns it off for this model, which has a layer that XLA cannot compile"
NO_GPU = "allocator is for a lane with a GPU"


def requested_settings() -> dict[str, KnobValue]:
    """Return the settings on the command line."""
    settings: dict[str, KnobValue] = json.loads(os.environ.get(SETTINGS, "{}"))
    return settings


def requested(knob: Knob) -> KnobValue | None:
    """Return a knob's value on the command line. Raises KnobError."""
    value = requested_settings().get(knob.name)
    return knob.parse(value) if isinstance(value, str) else value if value is None else knob.check(value)


class Levers:
    """The knobs of the command line that act from the start. Thread: any."""

    def __init__(self) -> None:
        self.requested: dict[str, KnobValue] = {}
        for knob in LEVERS:
            with contextlib.suppress(KnobError):
                if (value := requested(knob)) is not None:
                    self.requested[knob.name] = value
        self._in_effect: dict[str, Callable[[], KnobValue]] = {}
        self._why: dict[str, str] = {}

    def loaded_tensorflow(self, tf: Any) -> None:
        """Set threads and allocator before TensorFlow is used."""
        threading = tf.config.threading
        for knob, kind in ((THREADS, "intra"), (INTER_THREADS, "inter")):
            value = self.requested.get(knob.name)
            if value is None:
                continue
            with contextlib.suppress(RuntimeError, ValueError):  # TensorFlow is in use already
                getattr(threading, f"set_{kind}_op_parallelism_threads")(0 if value == "auto" else value)
            self._in_effect[knob.name] = functools.partial(_threads, threading, kind)
        if ALLOCATOR.name in self.requested:
            if self.requested[ALLOCATOR.name] == ALLOCATOR.default:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = str(self.requested[ALLOCATOR.name])
            self._in_effect[ALLOCATOR.name] = lambda: os.environ.get(VARIABLE, ALLOCATOR.default)

    def loaded_keras(self, keras: Any, hooks: Hooks) -> None:
        """Apply the precision policy and the arguments of `compile`."""
        if (value := self.requested.get(MIXED_PRECISION.name)) is not None:
            policies = keras.mixed_precision
            policies.set_global_policy(POLICIES[str(value)])
            self._in_effect[MIXED_PRECISION.name] = functools.partial(_precision_of, keras)
        if any(name in self.requested for name in ARGUMENTS):
            owner = next(kind for kind in keras.Model.__mro__ if "compile" in kind.__dict__)
            hooks.replace(owner, "compile", self._compile)

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def compile_(model: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(model, *args, **kwargs)
            except TypeError:
                return original(model, *args, **kwargs)
            for name, argument in ARGUMENTS.items():
                if name in self.requested:
                    bound.arguments[argument] = self.requested[name]
            try:
                result = original(*bound.args, **bound.kwargs)
            except BaseException as error:
                unseen(error)
                raise
            for name, read in ((XLA.name, compiled_by_xla), (STEPS_PER_EXECUTION.name, steps_in_call)):
                if name in self.requested:
                    value = read(model)
                    self._in_effect[name] = functools.partial(_same, value)
                    if name == XLA.name and not value:
                        self._why[name] = EAGERLY if model.run_eagerly else NO_XLA
            return result

        return compile_

    def offer(self, lane: Offers, device: str) -> None:
        """Report the levers, and end the lane if one is overridden."""
        for knob in LEVERS:
            if knob.name not in self._in_effect:
                continue
            requested, value = self.requested[knob.name], self._in_effect[knob.name]()
            if value != requested:
                reason = self._why.get(knob.name) or SETS_ITSELF.format(show(value))
                lane.fail("scenario", f"{knob.name}={show(requested)} is not in effect: {reason}")
                return
            if knob is ALLOCATOR and device == "cpu":
                lane.fail("scenario", NO_GPU)
                return
            lane.offer(replace(knob, default=value), functools.partial(_stay, knob, value))


def compiled_by_xla(model: Any) -> bool:
    """Return whether XLA compiles the train function."""
    return bool(getattr(model, "jit_compile", None) or getattr(model, "_jit_compile", None))


def traits_of(model: Any) -> list[str]:
    """Return the traits of a compiled model's steps."""
    if model.run_eagerly:
        return [EAGER, RUN_EAGERLY]
    parts = [*getattr(model, "_flatten_layers", list)(), model.optimizer]
    supports = all(getattr(part, "supports_jit", getattr(part, "jit_compile", True)) for part in parts)
    return [COMPILES] if supports and hasattr(model, "supports_jit") and not is_deterministic() else []


def steps_in_call(model: Any) -> int:
    """Return the steps per call of the train function."""
    steps: Any = getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", None)
    return max(1, int(steps.numpy() if hasattr(steps, "numpy") else steps or 1))


def _precision_of(keras: Any) -> KnobValue:
    name = str(keras.mixed_precision.global_policy().name)
    return next((value for value, policy in POLICIES.items() if policy == name), name)


def resolved(keras: Any, model: Any) -> dict[str, KnobValue]:
    """Return the values that Keras chose."""
    policy = getattr(getattr(model, "dtype_policy", None), "name", None)
    precision = next((value for value, name in POLICIES.items() if name == policy), None)
    return {
        XLA.name: compiled_by_xla(model) and not model.run_eagerly,
        MIXED_PRECISION.name: _precision_of(keras) if precision is None else precision,
    }


def defaults() -> dict[str, str]:
    """Return the defaults that TensorFlow chose."""
    tf: Any = sys.modules.get("tensorflow")
    if tf is None:
        return {}
    from tensorflow.python.eager.context import global_seed

    threading, config = tf.config.threading, tf.config.experimental
    return {
        "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "unset"),
        "TF32": show(bool(config.tensor_float_32_execution_enabled())),
        "op determinism": show(is_deterministic()),
        "seed": "none" if (seed := global_seed()) is None else str(seed),
        "threads of an operation": str(_threads(threading, "intra")),
        "operations at a time": str(_threads(threading, "inter")),
    }


def is_deterministic() -> bool:
    """Return whether operations are deterministic."""
    from tensorflow.python.framework.config import is_op_determinism_enabled

    return bool(is_op_determinism_enabled())


def _same(value: KnobValue) -> KnobValue:
    return value


def _threads(threading: Any, kind: str) -> KnobValue:
    return int(getattr(threading, f"get_{kind}_op_parallelism_threads")()) or "auto"


def _stay(knob: Knob, value: KnobValue, requested: KnobValue) -> None:
    if requested != value:
        raise KnobError(FROM_START.format(knob.name, knob.name, show(requested)))


levers = Levers()

"""Patches the methods of Keras models.

Each call gets a callback, which must not have batch methods: Keras would read the loss after every step.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from tfmon.hooks.apply_settings import traits_of
from tfmon.hooks.callbacks import sees_batches, timed_methods
from tfmon.hooks.cause_reports import Observation, causes
from tfmon.hooks.dataset_chain import batch_size_of
from tfmon.hooks.inspection import leaves_of, line_now, rows_of
from tfmon.hooks.keras_fit import FitCall, loss_of
from tfmon.hooks.padding import padding_in_arrays
from tfmon.hooks.patches import NO_SCOPE, Around, hidden, hooks
from tfmon.hooks.script_process import process
from tfmon.hooks.step_causes import step_causes
from tfmon.model.lane_events import ON_BATCH
from tfmon.system.lane_clock import lane_clock
from tfmon.system.lane_pipes import USES

ADAPTED = ("TextVectorization", "Normalization", "Discretization", "StringLookup", "IntegerLookup")
LARGE_BATCH = 1_024
LEAST_NOTED = 2
WRITES = ("backup_dir", "filepath", "filename")
"""Attributes of Keras callbacks that contain output paths."""


def patch(keras: Any) -> None:
    """Patch the models of a Keras module."""
    for name in ("fit", "evaluate", "predict"):
        _replace(keras, name, functools.partial(_with_callback, doing=name, keras=keras))
    _replace(keras, "train_on_batch", hooks.around(_trains_on_batch))
    for name in ("test_on_batch", "predict_on_batch"):
        _replace(keras, name, hooks.around(_in_no_step))
    for name in ADAPTED:
        if (kind := getattr(keras.layers, name, None)) is not None:
            hooks.replace(kind, "adapt", hooks.around(_adapts))


def _adapts(layer: Any, data: Any = None, *_args: object, **_more: object) -> Around:
    began_ns = lane_clock.now_ns()
    yield None
    is_dataset = hasattr(data, "_inputs") and hasattr(data, "element_spec")
    size = batch_size_of(data) if is_dataset else 0
    if is_dataset and not size and getattr(data.element_spec, "shape", [0]) == []:
        size = 1  # of texts or numbers
    name, took_ns = type(layer).__name__, lane_clock.now_ns() - began_ns
    what = "one example at a time" if size == 1 else f"in batches of {size}" if size else ""
    seen = causes.saw("adapt_slow", line_now(), subject=name, what=what, cost_ns=took_ns)
    seen.kept = True
    if size:
        seen.figures["gain"] = max(0.0, 1.0 - size / LARGE_BATCH)


def _replace(keras: Any, name: str, make: Callable[[Any], Any]) -> None:
    owner = next(kind for kind in keras.Model.__mro__ if name in kind.__dict__)
    hooks.replace(owner, name, make)


def _aside(*_args: object, **_more: object) -> Around:
    steps = process.steps
    aside = steps.step_aside()
    try:
        yield hidden()
    finally:
        if aside:
            steps.come_back()


def _in_no_step(*_args: object, **_more: object) -> Around:
    lane = process.joined()
    traces = lane.control.traces if lane is not None and lane.measures_this_thread else None
    with traces.ignored() if traces is not None else NO_SCOPE:
        yield from _aside()


def _with_callback(original: Callable[..., Any], doing: str, keras: Any) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def with_callback(*args: Any, **kwargs: Any) -> Any:
        callback, pipeline = None, process.pipeline if doing == "fit" else None
        began_ns = causes.unnamed_ns
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)
        one_sample = False
        with hooks:
            one_sample = doing == "predict" and rows_of(bound.arguments.get("x")) == {1}
            callback = _callback_for(keras, bound.arguments, args[0], doing, one_sample=one_sample)
        if callback is None:
            return original(*args, **kwargs)
        bound.arguments["callbacks"] = [callback, *leaves_of(bound.arguments.get("callbacks") or [])]
        if pipeline is not None:
            is_dataset = hasattr(bound.arguments.get("x"), "element_spec")
            pipeline.fits(one_iterator=bound.arguments.get("steps_per_epoch") is not None, own_dataset=is_dataset)
        try:
            return original(*bound.args, **bound.kwargs)
        finally:
            with hooks:
                callback.call.close()
                if one_sample:
                    seen = _saw("one_sample", doing, began_ns)
                    computing_ns = seen.figures.get("computing_ns", 0.0) + callback.call.computing_ns
                    seen.figures |= {
                        "computing_ns": computing_ns,
                        "gain": max(0.0, 1 - computing_ns / seen.cost_ns),
                    }
                elif doing != "fit" and process.fit is None:
                    _saw("between_call", doing, began_ns)
                if pipeline is not None:
                    pipeline.fits(one_iterator=False)

    hook: Callable[..., Any] = hooks.around(_aside if doing == "fit" else _in_no_step)(with_callback)
    return hook


def _saw(cause: str, method: str, began_ns: int) -> Observation:
    return causes.saw(cause, line_now(), subject=method, cost_ns=max(1, causes.unnamed_ns - began_ns))


def _trains_on_batch(model: Any, *args: Any, **kwargs: Any) -> Around:
    steps, rows = process.steps, rows_of((args or tuple(kwargs.values()))[:2])
    function = model if min(rows, default=0) >= LEAST_NOTED else None
    if hooks.off or not steps.update_begins(function, rows):
        yield from _aside()
        return
    alike = steps.bundle.busy
    updater = steps.bundle.updater if alike else process.updater_of(model.optimizer)
    began_ns = causes.unnamed_ns if rows == {1} else 0
    try:
        result = yield None if alike else hidden()
    except GeneratorExit:
        steps.update_fails()
        raise
    if began_ns:
        _saw("one_sample", "train_on_batch", began_ns)
    if not steps.bundle.busy:
        steps.report.of_keras = (ON_BATCH, *traits_of(model))
    steps.update_ends(updater, loss_of(result), function=function, rows=tuple(rows))
    steps.report.of_keras = ()


def _callback_for(keras: Any, arguments: dict[str, Any], model: Any, doing: str, *, one_sample: bool) -> Any:
    lane, argument = process.join() if doing == "fit" else process.joined(), arguments.get("callbacks")
    if lane is None or not (lane.claims_thread() if doing == "fit" else lane.measures_this_thread):
        return None
    if isinstance(argument, keras.callbacks.CallbackList):
        return None
    callbacks = leaves_of(argument or [])
    shown = any(getattr(each, "write_graph", False) for each in callbacks)
    call = FitCall(keras, lane, model, doing, shown=shown)
    if doing == "fit" and _is_array(arguments.get("x")):
        call.arrays_since_ns = lane_clock.now_ns()
        for array in padding_in_arrays(arguments.get("x"), line_now()):
            step_causes.takes(array)
    call.sees_batches = any(map(sees_batches, callbacks))
    if doing == "fit":
        call.methods = [method for each in callbacks for method in timed_methods(keras, each, call)]
    call.backup = next((str(each.backup_dir) for each in callbacks if hasattr(each, "backup_dir")), "")
    if (uses := sys.modules.get(USES)) is not None:
        for path in (getattr(each, name, None) for each in callbacks for name in WRITES):
            if isinstance(path, str):
                uses.note(path, "w")
    return _callback(keras, call, one_sample=one_sample)


def _callback(keras: Any, call: FitCall, *, one_sample: bool) -> Any:

    class FitEvents(keras.callbacks.Callback):  # type: ignore[misc]
        on_train_begin = hooks.guard(lambda self, logs=None: call.begin(self.params or {}))
        on_epoch_begin = hooks.guard(lambda self, epoch, logs=None: call.begin_epoch(epoch))
        on_epoch_end = hooks.guard(lambda self, epoch, logs=None: call.end_epoch(logs or {}))
        on_test_begin = on_predict_begin = hooks.guard(lambda self, logs=None: call.begin_test())
        on_test_end = hooks.guard(lambda self, logs=None: call.end_test())

    class OneSample(FitEvents):
        # Keras runs callbacks beside the steps only if none has such methods, so other calls have none of them.
        on_predict_batch_begin = hooks.guard(lambda self, batch, logs=None: call.computes(begins=True))
        on_predict_batch_end = hooks.guard(lambda self, batch, logs=None: call.computes(begins=False))

    callback = OneSample() if one_sample else FitEvents()
    callback.call = call
    return callback


def _is_array(value: Any) -> bool:
    leaves = leaves_of(value)
    return bool(leaves) and all(hasattr(leaf, "shape") and not hasattr(leaf, "element_spec") for leaf in leaves)

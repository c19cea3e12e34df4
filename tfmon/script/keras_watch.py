"""Watches a script's calls of Keras: `fit`, `train_on_batch`, `evaluate` and `predict`.

Each call gets a watcher (`keras_fit`) and a callback that marks epochs. The callback must not have batch methods:
Keras would read the loss after every step.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from tfmon.model.lane_clock import lane_clock
from tfmon.model.lane_pipes import USES
from tfmon.model.script_events import ON_BATCH
from tfmon.script import process, watched
from tfmon.script.causes import causes
from tfmon.script.hooking import FILES, NO_SCOPE, Watching, hidden, hooks, unseen
from tfmon.script.keras_fit import Watcher, loss_of
from tfmon.script.levers import traits_of
from tfmon.script.looking import LIBRARIES, leaves_of, line_of, rows_of, rows_of_part, users_frame
from tfmon.script.sources import nothing

FILES.add(__file__)
LEAST_NOTED = 2
"""Minimum batch size from which `train_on_batch` steps are noted in the bundle. A batch of one is a cause."""
BATCH_METHODS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
WRITES = ("backup_dir", "filepath", "filename")
"""Attributes of Keras callbacks that contain output paths."""


def watch(keras: Any) -> None:  # noqa: ANN401
    """Watch all models of this Keras or legacy Keras."""
    for name in ("fit", "evaluate", "predict"):
        _replace(keras, name, functools.partial(_with_callback, doing=name, keras=keras))
    _replace(keras, "train_on_batch", _train_on_batch)
    for name in ("test_on_batch", "predict_on_batch"):
        _replace(keras, name, hooks.around(_in_no_step))


def _replace(keras: Any, name: str, make: Callable[[Any], Any]) -> None:  # noqa: ANN401
    owner = next(kind for kind in keras.Model.__mro__ if name in kind.__dict__)
    hooks.replace(owner, name, make)


def _aside(*_args: object, **_more: object) -> Watching:
    watcher = watched.watcher
    aside = watcher.step_aside()
    try:
        yield hidden()
    finally:
        if aside:
            watcher.come_back()


def _in_no_step(*_args: object, **_more: object) -> Watching:
    lane = process.joined()
    traces = lane.control.traces if lane is not None and lane.measures_this_thread else None
    with traces.ignored() if traces is not None else NO_SCOPE:
        yield from _aside()


def _with_callback(own: Callable[..., Any], doing: str, keras: Any) -> Callable[..., Any]:  # noqa: ANN401
    signature = inspect.signature(own)

    def with_callback(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        callback, pipeline = None, watched.pipeline if doing == "fit" else None
        began_ns = causes.unnamed_ns
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return own(*args, **kwargs)
        with hooks:
            callback = _callback_for(keras, bound.arguments, args[0], doing)
        if callback is None:
            return own(*args, **kwargs)
        bound.arguments["callbacks"] = [callback, *leaves_of(bound.arguments.get("callbacks") or [])]
        if pipeline is not None:
            given = hasattr(bound.arguments.get("x"), "element_spec")
            pipeline.fits(one_iterator=bound.arguments.get("steps_per_epoch") is not None, own=given)
        try:
            return own(*bound.args, **bound.kwargs)
        finally:
            with hooks:
                callback.watcher.close()
                if doing == "predict" and rows_of(bound.arguments.get("x")) == {1}:
                    _saw("one_sample", doing, began_ns)
                elif doing != "fit" and Watcher.fit is None:
                    _saw("between_call", doing, began_ns)
                if pipeline is not None:
                    pipeline.fits(one_iterator=False)

    hook: Callable[..., Any] = hooks.around(_aside if doing == "fit" else _in_no_step)(with_callback)
    return hook


def _saw(cause: str, method: str, began_ns: int) -> None:
    causes.saw(cause, line_of(users_frame()), subject=method, cost_ns=causes.unnamed_ns - began_ns)


def _train_on_batch(own: Any) -> Any:  # noqa: ANN401
    seen = hooks.around(_trains_on_batch)(own)

    def train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        watcher = watched.watcher
        bundle = watcher.bundle
        try:
            if not args or not bundle.calls(model):
                return seen(model, *args, **kwargs)
            dims: list[int | None] = [None]
            with hooks:
                dims = [rows_of_part(part) for part in args[:2]]
            rows = dims[0] or 0
            if rows < LEAST_NOTED or not (bundle.source or bundle.begins(dims)):
                return seen(model, *args, **kwargs)
            bundle.next_function, bundle.busy = nothing, True
            try:
                result = own(model, *args, **kwargs)
            except BaseException:
                with hooks:
                    watcher.update_fails()
                raise
            bundle.given.append(rows)
            bundle.update(loss_of(result))
            return result
        except BaseException as error:
            unseen(error)
            raise

    return train_on_batch


def _trains_on_batch(model: Any, *args: Any, **kwargs: Any) -> Watching:  # noqa: ANN401
    updater, watcher = watched.updater_of(model.optimizer), watched.watcher
    if hooks.off or not watcher.update_begins():
        yield from _aside()
        return
    began_ns = causes.unnamed_ns
    try:
        result = yield hidden()
    except GeneratorExit:
        watcher.update_fails()
        raise
    rows = rows_of((args or tuple(kwargs.values()))[:2])
    if rows == {1}:
        _saw("one_sample", "train_on_batch", began_ns)
    watcher.gradient(tuple(rows))
    watcher.report.of_keras = (ON_BATCH, *traits_of(model))
    watcher.update_ends(updater, loss_of(result), function=model if min(rows, default=0) >= LEAST_NOTED else None)
    watcher.report.of_keras = ()
    if watched.tensorflow is not None:
        watched.tensorflow.optimizer_trains(updater)


def _callback_for(keras: Any, arguments: dict[str, Any], model: Any, doing: str) -> Any:  # noqa: ANN401
    """Return the callback for a call. None if the call is not the lane's, or accepts no other callback."""
    lane, given = process.join() if doing == "fit" else process.joined(), arguments.get("callbacks")
    if lane is None or not (lane.claims_thread() if doing == "fit" else lane.measures_this_thread):
        return None
    if isinstance(given, keras.callbacks.CallbackList):
        return None
    callbacks = leaves_of(given or [])
    shown = any(getattr(each, "write_graph", False) for each in callbacks)
    watcher = Watcher(keras, lane, model, doing, shown=shown)
    if doing == "fit" and _is_array(arguments.get("x")):
        watcher.arrays_since_ns = lane_clock.now_ns()
    watcher.sees_batches = any(map(_sees_batches, callbacks))
    for each in callbacks if doing == "fit" else ():
        _watch_callback(keras, type(each))
    watcher.backup = next((str(each.backup_dir) for each in callbacks if hasattr(each, "backup_dir")), "")
    if (uses := sys.modules.get(USES)) is not None:
        for path in (getattr(each, name, None) for each in callbacks for name in WRITES):
            if isinstance(path, str):
                uses.note(path, "w")  # much of it is written by libraries, and Python does not see that
    return _callback(keras, watcher)


def _sees_batches(callback: Any) -> bool:  # noqa: ANN401
    methods = (getattr(callback, name, None) for name in BATCH_METHODS)
    own = any(str(getattr(one, "__module__", "")).partition(".")[0] not in LIBRARIES for one in methods if one)
    return own or any(getattr(callback, name, "epoch") != "epoch" for name in ("save_freq", "update_freq"))


def _watch_callback(keras: Any, kind: type) -> None:  # noqa: ANN401
    """Time callbacks of this class at the end of an epoch. Skip local classes: the patch would keep them alive."""
    owner = next((one for one in kind.__mro__ if "on_epoch_end" in one.__dict__), None)
    if owner not in (None, keras.callbacks.Callback) and "<locals>" not in owner.__qualname__:
        hooks.replace(owner, "on_epoch_end", hooks.around(_times_callback))


def _times_callback(callback: Any, *_args: object, **_more: object) -> Watching:  # noqa: ANN401
    fit = Watcher.fit
    if fit is None or fit.in_callback or not fit.here:
        return
    fit.in_callback, began_ns, name = True, lane_clock.now_ns(), type(callback).__name__
    interrupted = fit.callback_begins(name)
    try:
        yield None
    finally:
        fit.in_callback = False
        fit.callback_ended(name, lane_clock.now_ns() - began_ns, interrupted)


def _callback(keras: Any, watcher: Watcher) -> Any:  # noqa: ANN401

    # Keras is loaded by the script, so its types are not known here.
    class FitEvents(keras.callbacks.Callback):  # type: ignore[misc]
        on_train_begin = hooks.guard(lambda self, logs=None: watcher.begin(self.params or {}))
        on_epoch_begin = hooks.guard(lambda self, epoch, logs=None: watcher.begin_epoch(epoch))
        on_epoch_end = hooks.guard(lambda self, epoch, logs=None: watcher.end_epoch(logs or {}))
        on_test_begin = on_predict_begin = hooks.guard(lambda self, logs=None: watcher.begin_test())
        on_test_end = hooks.guard(lambda self, logs=None: watcher.end_test())

    callback = FitEvents()
    callback.watcher = watcher
    return callback


def _is_array(value: Any) -> bool:  # noqa: ANN401
    """Return whether Keras makes a dataset of this value in each call of `fit`."""
    leaves = leaves_of(value)
    return bool(leaves) and all(hasattr(leaf, "shape") and not hasattr(leaf, "element_spec") for leaf in leaves)

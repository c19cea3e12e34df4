"""Watches what a script does with Keras: `fit`, `train_on_batch`, `evaluate` and `predict`.

Each call of the model's train function is timed, and a callback marks the epochs. The callback has no hook for
batches: with one, Keras would read the loss after every step, which the script itself may not do.

Source: `keras.Model`, whose `fit` calls `train_function(iterator)` once a step, or once for
`steps_per_execution` of them, between `on_train_begin` and `on_train_end`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from tfmon.model.knobs import Knob
from tfmon.model.lane_pipes import USES
from tfmon.model.script_events import Progressed
from tfmon.script import device_causes, process, watched
from tfmon.script.causes import causes
from tfmon.script.epochs import CALLBACK, VALIDATION, Epochs
from tfmon.script.hooking import FILES, Watching, hidden, hooks, unseen
from tfmon.script.knobs import offer_rate
from tfmon.script.lane import Lane
from tfmon.script.levers import levers, resolved, steps_in_call
from tfmon.script.looking import leaves_of, line_of, rows_of, users_frame
from tfmon.script.tf_feed import TensorFlowFeed, the_feed
from tfmon.script.watched import watcher

if TYPE_CHECKING:
    from tfmon.script.rounds import Updater

FILES.add(__file__)
_restored: tuple[int, str] | None = None
"""Epochs that were done before the first `fit` of this process, and the folder of its backup; None before it."""
WRITES = ("backup_dir", "filepath", "filename")
"""Attributes of Keras' callbacks that name what they write."""
SHOWN = "a callback of TensorBoard writes the graph"
MADE_ANEW = "the optimizer has made {} updates that were not seen: the train function was replaced while it ran"
_fitted: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that `fit` has trained: the next call builds nothing but its input."""
STOP = Knob(
    "stop_after_epoch", default=False, help="End `fit` when the epoch under way is over.", kind="live"
)  # fmt: skip


def watch(keras: Any) -> None:  # noqa: ANN401
    """Watch all models of this Keras, or legacy Keras, from now on."""
    for name in ("fit", "evaluate", "predict"):
        _replace(keras, name, functools.partial(_with_callback, doing=name, keras=keras))
    _replace(keras, "train_on_batch", hooks.around(_train_on_batch))
    for name in ("test_on_batch", "predict_on_batch"):
        _replace(keras, name, hooks.around(_aside))


def _replace(keras: Any, name: str, make: Callable[[Any], Any]) -> None:  # noqa: ANN401
    owner = next(kind for kind in keras.Model.__mro__ if name in kind.__dict__)
    hooks.replace(owner, name, make)


def _aside(*_args: object, **_more: object) -> Watching:
    """Have the watcher of loops overlook what Keras does."""
    aside = watcher.step_aside()
    try:
        yield hidden()
    finally:
        if aside:
            watcher.come_back()


def _with_callback(own: Callable[..., Any], doing: str, keras: Any) -> Callable[..., Any]:  # noqa: ANN401
    signature = inspect.signature(own)

    def with_callback(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        callback, pipeline = None, watched.pipeline if doing == "fit" else None
        began_ns = time.monotonic_ns()
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
            pipeline.fits(one_iterator=bound.arguments.get("steps_per_epoch") is not None)
        try:
            return own(*bound.args, **bound.kwargs)
        finally:
            with hooks:
                callback.watcher.close()
                if doing == "predict" and rows_of(bound.arguments.get("x")) == {1}:
                    _one_sample("predict", time.monotonic_ns() - began_ns)
                if pipeline is not None:
                    pipeline.fits(one_iterator=False)

    hook: Callable[..., Any] = hooks.around(_aside)(with_callback)
    return hook


def _one_sample(method: str, took_ns: int) -> None:
    causes.saw("one_sample", line_of(users_frame()), subject=method, cost_ns=took_ns)


def _train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Watching:  # noqa: ANN401
    """Make each call an update of the loop around it."""
    updater = watched.updater_of(model.optimizer)
    if hooks.off or not watcher.update_begins():
        yield from _aside()
        return
    began_ns = time.monotonic_ns()
    try:
        result = yield hidden()
    except GeneratorExit:
        watcher.update_fails()
        raise
    rows = rows_of((args or tuple(kwargs.values()))[:2])
    if rows == {1}:
        _one_sample("train_on_batch", time.monotonic_ns() - began_ns)
    watcher.gradient(tuple(rows))
    watcher.update_ends(updater, _loss_of(result))


def _callback_for(keras: Any, arguments: dict[str, Any], model: Any, doing: str) -> Any:  # noqa: ANN401
    """Return the callback that watches a call; None if it is not the lane's, or takes no other callback."""
    lane, given = process.join() if doing == "fit" else process.joined(), arguments.get("callbacks")
    if lane is None or not lane.measures_this_thread or isinstance(given, keras.callbacks.CallbackList):
        return None
    callbacks = leaves_of(given or [])
    shown = any(getattr(each, "write_graph", False) for each in callbacks)
    watcher = Watcher(keras, lane, model, doing, shown=shown)
    if doing == "fit" and _is_array(arguments.get("x")):
        watcher.arrays_since_ns = time.monotonic_ns()
    for each in callbacks if doing == "fit" else ():
        _watch_callback(keras, type(each))
    watcher.backup = next((str(each.backup_dir) for each in callbacks if hasattr(each, "backup_dir")), "")
    if (uses := sys.modules.get(USES)) is not None:
        for path in (getattr(each, name, None) for each in callbacks for name in WRITES):
            if isinstance(path, str):
                uses.note(path, "w")  # much of it is written by libraries, and Python does not see that
    return _callback(keras, watcher)


def _watch_callback(keras: Any, kind: type) -> None:  # noqa: ANN401
    """Have the time measured that a callback of this kind takes at the end of an epoch.

    A class that a function of the script makes is let be: it would be kept for ever.
    """
    owner = next((one for one in kind.__mro__ if "on_epoch_end" in one.__dict__), None)
    if owner not in (None, keras.callbacks.Callback) and "<locals>" not in owner.__qualname__:
        hooks.replace(owner, "on_epoch_end", hooks.around(_times_callback))


def _times_callback(callback: Any, *_args: object, **_more: object) -> Watching:  # noqa: ANN401
    fit = Watcher.fit
    if fit is None or fit.in_callback or not fit.here:
        return
    fit.in_callback, began_ns = True, time.monotonic_ns()
    try:
        yield None
    finally:
        fit.in_callback = False
        fit.callback_ended(type(callback).__name__, time.monotonic_ns() - began_ns)


def _callback(keras: Any, watcher: Watcher) -> Any:  # noqa: ANN401
    """Return a callback that tells a watcher about epochs and validation, and nothing else."""

    # Keras is loaded by the script, so its types are not known here.
    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        on_train_begin = hooks.guard(lambda self, logs=None: watcher.begin(self.params or {}))
        on_epoch_begin = hooks.guard(lambda self, epoch, logs=None: watcher.begin_epoch(epoch))
        on_epoch_end = hooks.guard(lambda self, epoch, logs=None: watcher.end_epoch(logs or {}))
        on_test_begin = on_predict_begin = hooks.guard(lambda self, logs=None: watcher.begin_test())
        on_test_end = hooks.guard(lambda self, logs=None: watcher.end_test())

    callback = Watch()
    callback.watcher = watcher
    return callback


class Timed:
    """A train function whose calls are the steps of a lane; all else, and each copy, is the function's own."""

    def __init__(self, own: Callable[..., Any], watcher: Watcher) -> None:
        self._own, self._watcher = own, watcher

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.__dict__["_own"], name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:  # noqa: ANN401
        return copy.deepcopy(self._own, memo)

    def __call__(self, *args: Any) -> Any:  # noqa: ANN401
        """Run the function, as one step or as several."""
        watcher = self._watcher
        with hooks:
            watcher.begin_call(args[0])
        try:
            result = self._own(*args)
        except BaseException as error:
            with hooks:
                watcher.end_call(failed=True)
            unseen(error)
            raise
        with hooks:
            watcher.end_call(_loss_of(result))
        return result


class Watcher:
    """Follows one call of `fit`, `evaluate` or `predict`. Thread: the one that trains."""

    fit: ClassVar[Watcher | None] = None
    """The `fit` under way, of which the callbacks are timed."""

    def __init__(self, keras: Any, lane: Lane, model: Any, doing: str, *, shown: bool) -> None:  # noqa: ANN401
        """Watch nothing yet; `shown`: a callback shows the script the graph of the train function."""
        self._keras, self._lane, self._doing = keras, lane, doing
        self._model: Callable[[], Any] = weakref.ref(model)
        self._shown, self._per_call = shown, 1
        self._feed: TensorFlowFeed | None = None
        self._own_function: Any = None
        self._timed: Any = None
        self._updater: Updater | None = None
        self._epoch = self._epochs = self._batch = self._epochs_done = 0
        self._batches: int | None = None
        self._metrics: dict[str, float] = {}
        self._now = doing
        self.backup = ""
        """The folder of the script's callback BackupAndRestore, if it has one."""
        self.arrays_since_ns = 0
        """When `fit` was called with arrays; 0 for anything else."""
        self._epochs_seen = Epochs()
        self._called_ns, self._in_epoch = 0, False
        self.in_callback = False
        self._test_began_ns = self._validation_ns = self._between_ns = 0
        self._this_validation_ns = 0

    def begin(self, params: dict[str, Any]) -> None:
        """Time the train function, and offer the knobs that Keras has."""
        lane, model = self._lane, self._model()
        if self.arrays_since_ns and model in _fitted:
            took_ns = time.monotonic_ns() - self.arrays_since_ns
            causes.saw("input_arrays", line_of(users_frame()), subject="fit", cost_ns=took_ns)
        _fitted.add(model)
        Watcher.fit = self
        self._epochs, self._batches = int(params.get("epochs") or 0), params.get("steps")
        self._own_function = own = model.train_function
        if isinstance(own, Timed):  # a callback of a `fit` fits the same model
            own = own._own
        if self._keras.backend.backend() == "tensorflow":
            lane.feed = self._feed = the_feed()
            self._feed.avoided = SHOWN if self._shown and hasattr(own, "function_spec") else ""
            lane.samples_steps = True
            lane.knobs.made_of_defaults(resolved(self._keras, model))
            if lane.device == "gpu":
                device_causes.see(causes, model, line_of(users_frame()))
        lane.report_model(sum(math.prod(int(n or 1) for n in weight.shape) for weight in model.trainable_weights))
        place = self._epochs_seen.place = line_of(users_frame())
        lane.tell_step(f"{place}: a batch")
        offer_rate(lane, model.optimizer)
        lane.offer(STOP, lambda value: None)
        levers.offer(lane, lane.device)
        self._per_call = steps_in_call(model)
        self._timed = model.train_function = Timed(own, self)
        self._updater = watched.updater_of(model.optimizer)

    def _watch_calls(self) -> None:
        """Time a train function that a callback has made again, too; compare with what the optimizer counts."""
        model = self._model()
        if model.train_function is not self._timed and not isinstance(model.train_function, Timed):
            self._own_function = model.train_function
            self._timed = model.train_function = Timed(self._own_function, self)
        updater = self._updater
        missed = 0 if updater is None else updater.missed()  # a train step may use another optimizer
        if updater is not None and missed > 0 and self._epoch:  # before the first epoch a backup was restored
            self._lane.cannot_know("steps", MADE_ANEW.format(missed // updater.every))

    def begin_call(self, iterator: object) -> None:
        """Record that the train function is called; its next pull is the step's."""
        if watched.pipeline is not None:
            watched.pipeline.keras_reads(iterator)
        self._lane.begin_step()
        if self._feed is not None:
            self._feed.follows = threading.get_ident()

    def end_call(self, loss: object = None, *, failed: bool = False) -> None:
        """Record the end of the call: that of a step, or of several, unless it failed."""
        if self._feed is not None:
            self._feed.follows = 0
        if failed:
            self._lane.cancel_step()
            return
        if self._updater is not None:
            self._updater.made += self._per_call
        most = self._per_call if self._batches is None else self._batches - self._batch
        steps = max(1, min(self._per_call, most))
        self._batch += steps
        self._lane.end_step(steps=steps, loss=loss)
        if self._batch == steps:
            self._epochs_seen.first_step(self._lane.all_waits_ns)
            self._called_ns = self._lane.called_ns

    def begin_epoch(self, epoch: int) -> None:
        """Record that an epoch begins."""
        gap_ns = self._lane.start_clock()
        self._epochs_seen.begins()
        self._in_epoch = True
        if self._epochs_done:
            self._between_ns += max(0, gap_ns - self._this_validation_ns)
        self._this_validation_ns = 0
        self._begins_at(epoch)
        self._watch_calls()
        self._epoch, self._batch, self._now = epoch + 1, 0, "fit"
        self._lane.report_progress(self._progress)

    def _begins_at(self, epoch: int) -> None:
        """Record how many epochs were done before the first epoch of the script."""
        global _restored
        if _restored is None and self._doing == "fit":
            _restored = epoch, self.backup

    def end_epoch(self, logs: dict[str, Any]) -> None:
        """Record that an epoch ended; its callbacks run now."""
        self._end_steps()
        if self._batches is None:
            self._batches = self._batch
        self._epochs_done += 1
        self._metrics = _numbers(logs)
        self._lane.report_progress(self._progress)
        if self._lane.knobs.settings.get(STOP.name):
            self._model().stop_training = True

    def _end_steps(self) -> None:
        """Stop the clock after the last step of an epoch: before its validation, or its end."""
        self._lane.stop_clock()
        if self._in_epoch:
            called_ns = self._lane.called_ns - self._called_ns if self._per_call == 1 else None
            self._epochs_seen.ends(self._batch, self._lane.all_waits_ns, called_ns)
        self._in_epoch = False

    @property
    def here(self) -> bool:
        """Whether the calling thread is the one that trains."""
        return self._lane.measures_this_thread

    def callback_ended(self, name: str, took_ns: int) -> None:
        """Record what one of the script's callbacks took at the end of an epoch."""
        causes.saw(CALLBACK, self._epochs_seen.place, subject=name, cost_ns=took_ns)

    def begin_test(self) -> None:
        """Record that Keras evaluates or predicts: those steps train nothing."""
        self._end_steps()
        self._test_began_ns = time.monotonic_ns()
        self._now = "validation" if self._doing == "fit" else self._doing
        self._lane.report_progress(self._progress)

    def end_test(self) -> None:
        """Record the end of an evaluation or prediction."""
        took_ns = time.monotonic_ns() - self._test_began_ns
        if self._now == "validation":
            causes.saw(VALIDATION, self._epochs_seen.place, cost_ns=took_ns)
        self._validation_ns += took_ns
        self._this_validation_ns += took_ns

    def close(self) -> None:
        """Leave the model as it was."""
        Watcher.fit = None if Watcher.fit is self else Watcher.fit
        model = self._model()
        if self._timed is not None and model.train_function is self._timed:
            model.train_function = self._own_function
        self._own_function = self._timed = None
        self._begins_at(getattr(model, "_initial_epoch", None) or 0)  # no epoch was left
        self._lane.stop_clock()
        self._now = ""
        self._lane.report_progress(self._progress)

    def _progress(self) -> Progressed:
        return Progressed(
            at_ns=time.monotonic_ns(),
            doing=self._now,
            epoch=self._epoch,
            epochs=self._epochs,
            batch=self._batch,
            batches=self._batches,
            metrics=self._metrics,
            epochs_done=self._epochs_done,
            validation_ns=self._validation_ns,
            between_ns=self._between_ns,
            restored=_restored[0] if _restored else 0,
            backup=_restored[1] if _restored else "",
        )


def _is_array(value: Any) -> bool:  # noqa: ANN401
    """Return whether Keras makes a dataset of this in each call of `fit`."""
    leaves = leaves_of(value)
    return bool(leaves) and all(hasattr(leaf, "shape") and not hasattr(leaf, "element_spec") for leaf in leaves)


def _loss_of(result: Any) -> Any:  # noqa: ANN401
    """Return the loss, or what is first named so, in what a train function returned, unread; None for none."""
    if isinstance(result, dict):
        named = (value for name, value in result.items() if str(name).endswith("loss"))
        return result.get("loss", next(named, None))
    return next(iter(result), None) if isinstance(result, tuple | list) else result


def _numbers(logs: dict[str, Any]) -> dict[str, float]:
    result = {}
    for name, value in logs.items():
        try:
            result[str(name)] = float(value)
        except (TypeError, ValueError):
            continue
    return result

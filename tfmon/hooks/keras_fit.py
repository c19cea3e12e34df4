"""Follows one call of `fit`, `evaluate` or `predict` of Keras.

`train_function(iterator)` is called once per `steps_per_execution` steps.
"""

from __future__ import annotations

import contextlib
import copy
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfmon.hooks import device_causes, epochs
from tfmon.hooks.apply_settings import levers, resolved, steps_in_call, traits_of
from tfmon.hooks.callbacks import TimedMethod
from tfmon.hooks.cause_reports import causes
from tfmon.hooks.counts import NO_ROWS, is_batched
from tfmon.hooks.epochs import Epochs
from tfmon.hooks.inspection import line_now
from tfmon.hooks.libraries import functions_run_eagerly
from tfmon.hooks.meter import BETWEEN, OUTSIDE, VALIDATION
from tfmon.hooks.optimizers import offer_rate
from tfmon.hooks.patches import hooks, unseen
from tfmon.hooks.retracing import retracing
from tfmon.hooks.script_lane import Lane
from tfmon.hooks.script_process import process
from tfmon.hooks.sources import nothing
from tfmon.hooks.step_causes import step_causes
from tfmon.hooks.tf_feed import TensorFlowFeed, the_feed
from tfmon.model.knobs import STEPS_PER_EXECUTION, Knob
from tfmon.model.lane_events import FIT, SEES_BATCHES, Progressed
from tfmon.system.lane_clock import lane_clock

if TYPE_CHECKING:
    from tfmon.hooks.optimizers import Updater

SHOWN = "a callback of TensorBoard writes the graph"
MADE_ANEW = "{} of the optimizer not seen: the train function was replaced, updates twice, or its counter was set"
NO_LENGTH = "the number of batches is not known, and those of a call that runs several steps are not counted"
_fitted: weakref.WeakSet[Any] = weakref.WeakSet()
STOP = Knob(
    "stop_after_epoch", default=False, help="End `fit` when the epoch under way is over.", kind="live"
)  # fmt: skip


class Timed:
    """A wrapper of a train function that records each call."""

    def __init__(self, function: Callable[..., Any], call: FitCall) -> None:
        self._timed_function, self._call = function, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_timed_function"], name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._timed_function, memo)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        call = self._call
        try:
            call.begin_call(args[0])
        except Exception as error:
            if not hooks.handles(error):
                raise
        try:
            result = self._timed_function(*args)
        except BaseException as error:
            with hooks:
                call.end_call(failed=True)
            unseen(error)
            raise
        try:
            call.end_call(loss_of(result))
        except Exception as error:
            if not hooks.handles(error):
                raise
        return result


class FitCall:
    """One call of a method. Thread: the training thread."""

    def __init__(self, keras: Any, lane: Lane, model: Any, doing: str, *, shown: bool) -> None:
        self._keras, self.lane, self._doing = keras, lane, doing
        self._model: Callable[[], Any] = weakref.ref(model)
        self._shown, self._per_call, self._script_per_call = shown, 1, 1
        self._by_steps: dict[int, Any] = {}
        self._iterator: Any = None
        self._feed: TensorFlowFeed | None = None
        self._timed: Any = None
        self._updater: Updater | None = None
        self._epoch = self._epochs = self._batch = self._epochs_done = 0
        self._batches: int | None = None
        self._sized = True
        self._counted = self._examples = 0
        self._read: Callable[[], object] = nothing
        self._metrics: dict[str, float] = {}
        self._now = doing
        self.backup = ""
        """Folder of the BackupAndRestore callback."""
        self.methods: list[TimedMethod] = []
        self.sees_batches = False
        self.arrays_since_ns = 0
        self.line = ""
        """Line that called `fit`."""
        self._epochs_seen = Epochs()
        self._called_ns, self._in_epoch = 0, False
        self.in_callback = False
        self._suspended_ns = self._test_began_ns = self._validation_ns = self._between_ns = 0
        self._this_validation_ns = 0
        self._batch_began_ns = self.computing_ns = 0
        """Time of the batch of `predict` for one sample."""
        self._before = OUTSIDE

    def begin(self, params: dict[str, Any]) -> None:
        """Time the train function, and offer knobs."""
        lane, model = self.lane, self._model()
        if self.arrays_since_ns and model in _fitted:
            took_ns = lane_clock.now_ns() - self.arrays_since_ns
            causes.saw("input_arrays", line_now(), subject="fit", cost_ns=took_ns)
        _fitted.add(model)
        process.fit, step_causes.fitted = self, self._model
        self._epochs, self._batches = int(params.get("epochs") or 0), params.get("steps")
        self._sized = self._batches is not None
        function = model.train_function
        if isinstance(function, Timed):
            function = function._timed_function
        if self._keras.backend.backend() == "tensorflow":
            lane.meter.feed = self._feed = the_feed()
            self._feed.avoided = SHOWN if self._shown and hasattr(function, "function_spec") else ""
            self._feed.recall(_traced(function))
            self._examples = (self._feed.totals() or (0, 0))[1]
            lane.meter.samples_steps = True
            lane.knobs.made_of_defaults(resolved(self._keras, model))
        self.line = line = line_now()
        self._epochs_seen = Epochs(line)
        traits = traits_of(model) if self._feed is not None else []
        lane.describe_step(f"{line}: a batch", (FIT, *traits, *[SEES_BATCHES] * self.sees_batches))
        offer_rate(lane, model.optimizer)
        lane.offer(STOP, lambda value: None)
        levers.offer(lane, lane.device)
        self._per_call = self._script_per_call = steps_in_call(model)
        self._by_steps = {self._per_call: function}
        self._iterator = _iterator_of_fit(model)
        if self._iterator is not None and STEPS_PER_EXECUTION.name not in levers.requested:
            lane.offer(
                replace(STEPS_PER_EXECUTION, default=self._per_call, kind="live"),
                lambda steps: steps != self._per_call,
            )
        self._timed = model.train_function = Timed(function, self)
        self._updater = process.updater_of(model.optimizer)

    def _see_model(self) -> None:
        model = self._model()
        with contextlib.suppress(ValueError):
            if self.lane.device == "gpu" and self._feed is not None:
                device_causes.see(causes, model, self.line)
            if self._feed is not None:
                step_causes.rows = ((self._feed.totals() or (0, 0))[1] - self._examples) // max(1, self._per_call)
                if model.run_eagerly or functions_run_eagerly():
                    step_causes.runs_eagerly(self.line, model.trainable_weights, model)
            weights = [weight.shape for weight in model.trainable_weights]
            self.lane.report_model(sum(math.prod(int(n or 1) for n in shape) for shape in weights))

    def _time_calls(self) -> None:
        model = self._model()
        if model.train_function is not self._timed and not isinstance(model.train_function, Timed):
            if model.train_function not in self._by_steps.values():
                self._by_steps = {self._per_call: model.train_function}
            self._timed = model.train_function = Timed(model.train_function, self)
        updater = self._updater
        missed = 0 if updater is None else updater.missed()
        if updater is not None and missed > 0 and self._epoch:  # in the first epoch, a backup was restored
            updates = missed // updater.every
            counted = f"{updates} update{'s' if updates > 1 else ''}"
            self.lane.cannot_know("steps", MADE_ANEW.format(counted))

    def begin_call(self, iterator: object) -> None:
        """Record a call of the train function."""
        if process.pipeline is not None:
            process.pipeline.keras_reads(iterator)
        if iterator is not self._read() and self._feed is not None:
            self._read, self._counted = weakref.ref(iterator), self._feed.batches()
            if is_batched(getattr(iterator, "_dataset", None)) is None:
                self._feed.cannot_know(examples=NO_ROWS)
        self.lane.begin_step()
        if self._feed is not None:
            self._feed.follows, self._suspended_ns = threading.get_ident(), lane_clock.suspended_ns

    def end_call(self, loss: object = None, *, failed: bool = False) -> None:
        """Record the end of the call."""
        if self._feed is not None:
            self._feed.follows = 0
            self._feed.suspended_ns += lane_clock.suspended_ns - self._suspended_ns
        steps = self._steps(failed=failed)
        if not steps:
            self.lane.meter.cancel_step()
            if self._updater is not None:
                self._updater.missed()
            return
        if self._updater is not None:
            self._updater.made += steps
        if not self._epochs_done and not self._batch:
            self._see_model()
        self._batch += steps
        self.lane.meter.end_step(steps=steps, loss=loss)
        if self._batch == steps:
            self._epochs_seen.first_step(self.lane.meter.all_waits_ns)
            self.lane.look()
            self._called_ns = self.lane.control.clock.called_ns

    def _steps(self, *, failed: bool) -> int:
        most, left = self._per_call, None if self._batches is None else self._batches - self._batch
        if failed or most == 1:
            return int(not failed)
        if self._sized and left is not None and left >= most:
            steps = most
        else:
            steps = 0 if self._feed is None else self._feed.batches() - self._counted
            if not 0 < steps <= most:
                steps = most if left is None else max(1, min(most, left))
                if not self._sized and not self._batch:
                    self.lane.cannot_know("steps", NO_LENGTH)
        self._counted += steps
        return steps

    def _set_steps(self) -> None:
        name, model = STEPS_PER_EXECUTION.name, self._model()
        iterator = self._iterator
        if iterator is None or self._batches is None:
            return
        requested = self.lane.begin_pending([name]).get(name)
        process.steps_in_call = steps = int(requested) if requested is not None else process.steps_in_call
        if steps is None:
            return
        if steps != self._per_call:
            model.steps_per_execution = steps
            if steps not in self._by_steps:
                retracing.expected = True
                model.make_train_function(force=True)
                self._by_steps[steps] = model.train_function
            model.train_function = self._by_steps[steps]
        model.steps_per_execution = iterator.steps_per_execution = self._per_call = steps

    def begin_epoch(self, epoch: int) -> None:
        """Record the start of an epoch."""
        self._set_steps()
        gap_ns = self.lane.meter.start_clock()
        self._epochs_seen.begins(self.lane.meter.all_waits_ns)
        self._in_epoch = True
        if self._epochs_done:
            self._between_ns += max(0, gap_ns - self._this_validation_ns)
        self._this_validation_ns = 0
        self._begins_at(epoch)
        self._time_calls()
        self._epoch, self._batch, self._now = epoch + 1, 0, "fit"
        self.lane.report_progress(self._progress)

    def _begins_at(self, epoch: int) -> None:
        if process.restored is None and self._doing == "fit":
            process.restored = epoch, self.backup

    def end_epoch(self, logs: dict[str, Any]) -> None:
        """Record the end of an epoch, before callbacks."""
        self._end_steps()
        if self._batches is None:
            self._batches = self._batch
        self._epochs_done += 1
        self._metrics = _numbers(logs)
        self.lane.report_progress(self._progress)
        if self.lane.knobs.settings.get(STOP.name):
            self._model().stop_training = True

    def _end_steps(self) -> None:
        self.lane.meter.stop_clock(BETWEEN)
        if self._per_call != self._script_per_call:
            self._model().steps_per_execution = self._script_per_call
        if self._in_epoch:
            of_keras = self._per_call == 1 and not self.sees_batches
            called_ns = self.lane.control.clock.called_ns - self._called_ns if of_keras else None
            self._epochs_seen.ends(self._batch, self.lane.meter.all_waits_ns, called_ns)
        self._in_epoch = False

    def begin_test(self) -> None:
        """Record the start of `evaluate` or `predict`."""
        self._end_steps()
        self._test_began_ns = lane_clock.now_ns()
        self._now = VALIDATION if self._doing == "fit" else self._doing
        self._before = self.lane.meter.passes(self._now)
        self.lane.report_progress(self._progress)

    def end_test(self) -> None:
        """Record the end of `evaluate` or `predict`."""
        took_ns = lane_clock.now_ns() - self._test_began_ns
        self.lane.meter.passes(self._before)
        if self._now == VALIDATION:
            causes.saw(epochs.VALIDATION, self.line, cost_ns=took_ns)
        self._validation_ns += took_ns
        self._this_validation_ns += took_ns

    def computes(self, *, begins: bool) -> None:
        """Record the start or the end of the batch of `predict` for one sample."""
        if begins:
            self._batch_began_ns = lane_clock.now_ns()
        else:
            self.computing_ns += lane_clock.now_ns() - self._batch_began_ns

    def close(self) -> None:
        """Restore the model's train function."""
        process.fit = None if process.fit is self else process.fit
        for method in self.methods:
            method.restore()
        model = self._model()
        if self._timed is not None and model.train_function is self._timed:
            model.train_function = self._by_steps.get(self._script_per_call)
        if self._per_call != self._script_per_call:
            model.steps_per_execution = self._script_per_call
        self._timed, self._iterator, self._by_steps = None, None, {}
        self._begins_at(getattr(model, "_initial_epoch", None) or 0)
        self.lane.meter.stop_clock()
        self.lane.meter.passes(OUTSIDE if self._doing == "fit" else self._before)
        self._now = ""
        self.lane.report_progress(self._progress)

    def _progress(self) -> Progressed:
        return Progressed(
            doing=self._now,
            epoch=self._epoch,
            epochs=self._epochs,
            batch=self._batch,
            batches=self._batches,
            metrics=self._metrics,
            epochs_done=self._epochs_done,
            validation_ns=self._validation_ns,
            between_ns=self._between_ns,
            restored=process.restored[0] if process.restored else 0,
            backup=process.restored[1] if process.restored else "",
        )


def _iterator_of_fit(model: Any) -> Any:
    """Return the batch iterator of the calling `fit`, if Keras reads the steps per call from it.

    Do not keep frame variables: freeing the last epoch's iterator late takes 50 ms.
    """
    made_by = str(getattr(type(model).make_train_function, "__module__", ""))
    can = hasattr(model, "_autoconvert_optionals") and made_by.startswith("keras.") and not model.run_eagerly
    frame = sys._getframe(1) if can else None
    while frame is not None and not (frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals):
        frame = frame.f_back
    iterator = frame.f_locals["epoch_iterator"] if frame is not None else None
    return iterator if hasattr(iterator, "steps_per_execution") else None


def _traced(train_function: Any) -> Iterator[Any]:
    for function in (
        train_function,
        *(cell.cell_contents for cell in getattr(train_function, "__closure__", None) or ()),
    ):
        yield from getattr(function, "_list_all_concrete_functions", tuple)()


def loss_of(result: Any) -> Any:
    """Return the loss in a result, without reading its value."""
    if isinstance(result, dict):
        losses = (value for name, value in result.items() if str(name).endswith("loss"))
        return result.get("loss", next(losses, None))
    return next(iter(result), None) if isinstance(result, tuple | list) else result


def _numbers(logs: dict[str, Any]) -> dict[str, float]:
    result = {}
    for name, value in logs.items():
        try:
            result[str(name)] = float(value)
        except (TypeError, ValueError):
            continue
    return result

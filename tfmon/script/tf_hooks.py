"""Hooks on TensorFlow that report pulls, updates and losses of any training loop to a `StepWatcher`.

An update is an eager update (`tf_eager`), or the call of a function whose graph was *marked* because an optimizer
was applied in its trace. Marks are stored on graphs, not functions: another trace may train nothing. A function
called during a trace passes its mark on.

Source: classes at the same paths in TensorFlow 2.18 and 2.21.
"""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from typing import Any

from tfmon.model.lane_clock import lane_clock
from tfmon.script import hooking
from tfmon.script.hooking import hidden, unseen
from tfmon.script.looking import rows_in, rows_of
from tfmon.script.marks import MARK, UNTRAINED, Mark, mark_of, mark_training, marks_around
from tfmon.script.meter import MOST
from tfmon.script.retracing import retracing
from tfmon.script.sources import NOT_COUNTED, nothing
from tfmon.script.tf_eager import EagerHooks
from tfmon.script.tf_feed import TensorFlowFeed, the_feed

hooking.FILES.add(__file__)


class TensorFlowHooks(EagerHooks):
    """The hooks of one process on pulls and on calls of functions that train."""

    def install(self) -> None:
        """Replace the methods of TensorFlow, which is loaded."""
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.distribute import input_lib
        from tensorflow.python.eager.polymorphic_function import concrete_function

        super().install()
        retracing.install(self.hooks)
        setattr(concrete_function.ConcreteFunction, MARK, None)
        self.hooks.undo.append(functools.partial(delattr, concrete_function.ConcreteFunction, MARK))
        self.hooks.replace(concrete_function.ConcreteFunction, "_call_flat", self._call)
        for kind in (iterator_ops.OwnedIterator, input_lib.DistributedIteratorBase):
            self.hooks.replace(kind, "__next__", self._next)
            self.hooks.replace(kind, "get_next", self._pull)
            self.hooks.replace(kind, "get_next_as_optional", functools.partial(self._pull, optional=True))

    def _call(self, own: Any) -> Any:  # noqa: ANN401
        watcher, hooks = self.watcher, self.hooks

        def call(function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:  # noqa: ANN401
            try:
                mark: Any = getattr(function, MARK, UNTRAINED)
                if mark is UNTRAINED:
                    return own(function, tensor_inputs, captured_inputs)
                bundle = watcher.bundle
                if bundle.calls(function) and (
                    bundle.source or (self._eager() and bundle.begins(rows_in(tensor_inputs)))
                ):
                    bundle.next_function, bundle.busy = nothing, True
                    try:
                        result = own(function, tensor_inputs, captured_inputs)
                    except BaseException:
                        with hooks:
                            watcher.update_fails()
                        raise
                    bundle.given.append(tensor_inputs[bundle.at]._shape_tuple()[0])
                    bundle.update(mark.loss_in(result))
                    return result
                if bundle.busy and mark is not None and self._eager() and get_ident() == bundle.thread:
                    return own(function, tensor_inputs, captured_inputs)  # a part of the update that is noted
                begun, first_ns = False, 0
                with hooks:
                    if mark is None:
                        mark = mark_of(function)
                        first_ns = lane_clock.now_ns() if self._eager() else 0
                    begun = mark is not UNTRAINED and self._call_begins(mark, function)
                if not begun:
                    result = own(function, tensor_inputs, captured_inputs)
                    if first_ns:
                        with hooks:
                            retracing.has_run(function, lane_clock.now_ns() - first_ns, 0)
                    if mark is not UNTRAINED and mark.loss_path is not None and not self._eager():
                        with hooks:
                            next(marks_around(self._graph())).targets.add(mark.loss_in(result).name)
                    return result
                suspended_ns = lane_clock.suspended_ns
                try:
                    result = own(function, tensor_inputs, captured_inputs)
                except BaseException:
                    watcher.update_fails()
                    raise
                with hooks:
                    if mark.pulls:
                        the_feed().suspended_ns += lane_clock.suspended_ns - suspended_ns
                    if first_ns:
                        step_ns = watcher.lane.control.step_ns if watcher.lane is not None else 0
                        retracing.has_run(function, lane_clock.now_ns() - first_ns, round(step_ns))
                    self._call_ends(function, mark, result, tensor_inputs)
                return result
            except BaseException as error:
                unseen(error)
                raise

        return call

    def _call_begins(self, mark: Mark, function: Any) -> bool:  # noqa: ANN401
        watcher = self.watcher
        if self.hooks.off:
            return False
        if not self._eager():
            mark_training(self._graph(), mark.optimizers, mark.by_hand, varies=mark.varies)
            for outer in marks_around(self._graph()):
                outer.sources.update(mark.sources)
            return False
        if not watcher.here:
            if mark.trains:
                watcher.trains_unseen()
            return False
        if mark.by_hand and not mark.optimizers and self._optimized:
            watcher.updated_by_hand()
            return False
        if not mark.trains:
            self.gradients_begin()
            self._sources = mark.sources
            if mark.pulls and watcher.lane is not None:
                watcher.lane.meter.take_feed()
            return True
        if mark.updater is None or mark.hooks() is not self:  # what the optimizers count is compared from now on
            mark.updater, mark.hooks = self.updater_of(list(mark.optimizers), mark.by_hand), weakref.ref(self)
            mark.updater.varies |= mark.varies
            if mark.varies and mark.updater.counted is None:
                watcher.report.doubt(NOT_COUNTED)
            if mark.pulls:
                the_feed().recall([function])
        if mark.per_call is None:
            mark.counted = mark.updater.counted
        return watcher.update_begins()

    def _call_ends(self, function: Any, mark: Mark, result: Any, tensor_inputs: Any) -> None:  # noqa: ANN401
        watcher, loss, updater = self.watcher, mark.loss_in(result), mark.updater
        if own := bool(mark.sources) or (mark.trains and not watcher.step.given):
            unseen_rows = mark.pulls or not (mark.batched or (mark.batched is None and watcher.sources.pulled))
            watcher.gradient(() if unseen_rows else rows_in(tensor_inputs))
        if not mark.trains:
            self._target = loss
            if mark.pulls and watcher.lane is not None:
                watcher.lane.meter.skip_feed()
            return
        assert updater is not None
        calls = mark.per_call
        if calls is None:
            counted, before = updater.counted, mark.counted
            calls = 1 if counted is None or before is None else max(0, counted - before)
            mark.per_call = calls or None
        if not own:
            loss, self._target = loss or self._target, None
        watcher.update_ends(updater, loss, calls, mark, function if calls == 1 and not mark.pulls else None)

    def _next(self, own: Any) -> Any:  # noqa: ANN401
        watcher, hooks, tell = self.watcher, self.hooks, self._pull(own)

        def pull(iterator: Any) -> Any:  # noqa: ANN401
            bundle = watcher.bundle
            next_pull, noted = bundle.next_pull, False
            try:
                if (
                    next_pull is None
                    or next_pull() is not iterator
                    or bundle.waiting
                    or bundle.traces.count != bundle.traced
                    or get_ident() != bundle.thread
                    or len(bundle.rows) >= MOST
                    or (began_ns := lane_clock.now_ns()) >= bundle.until_ns
                ):
                    return tell(iterator)
                bundle.next_pull, bundle.busy, noted = None, True, True
                bundle.begun_ns.append(began_ns)
                given = own(iterator)
                try:
                    bundle.waits_ns.append(lane_clock.now_ns() - began_ns)
                    first = given
                    for key in bundle.rows_path:
                        first = first[key]
                    bundle.rows.append(first._shape_tuple()[0])
                    bundle.next_function, bundle.busy = bundle.function, False
                except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                    hooks.failure(error)
                return given
            except BaseException as error:
                if noted and bundle.source is not None:
                    with hooks:
                        watcher.catch_up()
                        watcher.pull_fails(bundle.source, ended=ends_data(error))
                unseen(error)
                raise

        return pull

    def _pull(self, own: Any, *, optional: bool = False) -> Any:  # noqa: ANN401
        watcher, hooks = self.watcher, self.hooks

        def pull(iterator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            source = feed = None
            try:
                with hooks:
                    if not hooks.off:
                        feed = self._feed_here()
                        if feed is None and not optional and self._eager():
                            source = watcher.pull_begins(iterator)
                if feed is not None:
                    with hidden():
                        return feed.counted(own, iterator, args, kwargs, optional=optional)
                given = own(iterator, *args, **kwargs)
                if source is not None:
                    with hooks:
                        watcher.pull_ends(source, rows_of(given, batched=source.batched))
                return given
            except BaseException as error:
                if source is not None:
                    with hooks:
                        watcher.pull_fails(source, ended=ends_data(error))
                unseen(error)
                raise

        return pull

    def _feed_here(self) -> TensorFlowFeed | None:
        feed = the_feed()
        if feed.busy:
            return None
        if feed.follows == get_ident():
            return feed
        if self.watcher.off or self.watcher.aside or self._eager():
            return None
        for mark in marks_around(self._graph()):
            mark.pulls = True
        return feed


def ends_data(error: BaseException) -> bool:
    """Return whether an error of a pull means the end of the data."""
    return type(error).__name__ in ("StopIteration", "OutOfRangeError")

"""Hooks on calls of a tf.function, which report updates and losses.

A graph is marked if an optimizer was applied in the trace. Marks are stored on graphs, because another trace may
train nothing. A nested function passes the mark on.
"""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from typing import Any

from tfmon.hooks import patches
from tfmon.hooks.counts import NOT_COUNTED
from tfmon.hooks.graph_marks import MARK, UNTRAINED, Mark, mark_of, mark_training, marks_around
from tfmon.hooks.inspection import rows_in
from tfmon.hooks.patches import unseen
from tfmon.hooks.retracing import retracing
from tfmon.hooks.step_causes import step_causes
from tfmon.hooks.tf_eager import EagerHooks
from tfmon.hooks.tf_feed import the_feed
from tfmon.system.lane_clock import lane_clock

patches.FILES.add(__file__)


class TensorFlowHooks(EagerHooks):
    """The hooks on functions that train."""

    def install(self) -> None:
        """Replace the methods of TensorFlow."""
        from tensorflow.python.eager.polymorphic_function import concrete_function

        super().install()
        retracing.install(self.hooks)
        setattr(concrete_function.ConcreteFunction, MARK, None)
        self.hooks.undo.append(functools.partial(delattr, concrete_function.ConcreteFunction, MARK))
        self.hooks.replace(concrete_function.ConcreteFunction, "_call_flat", self._call)

    def _call(self, original: Any) -> Any:
        steps, hooks = self.steps, self.hooks

        def call(function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
            try:
                mark: Any = getattr(function, MARK, UNTRAINED)
                if mark is UNTRAINED:
                    return original(function, tensor_inputs, captured_inputs)
                begun, first_ns = False, 0
                with hooks:
                    if mark is None:
                        mark = mark_of(function)
                        first_ns = lane_clock.now_ns() if self._eager() else 0
                    begun = steps.bundle.update_begins(function, tensor_inputs) or (
                        mark is not UNTRAINED and self._call_begins(mark, function)
                    )
                if not begun:
                    result = original(function, tensor_inputs, captured_inputs)
                    if first_ns:
                        with hooks:
                            took_ns = retracing.has_run(function, lane_clock.now_ns() - first_ns, 0)
                            if mark is not UNTRAINED:
                                step_causes.traced(function, took_ns, max(rows_in(tensor_inputs), default=0))
                    if mark is not UNTRAINED and mark.loss_path is not None and not self._eager():
                        with hooks:
                            next(marks_around(self._graph())).targets.add(mark.loss_in(result).name)
                    return result
                suspended_ns = lane_clock.suspended_ns if mark.pulls else 0
                try:
                    result = original(function, tensor_inputs, captured_inputs)
                except BaseException:
                    with hooks:
                        steps.update_fails()
                    raise
                with hooks:
                    if mark.pulls:
                        the_feed().suspended_ns += lane_clock.suspended_ns - suspended_ns
                    if first_ns:
                        step_ns = steps.lane.control.step_ns if steps.lane is not None else 0
                        took_ns = retracing.has_run(function, lane_clock.now_ns() - first_ns, round(step_ns))
                        rows = () if mark.pulls else rows_in(tensor_inputs)
                        step_causes.traced(function, took_ns, max(rows, default=0))
                    self._call_ends(function, mark, result, tensor_inputs)
                return result
            except BaseException as error:
                unseen(error)
                raise

        return call

    def _call_begins(self, mark: Mark, function: Any) -> bool:
        steps = self.steps
        if self.hooks.off or (steps.bundle.busy and self._eager() and get_ident() == steps.bundle.thread):
            return False
        if not self._eager():
            mark_training(self._graph(), mark.optimizers, mark.by_hand, varies=mark.varies)
            for outer in marks_around(self._graph()):
                outer.sources.update(mark.sources)
            return False
        if not steps.watches_caller:
            if mark.trains:
                steps.trains_unseen()
            return False
        if mark.by_hand and not mark.optimizers and self._optimized:
            steps.updated_by_hand()
            return False
        if not mark.trains:
            self._sources = mark.sources
            if mark.pulls and steps.lane is not None:
                steps.lane.meter.take_feed()
            return True
        if mark.updater is None or mark.hooks() is not self:
            mark.updater, mark.hooks = self.updater_of(list(mark.optimizers), mark.by_hand), weakref.ref(self)
            mark.updater.varies |= mark.varies
            if mark.varies and mark.updater.counted is None:
                steps.report.doubt(NOT_COUNTED)
            if mark.pulls:
                the_feed().recall([function])
        if mark.per_call is None:
            mark.counted = mark.updater.counted
        return steps.update_begins()

    def _call_ends(self, function: Any, mark: Mark, result: Any, tensor_inputs: Any) -> None:
        steps, loss, updater = self.steps, mark.loss_in(result), mark.updater
        if steps.bundle.busy:
            steps.bundle.update_ends(loss, rows_in(tensor_inputs))
            return
        if has_gradients := bool(mark.sources) or (mark.trains and not steps.step.gradient_rows):
            unseen_rows = mark.pulls or not (mark.batched or (mark.batched is None and steps.sources.pulled))
            steps.gradient(() if unseen_rows else rows_in(tensor_inputs))
        if not mark.trains:
            self._target = loss
            if mark.pulls and steps.lane is not None:
                steps.lane.meter.skip_feed()
            return
        assert updater is not None
        calls = mark.per_call
        if calls is None:
            counted, before = updater.counted, mark.counted
            calls = 1 if counted is None or before is None else max(0, counted - before)
            mark.per_call = calls or None
        if not has_gradients:
            loss, self._target = loss or self._target, None
        steps.update_ends(updater, loss, calls, mark, function if calls == 1 and not mark.pulls else None)

"""Hooks on TensorFlow: pulls of iterators, calls of functions, tapes, optimizers and assignments.

A graph is marked if an optimizer was applied in the trace. Marks are stored on graphs, because another trace may
train nothing. A nested function passes the mark on.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

from tfmon.hooks.counts import NOT_COUNTED, GradientRows
from tfmon.hooks.graph_marks import LAYERS, MARK, UNTRAINED, Mark, Variables, mark_of, mark_training, marks_around
from tfmon.hooks.inspection import first_of, rows_in
from tfmon.hooks.optimizers import LoopOptimizers, Updater, counting
from tfmon.hooks.patches import Around, Hooks, hidden, unseen
from tfmon.hooks.retracing import retracing
from tfmon.hooks.sources import nothing
from tfmon.hooks.step_causes import step_causes
from tfmon.hooks.step_machine import StepMachine
from tfmon.hooks.tf_feed import TensorFlowFeed, the_feed
from tfmon.system.lane_clock import lane_clock

ENDS = ("StopIteration", "OutOfRangeError")
OPERATION = ("attrs", "inputs", "outputs", "type", "skip_input_indices")
"""Attributes of a tape's operation. If they differ, examples are unknown."""
NO_VARIABLES = Variables()


class TensorFlowHooks:
    """The hooks on training with TensorFlow. Thread: any."""

    def __init__(self, steps: StepMachine, hooks: Hooks) -> None:
        self.steps, self.hooks = steps, hooks
        self._sources = self._known = NO_VARIABLES
        self._target: Any = None
        self._tape: Callable[[], Any] = nothing
        self._rows: list[int] | None = None
        self._depth = 0
        self.optimizers = LoopOptimizers()
        self._updaters: weakref.WeakKeyDictionary[Any, dict[frozenset[weakref.ref[Any]], Updater]] = (
            weakref.WeakKeyDictionary()
        )
        self._by_hand: dict[str, Updater] = {}
        self._counters = Variables()

    def install(self) -> None:
        """Replace the methods of TensorFlow."""
        import tensorflow as tf
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.distribute import input_lib
        from tensorflow.python.eager import backprop, context
        from tensorflow.python.eager.polymorphic_function import concrete_function
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import resource_variable_ops

        self._eager, self._graph = context.executing_eagerly, ops.get_default_graph
        replace = self.hooks.replace
        replace(tf.GradientTape, "gradient", self.hooks.around(self._differentiates))
        if backprop._MockOp.__init__.__code__.co_names == OPERATION:
            replace(backprop._MockOp, "__init__", self._goes_back)
        replace(tf.compat.v1.train.Optimizer, "apply_gradients", self.hooks.around(self._applied))
        for kind in (resource_variable_ops.BaseResourceVariable, resource_variable_ops.ResourceVariable):
            for name in ("assign", "assign_add", "assign_sub"):
                replace(kind, name, functools.partial(self._assign, adds=name != "assign"))
            replace(kind, "_restore_from_tensors", self._sets)
        for kind in (iterator_ops.OwnedIterator, input_lib.DistributedIteratorBase):
            replace(kind, "__next__", self._pull)
            replace(kind, "get_next", self._pull)
            replace(kind, "get_next_as_optional", functools.partial(self._pull, optional=True))
        retracing.install(self.hooks)
        setattr(concrete_function.ConcreteFunction, MARK, None)
        self.hooks.undo.append(functools.partial(delattr, concrete_function.ConcreteFunction, MARK))
        replace(concrete_function.ConcreteFunction, "_call_flat", self._call)

    def variables(self) -> list[Any]:
        """Return the variables of the last gradient."""
        return [source for source in (ref() for ref in self._sources.values()) if source is not None]

    def patch_optimizers(self, keras: Any) -> None:
        """Patch the optimizers of a Keras."""
        result = [keras.optimizers.Optimizer, getattr(keras.optimizers, "LossScaleOptimizer", None)]
        result.append(getattr(getattr(keras, "mixed_precision", None), "LossScaleOptimizer", None))
        result.append(getattr(getattr(keras.optimizers, "legacy", None), "Optimizer", None))
        for optimizer in result:
            for kind in getattr(optimizer, "__mro__", ())[:-1]:
                name = "apply" if "apply" in kind.__dict__ else "apply_gradients"
                if kind.__module__.partition(".")[0] in ("keras", "tf_keras"):
                    self.hooks.replace(kind, name, self.hooks.around(self._applied))

    def updater_of(self, optimizers: list[Any], by_hand: str = "") -> Updater:
        """Return the updater of optimizers, or of updates by hand in the named function."""
        known = self._updaters.setdefault(optimizers[0], {}) if optimizers else {}
        key = frozenset(map(weakref.ref, optimizers))
        updater = known.get(key) if optimizers else self._by_hand.get(by_hand)
        if updater is None:
            names = " and ".join(sorted(type(optimizer).__name__ for optimizer in optimizers))
            updater = Updater(optimizers, names or f"`{by_hand}`, without an optimizer")
            self._counters.update(Variables([counting(optimizer)[1] for optimizer in optimizers]))
            if optimizers:
                known[key] = updater
            else:
                self._by_hand[by_hand] = updater
        return updater

    @property
    def _optimized(self) -> bool:
        return any(not updater.by_hand for updater in self.steps.rounds.updaters)

    def _applied(self, optimizer: Any, *_args: Any, **_more: Any) -> Around:
        if self._depth or self.hooks.off:
            return
        if not self._eager():
            mark_training(self._graph(), [optimizer])
            self._saw(optimizer)
            yield hidden()
            if hasattr(optimizer, "update_step") and hasattr(optimizer, "_trainable_variables"):
                step_causes.applies(optimizer, *_gradients_and_variables(*_args))
        elif self.steps.watches_caller:
            self._sources = NO_VARIABLES
            self._saw(optimizer)
            alike = None if hasattr(optimizer, "inner_optimizer") else optimizer
            yield from self._update(self.updater_of([optimizer]), alike)

    def _assign(self, original: Any, *, adds: bool) -> Any:
        hook = self.hooks.around(lambda *_args, **_more: self._by_hands(adds=adds))(original)
        sets = self._sets(original)

        def assign(*args: Any, **kwargs: Any) -> Any:
            try:
                variable = id(args[0]) if args else 0
                by_hand = variable in self._sources and self._sources.has(args[0])
                counts = variable in self._counters and self._counters.has(args[0])
                return (hook if by_hand else sets if counts else original)(*args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise

        return assign

    def _sets(self, original: Any) -> Any:
        hook: Any = self.hooks.around(self._set)(original)
        return hook

    def _set(self, variable: Any, *_args: Any, **_more: Any) -> Around:
        steps = self.steps
        counts = self._counters.has(variable) and not self._depth and self._eager()
        if not counts or steps.bundle.busy or not steps.watches_caller:
            return
        steps.step_aside()
        try:
            yield None
        finally:
            steps.come_back()

    def _by_hands(self, *, adds: bool) -> Around:
        self._sources = NO_VARIABLES
        if not self._eager() or self._depth:
            return
        updater = self.updater_of([], "assign_sub" if adds else "assign")
        other_updaters = any(known is not updater for known in self.steps.rounds.updaters)
        if not self._optimized if adds else not other_updaters:
            yield from self._update(updater, updater)
        elif adds and self.steps.watches_caller:
            self.steps.updated_by_hand()

    def _update(self, updater: Updater, alike: object) -> Around:
        if not self.steps.update_begins(alike):
            return
        self._depth += 1
        try:
            yield None
        except GeneratorExit:
            self.steps.update_fails()
            raise
        finally:
            self._depth -= 1
        loss, self._target, self._tape = self._target, None, nothing
        self.steps.update_ends(updater, None if alike is None else loss, function=alike)

    def _differentiates(self, tape: Any, target: Any, sources: Any, *_args: Any, **_more: Any) -> Around:
        followed, target = not self.hooks.off and not self._depth, first_of(target)
        if not self._eager():
            variables = Variables(sources if followed else ())
            for number, mark in enumerate(marks_around(self._graph()) if variables else ()):
                mark.sources.update(variables)
                if not number:
                    mark.targets.add(getattr(target, "name", ""))
            yield hidden()
        elif followed and not self.steps.bundle.busy and self.steps.watches_caller:
            if not self._known.are(sources):
                self._known = Variables(sources)
            self._sources = self._known
            if not self._known:
                return
            again = self._tape() is tape and self._target is not target
            self._target, self._tape, self._rows = (None if again else target), weakref.ref(tape), []
            try:
                yield None
            finally:
                rows, self._rows = self._rows or [], None
            self.steps.gradient(_both_ends(rows))

    def _goes_back(self, _original: Any) -> Any:
        # Calling the original would be slower.
        def goes_back(op: Any, attrs: Any, inputs: Any, outputs: Any, kind: str, skip_input_indices: Any) -> None:
            op.attrs = attrs
            op.inputs = inputs
            op.outputs = outputs
            op.type = kind
            op.skip_input_indices = skip_input_indices
            rows = self._rows
            if rows is None or (rows and kind not in LAYERS) or not inputs:
                return
            try:
                shape: tuple[int, ...] = getattr(inputs[0], "_shape_tuple", tuple)()
                if len(shape) > (kind == "Reshape"):
                    rows.append(shape[0])
            except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                self.hooks.failure(error)

        return goes_back

    def _saw(self, optimizer: Any) -> None:
        if not (self.steps.off or self.steps.aside) and self.steps.caller_may_train:
            self.optimizers.saw(optimizer)

    def _pull(self, original: Any, *, optional: bool = False) -> Any:
        steps, hooks = self.steps, self.hooks

        def pull(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            source = feed = None
            try:
                try:
                    source = steps.bundle.begins_with(iterator)
                    if source is None and not hooks.off:
                        feed = self._feed_here()
                        if feed is None and not optional and self._eager():
                            source = steps.pull_begins(iterator)
                except Exception as error:
                    if not hooks.handles(error):
                        raise
                if feed is not None:
                    with hidden():
                        return feed.counted(original, iterator, args, kwargs, optional=optional)
                batch = original(iterator, *args, **kwargs)
                if source is not None:
                    try:
                        steps.pull_ends(source, batch)
                    except Exception as error:
                        if not hooks.handles(error):
                            raise
                return batch
            except BaseException as error:
                if source is not None:
                    with hooks:
                        steps.pull_fails(source, ended=type(error).__name__ in ENDS)
                unseen(error)
                raise

        return pull

    def _feed_here(self) -> TensorFlowFeed | None:
        feed = the_feed()
        if feed.busy:
            return None
        if feed.follows == get_ident():
            return feed
        if self.steps.off or self.steps.aside or self._eager():
            return None
        for mark in marks_around(self._graph()):
            mark.pulls = True
        return feed

    def _call(self, original: Any) -> Any:
        steps, hooks = self.steps, self.hooks

        def call(function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
            try:
                mark: Any = getattr(function, MARK, UNTRAINED)
                bundle, thread = steps.bundle, get_ident()
                nested = (bundle.busy and bundle.thread == thread) or steps.asides.get(thread)
                if mark is UNTRAINED or (mark and nested and self._eager()):
                    return original(function, tensor_inputs, captured_inputs)
                begun, first_ns = False, 0
                try:
                    sizes = () if bundle.source is not None else frozenset(rows_in(tensor_inputs))
                    begun = bundle.update_begins(function, sizes)
                    if not begun:
                        if mark is None:
                            mark = mark_of(function)
                            first_ns = lane_clock.now_ns() if self._eager() else 0
                        begun = mark is not UNTRAINED and self._call_begins(mark, function)
                except Exception as error:
                    if not hooks.handles(error):
                        raise
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
                try:
                    if mark.pulls:
                        the_feed().suspended_ns += lane_clock.suspended_ns - suspended_ns
                    if first_ns:
                        step_ns = steps.lane.control.step_ns if steps.lane is not None else 0
                        took_ns = retracing.has_run(function, lane_clock.now_ns() - first_ns, round(step_ns))
                        rows = () if mark.pulls else rows_in(tensor_inputs)
                        step_causes.traced(function, took_ns, max(rows, default=0))
                    self._call_ends(function, mark, result, tensor_inputs)
                except Exception as error:
                    if not hooks.handles(error):
                        raise
                return result
            except BaseException as error:
                unseen(error)
                raise

        return call

    def _call_begins(self, mark: Mark, function: Any) -> bool:
        steps = self.steps
        # A function that is called for the first time inside an update is part of it.
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
            steps.bundle.update_ends(loss, tensor_inputs[steps.bundle.at]._shape_tuple()[0])
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


def _gradients_and_variables(gradients: Any, variables: Any = None) -> tuple[list[Any], Any]:
    gradients = list(gradients)
    if gradients and isinstance(gradients[0], tuple):
        return [gradient[0] for gradient in gradients], [gradient[1] for gradient in gradients]
    return gradients, variables


def _both_ends(rows: list[int]) -> GradientRows:
    return tuple(dict.fromkeys((*rows[:1], *rows[-1:])))

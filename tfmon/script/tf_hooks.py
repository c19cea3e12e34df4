"""Hooks on TensorFlow that show a `StepWatcher` what any training loop does, in graphs or eagerly.

- A pull of a batch, see `tf_pulls`.
- An update: the call of a function that was *marked* while it was traced, because an optimizer was applied in it;
  or an optimizer, or an assignment to what a tape has differentiated by, when run eagerly.
- The loss: what the marked function returns, or what the tape differentiated.

Marks lie on graphs, not on functions: another trace of the same function may train nothing. A function that is
called while another one is traced passes its mark on.

Source: classes whose paths are the same in TensorFlow 2.18 and 2.21.
"""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from time import monotonic_ns
from typing import Any

from tfmon.script import hooking
from tfmon.script.hooking import Hooks, Watching, hidden, unseen
from tfmon.script.knobs import LoopOptimizers
from tfmon.script.looking import first_of, rows_in, variables_in
from tfmon.script.marks import MARK, UNTRAINED, Mark, Variables, mark_of, mark_training, marks_around
from tfmon.script.rounds import Updater
from tfmon.script.sources import nothing
from tfmon.script.steps import StepWatcher
from tfmon.script.tf_pulls import PullHooks

hooking.FILES.add(__file__)
LAYERS = frozenset(("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul", "Reshape"))
"""Operations whose first input is a batch, as a rule; a reshape shows where examples are taken apart."""
BOTH = "weights are updated by an optimizer, and by hand. Tell tfmon what a step is: report.step"


class TensorFlowHooks:
    """The hooks of one process, and what they remember between two of them.

    Thread: any; the watcher ignores threads that it does not follow.
    """

    def __init__(self, watcher: StepWatcher, hooks: Hooks) -> None:
        self.watcher, self.hooks = watcher, hooks
        self._sources = Variables()
        self._target: Any = None
        self._tape = 0
        self._rows: list[int] | None = None
        """First dimensions of what a tape goes back through; None while none does."""
        self._depth = 0
        self.optimizers = LoopOptimizers()
        self._updaters: weakref.WeakKeyDictionary[Any, dict[frozenset[int], Updater]] = weakref.WeakKeyDictionary()
        self._by_hand: dict[str, Updater] = {}

    def install(self) -> None:
        """Replace the methods of TensorFlow, which is loaded."""
        import tensorflow as tf
        from tensorflow.python.eager import backprop, context
        from tensorflow.python.eager.polymorphic_function import concrete_function
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import resource_variable_ops

        self._eager, self._graph = context.executing_eagerly, ops.get_default_graph
        setattr(concrete_function.ConcreteFunction, MARK, None)
        PullHooks(self.watcher, self.hooks).install()
        replace = self.hooks.replace
        replace(concrete_function.ConcreteFunction, "_call_flat", self._call)
        replace(tf.GradientTape, "gradient", self.hooks.around(self._gradient))
        replace(backprop._MockOp, "__init__", self._goes_back)
        replace(tf.compat.v1.train.Optimizer, "apply_gradients", self.hooks.around(self._apply))
        for kind in (resource_variable_ops.BaseResourceVariable, resource_variable_ops.ResourceVariable):
            replace(kind, "assign", self.hooks.around(self._assign))
            for name in ("assign_add", "assign_sub"):
                replace(kind, name, self.hooks.around(functools.partial(self._assign, adds=True)))

    def watch_optimizers(self, keras: Any) -> None:  # noqa: ANN401
        """Watch the optimizers of a Keras, whichever it is."""
        found = [keras.optimizers.Optimizer, getattr(keras.optimizers, "LossScaleOptimizer", None)]
        found.append(getattr(getattr(keras, "mixed_precision", None), "LossScaleOptimizer", None))
        found.append(getattr(getattr(keras.optimizers, "legacy", None), "Optimizer", None))
        for optimizer in found:
            for kind in getattr(optimizer, "__mro__", ())[:-1]:
                name = "apply" if "apply" in kind.__dict__ else "apply_gradients"
                if kind.__module__.partition(".")[0] in ("keras", "tf_keras"):
                    self.hooks.replace(kind, name, self.hooks.around(self._apply))

    # ------------------------------------------------------------ updates

    def _call(self, own: Any) -> Any:  # noqa: ANN401
        watcher, hooks = self.watcher, self.hooks

        def call(function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:  # noqa: ANN401
            try:
                mark = function._tfmon_mark
                if mark is UNTRAINED:
                    return own(function, tensor_inputs, captured_inputs)
                bundle = watcher.bundle
                if (
                    function is bundle.next_function()
                    and bundle.traces.count == bundle.traced
                    and get_ident() == bundle.thread
                ):
                    bundle.next_function, bundle.busy = nothing, True
                    try:
                        result = own(function, tensor_inputs, captured_inputs)
                    except BaseException:
                        with hooks:
                            watcher.catch_up()
                        raise
                    bundle.updated_ns = monotonic_ns()
                    bundle.given.append(tensor_inputs[bundle.at]._shape_tuple()[0])
                    loss: Any = result if mark.loss_path is not None else None
                    for key in mark.loss_path or ():
                        loss = loss[key]
                    bundle.loss_before, bundle.loss = bundle.loss, loss
                    bundle.next_pull, bundle.busy = bundle.pull, False
                    return result
                begun = False
                with hooks:
                    if mark is None:
                        mark = mark_of(function)
                    begun = mark is not UNTRAINED and self._call_begins(mark)
                if not begun:
                    result = own(function, tensor_inputs, captured_inputs)
                    if mark is not UNTRAINED and mark.loss_path is not None and not self._eager():
                        with hooks:
                            next(marks_around(self._graph())).targets.add(mark.loss_in(result).name)
                    return result
                try:
                    result = own(function, tensor_inputs, captured_inputs)
                except BaseException:
                    watcher.update_fails()
                    raise
                with hooks:
                    self._call_ends(function, mark, result, tensor_inputs)
                return result
            except BaseException as error:
                unseen(error)
                raise

        return call

    def _call_begins(self, mark: Mark) -> bool:
        """Record that a marked function is called; return whether the call is an update or computes gradients."""
        watcher = self.watcher
        if self.hooks.off:
            return False
        if not self._eager():
            mark_training(self._graph(), mark.optimizers, mark.by_hand)
            for outer in marks_around(self._graph()):
                outer.sources.update(mark.sources)
            return False
        if not watcher.here:
            return False
        if mark.by_hand and not mark.optimizers and self._optimized:
            watcher.report.doubt(BOTH)
            return False
        if not mark.trains:
            self._sources = mark.sources
            if mark.pulls and watcher.lane is not None:
                watcher.lane.take_feed()
            return True
        if mark.updater is None:
            mark.updater = self.updater_of(list(mark.optimizers), mark.by_hand)
        return watcher.update_begins()

    def _call_ends(self, function: Any, mark: Mark, result: Any, tensor_inputs: Any) -> None:  # noqa: ANN401
        watcher, loss, updater = self.watcher, mark.loss_in(result), mark.updater
        if own := bool(mark.sources) or (mark.trains and not watcher.given):
            watcher.gradient(() if mark.pulls else rows_in(tensor_inputs))
        if not mark.trains:
            self._target = loss
            if mark.pulls and watcher.lane is not None:
                watcher.lane.skip_feed()
            return
        assert updater is not None
        calls = mark.per_call
        if calls is None:
            counted = updater.counted
            calls = 1 if counted is None else max(0, counted - updater.made)
            mark.per_call = calls or None
        if not own:
            loss, self._target = loss or self._target, None
        watcher.update_ends(updater, loss, calls, mark, function if calls == 1 and not mark.pulls else None)

    def updater_of(self, optimizers: list[Any], by_hand: str = "") -> Updater:
        """Return what stands for some optimizers, or for weights that are updated by hand."""
        known = self._updaters.setdefault(optimizers[0], {}) if optimizers else {}
        key = frozenset(map(id, optimizers))
        updater = known.get(key) if optimizers else self._by_hand.get(by_hand)
        if updater is None:
            names = " and ".join(sorted(type(one).__name__ for one in optimizers))
            updater = Updater(optimizers, names or f"`{by_hand}`, without an optimizer")
            if optimizers:
                known[key] = updater
            else:
                self._by_hand[by_hand] = updater
        return updater

    @property
    def _optimized(self) -> bool:
        """Whether an optimizer has updated weights."""
        return any(not updater.by_hand for updater in self.watcher.updaters)

    def _apply(self, optimizer: Any, *_args: Any, **_more: Any) -> Watching:  # noqa: ANN401
        """Watch an optimizer that is applied: an update, or a mark on the graph that is built."""
        if self._depth or self.hooks.off:
            return
        if not self._eager():
            mark_training(self._graph(), [optimizer])
            self._saw(optimizer)
            yield hidden()
        elif self.watcher.here:
            self._sources = Variables()
            self._saw(optimizer)
            yield from self._update(self.updater_of([optimizer]), scaled=hasattr(optimizer, "inner_optimizer"))

    def _assign(self, variable: Any, *_args: Any, adds: bool = False, **_more: Any) -> Watching | None:  # noqa: ANN401
        """Watch an assignment to what a tape has differentiated by, which may be an update by hand."""
        return self._by_hands(adds=adds) if self._sources and self._sources.has(variable) else None

    def _by_hands(self, *, adds: bool) -> Watching:
        self._sources = Variables()
        if not self._eager() or self._depth:
            return
        updater = self.updater_of([], "assign_sub" if adds else "assign")
        others = any(one is not updater for one in self.watcher.updaters)
        if not self._optimized if adds else not others:
            yield from self._update(updater)
        elif adds and self.watcher.here:
            self.watcher.report.doubt(BOTH)

    def _update(self, updater: Updater, *, scaled: bool = False) -> Watching:
        """Watch an update that is made eagerly; the loss is not known where it was `scaled`."""
        if not self.watcher.update_begins(updater):
            return
        self._depth += 1
        try:
            yield None
        except GeneratorExit:
            self.watcher.update_fails()
            raise
        finally:
            self._depth -= 1
        loss, self._target, self._tape = self._target, None, 0
        self.watcher.update_ends(updater, None if scaled else loss, function=None if scaled else updater)

    def _gradient(self, tape: Any, target: Any, sources: Any, *_args: Any, **_more: Any) -> Watching:  # noqa: ANN401
        """Watch a tape that computes gradients."""
        eager = self._eager()
        seen = not self.hooks.off and not self._depth and (not eager or self.watcher.here)
        if seen:
            seen = self._differentiated(tape, target, sources, eager=eager)
        if not eager:
            yield hidden()
        elif seen:
            try:
                yield None
            finally:
                rows, self._rows = self._rows or [], None
            self.watcher.gradient(tuple(dict.fromkeys((*rows[:1], *rows[-1:]))))

    def _differentiated(self, tape: Any, target: Any, sources: Any, *, eager: bool) -> bool:  # noqa: ANN401
        """Record what is differentiated by which variables; return whether its examples are to be recorded."""
        target, sources = first_of(target), variables_in(sources)
        if eager:
            if sources:
                again = self._tape == id(tape) and self._target is not target
                self._target, self._tape = (None if again else target), id(tape)
                self._rows = []
            self._sources = Variables()
            self._sources.add(sources)
            return bool(sources)
        for number, mark in enumerate(marks_around(self._graph())):
            mark.sources.add(sources)
            if not number and sources:
                mark.targets.add(getattr(target, "name", ""))
        return False

    def _goes_back(self, own: Any) -> Any:  # noqa: ANN401
        """Note the first dimension of what the loss is a mean of, then of what the layers are given."""

        def goes_back(op: Any, attributes: Any, inputs: Any, outputs: Any, kind: str, *args: Any) -> None:  # noqa: ANN401
            own(op, attributes, inputs, outputs, kind, *args)
            if (rows := self._rows) is not None and inputs and (not rows or kind in LAYERS):
                with self.hooks:
                    shape: tuple[int, ...] = getattr(inputs[0], "_shape_tuple", tuple)()
                    if len(shape) > (kind == "Reshape"):
                        rows.append(shape[0])

        return goes_back

    def _saw(self, optimizer: Any) -> None:  # noqa: ANN401
        if not (self.watcher.off or self.watcher.aside) and self.watcher.mine:
            self.optimizers.saw(optimizer)

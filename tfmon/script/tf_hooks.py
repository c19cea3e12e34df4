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

from threading import get_ident
from time import monotonic_ns
from typing import Any

from tfmon.script import hooking
from tfmon.script.hooking import Hooks, hidden, unseen
from tfmon.script.learning_rate import LoopOptimizers
from tfmon.script.looking import first_of, iterations_of, logs_operations, variables_in
from tfmon.script.marks import MARK, UNTRAINED, Mark, Variables, mark_of, mark_training, marks_around
from tfmon.script.sources import nothing
from tfmon.script.steps import StepWatcher
from tfmon.script.tf_pulls import PullHooks

hooking.FILES.add(__file__)


class TensorFlowHooks:
    """The hooks of one process, and what they remember between two of them.

    Thread: any; the watcher ignores threads that it does not follow.
    """

    def __init__(self, watcher: StepWatcher, hooks: Hooks) -> None:
        self.watcher, self.hooks = watcher, hooks
        self._pulls = PullHooks(watcher, hooks)
        self._sources = Variables()
        self._target: Any = None
        self._depth = 0
        self.optimizers = LoopOptimizers()

    def install(self) -> None:
        """Replace the methods of TensorFlow, which is loaded."""
        import tensorflow as tf
        from tensorflow.python.eager import context
        from tensorflow.python.eager.polymorphic_function import concrete_function
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import resource_variable_ops

        self._eager, self._graph = context.executing_eagerly, ops.get_default_graph
        setattr(concrete_function.ConcreteFunction, MARK, None)
        self._pulls.install()
        replace = self.hooks.replace
        replace(concrete_function.ConcreteFunction, "_call_flat", self._call)
        replace(tf.GradientTape, "gradient", self._gradient)
        replace(tf.compat.v1.train.Optimizer, "apply_gradients", self._apply)
        for kind in (resource_variable_ops.BaseResourceVariable, resource_variable_ops.ResourceVariable):
            for name in ("assign", "assign_add", "assign_sub"):
                replace(kind, name, self._assign)

    def watch_optimizers(self, keras: Any) -> None:  # noqa: ANN401
        """Watch the optimizers of a Keras, whichever it is."""
        found = [keras.optimizers.Optimizer, getattr(keras.optimizers, "LossScaleOptimizer", None)]
        found.append(getattr(getattr(keras, "mixed_precision", None), "LossScaleOptimizer", None))
        found.append(getattr(getattr(keras.optimizers, "legacy", None), "Optimizer", None))
        for optimizer in found:
            for kind in getattr(optimizer, "__mro__", ())[:-1]:
                name = "apply" if "apply" in kind.__dict__ else "apply_gradients"
                if kind.__module__.partition(".")[0] in ("keras", "tf_keras"):
                    self.hooks.replace(kind, name, self._apply)

    def joined(self, lane: Any) -> None:  # noqa: ANN401
        """Record that this process is the lane."""
        if self._pulls.feed is not None:
            lane.feed = self._pulls.feed

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
                    return own(function, tensor_inputs, captured_inputs)
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
            if mark.trains:
                mark_training(self._graph(), mark.optimizer(), loops=mark.loops)
            return False
        if not watcher.here or (mark.loops and logs_operations()):
            return False  # a loop inside of a graph is counted by reading a variable
        if not mark.trains:
            self._sources = mark.sources
            if mark.pulls and watcher.lane is not None:
                watcher.lane.take_feed()
            return True
        return watcher.update_begins(mark, iterations_of(mark.optimizer()) if mark.loops else None)

    def _call_ends(self, function: Any, mark: Mark, result: Any, tensor_inputs: Any) -> None:  # noqa: ANN401
        loss = mark.loss_in(result)
        if mark.trains:
            alike = None if mark.loops or mark.pulls else function
            self.watcher.update_ends(loss, mark.rows_in(tensor_inputs), alike)
            return
        self._target = loss
        if mark.pulls and self.watcher.lane is not None:
            self.watcher.lane.skip_feed()

    def _apply(self, own: Any) -> Any:  # noqa: ANN401
        def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            outermost = begun = False
            try:
                with self.hooks:
                    outermost = not self._depth and not self.hooks.off
                    if outermost and not self._eager():
                        mark_training(self._graph(), optimizer)
                        self._saw(optimizer)
                    elif outermost and self.watcher.here:
                        self._sources = Variables()
                        self._saw(optimizer)
                        begun = self.watcher.update_begins(id(optimizer))
                self._depth += begun
                if begun or not outermost or self._eager():
                    result = own(optimizer, *args, **kwargs)
                else:
                    with hidden():
                        result = own(optimizer, *args, **kwargs)
                if begun:
                    self._end_update(scaled=hasattr(optimizer, "inner_optimizer"))
                return result
            except BaseException as error:
                if begun:
                    self.watcher.update_fails()
                unseen(error)
                raise
            finally:
                self._depth -= begun

        return apply

    def _assign(self, own: Any) -> Any:  # noqa: ANN401
        def assign(variable: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            begun = False
            try:
                if self._sources:
                    with self.hooks:
                        if self._sources.has(variable):
                            self._sources = Variables()
                            if not self._eager():
                                mark_training(self._graph(), None)
                            elif not self._depth:
                                begun = self.watcher.update_begins(0)
                result = own(variable, *args, **kwargs)
                if begun:
                    self._end_update(scaled=False)
                return result
            except BaseException as error:
                if begun:
                    self.watcher.update_fails()
                unseen(error)
                raise

        return assign

    def _gradient(self, own: Any) -> Any:  # noqa: ANN401
        def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            eager = True
            try:
                with self.hooks:
                    eager = self._eager()
                    if not self.hooks.off and not self._depth and (not eager or self.watcher.here):
                        self._differentiated(target, sources, eager=eager)
                if eager:
                    return own(tape, target, sources, *args, **kwargs)
                with hidden():
                    return own(tape, target, sources, *args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise

        return gradient

    def _differentiated(self, target: Any, sources: Any, *, eager: bool) -> None:  # noqa: ANN401
        if eager:
            self._target = first_of(target)
        self._sources = Variables()
        self._sources.add(variables_in(sources))
        if not eager:
            for mark, _ in marks_around(self._graph()):
                mark.sources.update(self._sources)

    def _end_update(self, *, scaled: bool) -> None:
        loss, self._target = self._target, None
        with self.hooks:
            self.watcher.update_ends(None if scaled else loss, 0)

    def _saw(self, optimizer: Any) -> None:  # noqa: ANN401
        if not (self.watcher.off or self.watcher.aside) and self.watcher.mine:
            self.optimizers.saw(optimizer)

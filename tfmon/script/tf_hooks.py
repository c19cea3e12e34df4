"""Hooks on TensorFlow that show a `StepWatcher` what any training loop does, in graphs or eagerly.

- A pull of a batch: `next` of an iterator of tf.data or of a distribution strategy.
- An update: the call of a function that was *marked* while it was traced, because an optimizer was applied in it;
  or an optimizer, or an assignment to what a tape has differentiated by, when run eagerly.
- The loss: what the marked function returns, or what the tape differentiated.

Marks lie on graphs, not on functions: another trace of the same function may train nothing. A function that is
called while another one is traced passes its mark on.

Source: classes whose paths are the same in TensorFlow 2.18 and 2.21.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from threading import get_ident
from time import monotonic_ns
from typing import Any

from tfmon.script import hooking
from tfmon.script.bundle import MOST
from tfmon.script.hooking import Hooks, hidden, unseen
from tfmon.script.learning_rate import LoopOptimizers
from tfmon.script.looking import first_of, iterations_of, loss_path, rows_of, variables_in
from tfmon.script.marks import MARK, UNTRAINED, Mark
from tfmon.script.steps import StepWatcher
from tfmon.script.tf_feed import TensorFlowFeed, the_feed

hooking.FILES.add(__file__)


class TensorFlowHooks:
    """The hooks of one process, and what they remember between two of them.

    Thread: any; the watcher ignores threads that it does not follow.
    """

    def __init__(self, watcher: StepWatcher, hooks: Hooks) -> None:
        self.watcher, self.hooks = watcher, hooks
        self._feed: TensorFlowFeed | None = None
        self._sources: dict[int, Any] = {}
        self._target: Any = None
        self._depth = 0
        self.optimizers = LoopOptimizers()

    def install(self) -> None:
        """Replace the methods of TensorFlow, which is loaded."""
        import tensorflow as tf
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.distribute import input_lib
        from tensorflow.python.eager import context
        from tensorflow.python.eager.polymorphic_function import concrete_function
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import resource_variable_ops

        self._eager, self._graph = context.executing_eagerly, ops.get_default_graph
        setattr(concrete_function.ConcreteFunction, MARK, None)
        replace = self.hooks.replace
        for kind in (iterator_ops.OwnedIterator, input_lib.DistributedIteratorBase):
            replace(kind, "__next__", self._next)
            replace(kind, "get_next", self._pull)
            replace(kind, "get_next_as_optional", functools.partial(self._pull, optional=True))
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
        if self._feed is not None:
            lane.feed = self._feed

    # ------------------------------------------------------------ pulls

    def _next(self, own: Any) -> Any:  # noqa: ANN401
        """Return a pull that notes what the bundle expects, and has the rest told."""
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
                    or (began_ns := monotonic_ns()) >= bundle.until_ns
                ):
                    return tell(iterator)
                bundle.next_pull, bundle.busy, noted = None, True, True
                bundle.begun_ns.append(began_ns)
                given = own(iterator)
                try:
                    bundle.waits_ns.append(monotonic_ns() - began_ns)
                    first = given
                    for key in bundle.rows_path:
                        first = first[key]
                    bundle.rows.append(first._shape_tuple()[0])
                    bundle.next_function, bundle.busy = bundle.function, False
                except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                    hooks.failure(error)
                return given
            except BaseException as error:
                if noted:
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
                try:
                    if not hooks.off and not self._eager():
                        feed = self._traced_feed()
                    elif not hooks.off and not optional:
                        source = watcher.pull_begins(iterator)
                except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                    hooks.failure(error)
                if feed is not None:
                    with hidden():
                        return feed.counted(own, iterator, args, kwargs, optional=optional)
                given = own(iterator, *args, **kwargs)
                if source is not None:
                    try:
                        watcher.pull_ends(source, rows_of(given))
                    except Exception as error:  # noqa: BLE001
                        hooks.failure(error)
                return given
            except BaseException as error:
                if source is not None:
                    watcher.pull_fails(source, ended=ends_data(error))
                unseen(error)
                raise

        return pull

    def _traced_feed(self) -> TensorFlowFeed | None:
        """Return what counts the batches that a graph pulls itself; None if another watcher counts them."""
        if self.watcher.off or self.watcher.aside:
            return None
        feed = self._feed = the_feed()
        if feed.busy:
            return None
        if self.watcher.lane is not None:
            self.watcher.lane.feed = feed
        for mark, _ in self._marks():
            mark.pulls = True
        return feed

    # ------------------------------------------------------------ updates

    def _call(self, own: Any) -> Any:  # noqa: ANN401
        watcher = self.watcher

        def call(function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:  # noqa: ANN401
            try:
                mark = function._tfmon_mark
                if mark is UNTRAINED:
                    return own(function, tensor_inputs, captured_inputs)
                bundle = watcher.bundle
                if (
                    function is bundle.next_function
                    and bundle.traces.count == bundle.traced
                    and get_ident() == bundle.thread
                ):
                    bundle.next_function, bundle.busy = None, True
                    try:
                        result = own(function, tensor_inputs, captured_inputs)
                    except BaseException:
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
                try:
                    if mark is None:
                        mark = self._mark_of(function)
                    begun = mark is not UNTRAINED and self._call_begins(mark)
                except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                    self.hooks.failure(error)
                if not begun:
                    return own(function, tensor_inputs, captured_inputs)
                try:
                    result = own(function, tensor_inputs, captured_inputs)
                except BaseException:
                    watcher.update_fails()
                    raise
                try:
                    self._call_ends(function, mark, result, tensor_inputs)
                except Exception as error:  # noqa: BLE001
                    self.hooks.failure(error)
                return result
            except BaseException as error:
                unseen(error)
                raise

        return call

    def _mark_of(self, function: Any) -> Any:  # noqa: ANN401
        """Return the mark of a function's graph, once and for all."""
        graph = function._func_graph
        mark = getattr(graph, MARK, None)
        if mark is None or not (mark.trains or mark.sources or mark.pulls):
            mark = UNTRAINED
        else:
            mark.loss_path = loss_path(getattr(graph, "structured_outputs", None))
        setattr(function, MARK, mark)
        return mark

    def _call_begins(self, mark: Mark) -> bool:
        """Record that a marked function is called; return whether the call is an update or computes gradients."""
        watcher = self.watcher
        if self.hooks.off:
            return False
        if not self._eager():
            if mark.trains:
                self._mark(mark.optimizer, loops=mark.loops)
            return False
        if not watcher.here:
            return False
        if not mark.trains:
            self._sources = dict(mark.sources)
            if mark.pulls and watcher.lane is not None:
                watcher.lane.take_feed()
            return True
        return watcher.update_begins(mark, iterations_of(mark.optimizer) if mark.loops else None)

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
                try:
                    outermost = not self._depth and not self.hooks.off
                    if outermost and not self._eager():
                        self._mark(optimizer)
                        self._saw(optimizer)
                    elif outermost and self.watcher.here:
                        self._sources = {}
                        self._saw(optimizer)
                        begun = self.watcher.update_begins(id(optimizer))
                except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                    self.hooks.failure(error)
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
                if self._sources and id(variable) in self._sources:
                    try:
                        self._sources = {}
                        if not self._eager():
                            self._mark(None)
                        elif not self._depth:
                            begun = self.watcher.update_begins(0)
                    except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                        self.hooks.failure(error)
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
                try:
                    eager = self._eager()
                    if not self.hooks.off and not self._depth and (not eager or self.watcher.here):
                        self._differentiated(target, sources, eager=eager)
                except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                    self.hooks.failure(error)
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
        found = {id(one): one for one in variables_in(sources)}
        self._sources = found
        if not eager:
            for mark, _ in self._marks():
                mark.sources.update(found)

    def _end_update(self, *, scaled: bool) -> None:
        loss, self._target = self._target, None
        try:
            self.watcher.update_ends(None if scaled else loss, 0)
        except Exception as error:  # noqa: BLE001
            self.hooks.failure(error)

    def _saw(self, optimizer: Any) -> None:  # noqa: ANN401
        if not (self.watcher.off or self.watcher.aside) and self.watcher.mine:
            self.optimizers.saw(optimizer)

    # ------------------------------------------------------------ marks

    def _mark(self, optimizer: Any, *, loops: bool = False) -> None:  # noqa: ANN401
        """Mark the graph that is built now, and those around it, as training."""
        for mark, inside in self._marks():
            mark.trains = True
            mark.loops |= loops or inside
            mark.optimizer = mark.optimizer or optimizer

    def _marks(self) -> Iterator[tuple[Mark, bool]]:
        """Yield the marks of the graph built now and of those around it, and whether a loop lies between."""
        graph, inside = self._graph(), False
        while graph is not None and hasattr(graph, "outer_graph"):
            mark = getattr(graph, MARK, None)
            if mark is None:
                mark = Mark()
                setattr(graph, MARK, mark)
            yield mark, inside
            inside |= type(graph).__name__ == "WhileBodyFuncGraph" or graph.name.startswith("Dataset_")
            graph = graph.outer_graph


def ends_data(error: BaseException) -> bool:
    """Return whether an error of a pull says that there are no more batches."""
    return type(error).__name__ in ("StopIteration", "OutOfRangeError")

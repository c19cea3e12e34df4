"""Hooks on eager training: tapes, optimizers and assignments."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from tfmon.hooks import patches
from tfmon.hooks.counts import GradientRows
from tfmon.hooks.graph_marks import LAYERS, Variables, mark_training, marks_around
from tfmon.hooks.inspection import first_of
from tfmon.hooks.optimizers import LoopOptimizers, Updater, counting
from tfmon.hooks.patches import Around, Hooks, hidden, unseen
from tfmon.hooks.sources import nothing
from tfmon.hooks.step_causes import step_causes
from tfmon.hooks.step_machine import StepMachine

patches.FILES.add(__file__)
OPERATION = ("attrs", "inputs", "outputs", "type", "skip_input_indices")
"""Attributes of a tape's operation. If they differ, examples are unknown."""
NO_VARIABLES = Variables()


class EagerHooks:
    """The hooks on eager training. Thread: any."""

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
        from tensorflow.python.eager import backprop, context
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import resource_variable_ops

        self._eager, self._graph = context.executing_eagerly, ops.get_default_graph
        self._tensor, replace = ops.EagerTensor, self.hooks.replace
        replace(tf.GradientTape, "gradient", self.hooks.around(self._differentiates))
        if backprop._MockOp.__init__.__code__.co_names == OPERATION:
            replace(backprop._MockOp, "__init__", self._goes_back)
        replace(tf.compat.v1.train.Optimizer, "apply_gradients", self.hooks.around(self._applied))
        for kind in (resource_variable_ops.BaseResourceVariable, resource_variable_ops.ResourceVariable):
            for name in ("assign", "assign_add", "assign_sub"):
                replace(kind, name, functools.partial(self._assign, adds=name != "assign"))
            replace(kind, "_restore_from_tensors", self._sets)

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
                by_hand = self._sources and args and self._sources.has(args[0])
                counts = self._counters and args and self._counters.has(args[0])
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


def _gradients_and_variables(gradients: Any, variables: Any = None) -> tuple[list[Any], Any]:
    gradients = list(gradients)
    if gradients and isinstance(gradients[0], tuple):
        return [gradient[0] for gradient in gradients], [gradient[1] for gradient in gradients]
    return gradients, variables


def _both_ends(rows: list[int]) -> GradientRows:
    return tuple(dict.fromkeys((*rows[:1], *rows[-1:])))

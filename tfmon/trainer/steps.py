"""The training step in every form that the knobs ask for, over one set of weights.

Variables stay in 32 bits and are the same objects in every form, so a lane goes over from one form to another
with its weights and its optimizer's state. A tf.function keeps the precision it was traced with; traces are
kept, so going back costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmon.model.knobs import STEP, KnobError, Settings
from tfmon.trainer.loader import ScenarioError
from tfmon.trainer.scenario import Scenario

_POLICIES = {"off": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


class Steps:
    """Makes the training step of one scenario.

    Thread: one at a time.
    """

    def __init__(self, scenario: Scenario, signature: list[Any]) -> None:
        self.knobs = tuple(knob for knob in STEP if scenario.has(knob.name))
        """The knobs that another step brings into force."""
        self._scenario = scenario
        self._signature = signature
        self._model = scenario.model()
        self._made: dict[tuple[object, ...], Callable[..., Any]] = {}
        if self._model is not None:
            self._build()

    @property
    def parameters(self) -> int:
        """Trainable values of the model."""
        if self._model is None:
            return 0
        return sum(int(weight.shape.num_elements()) for weight in self._model.trainable_weights)

    def check(self, settings: Settings) -> None:
        """Refuse settings that no step can be made for.

        Errors: KnobError.
        """
        if settings.get("xla") and not settings.get("graph", True):
            raise KnobError("xla=on compiles a graph; it needs graph=on")

    def make(self, settings: Settings) -> Callable[..., Any]:
        """Return the step for these settings, traced but not yet compiled."""
        import tensorflow as tf

        graph, xla = bool(settings.get("graph", True)), bool(settings.get("xla", False))
        policy = _POLICIES[str(settings.get("mixed_precision", "off"))]
        self._set_policy(policy)
        key = (graph, xla, policy)
        if key not in self._made:
            step = self._scenario.step(self._model_for(policy))
            if graph and not getattr(step, "runs_in_python", False):
                step = tf.function(step, input_signature=self._signature or None, jit_compile=xla)
                step.get_concrete_function()
            self._made[key] = step
        return self._made[key]

    def _build(self) -> None:
        """Make the variables of the model and of its optimizer, before a tf.function needs them."""
        model = self._model
        if getattr(model, "optimizer", None) is None:
            raise ScenarioError("`model` must return a compiled model: call model.compile(optimizer, loss)")
        if not model.built:
            model.build(self._signature[0].shape)
        model.optimizer.build(model.trainable_variables)

    def _set_policy(self, policy: str) -> None:
        if self._model is None:
            return
        for layer in self._model._flatten_layers():
            if layer.dtype_policy.name != policy:
                layer.dtype_policy = policy

    def _model_for(self, policy: str) -> Any:  # noqa: ANN401
        """Give the model the optimizer that a precision needs: 16-bit floats underflow without loss scaling."""
        import keras

        model = self._model
        if model is None:
            return None
        scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        if policy == "mixed_float16" and not scaled:
            model.optimizer = keras.optimizers.LossScaleOptimizer(model.optimizer)
            model.optimizer.build(model.trainable_variables)
        elif policy != "mixed_float16" and scaled:
            model.optimizer = model.optimizer.inner_optimizer
        return model

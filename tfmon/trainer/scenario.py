"""The class that a scenario file subclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmon.model.knobs import Knob, KnobValue, Settings


class Scenario:
    """What a lane trains: a model, a source of examples, and defaults for the knobs.

    A scenario file holds one subclass. `data` and `model` are enough; the rest has defaults. The class
    attributes must be literals (and `Knob(...)` calls with literal arguments), because the monitor reads them
    from the file without running it.
    """

    batch_size: int = 32
    """Default of the knob `batch_size`."""
    prefetch: int | str = "auto"
    """Default of the knob `prefetch`."""
    knobs: tuple[Knob, ...] = ()
    """Knobs of this scenario, besides the common ones."""
    contrast: tuple[str, ...] = ("prefetch=off", "prefetch=auto")
    """Settings of the lanes that are raced on a machine without a GPU: one `KNOB=VALUE[,…]` a lane."""
    examples: int | None = None
    """How many examples `data` makes, where that is fixed; lets a batch that is too large be refused early."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def knob(self, name: str) -> KnobValue:
        """Return the value of a knob as it was when the lane was built.

        Errors: KeyError for a knob that this scenario does not have.
        """
        return self._settings[name]

    def data(self) -> Any:  # noqa: ANN401
        """Make the examples: a pair of NumPy arrays `(x, y)`, or a `tf.data.Dataset` of single examples.

        Shapes: `x` is (examples, …) and `y` (examples, …), in the order they are trained on. A Dataset is not
        batched, not repeated and not prefetched: the knobs do that.
        """
        raise TypeError(f"{type(self).__name__} needs a method `data` that returns arrays or a Dataset")

    def model(self) -> Any:  # noqa: ANN401
        """Make a compiled `tf.keras.Model`: its loss and its optimizer are the ones that train it."""
        raise TypeError(f"{type(self).__name__} needs a method `model` that returns a compiled Keras model")

    def batches(self, examples: Any, batch_size: int) -> Any:  # noqa: ANN401
        """Turn the Dataset of examples into an endless Dataset of full batches.

        Override it to put work on the input pipeline; the prefetch knob is applied after it.
        """
        return examples.repeat().batch(batch_size, drop_remainder=True)

    def step(self, model: Any) -> Callable[..., Any]:  # noqa: ANN401
        """Return the training step: a function that takes a batch and returns its loss.

        It is wrapped in one `tf.function` by the lane. Batches of `(x, y)` and `(x, y, sample_weight)` fit
        the step that is returned here: forward, compiled loss, gradients, optimizer.
        """
        import tensorflow as tf

        optimizer, variables = model.optimizer, model.trainable_variables

        def train(x: Any, y: Any = None, sample_weight: Any = None) -> Any:  # noqa: ANN401
            with tf.GradientTape() as tape:
                prediction = model(x, training=True)
                loss = model.compute_loss(x=x, y=y, y_pred=prediction, sample_weight=sample_weight)
                scaled = optimizer.scale_loss(loss)
            optimizer.apply(tape.gradient(scaled, variables), variables)
            return loss

        return train

"""The class that a scenario file subclasses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tfmon.analysis.claims import Claim
from tfmon.model.knobs import Knob, KnobValue, Settings

Step = TypeVar("Step", bound=Callable[..., Any])


def runs_in_python(step: Step) -> Step:
    """Mark a step that is to be called as it is: it is no graph, and cannot be compiled."""
    step.__dict__["runs_in_python"] = True
    return step


class Scenario:
    """What a lane trains: a model, a source of examples, and defaults for the knobs.

    A scenario file holds one subclass. `data` and `model` are enough; the rest has defaults. The class
    attributes must be literals (and `Knob(...)` calls with literal arguments), because the monitor reads them
    from the file without running it.
    """

    batch_size: int = 32
    """Default of the knob `batch_size`; the other common knobs get their defaults in the same way."""
    prefetch: int | str = "auto"
    """Default of the knob `prefetch`."""
    knobs: tuple[Knob, ...] = ()
    """Knobs of this scenario, besides the common ones. A live one may only be read in `prepare` and `batches`."""
    variants: tuple[str, ...] = ()
    """Values of the knob `variant`, the default first; without any there is no such knob."""
    without: tuple[str, ...] = ()
    """Common knobs that mean nothing here."""
    contrast: tuple[str, ...] = ("prefetch=off", "prefetch=auto")
    """Settings of the lanes that are raced on a machine without a GPU: one `KNOB=VALUE[,…]` a lane."""
    claims: tuple[Claim, ...] = ()
    """What is said about it, as comparisons that `tfmon verify` measures."""
    examples_per_step: int = 1
    """What a step counts for where `data` gives nothing."""
    examples: int | None = None
    """How many examples `data` makes, where that is fixed; lets a batch that is too large be refused early."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def knob(self, name: str) -> KnobValue:
        """Return the value of a knob as it was when the lane was built.

        Errors: KeyError for a knob that this scenario does not have.
        """
        return self._settings[name]

    def has(self, name: str) -> bool:
        """Return whether this scenario has a knob of that name."""
        return name in self._settings

    def with_settings(self, settings: Settings) -> Scenario:
        """Return this scenario, data and all, with other values of its knobs."""
        other = copy.copy(self)
        other._settings = settings
        return other

    def data(self) -> Any:  # noqa: ANN401
        """Make the examples: a pair of NumPy arrays `(x, y)`, or a `tf.data.Dataset` of single examples.

        A scenario without it has a step that takes no input at all.

        Shapes: `x` is (examples, …) and `y` (examples, …), in the order they are trained on. A Dataset is not
        batched, not repeated and not prefetched: the knobs do that.
        """
        return None

    def model(self) -> Any:  # noqa: ANN401
        """Make a compiled `tf.keras.Model`: its loss and its optimizer are the ones that train it.

        A scenario without it has a `step` that needs no Keras model.
        """
        return None

    # Scenarios with work on the input pipeline define
    #     def prepare(self, x, y): ...
    # which is mapped over the single examples; it gives the scenario the knobs parallel_calls and cache.

    def batches(self, examples: Any, batch_size: int) -> Any:  # noqa: ANN401
        """RunSlice the Dataset of examples into an endless Dataset of full batches.

        By default: `prepare`, if there is one, then the cache if it is on, then repeat and batch. The
        prefetch is added to what this returns.
        """
        prepare = getattr(self, "prepare", None)
        if prepare is not None:
            examples = examples.map(prepare, num_parallel_calls=self._parallel_calls())
            if self.knob("cache"):
                examples = examples.cache()
        return examples.repeat().batch(batch_size, drop_remainder=True)

    def feed(self, batches: Any) -> Iterator[Any]:  # noqa: ANN401
        """Return what the loop takes its batches from: an iterator over the finished pipeline."""
        iterator: Iterator[Any] = iter(batches)
        return iterator

    def _parallel_calls(self) -> int | None:
        import tensorflow as tf

        value = self.knob("parallel_calls")
        if value == "off":
            return None
        return int(tf.data.AUTOTUNE if value == "auto" else value)

    def step(self, model: Any) -> Callable[..., Any]:  # noqa: ANN401
        """Return the training step: a function that takes a batch and returns its loss.

        It is wrapped in one `tf.function` by the lane, unless it is marked by `runs_in_python`. Batches of
        `(x, y)` and `(x, y, sample_weight)` fit the step that is returned here: forward, compiled loss,
        gradients, optimizer.
        """
        if model is None:
            raise TypeError(f"{type(self).__name__} needs a method `model` or a method `step`")
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

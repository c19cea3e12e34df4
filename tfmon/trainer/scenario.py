"""The class that a scenario file subclasses, and the loading of such a file."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tfmon.model.knobs import Knob, KnobValue, Settings
from tfmon.model.race import Claim

Step = TypeVar("Step", bound=Callable[..., Any])


def runs_in_python(step: Step) -> Step:
    """Mark a step that is not wrapped in a `tf.function`."""
    step.__dict__["runs_in_python"] = True
    return step


class Scenario:
    """The training of a lane: the data, the model, and the defaults of the knobs.

    Most subclasses need only two methods:

        class TwoLayers(Scenario):
            batch_size = 64

            def data(self):
                return x, y

            def model(self):
                model = tf.keras.Sequential([...])
                model.compile("adam", "mse")
                return model

    Class attributes must be literals, or `Knob(...)` and `Claim(...)` with literals: the monitor does not run the
    file.
    """

    batch_size: int = 32
    """Default of the knob of this name, as for all common knobs."""
    prefetch: int | str = "auto"
    """A number of batches, `"auto"` or `"off"`."""
    knobs: tuple[Knob, ...] = ()
    """More knobs. A live one may be read in `prepare` and `batches` only."""
    variants: tuple[str, ...] = ()
    """Values of the knob `variant`."""
    without: tuple[str, ...] = ()
    """Common knobs that do not apply. Without `prefetch`, the lane adds none."""
    contrast: tuple[str, ...] = ("prefetch=off", "prefetch=auto")
    """Lanes on a machine without a GPU: `KNOB=VALUE[,…]` for each."""
    source: str = ""
    """Default source of the claims."""
    claims: tuple[Claim, ...] = ()
    """Statements that `tfmon verify` measures."""
    examples_per_step: int = 1
    """Examples of a step, if `data` returns None."""
    examples: int | None = None
    """Number of examples, if fixed. A larger batch is then refused early."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def knob(self, name: str) -> KnobValue:
        """Return a knob's value. Raises KeyError."""
        return self._settings[name]

    def has(self, name: str) -> bool:
        """Return whether this scenario has the knob."""
        return name in self._settings

    def with_settings(self, settings: Settings) -> Scenario:
        """Return this scenario with other settings."""
        other = copy.copy(self)
        other._settings = settings
        return other

    def data(self) -> Any:
        """Return the examples: NumPy arrays `(x, y)`, or a `tf.data.Dataset`, or None for a step without input.

        Shapes: `x` is (examples, …) and `y` (examples, …). A Dataset of single examples must not be repeated or
        prefetched.
        """
        return None

    def model(self) -> Any:
        """Return a compiled `tf.keras.Model`, if needed."""
        return None

    # An optional `prepare(self, x, y)` is mapped over examples, with the knobs `parallel_calls` and `cache`.

    def batches(self, examples: Any, batch_size: int) -> Any:
        """Return an endless `tf.data.Dataset` of full batches, made from single examples.

        The default maps `prepare`, caches, repeats and batches. The lane adds the prefetch.
        """
        prepare = getattr(self, "prepare", None)
        if prepare is not None:
            examples = examples.map(prepare, num_parallel_calls=self._parallel_calls())
            if self._settings.get("cache"):
                examples = examples.cache()
        return examples.repeat().batch(batch_size, drop_remainder=True)

    def feed(self, batches: Any) -> Iterator[Any]:
        """Return an iterator over the finished pipeline."""
        iterator: Iterator[Any] = iter(batches)
        return iterator

    def _parallel_calls(self) -> int | None:
        import tensorflow as tf

        value = self._settings.get("parallel_calls", "off")
        if value == "off":
            return None
        return int(tf.data.AUTOTUNE if value == "auto" else value)

    def step(self, model: Any) -> Callable[..., Any]:
        """Return the training step: a function that takes the parts of a batch and returns the loss.

        The lane wraps it in one `tf.function`, unless it is marked with `runs_in_python`. The default takes `(x,
        y)` or `(x, y, sample_weight)`, and raises TypeError without a model.

        Several devices call it with their parts, and the optimizer adds the gradients up: a loss that Keras does
        not compute must be divided by `tf.distribute.get_strategy().num_replicas_in_sync`.
        """
        if model is None:
            raise TypeError(f"{type(self).__name__} needs a method `model` or a method `step`")
        import tensorflow as tf

        optimizer, variables = model.optimizer, model.trainable_variables
        replicas = tf.distribute.get_strategy().num_replicas_in_sync

        def train(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
            with tf.GradientTape() as tape:
                prediction = model(x, training=True)
                loss = model.compute_loss(x=x, y=y, y_pred=prediction, sample_weight=sample_weight)
                scaled = optimizer.scale_loss(loss)
            optimizer.apply(tape.gradient(scaled, variables), variables)
            return loss if replicas == 1 else loss * replicas  # Keras has divided it

        return train


OF_A_ROOT = ("pyproject.toml", "setup.py", ".git")


class ScenarioError(Exception):
    """An unusable scenario. The text is for the user."""


def load(path: Path) -> type[Scenario]:
    """Run a scenario file and return its class.

    The file's folder comes first on `sys.path`. Its project's root, and `src` there, come before installed
    packages.

    Raises ScenarioError without exactly one scenario, and any error of the file.
    """
    sys.path.insert(0, str(path.parent))
    root = next(
        (parent for parent in path.parents if any((parent / name).exists() for name in OF_A_ROOT)), path.parent
    )
    installed = (
        index for index, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages"))
    )
    index = next(installed, len(sys.path))
    sys.path[index:index] = [
        str(folder) for folder in (root, root / "src") if folder != path.parent and folder.is_dir()
    ]
    spec = importlib.util.spec_from_file_location("tfmon_scenario", path)
    if spec is None or spec.loader is None:
        raise ScenarioError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    result = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Scenario) and value.__module__ == spec.name
    ]
    if len(result) != 1:
        names = ", ".join(value.__name__ for value in result) or "none"
        raise ScenarioError(f"{path.name} must define one subclass of tfmon.trainer.Scenario; it has {names}")
    return result[0]

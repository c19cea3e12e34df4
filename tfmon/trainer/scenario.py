"""The class that a scenario file subclasses, and how such a file is loaded."""

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
    """Mark a step that is not wrapped in a `tf.function`, because it does its work in Python."""
    step.__dict__["runs_in_python"] = True
    return step


class Scenario:
    """The training of a lane: the data, the model, and the defaults of the knobs.

    A file holds one subclass. Most need only two methods:

        class TwoLayers(Scenario):
            batch_size = 64

            def data(self):
                return x, y

            def model(self):
                model = tf.keras.Sequential([...])
                model.compile("adam", "mse")
                return model

    The class attributes must be literals, or `Knob(...)` and `Claim(...)` with literal arguments: the monitor
    reads them from the file without running it.
    """

    batch_size: int = 32
    """Default of the knob `batch_size`. Each common knob gets its default from the attribute of its name."""
    prefetch: int | str = "auto"
    """Default of the knob `prefetch`: a number of batches, `"auto"` or `"off"`."""
    knobs: tuple[Knob, ...] = ()
    """Knobs of this scenario, besides the common ones. A live one may be read in `prepare` and `batches` only."""
    variants: tuple[str, ...] = ()
    """Values of the knob `variant`, the default first; the knob exists if there are any."""
    without: tuple[str, ...] = ()
    """Names of common knobs without a meaning for this scenario. Without `prefetch`, the lane adds none."""
    contrast: tuple[str, ...] = ("prefetch=off", "prefetch=auto")
    """Settings of the lanes that race on a machine without a GPU: `KNOB=VALUE[,…]` for each lane."""
    source: str = ""
    """Where the claims come from that do not say it themselves."""
    claims: tuple[Claim, ...] = ()
    """Statements about this scenario, as comparisons that `tfmon verify` measures."""
    examples_per_step: int = 1
    """Examples that a step counts for if `data` returns None."""
    examples: int | None = None
    """Number of examples that `data` returns, if it is fixed: a batch that is too large is then refused early."""

    def __init__(self, settings: Settings) -> None:
        """Take the value of every knob; `data`, `model` and the others read them with `knob`."""
        self._settings = settings

    def knob(self, name: str) -> KnobValue:
        """Return the value of a knob. Errors: KeyError for a knob that this scenario does not have."""
        return self._settings[name]

    def has(self, name: str) -> bool:
        """Return whether this scenario has a knob of that name."""
        return name in self._settings

    def with_settings(self, settings: Settings) -> Scenario:
        """Return this scenario with the same data and other values of its knobs."""
        other = copy.copy(self)
        other._settings = settings
        return other

    def data(self) -> Any:
        """Return the examples: a pair of NumPy arrays `(x, y)`, or a `tf.data.Dataset` of single examples.

        Return None, the default, if the step takes no input.

        Shapes: `x` is (examples, …) and `y` (examples, …), in the order of training. A Dataset must not be
        batched, repeated or prefetched: the knobs do that.
        """
        return None

    def model(self) -> Any:
        """Return a compiled `tf.keras.Model`; its own loss and optimizer train it.

        Return None, the default, if `step` needs no Keras model.
        """
        return None

    # A scenario whose input pipeline does work defines
    #     def prepare(self, x, y): ...
    # which is mapped over the single examples, and has the knobs `parallel_calls` and `cache` then.

    def batches(self, examples: Any, batch_size: int) -> Any:
        """Return an endless `tf.data.Dataset` of full batches, made from the Dataset of single examples.

        The default maps `prepare` if there is one, caches if the knob is on, repeats and batches. The lane adds
        the prefetch to what this method returns.
        """
        prepare = getattr(self, "prepare", None)
        if prepare is not None:
            examples = examples.map(prepare, num_parallel_calls=self._parallel_calls())
            if self._settings.get("cache"):
                examples = examples.cache()
        return examples.repeat().batch(batch_size, drop_remainder=True)

    def feed(self, batches: Any) -> Iterator[Any]:
        """Return an iterator over the finished pipeline; the loop takes its batches from it."""
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

        The lane wraps it in one `tf.function`, unless it is marked with `runs_in_python`. The default step takes
        batches of `(x, y)` or `(x, y, sample_weight)`: forward pass, compiled loss, gradients, optimizer.

        On several devices each one calls it with its part of the batch, and the optimizer adds the gradients up: a
        loss that Keras does not compute must be divided by `tf.distribute.get_strategy().num_replicas_in_sync`.

        Errors: TypeError without a model.
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
            return loss if replicas == 1 else loss * replicas  # Keras divides it for the sum over the devices

        return train


OF_A_ROOT = ("pyproject.toml", "setup.py", ".git")
"""Files in the root of a project."""


class ScenarioError(Exception):
    """A scenario that cannot be used; the text is one line for the user."""


def load(path: Path) -> type[Scenario]:
    """Run a scenario file and return the class that it defines.

    The file's folder comes first on `sys.path`, as for a script. Its project's root, and `src` there, come before
    what is installed, so that a scenario in another checkout of a project imports that one's package.

    Errors: ScenarioError if the file does not define exactly one scenario. Also any error of the file.
    """
    sys.path.insert(0, str(path.parent))
    root = next((one for one in path.parents if any((one / name).exists() for name in OF_A_ROOT)), path.parent)
    installed = (
        place for place, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages"))
    )
    place = next(installed, len(sys.path))
    sys.path[place:place] = [str(one) for one in (root, root / "src") if one != path.parent and one.is_dir()]
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

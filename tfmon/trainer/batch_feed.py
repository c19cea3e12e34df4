"""The tf.data pipelines of a scenario.

The first iterator over a dataset takes 10 to 40 ms, and a later iterator 1 ms, so datasets are kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import BATCH_SCOPE, INPUT, PREPARE, KnobError, KnobValue, Settings
from tfmon.model.spec import step_batch
from tfmon.system import limits
from tfmon.trainer.scenario import Scenario, ScenarioError
from tfmon.units import memory

KEPT_CACHES = 2
"""Number of filled caches, for a quick return to the previous settings."""
SMALLER = "fewer examples, a smaller type such as uint8, or a tf.data.Dataset that reads them from files"


EXAMPLES = "return a pair of NumPy arrays (x, y), or a tf.data.Dataset of single examples"


@dataclass(frozen=True, slots=True)
class BatchFeed:
    """An open pipeline."""

    batches: Iterator[Any]
    batch_examples: int | None
    """`None` if batches differ in size."""


class Pipelines:
    """Makes a scenario's pipelines. Thread: any, one at a time."""

    def __init__(self, scenario: Scenario, devices: int = 1) -> None:
        import tensorflow as tf

        self._scenario = scenario
        self._devices = devices
        self._datasets: dict[tuple[KnobValue, ...], Any] = {}
        self._filled: list[tuple[KnobValue, ...]] = []
        live_knobs = [knob for knob in scenario.knobs if knob.kind == "live"]
        self.knobs = tuple(
            knob for knob in (*INPUT, BATCH_SCOPE, *PREPARE, *live_knobs) if scenario.has(knob.name)
        )
        """Knobs whose change needs another pipeline."""
        self.examples: int | None = None
        """`None` if unknown, or without input."""
        with tf.device("CPU:0"):
            data = scenario.data()
            _check_kind(data, scenario)
            if data is not None and not isinstance(data, tf.data.Dataset):
                # Pipelines share a tensor, but would copy arrays.
                arrays = tuple(data) if isinstance(data, list) else data
                lengths = [len(array) for array in tf.nest.flatten(arrays) if getattr(array, "shape", ())]
                if len(set(lengths)) > 1:
                    listed = " and ".join(map(str, dict.fromkeys(lengths)))
                    raise ScenarioError(f"`data` returns arrays of {listed} examples; each must have as many")
                needed = sum(int(getattr(array, "nbytes", 0)) for array in tf.nest.flatten(arrays))
                free = free_bytes()
                if free is not None and needed > free:
                    raise MemoryShortageError(
                        f"the data take {memory(needed)}, and TensorFlow's copy of them as much again, "
                        f"but {memory(free)} of memory are free: {SMALLER}"
                    )
                data = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(tf.constant, arrays))
        self._source = data
        if data is not None and (cardinality := int(data.cardinality())) >= 0:
            self.examples = cardinality
        if self.examples == 0:
            raise ScenarioError("`data` returns no examples")

    def check(self, settings: Settings) -> None:
        """Raise KnobError if a batch is larger than the data."""
        size, whole, most = settings.get("batch_size"), step_batch(settings, self._devices), self.examples
        if most is not None and isinstance(size, int) and whole is not None and whole > most:
            most = most * size // whole
            raise KnobError(f"batch_size={size} is larger than the data; it can be at most {most}")

    def prepare(self, settings: Settings) -> Any:
        """Return the dataset, ready to iterate. No data are read."""
        key = self._key(settings)
        if key not in self._datasets:
            dataset = self._make(settings)
            iter(dataset)
            self._datasets[key] = dataset
        return self._datasets[key]

    def open(self, settings: Settings) -> BatchFeed:
        """Return a pipeline with the first batch read. Raises ScenarioError without a batch."""
        import tensorflow as tf

        if self._source is None:
            return BatchFeed(itertools.repeat(()), self._scenario.examples_per_step * self._devices)
        dataset = self.prepare(settings)
        if settings.get("cache"):
            _check_cache(dataset, self.examples)
        leaves = tf.nest.flatten(dataset.element_spec)
        size = leaves[0].shape[0] if leaves and leaves[0].shape.rank else None
        batches = self._for_all(settings).feed(dataset)
        if not isinstance(dataset.element_spec, tuple):
            batches = zip(batches)
        self._keep_caches(settings)
        first = next(batches, None)
        if first is None:
            raise ScenarioError("the data gave no batch: there are no examples, or `batches` drops them")
        return BatchFeed(itertools.chain([first], batches), size)

    def _for_all(self, settings: Settings) -> Scenario:
        size = step_batch(settings, self._devices)
        return self._scenario.with_settings(settings if size is None else {**settings, "batch_size": size})

    def _key(self, settings: Settings) -> tuple[KnobValue, ...]:
        return tuple(settings[knob.name] for knob in self.knobs)

    def _keep_caches(self, settings: Settings) -> None:
        """Drop old datasets, whose caches contain all the data."""
        if not settings.get("cache"):
            return
        key = self._key(settings)
        self._filled = [*(filled for filled in self._filled if filled != key), key]
        while len(self._filled) > KEPT_CACHES:
            self._datasets.pop(self._filled.pop(0), None)

    def signature(self, settings: Settings) -> list[Any]:
        """Return the specs of a batch of any size, so that another size needs no trace."""
        import tensorflow as tf

        if self._source is None:
            return []
        spec = self.prepare(settings).element_spec

        def widen(part: Any) -> Any:
            # Outputs of Python functions may have no rank.
            return tf.TensorSpec([None, *part.shape[1:]] if part.shape.rank else part.shape, part.dtype)

        return list(tf.nest.map_structure(widen, spec if isinstance(spec, tuple) else (spec,)))

    def _make(self, settings: Settings) -> Any:
        import tensorflow as tf

        scenario = self._for_all(settings)
        batch_size = step_batch(settings, self._devices) or scenario.batch_size
        prefetch = settings.get("prefetch", "off")
        with tf.device("CPU:0"):
            dataset = scenario.batches(self._source, batch_size)
            if prefetch != "off":
                dataset = dataset.prefetch(tf.data.AUTOTUNE if prefetch == "auto" else int(prefetch))
            options = tf.data.Options()
            # Otherwise tf.data adds a prefetch.
            options.experimental_optimization.inject_prefetch = False
            return dataset.with_options(options)


def count_examples(batch: Any) -> int:
    """Return the number of examples in a batch."""
    while isinstance(batch, tuple | list | dict):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return int(batch.shape[0])


class MemoryShortageError(ScenarioError):
    """The data do not fit into memory. The text is for the user."""


def _check_kind(data: Any, scenario: Scenario) -> None:
    if data is None:
        if type(scenario).step is Scenario.step:
            does = "is missing" if type(scenario).data is Scenario.data else "returns nothing"
            raise ScenarioError(f"`data` {does}, and the default step needs examples; {EXAMPLES}")
        return
    outer = data
    while type(outer).__name__.endswith(("PrefetchDataset", "OptionsDataset", "RepeatDataset", "ShuffleDataset")):
        outer = outer._input_dataset
    if type(outer).__name__.endswith("BatchDataset"):
        raise ScenarioError("`data` returns batches; return single examples, as the knob batch_size makes batches")
    if isinstance(data, Iterator):
        raise ScenarioError(f"`data` returns a {type(data).__name__}, which can be read once; {EXAMPLES}")


def _check_cache(dataset: Any, examples: int | None) -> None:
    import tensorflow as tf

    free = free_bytes()
    shapes = [(leaf.shape, leaf.dtype) for leaf in tf.nest.flatten(dataset.element_spec)]
    if examples is None or free is None or not all(shape.rank for shape, _ in shapes):
        return
    sizes = [[dtype.size, *shape.as_list()[1:]] for shape, dtype in shapes]
    if any(size is None for sizes_of_leaf in sizes for size in sizes_of_leaf):
        return
    needed = examples * sum(math.prod(sizes_of_leaf) for sizes_of_leaf in sizes)
    if needed > free:
        raise MemoryShortageError(f"the cache takes {memory(needed)}, but {memory(free)} of memory are free")


def free_bytes() -> int | None:
    """Return the free memory without swapping, if known."""
    result = limits.read_memory()
    return None if result is None else limits.limited_memory(*result)[1]

"""The tf.data pipeline with its knobs, and the exchange of one for another while the lane trains.

Opening an iterator costs 10 to 40 ms the first time, when tf.data rewrites the pipeline's graph, and about
1 ms from then on. So a background thread opens once, ahead of time, the pipelines that one key press leads to,
and a change of a knob is an `iter` and a `next` on a dataset that stands ready.
"""

from __future__ import annotations

import functools
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tfmon.model.knobs import BATCH_SIZE, PREFETCH, KnobError, KnobValue, Settings
from tfmon.trainer.loader import ScenarioError
from tfmon.trainer.scenario import Scenario

PIPELINE_KNOBS = (BATCH_SIZE, PREFETCH)


@dataclass(frozen=True, slots=True)
class Feed:
    """An open pipeline, ready to be trained from."""

    settings: dict[str, KnobValue]
    """The pipeline's knobs."""
    batches: Iterator[Any]
    batch_examples: int | None
    """Examples in every batch; None when batches differ in size and are counted one by one."""


class Pipelines:
    """Makes the pipelines of one scenario.

    Thread: any, one at a time.
    """

    def __init__(self, scenario: Scenario) -> None:
        import tensorflow as tf

        self._scenario = scenario
        self._standing: dict[tuple[KnobValue, ...], Any] = {}
        with tf.device("CPU:0"):
            data = scenario.data()
            if not isinstance(data, tf.data.Dataset):
                # Tensors, not arrays: a pipeline shares a tensor, and would copy an array each time.
                data = tf.data.Dataset.from_tensor_slices(
                    tf.nest.map_structure(tf.constant, tuple(data) if isinstance(data, list) else data)
                )
        self._source = data
        cardinality = int(data.cardinality())
        self.examples = cardinality if cardinality >= 0 else None
        """Examples in the data, None where tf.data does not know."""

    def check(self, settings: Settings) -> None:
        """Refuse settings that no pipeline can be made for.

        Errors: KnobError, for a batch that is larger than the data.
        """
        batch_size = settings["batch_size"]
        if self.examples is not None and isinstance(batch_size, int) and batch_size > self.examples:
            raise KnobError(f"batch_size={batch_size} is larger than the data; it can be at most {self.examples}")

    def prepare(self, settings: Settings) -> Any:  # noqa: ANN401
        """Return the dataset for these settings, with its graph rewritten; no data are read."""
        key = tuple(settings[knob.name] for knob in PIPELINE_KNOBS)
        if key not in self._standing:
            dataset = self._make(settings)
            iter(dataset)
            self._standing[key] = dataset
        return self._standing[key]

    def open(self, settings: Settings) -> Feed:
        """Open the pipeline for these settings, with its first batch at hand.

        Errors: ScenarioError when there is none; whatever the scenario raises.
        """
        import tensorflow as tf

        batches = iter(self.prepare(settings))
        first = next(batches, None)
        if first is None:
            raise ScenarioError("the data gave no batch: there are no examples, or `batches` drops them")
        first = first if isinstance(first, tuple) else (first,)
        leaves = tf.nest.flatten(batches.element_spec)
        size = leaves[0].shape[0] if leaves and leaves[0].shape.rank else None
        chain = itertools.chain([first], batches if isinstance(batches.element_spec, tuple) else zip(batches))
        return Feed({knob.name: settings[knob.name] for knob in PIPELINE_KNOBS}, chain, size)

    def signature(self, settings: Settings) -> list[Any]:
        """Return the specs of a batch with its size left open, so that another size needs no new trace."""
        import tensorflow as tf

        spec = self.prepare(settings).element_spec

        def widen(part: Any) -> Any:  # noqa: ANN401
            # Without a rank, as from a Python function, all is open anyway; a scalar has no batch size.
            return tf.TensorSpec([None, *part.shape[1:]] if part.shape.rank else part.shape, part.dtype)

        return list(tf.nest.map_structure(widen, spec if isinstance(spec, tuple) else (spec,)))

    def _make(self, settings: Settings) -> Any:  # noqa: ANN401
        import tensorflow as tf

        batch_size, prefetch = settings["batch_size"], settings["prefetch"]
        with tf.device("CPU:0"):
            dataset = self._scenario.batches(self._source, int(batch_size))
            if prefetch != "off":
                dataset = dataset.prefetch(tf.data.AUTOTUNE if prefetch == "auto" else int(prefetch))
            options = tf.data.Options()
            # tf.data injects a prefetch at the end of a pipeline that has none; off has to be off.
            options.experimental_optimization.inject_prefetch = False
            return dataset.with_options(options)


def count_examples(batch: Any) -> int:  # noqa: ANN401
    """Return the size of a batch, by the first part of it, which may have parts of its own."""
    while isinstance(batch, tuple | list | dict):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return int(batch.shape[0])


class Opener(threading.Thread):
    """Opens pipelines in the background and delivers them; drops the old ones, which takes time as well."""

    def __init__(self, pipelines: Pipelines, deliver: Callable[[int, Feed | BaseException], None]) -> None:
        super().__init__(name="tfmon-pipelines", daemon=True)
        self._pipelines = pipelines
        self._deliver = deliver
        self._jobs: queue.PriorityQueue[tuple[int, int, Callable[[], None]]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self.worked = 0
        """Jobs begun and jobs ended; while it is odd, one is under way."""

    @property
    def idle(self) -> bool:
        """True when nothing is to be done."""
        return self._jobs.unfinished_tasks == 0

    def open(self, request: int, settings: Settings) -> None:
        """Open a pipeline as soon as possible and deliver it under the request's number."""

        def job() -> None:
            try:
                self._deliver(request, self._pipelines.open(settings))
            except Exception as error:  # noqa: BLE001 - the user's pipeline may raise anything; the loop says so
                self._deliver(request, error)

        self._put(0, job)

    def prepare_neighbours(self, settings: Settings) -> None:
        """Make ready what one press of a key may ask for next."""
        top = self._pipelines.examples
        for knob, direction in ((BATCH_SIZE, +1), (BATCH_SIZE, -1), (PREFETCH, +1)):
            value = knob.next(settings[knob.name], direction, high=top if knob is BATCH_SIZE else None)
            wanted = {**settings, knob.name: value}
            self._put(1, functools.partial(self._try_to_prepare, wanted))

    def drop(self, feed: Feed) -> None:
        """Let go of an open pipeline in this thread, where its end delays no step."""
        leftovers = [feed]
        self._put(2, leftovers.clear)

    def run(self) -> None:
        """Work off the jobs, the urgent ones first."""
        while True:
            job = self._jobs.get()[2]
            self.worked += 1
            job()
            del job
            self.worked += 1
            self._jobs.task_done()

    def _put(self, urgency: int, job: Callable[[], None]) -> None:
        self._jobs.put((urgency, next(self._numbers), job))

    def _try_to_prepare(self, settings: Settings) -> None:
        try:
            self._pipelines.prepare(settings)
        except Exception:  # noqa: BLE001 - nobody asked for it yet; whoever does is told by `open`
            return

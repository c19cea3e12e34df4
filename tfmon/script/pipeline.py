"""Knobs on a script's own input pipeline: how far it makes batches ready ahead, and with how many threads.

The size of a prefetch is fixed when a dataset is made. So a change takes effect where the script iterates over a
dataset anew, at its next epoch: the iterator then reads a dataset with another prefetch at its end, over the same
dataset of the script. The order of the elements stays. Until a knob is changed nothing is replaced.

Source: `tf.data.Dataset.__iter__`, whose path is the same in TensorFlow 2.18 and 2.21.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfmon.model.knobs import PREFETCH, Knob, KnobError, KnobValue
from tfmon.model.lane_pipes import SETTINGS
from tfmon.script.hooking import FILES, Hooks, unseen
from tfmon.script.lane import Lane

AUTOTUNE = -1
INPUT_THREADS = Knob(
    "input_threads",
    default="auto",
    help="Threads that tf.data may use for the script's pipeline, from its next epoch on.",
    kind="live",
    choices=("auto", 1, 2, 4, 8),
    low=1,
    high=1024,
    words=("auto",),
)
FOREVER = "the script reads one iterator for ever: a pipeline changes only where a new epoch iterates over it anew"
FILES.add(__file__)


class Pipeline:
    """Changes the datasets that the script's training thread iterates over.

    Thread: the one that trains.
    """

    def __init__(
        self,
        hooks: Hooks,
        joined: Callable[[], Lane | None],
        mine: Callable[[], bool],
        reads: Callable[[], object],
    ) -> None:
        """Change nothing yet.

        Args:
            hooks: where the replaced method is kept.
            joined: returns this process's lane, None before its first step.
            mine: whether the calling thread trains, as far as that is known.
            reads: returns the iterator that the loop reads first, None if there is none.
        """
        self.one_iterator = False
        """Whether Keras trains all epochs from one iterator now, because it was told their number of batches."""
        self._hooks, self._joined, self._mine, self._reads = hooks, joined, mine, reads
        self._own: dict[str, KnobValue] = {}
        self._values = self._requested()

    def install(self) -> None:
        """Replace what begins an iteration; TensorFlow is loaded."""
        import tensorflow as tf
        from tensorflow.python.eager import context

        self._tf, self._eager = tf, context.executing_eagerly
        self._hooks.replace(tf.data.Dataset, "__iter__", self._iter)

    def joined(self, lane: Lane) -> None:
        """Offer the knobs of the pipeline that the script has begun to read."""
        if not self._own or PREFETCH.name in lane.knobs:
            return
        knobs = {
            PREFETCH.name: replace(
                PREFETCH, default=self._own[PREFETCH.name],
                help="Batches that tf.data makes ready ahead, from the script's next epoch on.",
            ),
            INPUT_THREADS.name: replace(INPUT_THREADS, default=self._own[INPUT_THREADS.name]),
        }  # fmt: skip
        for knob in knobs.values():
            lane.offer(knob, self._check, later=True)

    @staticmethod
    def _requested() -> dict[str, KnobValue]:
        """Return what the command line sets, as far as it is possible; the lane refuses the rest."""
        found: dict[str, KnobValue] = {}
        requested = json.loads(os.environ.get(SETTINGS, "{}"))
        for knob in (PREFETCH, INPUT_THREADS):
            value = requested.get(knob.name)
            try:
                if value is not None:
                    found[knob.name] = knob.parse(value) if isinstance(value, str) else knob.check(value)
            except KnobError:
                continue
        return found

    def _check(self, value: KnobValue) -> None:
        iterator = self._reads()
        dataset = getattr(iterator, "_dataset", None)
        if self.one_iterator or (
            dataset is not None and int(dataset.cardinality()) == self._tf.data.INFINITE_CARDINALITY
        ):
            raise KnobError(FOREVER)

    def _iter(self, own: Any) -> Any:  # noqa: ANN401
        def iterate(dataset: Any) -> Any:  # noqa: ANN401
            try:
                changed = dataset
                try:
                    if not self._hooks.off and self._eager() and self._mine():
                        changed = self._changed(dataset)
                except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                    self._hooks.failure(error)
                return own(changed)
            except BaseException as error:
                unseen(error)
                raise

        return iterate

    def _changed(self, dataset: Any) -> Any:  # noqa: ANN401
        """Return the dataset with what the knobs say; the same one while they say what the script does."""
        own = {PREFETCH.name: prefetch_of(dataset), INPUT_THREADS.name: threads_of(dataset)}
        self._own = self._own or own
        lane = self._joined()
        if lane is not None and lane.measures_this_thread:
            self.joined(lane)
            self._values.update(lane.begin_pending())
        values = {name: value for name, value in self._values.items() if value != own[name]}
        if not values:
            return dataset
        options = self._tf.data.Options()
        changed = dataset
        if PREFETCH.name in values:
            changed = self._with_prefetch(dataset, values[PREFETCH.name], options)
        if INPUT_THREADS.name in values:
            threads = values[INPUT_THREADS.name]
            options.threading.private_threadpool_size = 0 if threads == "auto" else threads
        return changed.with_options(options)

    def _with_prefetch(self, dataset: Any, value: KnobValue, options: Any) -> Any:  # noqa: ANN401
        inner = dataset
        while type(inner).__name__ in ("_OptionsDataset", "_PrefetchDataset"):
            inner = inner._input_dataset
        if value == "off":
            options.experimental_optimization.inject_prefetch = False
            return inner
        return inner.prefetch(self._tf.data.AUTOTUNE if value == "auto" else value)


def prefetch_of(dataset: Any) -> KnobValue:  # noqa: ANN401
    """Return the prefetch at a dataset's end."""
    while type(dataset).__name__ == "_OptionsDataset":
        dataset = dataset._input_dataset
    if type(dataset).__name__ != "_PrefetchDataset":
        return "off"
    size = int(dataset._buffer_size)
    return "auto" if size == AUTOTUNE else size or "off"


def threads_of(dataset: Any) -> KnobValue:  # noqa: ANN401
    """Return the threads that a dataset has to itself."""
    return int(dataset.options().threading.private_threadpool_size or 0) or "auto"

"""Knobs on a script's own input pipeline: prefetch, threads and batch size.

A dataset's sizes are fixed when it is made. A change takes effect at the script's next epoch, when it iterates
over the dataset again. The order of the elements stays. Nothing is replaced until a knob is changed.

Source: `tf.data.Dataset.__iter__`, at the same path in TensorFlow 2.18 and 2.21.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

from tfmon.model.knobs import BATCH_SIZE, PREFETCH, Knob, KnobError, KnobValue, show
from tfmon.model.lane_clock import lane_clock
from tfmon.script import process
from tfmon.script.causes import Observation, causes
from tfmon.script.dataset_settings import INPUT_THREADS, is_cut_by_map, prefetch_of, settings_of, with_settings
from tfmon.script.hooking import FILES, Hooks, Watching, hooks, unseen
from tfmon.script.input_causes import causes_of, made, traits_of
from tfmon.script.knobs import OfferedKnobs
from tfmon.script.lane import Lane
from tfmon.script.looking import line_of, logs_operations, users_frame
from tfmon.script.sources import nothing
from tfmon.script.steps import StepWatcher

FIRST_LOOK_NS = 1_000_000_000
LEAST_FREED_NS = 10_000_000
"""The shortest sleep of tf.data's autotuner. Freeing an iterator faster included no wait for it."""
FOR_EVER = "the script reads one iterator for ever, so it has no next epoch: set it from the start, --set {}={}"
OWN_PREFETCH = replace(PREFETCH, help="Batches that tf.data makes ready ahead, from the script's next epoch on.")
OWN_BATCH = replace(
    BATCH_SIZE,
    help="Examples in a batch, from the script's next epoch on; a tf.function is traced once for the new size.",
)
BY_TFMON = (OWN_PREFETCH, INPUT_THREADS, OWN_BATCH)
FILES.add(__file__)


class Freed:
    """Last attribute of an iterator. Measures its release, which may wait for tf.data's autotuner thread."""

    def __init__(self, iterator: Any) -> None:  # noqa: ANN401
        self._began_ns, self._thread = 0, threading.get_ident()
        weakref.finalize(iterator, self._begins).atexit = False

    def _begins(self) -> None:
        self._began_ns = lane_clock.now_ns()

    def __del__(self) -> None:
        took_ns = lane_clock.now_ns() - self._began_ns
        if not self._began_ns or took_ns < LEAST_FREED_NS or threading.get_ident() != self._thread:
            return
        with hooks:
            lane = process.joined()
            causes.saw("iterator_freed", line_of(users_frame()), cost_ns=took_ns)
            if lane is not None and lane.measures_this_thread:
                lane.meter.waited(took_ns)


class Reads:
    """The datasets that are trained from. Other datasets are not changed. Thread: the one that trains."""

    def __init__(self) -> None:
        self.any = False
        self._places: set[Hashable] = set()
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self.latest: Callable[[], Any] = nothing
        self.trained: Callable[[], Any] = nothing

    def place(self) -> Hashable:
        """Return the script's current line. Instructions cannot identify it: Python may replace them."""
        frame = users_frame()
        return id(frame.f_code), frame.f_lineno

    def opened(self, iterator: Any, dataset: Any, place: Hashable) -> None:  # noqa: ANN401
        """Record the dataset and place of an iterator."""
        self._seen.add(dataset)
        setattr(iterator, _READ, (dataset, place))
        setattr(iterator, _FREED, Freed(iterator))  # the last attribute, so it is freed after TensorFlow's own
        self.latest = weakref.ref(iterator)

    def trains(self, iterator: Any) -> None:  # noqa: ANN401
        """Record that an iterator is trained from."""
        read = getattr(iterator, _READ, None)
        if read is None:
            return
        self.any = True
        self.trained = weakref.ref(iterator)
        self._trained.add(read[0])
        self._places.add(read[1])

    def trains_from(self, dataset: Any, place: Hashable) -> bool | None:  # noqa: ANN401
        """Return whether a dataset is trained from at this place. None if unknown."""
        if dataset in self._trained:
            return True
        if not self.any:
            return None
        if dataset in self._seen:
            return False
        return True if place in self._places else None


class Pipeline:
    """Changes the datasets that the script's training thread iterates over. Thread: the one that trains."""

    def __init__(self, hooks: Hooks, joined: Callable[[], Lane | None], loop: StepWatcher) -> None:
        self._hooks, self._joined, self._loop = hooks, joined, loop
        self._one_iterator, self._own_dataset = False, True
        self._keras_reads: Any = None
        self.reads = Reads()
        self._values: dict[str, KnobValue] = {}
        """Values that differ from the script's own settings."""
        self._own: dict[str, KnobValue] = {}
        self._began_ns = self._look_ns = 0
        """When the dataset was first seen, and when it is looked at next."""
        self._described: Callable[[], Any] = nothing
        self._looked_at: Callable[[], Any] = nothing
        self._slow: list[Observation] = []
        for knob in BY_TFMON:
            with contextlib.suppress(KnobError):
                if (value := OfferedKnobs().requested(knob)) is not None:
                    self._values[knob.name] = value

    def install(self) -> None:
        """Replace what begins an iteration; TensorFlow is loaded."""
        import tensorflow as tf
        from tensorflow.python.eager import context

        self._eager, self._endless = context.executing_eagerly, tf.data.INFINITE_CARDINALITY
        self._hooks.replace(tf.data.Dataset, "__iter__", self._iter)
        self._hooks.replace(tf.data.Dataset, "__init__", self._hooks.around(_noted))

    def fits(self, *, one_iterator: bool, own: bool = True) -> None:
        """Record that Keras starts or stops training. `own`: the script, not Keras, made the dataset."""
        self._one_iterator, self._own_dataset, self._keras_reads = one_iterator, own, None

    def keras_reads(self, iterator: object) -> None:
        """Record the iterator of Keras' train function."""
        # The iterator itself must not be kept: Keras frees that of an epoch when the next one begins.
        read = getattr(iterator, _READ, iterator)
        if read is self._keras_reads:
            return
        self._keras_reads = read
        self.reads.trains(iterator)
        lane = self._joined()
        if lane is not None:
            self._offer(lane, iterator, 0)

    def joined(self, lane: Lane) -> None:
        """Offer a lane the knobs of its input. Call it before the first update."""
        feeds = self._loop.sources.feeds or ((self.reads.latest(), 0),)
        iterator, rows = feeds[0]
        self._offer(lane, iterator, rows if len(feeds) == 1 else 0)

    def _offer(self, lane: Lane, iterator: Any, rows: int) -> None:  # noqa: ANN401
        dataset, _ = getattr(iterator, _READ, (None, None))
        lane.look = self.look
        if dataset is None or logs_operations():
            return
        if dataset is not self._described():
            self._described = weakref.ref(dataset)
            lane.tell_input(traits_of(dataset) if self._own_dataset else ())
        if PREFETCH.name in lane.knobs:
            return
        own, name = settings_of(dataset), BATCH_SIZE.name
        if name in lane.knobs or rows not in (own.get(name), self._values.get(name)):
            own.pop(name, None)
        elif rows != self._values.get(name):
            self._values.pop(name, None)
        self._own = own
        for knob in BY_TFMON:
            if knob.name in own:
                lane.offer(replace(knob, default=own[knob.name]), functools.partial(self._set, knob))

    def look(self) -> None:
        """Find causes of slow input, at intervals that double from one second."""
        now_ns, iterator = lane_clock.now_ns(), self.reads.trained()
        dataset, _ = getattr(iterator, _READ, (None, None))
        if dataset is not None and dataset is not self._looked_at():
            self._looked_at, self._began_ns, self._look_ns = weakref.ref(dataset), now_ns, 0
        if now_ns < max(self._look_ns, self._began_ns + FIRST_LOOK_NS) or dataset is None or logs_operations():
            return
        prefetch = prefetch_of(dataset)
        if prefetch == "off":
            prefetch = self._values.get(PREFETCH.name, prefetch)
        result = causes_of(iterator, dataset, prefetch)
        if result is None:
            return
        self._look_ns = 2 * now_ns - self._began_ns
        for seen in self._slow:
            seen.figures, seen.changed = {}, True  # unless this pipeline is so, too
        self._slow = []
        for one in result:
            seen = causes.saw(one.cause, one.place, subject=one.subject, what=one.what, count=0)
            seen.figures = one.figures
            self._slow.append(seen)

    def _set(self, knob: Knob, value: KnobValue) -> bool:
        """Return whether a different value takes effect at the next epoch. Raises KnobError if there is none."""
        in_fit = bool(self._loop.aside)
        if knob.name == BATCH_SIZE.name and in_fit:
            raise KnobError("`fit` trains a fixed number of batches an epoch, so their size cannot be changed")
        if value == self._values.get(knob.name, self._own.get(knob.name)):
            return False
        dataset = getattr(self._loop.sources.reads, "_dataset", None)
        endless = dataset is not None and int(dataset.cardinality()) == self._endless
        if self._one_iterator if in_fit else endless:
            raise KnobError(FOR_EVER.format(knob.name, show(value)))
        return True

    def _iter(self, own: Any) -> Any:  # noqa: ANN401
        def iterate(dataset: Any) -> Any:  # noqa: ANN401
            try:
                changed, place, began_ns = dataset, None, 0
                with self._hooks:
                    if not self._hooks.off and self._eager() and self._loop.mine:
                        place = self.reads.place()
                        changed = self._changed(dataset, place)
                        began_ns = self._loop.making(dataset, place)
                iterator = own(changed)
                if place is not None:
                    with self._hooks:
                        if began_ns:
                            self._loop.sources.made(iterator, dataset, place, began_ns)
                        self.reads.opened(iterator, dataset, place)
                return iterator
            except BaseException as error:
                unseen(error)
                raise

        return iterate

    def _changed(self, dataset: Any, place: object) -> Any:  # noqa: ANN401
        """Return the dataset with the knobs' values, or itself if they are the script's own."""
        lane = self._joined()
        trains = self.reads.trains_from(dataset, place)
        begins = trains or (trains is None and not self._loop.sources.reads)
        if begins and lane is not None and lane.measures_this_thread:
            for name, value in lane.begin_pending(knob.name for knob in BY_TFMON).items():
                self._values[name] = value
                if value == self._own.get(name):
                    del self._values[name]
        if trains is False:
            return dataset
        wanted = dict(self._values)
        no_batch = self._loop.aside or (trains is None and self.reads.any)
        if no_batch or not self._may_cut(lane, dataset):
            wanted.pop(BATCH_SIZE.name, None)
        if not wanted:
            return dataset
        made = getattr(dataset, _MADE, None)
        if made is None or made[0] != wanted:
            made = wanted, with_settings(dataset, wanted)
            if made[1] is not dataset:
                setattr(dataset, _MADE, made)
        return made[1]

    def _may_cut(self, lane: Lane | None, dataset: Any) -> bool:  # noqa: ANN401
        if BATCH_SIZE.name in self._own:
            return True
        return not is_cut_by_map(dataset) and (lane is None or BATCH_SIZE.name not in lane.knobs)


def _noted(dataset: Any, *_args: object, **_more: object) -> Watching:  # noqa: ANN401
    yield None
    made(dataset)


_MADE, _READ, _FREED = "_tfmon_made", "_tfmon_read", "_tfmon_freed"

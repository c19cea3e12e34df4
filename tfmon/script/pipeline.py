"""Knobs on a script's own input pipeline: batches ready ahead, threads, and the size of its batches.

The size of a prefetch or a batch is fixed when a dataset is made. So a change takes effect where the script
iterates over its dataset anew, at its next epoch: the iterator then reads the same dataset with another end
(`script.datasets`). A loop that never iterates anew is changed at once, where that costs next to nothing
(`script.running`). The order of the elements stays. Until a knob is changed nothing is replaced.

Source: `tf.data.Dataset.__iter__`, whose path is the same in TensorFlow 2.18 and 2.21.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

from tfmon.model.knobs import BATCH_SIZE, PREFETCH, Knob, KnobError, KnobValue, show
from tfmon.script.datasets import (
    BY_TFMON,
    INPUT_THREADS,
    batch_of,
    is_cut_by_map,
    prefetch_of,
    requested_settings,
    settings_of,
    with_settings,
)
from tfmon.script.hooking import FILES, Hooks, unseen
from tfmon.script.lane import Lane
from tfmon.script.looking import logs_operations, users_frame
from tfmon.script.running import RunningIterator, cost_ns
from tfmon.script.sources import nothing
from tfmon.script.steps import StepWatcher

MOST_COST = 0.01
"""A change at once may cost so much of a step's time."""
FIXED_BY_FIT = "`fit` trains a fixed number of batches an epoch, so their size cannot be changed"
FILES.add(__file__)


class Reads:
    """Which datasets are trained from, and where in the script; others, such as for validation, stay as they are.

    Thread: the one that trains.
    """

    def __init__(self) -> None:
        self.any = False
        """Whether anything is known to be trained from."""
        self._places: set[Hashable] = set()
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self.latest: Callable[[], Any] = nothing
        """Returns the iterator that was opened last."""

    def place(self) -> Hashable:
        """Return the script's instruction that is running now."""
        frame = users_frame()
        return id(frame.f_code), frame.f_lasti

    def opened(self, iterator: Any, dataset: Any, place: Hashable) -> None:  # noqa: ANN401
        """Record what an iterator was made of, and where."""
        self._seen.add(dataset)
        setattr(iterator, _READ, (dataset, place))
        self.latest = weakref.ref(iterator)

    def dataset_of(self, iterator: Any) -> Any:  # noqa: ANN401
        """Return the script's dataset that an iterator was made of; None if that is not known."""
        read = getattr(iterator, _READ, None)
        return read[0] if read is not None else None

    def trains(self, iterator: Any) -> None:  # noqa: ANN401
        """Record that what an iterator gives is trained from."""
        read = getattr(iterator, _READ, None)
        if read is None:
            return
        self.any = True
        self._trained.add(read[0])
        self._places.add(read[1])

    def trains_from(self, dataset: Any, place: Hashable) -> bool | None:  # noqa: ANN401
        """Return whether a dataset is trained from where it is iterated over; None if that is not known."""
        if dataset in self._trained:
            return True
        if not self.any:
            return None
        if dataset in self._seen:
            return False
        return True if place in self._places else None


class Pipeline:
    """Changes the datasets that the script's training thread iterates over.

    Thread: the one that trains.
    """

    def __init__(self, hooks: Hooks, joined: Callable[[], Lane | None], loop: StepWatcher) -> None:
        """Change nothing yet.

        Args:
            hooks: where the replaced method is kept.
            joined: returns this process's lane, None before its first step.
            loop: the loop that trains.
        """
        self._hooks, self._joined, self._loop = hooks, joined, loop
        self._one_iterator = False
        self._keras_reads: Any = None
        self._reads = Reads()
        self._values = requested_settings()
        """What differs from the script's own settings."""
        self._own: dict[str, KnobValue] = {}
        self._changed_at_once: Callable[[], Any] = nothing
        self._cost_ns = 0
        """What a change at once costs a batch; measured in the warm-up of loops that have no next epoch."""

    def install(self) -> None:
        """Replace what begins an iteration; TensorFlow is loaded."""
        import tensorflow as tf
        from tensorflow.python.eager import context

        self._eager, self._runs_eagerly = context.executing_eagerly, tf.config.functions_run_eagerly
        self._endless, self._unknown = tf.data.INFINITE_CARDINALITY, tf.data.UNKNOWN_CARDINALITY
        self._hooks.replace(tf.data.Dataset, "__iter__", self._iter)

    # ------------------------------------------------------------ who reads what

    def fit_begins(self, *, one_iterator: bool) -> None:
        """Record that Keras trains; from one iterator, if it was told the number of batches of an epoch."""
        self._one_iterator = one_iterator

    def fit_ends(self) -> None:
        """Record that Keras has trained."""
        self._one_iterator, self._keras_reads = False, None

    def keras_reads(self, iterator: object) -> None:
        """Record what the train function of Keras reads."""
        if iterator is self._keras_reads:
            return
        self._keras_reads = iterator
        self._reads.trains(iterator)
        lane = self._joined()
        if lane is not None:
            self._offer(lane, iterator, 0)

    def trains(self, iterator: object) -> None:
        """Record that what an iterator gives is trained from."""
        self._reads.trains(iterator)

    # ------------------------------------------------------------ knobs

    def joined(self, lane: Lane) -> None:
        """Offer a lane, whose first update is about to be made, the knobs of what was read for it."""
        feeds = self._loop.sources.feeds or ((self._reads.latest(), 0),)
        iterator, rows = feeds[0]
        self._offer(lane, iterator, rows if len(feeds) == 1 else 0)

    def _offer(self, lane: Lane, iterator: Any, rows: int) -> None:  # noqa: ANN401
        """Offer the knobs of what the script trains from; a batch size if its first batch had so many examples."""
        dataset = self._reads.dataset_of(iterator)
        if dataset is None or PREFETCH.name in lane.knobs or logs_operations():
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
        lane.between_windows = self._settle
        if self._lasts(iterator, in_fit=bool(self._loop.aside)) and not self._runs_eagerly():
            with contextlib.suppress(Exception):  # it is measured again when it is needed
                self._cost_ns = cost_ns()

    def _set(self, knob: Knob, value: KnobValue) -> bool:
        """Put a value in effect at once, or return that it takes effect at the next epoch.

        Raises: KnobError where neither is possible.
        """
        in_fit = bool(self._loop.aside)
        if knob.name == BATCH_SIZE.name and in_fit:
            raise KnobError(FIXED_BY_FIT)
        if value == self._value(knob.name):
            return False
        iterator: Any = self._keras_reads if in_fit else self._loop.sources.reads
        lasts = self._lasts(iterator, in_fit=in_fit)
        if lasts is False:
            return True
        try:
            self._change_at_once(iterator, knob, value)
        except KnobError:
            if lasts is None:
                return True
            raise
        except Exception as error:
            raise KnobError(f"the running pipeline cannot be changed: {error}") from error
        self._keep(knob.name, value)
        return False

    def _value(self, name: str) -> KnobValue | None:
        return self._values.get(name, self._own.get(name))

    def _keep(self, name: str, value: KnobValue) -> None:
        """Record the value in effect."""
        if value == self._own.get(name):
            self._values.pop(name, None)
        else:
            self._values[name] = value

    def _lasts(self, iterator: Any, *, in_fit: bool) -> bool | None:  # noqa: ANN401
        """Return whether an iterator is read for ever; None if that is not known."""
        if in_fit:
            return self._one_iterator
        dataset = getattr(iterator, "_dataset", None)
        length = 0 if dataset is None else int(dataset.cardinality())
        if length == self._unknown and not self._loop.report.epochs_done:
            return None
        return bool(length == self._endless)

    def _change_at_once(self, iterator: Any, knob: Knob, value: KnobValue) -> None:  # noqa: ANN401
        dataset, lane = getattr(iterator, "_dataset", None), self._joined()
        forever = "the script reads one iterator for ever, so it has no next epoch"
        if dataset is None or lane is None:
            raise KnobError(f"{forever}, and this one cannot be changed at once")
        if knob.name == INPUT_THREADS.name:
            raise KnobError(f"{forever}, and the threads of a running one are fixed")
        wanted = {**self._own, **self._values, knob.name: value}
        running: RunningIterator = getattr(iterator, _RUNNING, None) or RunningIterator(iterator)
        runs_with = prefetch_of(dataset)
        ahead = beyond(wanted[PREFETCH.name], runs_with)
        size = wanted.get(BATCH_SIZE.name)
        cut = size if isinstance(size, int) and size != batch_of(dataset) else None
        if ahead != "off" or cut is not None:
            self._check_cost(lane, forever)
        running.change(iterator, ahead, cut)
        setattr(iterator, _RUNNING, running)
        self._changed_at_once = weakref.ref(iterator)

    def _check_cost(self, lane: Lane, forever: str) -> None:
        """Check that one more pipeline costs next to nothing beside a step of the lane, and report its cost."""
        self._cost_ns = self._cost_ns or cost_ns()
        step_ns = lane.step_ns
        share = self._cost_ns / step_ns if step_ns else 1.0
        cost = f"{self._cost_ns / 1e3:.0f} µs a batch, {share:.1%} of a step of {step_ns / 1e6:.2f} ms"
        if share >= MOST_COST:
            raise KnobError(f"{forever}, and a change at once costs {cost}: more than {MOST_COST:.0%}")
        lane.cannot_know(_PIPELINE, f"changed at once: one more pipeline costs about {cost}")

    def _settle(self) -> None:
        """Take a pipeline away that is not needed any more."""
        iterator, lane = self._changed_at_once(), self._joined()
        running: RunningIterator | None = getattr(iterator, _RUNNING, None)
        if running is not None and running.settle(iterator) and lane is not None:
            self._changed_at_once = nothing
            lane.cannot_know(_PIPELINE, "")

    # ------------------------------------------------------------ the next epoch

    def _iter(self, own: Any) -> Any:  # noqa: ANN401
        def iterate(dataset: Any) -> Any:  # noqa: ANN401
            try:
                changed, place = dataset, None
                with self._hooks:
                    if not self._hooks.off and self._eager() and self._loop.mine:
                        place = self._reads.place()
                        changed = self._changed(dataset, place)
                iterator = own(changed)
                if place is not None:
                    with self._hooks:
                        self._reads.opened(iterator, dataset, place)
                return iterator
            except BaseException as error:
                unseen(error)
                raise

        return iterate

    def _changed(self, dataset: Any, place: object) -> Any:  # noqa: ANN401
        """Return the dataset with what the knobs say; the same one while they say what the script does."""
        lane = self._joined()
        trains = self._reads.trains_from(dataset, place)
        begins = trains or (trains is None and not self._loop.sources.reads)
        if begins and lane is not None and lane.measures_this_thread:
            for name, value in lane.begin_pending().items():
                self._keep(name, value)
        if trains is False:
            return dataset
        wanted = dict(self._values)
        no_batch = self._loop.aside or (trains is None and self._reads.any)
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
        """Return whether the batch size of the knob is that of a dataset: it is no knob of the script itself."""
        if BATCH_SIZE.name in self._own:
            return True
        return not is_cut_by_map(dataset) and (lane is None or BATCH_SIZE.name not in lane.knobs)


_RUNNING, _MADE, _READ, _PIPELINE = "_tfmon_running", "_tfmon_made", "_tfmon_read", "pipeline"


def beyond(wanted: KnobValue, own: KnobValue) -> KnobValue:
    """Return how many batches more must be ready ahead than an iterator has ready itself.

    Raises: KnobError where it has more ready than that.
    """
    if wanted == own:
        return "off"
    if own == "off":
        return wanted
    if isinstance(own, int) and isinstance(wanted, int) and wanted > own:
        return wanted - own
    if isinstance(own, int) and wanted == "auto":
        return wanted
    raise KnobError(
        f"the script reads one iterator for ever, and it runs with prefetch {show(own)}: that can only be raised"
    )

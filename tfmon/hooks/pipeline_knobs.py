"""Knobs of a script's input pipeline: prefetch, threads and batch size.

A change takes effect at the next iteration over the dataset, and keeps the order of the elements. Before a change,
the script's dataset is used.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

from tfmon.hooks import divided_data
from tfmon.hooks.apply_settings import requested
from tfmon.hooks.cause_reports import Observation, causes
from tfmon.hooks.dataset_chain import MADE_AT, MAPS, STAGES_OF_MAPS, PipelineStage, chain_of, made, stages_of
from tfmon.hooks.input_causes import PASSES, begin_pass, causes_of, traits_of
from tfmon.hooks.inspection import line_now, logs_operations, users_frame
from tfmon.hooks.patches import Around, Hooks, hooks, unseen
from tfmon.hooks.script_lane import Lane
from tfmon.hooks.sources import nothing
from tfmon.hooks.step_causes import step_causes
from tfmon.hooks.step_machine import StepMachine
from tfmon.model.knobs import BATCH_SIZE, PREFETCH, Knob, KnobError, KnobValue, show
from tfmon.model.lane_events import READ
from tfmon.system.lane_clock import lane_clock
from tfmon.system.threads import start_hidden
from tfmon.trainer.time_parts import account

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
_OPTIONS, _PREFETCH, _REBATCH = "_OptionsDataset", "_PrefetchDataset", "_RebatchDataset"
_AHEAD = ("_ParallelMapDataset", "_ParallelInterleaveDataset", "_ParallelBatchDataset")
_BATCHES = ("_BatchDataset", "_ParallelBatchDataset")
_AFTER_BATCH = frozenset((
    _OPTIONS, _PREFETCH, "_RepeatDataset", "_TakeDataset", "_SkipDataset", "CacheDataset", "_ShuffleDataset",
    "_MapDataset", "_ParallelMapDataset",
))  # fmt: skip
FIRST_LOOK_NS = 1_000_000_000
FIRST_WAIT_S, LAST_WAIT_S = 0.02, 10.0
LEAST_FREED_NS = 10_000_000
"""Shortest sleep of tf.data's autotuner."""
FOR_EVER = "the script reads one iterator for ever, so it has no next epoch: set it from the start, --set {}={}"
OWN_PREFETCH = replace(PREFETCH, help="Batches that tf.data prepares ahead, from the script's next epoch on.")
OWN_BATCH = replace(
    BATCH_SIZE,
    help="Examples in a batch, from the script's next epoch on; a tf.function is traced once for the new size.",
)
BY_TFMON = (OWN_PREFETCH, INPUT_THREADS, OWN_BATCH)


def settings_of(dataset: Any) -> dict[str, KnobValue]:
    """Return the values of the changeable knobs."""
    threads = int(dataset.options().threading.private_threadpool_size or 0) or "auto"
    result: dict[str, KnobValue] = {PREFETCH.name: prefetch_of(dataset), INPUT_THREADS.name: threads}
    with contextlib.suppress(KnobError):
        result[BATCH_SIZE.name] = _batch_of(dataset)
    return result


def prefetch_of(dataset: Any) -> KnobValue:
    """Return the prefetch at the pipeline's end.

    tf.data adds a prefetch unless the end is parallel, or `inject_prefetch` or autotuning is off.
    """
    last = _past(dataset, _OPTIONS)
    kind = type(last).__name__
    if kind == _PREFETCH:
        size = int(last._buffer_size)
        return "auto" if size == AUTOTUNE else size or "off"
    options = dataset.options()
    adds = options.experimental_optimization.inject_prefetch is not False and options.autotune.enabled is not False
    return "auto" if adds and kind not in _AHEAD else "off"


def _batch_of(dataset: Any) -> int:
    import tensorflow as tf

    inner = dataset
    while type(inner).__name__ in _AFTER_BATCH:
        inner = inner._input_dataset
    kind = type(inner).__name__
    if kind not in _BATCHES and kind != _REBATCH:
        raise KnobError("the script's batches are not made by `batch` of tf.data, so their size cannot be changed")
    for spec in tf.nest.flatten(dataset.element_spec):
        shape = spec.shape if isinstance(spec, tf.TensorSpec) else None
        if shape is None or not shape.rank or None in shape[1:]:
            raise KnobError("the script's batches differ in more than their size, so they cannot be cut again")
        if shape[0] is not None:
            raise KnobError("the script's batches have a fixed size (drop_remainder=True), which it may rely on")
    size = inner._batch_sizes if kind == _REBATCH else inner._batch_size
    if size.shape.rank:
        raise KnobError("the script's batches change their size from one to the next")
    return int(size)


def is_cut_by_map(dataset: Any) -> bool:
    """Return whether a map follows the batch."""
    while type(dataset).__name__ in _AFTER_BATCH:
        if type(dataset).__name__ in ("_MapDataset", "_ParallelMapDataset"):
            return True
        dataset = dataset._input_dataset
    return False


def with_settings(dataset: Any, wanted: Mapping[str, KnobValue]) -> Any:
    """Return a dataset with these settings and the same elements."""
    settings = settings_of(dataset)
    changed = {name: value for name, value in wanted.items() if name in settings and settings[name] != value}
    if not changed:
        return dataset
    options = copy.deepcopy(dataset.options())
    options._set_mutable(True)
    inner = dataset
    if changed.keys() - {INPUT_THREADS.name}:
        inner = _past(dataset, _OPTIONS, _PREFETCH)
        if BATCH_SIZE.name in changed:
            inner = inner.rebatch(changed[BATCH_SIZE.name])
        ahead = changed.get(PREFETCH.name, settings[PREFETCH.name])
        if ahead != "off":
            inner = inner.prefetch(AUTOTUNE if ahead == "auto" else ahead)
        options.experimental_optimization.inject_prefetch = False
    if INPUT_THREADS.name in changed:
        threads = changed[INPUT_THREADS.name]
        options.threading.private_threadpool_size = 0 if threads == "auto" else threads
    logger = logging.getLogger("tensorflow")
    was, logger.disabled = logger.disabled, True  # TensorFlow warns of changed options
    try:
        return inner.with_options(options)
    finally:
        logger.disabled = was


def _past(dataset: Any, *kinds: str) -> Any:
    while type(dataset).__name__ in kinds:
        dataset = dataset._input_dataset
    return dataset


class Frees:
    """Measures how long iterators take to be freed: the release may wait for tf.data's autotuner.

    At the end of that wait no Python function may run as a finaliser: a signal of the meantime would raise its
    exception there, as KeyboardInterrupt, and Python drops the exceptions of finalisers. So the finaliser is a
    function in C that has the interpreter call `_ended` in the script's next line, after the signal's handler.
    The interpreter does this in the main thread only, so no other thread is measured.
    """

    def __init__(self, joined: Callable[[], Lane | None]) -> None:
        self._joined, self._began_ns = joined, 0
        call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._ended)
        # It is never freed, because a call may be pending at the exit.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(call))
        finaliser = staticmethod(functools.partial(ctypes.pythonapi.Py_AddPendingCall, call, None))
        self._last_attribute = type("LastAttribute", (), {"__del__": finaliser})

    def watch(self, iterator: Any) -> None:
        """Measure the release of an iterator that has all its attributes."""
        if threading.current_thread() is not threading.main_thread():
            return
        weakref.finalize(iterator, self._begins, threading.get_ident()).atexit = False
        setattr(iterator, _FREED, self._last_attribute())

    def _begins(self, thread: int) -> None:
        self._began_ns = lane_clock.now_ns() if thread == threading.get_ident() else 0

    def _ended(self, _: object) -> int:
        began_ns, self._began_ns = self._began_ns, 0
        if began_ns and (took_ns := lane_clock.now_ns() - began_ns) >= LEAST_FREED_NS:
            with hooks:
                lane = self._joined()
                line = line_now()
                causes.saw("iterator_freed", line, cost_ns=took_ns)
                account.freed(line, took_ns)
                if lane is not None and lane.measures_this_thread:
                    lane.meter.waited(took_ns)
        return 0


class Reads:
    """The training datasets. Thread: the training thread."""

    def __init__(self, joined: Callable[[], Lane | None]) -> None:
        self.any, self._frees = False, Frees(joined)
        self._positions: set[Hashable] = set()
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self.latest: Callable[[], Any] = nothing
        self.trained: Callable[[], Any] = nothing

    def position(self) -> Hashable:
        """Return an id of the script's current line."""
        frame = users_frame()
        return id(frame.f_code), frame.f_lineno

    def opened(self, iterator: Any, dataset: Any, position: Hashable) -> None:
        """Record an iterator."""
        if dataset not in self._seen:
            divided_data.read(dataset, trains=False)
        self._seen.add(dataset)
        setattr(iterator, _READ, (dataset, position))
        self._frees.watch(iterator)
        self.latest = weakref.ref(iterator)

    def trains(self, iterator: Any) -> None:
        """Record that an iterator is trained from."""
        read = getattr(iterator, _READ, None)
        if read is None:
            return
        self.any = True
        self.trained = weakref.ref(iterator)
        begin_pass(read[0])
        if read[0] not in self._trained:
            divided_data.read(read[0], trains=True)
        self._trained.add(read[0])
        self._positions.add(read[1])

    def trains_from(self, dataset: Any, position: Hashable) -> bool | None:
        """Return whether this is a training dataset, if known."""
        if dataset in self._trained:
            return True
        if not self.any:
            return None
        if dataset in self._seen:
            return False
        return True if position in self._positions else None


class Pipeline:
    """Changes the training datasets. Thread: the training thread."""

    def __init__(self, hooks: Hooks, joined: Callable[[], Lane | None], loop: StepMachine) -> None:
        self._hooks, self._joined, self._loop = hooks, joined, loop
        self._one_iterator, self._own_dataset = False, True
        self._keras_reads: Any = None
        self.reads = Reads(joined)
        self._values: dict[str, KnobValue] = {}
        self._script_settings: dict[str, KnobValue] = {}
        self._began_ns = self._look_ns = 0
        self._described: Callable[[], Any] = nothing
        self._looked_at: object = None
        self._slow: list[Observation] | None = None
        self._early: dict[Any, tuple[PipelineStage, ...]] = {}
        self._waited_ns = self._settled_ns = 0
        for knob in BY_TFMON:
            with contextlib.suppress(KnobError):
                if (value := requested(knob)) is not None:
                    self._values[knob.name] = value

    def install(self) -> None:
        """Replace the methods of TensorFlow."""
        import tensorflow as tf
        from tensorflow.python.eager import context

        self._eager, self._endless = context.executing_eagerly, tf.data.INFINITE_CARDINALITY
        self._hooks.replace(tf.data.Dataset, "__iter__", self._iter)
        self._hooks.replace(tf.data.Dataset, "__init__", self._hooks.around(_noted))

    def fits(self, *, one_iterator: bool, own_dataset: bool = True) -> None:
        """Record that `fit` starts or ends. `own_dataset`: the script made the dataset."""
        self._one_iterator, self._own_dataset, self._keras_reads = one_iterator, own_dataset, None

    def keras_reads(self, iterator: object) -> None:
        """Record the iterator of Keras' train function."""
        # Do not store the iterator, because Keras frees it.
        read = getattr(iterator, _READ, iterator)
        if read is self._keras_reads:
            return
        self._keras_reads = read
        self.reads.trains(iterator)
        lane = self._joined()
        if lane is not None:
            self._offer(lane, iterator, 0)

    def joined(self, lane: Lane) -> None:
        """Offer the input's knobs, before the first update."""
        feeds = self._loop.sources.feeds or ((self.reads.latest(), 0),)
        iterator, rows = feeds[0]
        self._offer(lane, iterator, rows if len(feeds) == 1 else 0)

    def _offer(self, lane: Lane, iterator: Any, rows: int) -> None:
        dataset, _ = getattr(iterator, _READ, (None, None))
        lane.look = self.look
        if dataset is None or logs_operations():
            return
        if dataset is not self._described():
            self._described = weakref.ref(dataset)
            lane.describe_input(traits_of(dataset) if self._own_dataset else ())
        if PREFETCH.name in lane.knobs:
            return
        settings, name = settings_of(dataset), BATCH_SIZE.name
        if name in lane.knobs or rows not in (settings.get(name), self._values.get(name)):
            settings.pop(name, None)
        elif rows != self._values.get(name):
            self._values.pop(name, None)
        self._script_settings = settings
        for knob in BY_TFMON:
            if knob.name in settings:
                lane.offer(replace(knob, default=settings[knob.name]), functools.partial(self._set, knob))

    def look(self, pause_ns: int = FIRST_LOOK_NS) -> None:
        """Find causes of slow input, at growing intervals. The waits are added up after `pause_ns` at least."""
        now_ns, iterator = lane_clock.now_ns(), self.reads.trained()
        dataset, _ = getattr(iterator, _READ, (None, None))
        made_at = getattr(dataset, MADE_AT, None)
        if dataset is not None and made_at != self._looked_at:
            self._settle(now_ns)
            self._looked_at, self._began_ns, self._look_ns, self._slow = made_at, now_ns, 0, None
        elif self._slow is not None and now_ns >= self._settled_ns + pause_ns:
            self._settle(now_ns)
        if now_ns < max(self._look_ns, self._began_ns + FIRST_LOOK_NS) or dataset is None or logs_operations():
            return
        prefetch = prefetch_of(dataset)
        if prefetch == "off":
            prefetch = self._values.get(PREFETCH.name, prefetch)
        result = causes_of(iterator, dataset, prefetch, self._early.get(made_at, ()))
        if result is None:
            self._look_ns = now_ns + FIRST_LOOK_NS
            return
        self._look_ns = now_ns + max(FIRST_LOOK_NS, (now_ns - self._began_ns) // 4)
        if self._slow is None and self._own_dataset and (lane := self._joined()) is not None:
            lane.describe_input((*traits_of(dataset), READ))
        self._slow = []
        for observation in result:
            if "of_step" in observation.figures:
                step_causes.takes(observation)
                continue
            seen = causes.record(observation)
            seen.count = 1
            self._slow.append(seen)
        self._settle(now_ns)

    def _read_first_wait(self, iterator: Any, dataset: Any) -> None:
        """Read the stages while `shuffle` first fills, in another thread."""
        ref, early, key = weakref.ref(iterator), self._early, getattr(dataset, MADE_AT, None)
        kinds = {type(node).__name__ for node in chain_of(dataset)}
        filling = "CacheDataset" in kinds and not hasattr(dataset, PASSES)
        if key in early or "_ShuffleDataset" not in kinds or filling or not kinds & {*MAPS}:
            return
        early[key] = ()

        def read() -> None:
            wait_s = FIRST_WAIT_S
            while (current := ref()) is not None and not logs_operations():
                stages = stages_of(current)
                del current
                if any(stage.kind in STAGES_OF_MAPS for stage in stages):
                    early[key] = stages
                if stages and stages[0].elements:
                    return
                time.sleep(wait_s)
                wait_s = min(LAST_WAIT_S, 2 * wait_s)

        start_hidden("tfmon-input", self._hooks.guard(read), lambda _failure: None)

    def _settle(self, now_ns: int) -> None:
        lane = self._joined()
        if lane is None:
            return
        waited_ns = lane.meter.all_waits_ns()
        waits_ns, passed_ns = waited_ns - self._waited_ns, now_ns - self._settled_ns
        self._waited_ns, self._settled_ns = waited_ns, now_ns
        overlap_ns = max(0, min(waits_ns, passed_ns - waits_ns))
        for seen in self._slow or ():
            share = waits_ns * seen.figures.get("of_input", 0.0) + overlap_ns * seen.figures.get("of_overlap", 0.0)
            seen.cost_ns += round(share)
            seen.changed = True

    def _set(self, knob: Knob, value: KnobValue) -> bool:
        in_fit = bool(self._loop.aside)
        if knob.name == BATCH_SIZE.name and in_fit:
            raise KnobError("`fit` trains a fixed number of batches an epoch, so their size cannot be changed")
        if value == self._values.get(knob.name, self._script_settings.get(knob.name)):
            return False
        dataset = getattr(self._loop.sources.reads, "_dataset", None)
        endless = dataset is not None and int(dataset.cardinality()) == self._endless
        if self._one_iterator if in_fit else endless:
            raise KnobError(FOR_EVER.format(knob.name, show(value)))
        return True

    def _iter(self, original: Any) -> Any:
        def iterate(dataset: Any) -> Any:
            try:
                changed, position, began_ns = dataset, None, 0
                with self._hooks:
                    if not self._hooks.off and self._eager() and self._loop.caller_may_train:
                        position = self.reads.position()
                        changed = self._changed(dataset, position)
                        began_ns = self._loop.making(dataset, position)
                iterator = original(changed)
                if position is not None:
                    with self._hooks:
                        if began_ns:
                            self._loop.sources.made(iterator, dataset, position, began_ns)
                        self.reads.opened(iterator, dataset, position)
                        self._read_first_wait(iterator, dataset)
                return iterator
            except BaseException as error:
                unseen(error)
                raise

        return iterate

    def _changed(self, dataset: Any, position: object) -> Any:
        lane = self._joined()
        trains = self.reads.trains_from(dataset, position)
        begins = trains or (trains is None and not self._loop.sources.reads)
        if begins and lane is not None and lane.measures_this_thread:
            for name, value in lane.begin_pending(knob.name for knob in BY_TFMON).items():
                self._values[name] = value
                if value == self._script_settings.get(name):
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

    def _may_cut(self, lane: Lane | None, dataset: Any) -> bool:
        if BATCH_SIZE.name in self._script_settings:
            return True
        return not is_cut_by_map(dataset) and (lane is None or BATCH_SIZE.name not in lane.knobs)


def _noted(dataset: Any, *_args: object, **_more: object) -> Around:
    yield None
    made(dataset)


_MADE, _READ, _FREED = "_tfmon_made", "_tfmon_read", "_tfmon_freed"

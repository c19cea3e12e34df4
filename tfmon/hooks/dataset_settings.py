"""Reads and changes prefetch, threads and batch size of a dataset."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Mapping
from typing import Any

from tfmon.model.knobs import BATCH_SIZE, PREFETCH, Knob, KnobError, KnobValue

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

"""Finds validation data that shares examples with training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfmon.hooks.cause_reports import causes
from tfmon.hooks.dataset_chain import line_of_dataset

_KINDS = {"_TakeDataset": "take", "_SkipDataset": "skip"}
_PARTS = "_tfmon_parts"


def read(dataset: Any, *, trains: bool) -> None:
    """Record a dataset's first read, and report shared validation data."""
    for shuffled, kind in _shuffled_below(dataset):
        parts = vars(shuffled).setdefault(_PARTS, {})
        parts[kind] = trains or parts.get(kind, False)
        if len(parts) == len(_KINDS) and any(parts.values()):
            what = "`take` and `skip` divide what this line shuffles anew for each iteration"
            causes.saw("validation_shared", line_of_dataset(shuffled), what=what, count=0).count = 1


def _shuffled_below(dataset: Any, kind: str = "") -> Iterator[tuple[Any, str]]:
    """A cache keeps the order of the first iteration."""
    name = type(dataset).__name__
    if name == "CacheDataset":
        return
    if name == "_ShuffleDataset" and kind and getattr(dataset, "_reshuffle_each_iteration", True) is not False:
        yield dataset, kind
    for input_ in dataset._inputs():
        yield from _shuffled_below(input_, _KINDS.get(name, kind))

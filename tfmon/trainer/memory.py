"""Whether data fit the memory that is free: said before the machine swaps, where it can be known before."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfmon.trainer.loader import ScenarioError

SMALLER = "fewer examples, a smaller type such as uint8, or a tf.data.Dataset that reads them from files"


class MemoryShortageError(ScenarioError):
    """Data that do not fit; the text is one line for the user."""


def check_copy(arrays: Iterable[Any]) -> None:
    """Refuse arrays whose copy, which TensorFlow is about to make, does not fit.

    Errors: MemoryShortageError; none where it is not known how much memory is free.
    """
    needed, free = sum(int(getattr(array, "nbytes", 0)) for array in arrays), free_bytes()
    if free is not None and needed > free:
        raise MemoryShortageError(
            f"the data take {_gib(needed)}, and TensorFlow's copy of them as much again, "
            f"but {_gib(free)} of memory are free: {SMALLER}"
        )


def check_cache(dataset: Any, examples: int | None) -> None:  # noqa: ANN401
    """Refuse to cache examples in memory that do not fit; `dataset` is of their batches.

    Errors: MemoryShortageError; none where sizes or free memory are not known.
    """
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
        raise MemoryShortageError(f"the cache takes {_gib(needed)}, but {_gib(free)} of memory are free")


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return how much memory can be taken without swapping; None where that is not known.

    The least of what the machine and the control group leave; what they use for files counts as free.
    Source: /proc/meminfo MemAvailable; memory.max, memory.current and memory.stat (control groups, version 2), or
    memory.limit_in_bytes, memory.usage_in_bytes and memory.stat (version 1), of the group that is mounted.
    """
    fields = dict(line.split(":", 1) for line in _text(root / "proc/meminfo").splitlines() if ":" in line)
    left = [int(fields["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in fields else []
    for folder, limit, usage, file in (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        group = root / "sys/fs/cgroup" / folder
        words = _text(group / limit).strip(), _text(group / usage).strip()
        if all(word.isdecimal() for word in words):
            stat = dict(line.split(" ", 1) for line in _text(group / "memory.stat").splitlines() if " " in line)
            left.append(max(0, int(words[0]) - int(words[1]) + int(stat.get(file, 0))))
    return min(left, default=None)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""

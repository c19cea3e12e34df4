"""Reads batches, frames and tensors without waiting for the device."""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tfmon.hooks.stacks import is_users
from tfmon.model.lane_events import StackReported
from tfmon.system.threads import is_ours

LIBRARIES = frozenset(("keras", "tensorflow", "tf_keras", "tfmon"))
CELLS = "ipykernel_"
"""Part of the path of a notebook's cell."""
LIBRARYS_THREAD = "a thread of TensorFlow"
MOST_TEXT = 60
DEF_LINES = 20
MOST_THREADS, MOST_FRAMES, MOST_LINES, MOST_CHARACTERS = 20, 100, 200, 160
"""Limits of reported stacks."""


def logs_operations() -> bool:
    """Return whether TensorFlow logs operations."""
    context = sys.modules.get("tensorflow.python.eager.context")
    return bool(getattr(getattr(context, "_context", None), "_log_device_placement", None))


def may_compute() -> bool:
    """Return whether tfmon may measure this CPU with operations of TensorFlow.

    A timer of the script forbids it: with signals, TensorFlow 2.21 on a virtual machine corrupted its memory in a
    quarter of the processes, also without tfmon.
    """
    timers = (getattr(signal, name, None) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"))
    return not logs_operations() and not any(signal.getitimer(timer)[0] for timer in timers if timer is not None)


def users_frame() -> FrameType:
    """Return the script's innermost frame. An installed package may be the script."""
    frame, package = sys._getframe(1), None
    while True:
        file, name = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in LIBRARIES:
            package = package or frame
            if is_users(file) and file.endswith(".py"):
                return frame
        if frame.f_back is None:
            return package or frame
        frame = frame.f_back


def line_now() -> str:
    """Return the script's current line."""
    return line_of(users_frame())


def line_of(frame: FrameType) -> str:
    """Return a frame's file, line and text."""
    if frame.f_globals.get("__name__") == "threading":
        return LIBRARYS_THREAD
    return line_at(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def code_of(function: Any) -> CodeType | None:
    """Return the code below the decorators."""
    function = inspect.unwrap(function)
    function = getattr(function, "__original_python_function__", function)
    while isinstance(function, functools.partial):  # other objects may offer any attribute endlessly
        function = function.func
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    return code if isinstance(code, CodeType) else None


def line_of_function(function: Any) -> str:
    """Return the line of a `def` or lambda, or an empty string without Python code."""
    if (code := code_of(function)) is None:
        return ""
    file, first = code.co_filename, code.co_firstlineno
    for number in () if code.co_name == "<lambda>" else range(first, first + DEF_LINES):
        if linecache.getline(file, number).lstrip().startswith(("def ", "async def ")):
            return line_at(file, number)
    return line_at(file, first)


def line_at(name: str, number: int, loaded: dict[str, Any] | None = None) -> str:
    """Return file name, number and text of a line. `loaded`: globals of the module."""
    text = linecache.getline(name, number, loaded).strip()
    folder, file = os.path.split(name)
    shown = "cell" if CELLS in folder else file
    return f"{shown}:{number}" + (f" `{text[:MOST_TEXT]}`" if text else "")


def is_of_script(function: Any) -> bool:
    """Return whether no library defines a function."""
    return str(getattr(function, "__module__", "")).partition(".")[0] not in LIBRARIES


def leaves_of(value: Any) -> list[Any]:
    """Return the values in a nested structure."""
    leaves, nested = [], [value]
    while nested:
        part = nested.pop()
        if isinstance(part, dict):
            nested += reversed(part.values())
        elif isinstance(part, tuple | list):
            nested += reversed(part)
        else:
            leaves.append(part)
    return leaves


def rows_of(batch: Any, *, batched: bool | None = True) -> frozenset[int]:
    """Return the possible numbers of examples in a batch.

    Scalars are ignored, and one part beside a scalar may be a single example.
    """
    result = [rows for leaf in leaves_of(batch) if (rows := rows_of_part(leaf)) is not None]
    if not batched:
        return frozenset(() if batched is None else (1,))
    parts = [rows for rows in result if rows]
    return frozenset(parts if len(parts) > 1 or len(parts) == len(result) else ())


def rows_of_part(leaf: Any) -> int | None:
    """Return the first dimension, summed over replicas. 0 for a scalar."""
    quick = getattr(leaf, "_shape_tuple", None)
    if quick is None:
        parts = getattr(leaf, "values", None)
        if isinstance(parts, tuple) and not hasattr(leaf, "dense_shape"):
            return sum(next(iter(rows_of(part)), 0) for part in parts)
    shape = quick() if quick is not None else getattr(leaf, "shape", None)
    if shape is None:
        return None
    if not len(shape):
        return 0
    if shape[0] is not None:
        return int(shape[0])
    return int(leaf.nrows()) if hasattr(leaf, "nrows") else int(leaf.dense_shape[0])


def rows_in(tensors: Any) -> tuple[int, ...]:
    """Return the tensors' first dimensions."""
    shapes = [quick() for tensor in tensors if (quick := getattr(tensor, "_shape_tuple", None)) is not None]
    return tuple(shape[0] for shape in shapes if shape)


def first_of(target: Any) -> Any:
    """Return the first differentiated target."""
    while isinstance(target, tuple | list) and target:
        target = target[0]
    return target


def path_to(value: Any, wanted: Callable[[Any], bool]) -> tuple[Any, ...] | None:
    """Return the keys that lead to the first wanted part."""
    if not isinstance(value, dict | tuple | list):
        return () if wanted(value) else None
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        path = path_to(inner, wanted)
        if path is not None:
            return (key, *path)
    return None


def stacks(first: int) -> StackReported:
    """Return the stacks of all threads, thread `first` first, in the format of `faulthandler`."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {ident: frame for ident, frame in sys._current_frames().items() if not is_ours(frame)}
    lines: list[str] = []
    for ident in sorted(frames, key=lambda ident: ident != first)[:MOST_THREADS]:
        lines.append(f"Thread 0x{ident:016x} [{names.get(ident, 'without a name')}] (most recent call first):")
        calls = itertools.islice(traceback.walk_stack(frames[ident]), MOST_FRAMES)
        lines += [
            f'  File "{frame.f_code.co_filename}", line {at} in {frame.f_code.co_name}' for frame, at in calls
        ]
    return StackReported(lines=tuple(line[:MOST_CHARACTERS] for line in lines[:MOST_LINES]))

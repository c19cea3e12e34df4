"""Reads the script's loops, and records the lines that make layers and callbacks."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import weakref
from collections.abc import Iterator
from typing import Any

from tfmon.hooks.inspection import line_at, users_frame
from tfmon.hooks.patches import Around, hooks
from tfmon.hooks.stacks import is_users

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_made: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()


def patch_makers(keras: Any) -> None:
    """Start to record the lines that make layers and callbacks."""
    hooks.replace(keras.layers.Layer, "__new__", hooks.around(_makes))
    hooks.replace(keras.callbacks.Callback, "__init__", hooks.around(_makes))


def namespaces(keras: Any) -> list[Any]:
    """Return the namespaces `keras` and `tf.keras`."""
    return [keras, *filter(None, [getattr(getattr(keras, "_tf_keras", None), "keras", None)])]


def _makes(made: object, *_args: object, **_more: object) -> Around:
    layer = yield None
    frame = users_frame()
    with contextlib.suppress(Exception):  # a class of the script may define a hash
        _made[made if layer is None else layer] = frame.f_code.co_filename, frame.f_lineno


def made_layers() -> list[Any]:
    """Return the layers and callbacks in use."""
    return list(_made)


def layer_of(variable: Any) -> Any:
    """Return a variable's layer."""
    for layer in _made:
        for weight in getattr(layer, "_trainable_variables", ()):
            if weight is variable or getattr(weight, "_value", weight) is variable:
                return layer
    return None


def line_that_made(made: Any) -> str:
    """Return the line that made a layer or callback."""
    with contextlib.suppress(KeyError, TypeError):
        return line_at(*_made[made])
    return ""


def line_in_loop() -> str:
    """Return the innermost line in a loop."""
    frame: Any = users_frame()
    while frame is not None:
        path, number = frame.f_code.co_filename, frame.f_lineno
        if is_users(path) and _loop_at(path, number):
            return line_at(path, number, frame.f_globals)
        frame = frame.f_back
    return ""


def line_of_stack(stack: list[Any]) -> str:
    """Return the script's innermost line."""
    frame = next((candidate for candidate in reversed(stack) if is_users(candidate.filename)), None)
    return line_at(frame.filename, frame.lineno) if frame is not None else ""


def line_in_graph() -> str:
    """Return the script's innermost line, even in a function that AutoGraph has converted."""
    from tensorflow.python.util import tf_stack

    return line_of_stack(list(tf_stack.extract_stack()))


def loop_of_stack(stack: list[Any]) -> tuple[str, int] | None:
    """Return the Python loop around an operation."""
    for frame in reversed(stack):
        if frame.filename.endswith("/func_graph.py") and frame.name == "func_graph_from_py_func":
            return None  # the outer frames called the function
        if is_users(frame.filename) and (number := _loop_at(frame.filename, frame.lineno)):
            return frame.filename, number
    return None


@functools.lru_cache(maxsize=1_000)
def _loop_at(path: str, line: int) -> int:
    loops = [loop for loop in _loops(path) if loop[0] < line <= loop[1]]
    return max(loops, default=(0, 0))[0]


@functools.lru_cache(maxsize=32)
def _loops(path: str) -> list[tuple[int, int]]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return []
    scopes = (node for node in ast.walk(tree) if node is tree or isinstance(node, _FUNCTION))
    return [loop for scope in scopes for loop in _loops_in(scope)]


def _loops_in(node: ast.AST) -> Iterator[tuple[int, int]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.For | ast.While):
            yield inner.lineno, inner.end_lineno or inner.lineno
        elif not isinstance(inner, _FUNCTION):
            yield from _loops_in(inner)

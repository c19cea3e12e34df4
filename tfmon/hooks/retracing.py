"""Finds functions that TensorFlow traces again, and the changed argument.

`tracing_compilation._create_concrete_function` runs once per trace. The function's cache contains earlier types.
"""

from __future__ import annotations

import resource
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from tfmon.hooks.cause_reports import Observation, causes
from tfmon.hooks.inspection import code_of, is_of_script, line_now, line_of, line_of_function, users_frame
from tfmon.hooks.patches import Around, Hooks, hidden, hooks, unseen
from tfmon.hooks.step_causes import step_causes
from tfmon.model.account import TRACING
from tfmon.model.lane_events import DIFFERS, MADE
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.time_parts import account
from tfmon.trainer.traces import OBJECT, SHAPE, describe, shape_of, written

XLA, NEW_FUNCTION, KERAS = "retrace_xla", "retrace_function", "retrace_keras"
MADE_OFTEN = 5
"""Number of traces that show that a loop makes the function."""
LEAST_GROWTH_BYTES = 1 << 20
"""Growth of the memory per function that is reported."""
MOST_FUNCTIONS = 512
MOST_COMPARED = 64
KERAS_METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
KERAS_STEPS = ("one_step", "multi_step", "train_function", "test_function", "predict_function")
"""Only these are steps: Keras traces functions of the input, too."""
LAST_BATCH = ", the last batch of an epoch"


class Retraces:
    """The traces of this process, without nested ones. Thread: any."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all traces."""
        self._made: dict[tuple[str, int, str], tuple[int, int, int]] = {}
        self._fresh: Callable[[], Any] = lambda: None
        self._seen: Observation | None = None
        self._code: CodeType | None = None
        self._took_ns = 0
        self.smaller: Observation | None = None
        """Cause of a trace for a smaller batch, until the next batch."""
        self.expected = False
        """Whether tfmon causes the next trace."""

    def install(self, hooks: Hooks) -> None:
        """Replace TensorFlow's tracing method, if it exists."""
        from tensorflow.python.eager.polymorphic_function import tracing_compilation

        hooks.replace(tracing_compilation, "_create_concrete_function", hooks.around(self._traces))

    def _traces(self, now: Any, _context: Any, graph: Any, options: Any) -> Around:
        if graph.outer_graph is not None and hasattr(graph.outer_graph, "outer_graph"):
            return
        began_ns = lane_clock.now_ns()
        with account.mark(TRACING, line_now()):
            function = yield hidden()
        with hooks:
            took_ns, code = lane_clock.now_ns() - began_ns, code_of(options.python_function)
            # TensorFlow traces a function that makes variables twice before the first run.
            self._took_ns = took_ns + (self._took_ns if code is self._code else 0)
            self._code = code
            self._fresh, self._seen = weakref.ref(function), self._saw(now, options, took_ns)
            if (options.attributes or {}).get("_XlaMustCompile") and is_of_script(options.python_function):
                _compare_shapes(function, options.python_function)

    def _saw(self, now: Any, options: Any, took_ns: int) -> Observation | None:
        code = code_of(options.python_function)
        cache = options.function_cache
        before = [] if cache is None else [traced.function_type for traced in cache.values()]
        scope = getattr(options.scope_type, "name", "")
        if code is None or (scope == "NO_VARIABLE_CREATION" and not before):
            return None
        if not is_of_script(options.python_function):
            return self._of_keras(before, now, code, took_ns)
        name, line = _name_of(code), line_of_function(options.python_function)
        if not before:
            return self._made_again(NEW_FUNCTION, code, line, name, took_ns, "called at {}")
        kind, what, smaller = difference(before, now)
        if not kind:
            return None
        if kind == SHAPE and (options.attributes or {}).get("_XlaMustCompile"):
            kind = XLA
        seen = causes.saw(kind, line, subject=name, what=what, cost_ns=took_ns)
        self.smaller = seen if smaller else self.smaller
        return seen

    def _of_keras(self, before: list[Any], now: Any, code: CodeType, took_ns: int) -> Observation | None:
        method, line = _keras_call()
        if not method or not code.co_name.startswith(KERAS_STEPS) or self.expected:
            self.expected = False
            return None
        if not before:
            made = step_causes.made_in_loop() if method == "fit" else ""
            what = "the model was made or compiled again"
            return self._made_again(KERAS, code, made or line, method, took_ns, what)
        kind, what, _ = difference(before, now)
        if not kind:
            return None
        seen = causes.saw(KERAS, line, subject=method, what=what, cost_ns=took_ns)
        seen.figures[DIFFERS] = 1.0
        return seen

    def _made_again(
        self, cause: str, code: CodeType, line: str, name: str, took_ns: int, what: str
    ) -> Observation | None:
        caller = line_now()
        key = (code.co_filename, code.co_firstlineno, caller)
        if key not in self._made and len(self._made) >= MOST_FUNCTIONS:
            return None
        times, cost_ns, before_bytes = self._made.get(key, (0, -took_ns, 0))
        now_bytes = _memory_bytes()
        if times <= 1:  # the first training loads libraries
            before_bytes = now_bytes
        self._made[key] = times + 1, cost_ns + took_ns, before_bytes
        if times + 1 < MADE_OFTEN:
            return None
        first = times + 1 == MADE_OFTEN
        again, took_ns = (times, cost_ns + took_ns) if first else (1, took_ns)
        what, grown_bytes = what.format(caller), (now_bytes - before_bytes) / (times - 1)
        if grown_bytes >= LEAST_GROWTH_BYTES:
            what += f", and memory grew by {grown_bytes / 2**20:.0f} MiB each time"
        seen = causes.saw(cause, line, subject=name, what=what, count=again, cost_ns=took_ns)
        seen.figures[MADE] = 1.0
        return seen

    def has_run(self, function: Any, took_ns: int, step_ns: int) -> int:
        """Add the extra time of a first run to the cause. Return the time of trace and first run."""
        traced_ns = self._took_ns + max(0, took_ns - step_ns) if self._fresh() is function else 0
        if self._seen is not None and self._fresh() is function:
            causes.add(self._seen, took_ns if self._seen.cause == XLA else max(0, took_ns - step_ns))
        self._fresh, self._seen, self._took_ns = lambda: None, None, 0
        return traced_ns

    def epoch_over(self) -> None:
        """Record the end of an epoch, whose last batch may be smaller."""
        seen, self.smaller = self.smaller, None
        if seen is not None and not seen.what.endswith(LAST_BATCH):
            seen.what += LAST_BATCH
            seen.changed = True


def _memory_bytes() -> int:
    """Return the resident memory, or its peak where the system does not report more."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def _name_of(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name)).rpartition("<locals>.")[2]


def _compare_shapes(function: Any, python_function: Any) -> None:
    code, line = code_of(python_function), line_of_function(python_function)
    if code is None or not any(
        shape_of(input_) is None or None in (shape_of(input_) or ()) for input_ in function.inputs
    ):
        return
    known: list[Any] = []
    kept, kind, name = weakref.ref(function), type(function), _name_of(code)

    def call(tensor_inputs: Any, captured_inputs: Any) -> Any:
        try:
            began_ns = lane_clock.now_ns()
            result = kind._call_flat(kept(), tensor_inputs, captured_inputs)
            with hooks:
                shapes = [input_._shape_tuple() for input_ in tensor_inputs]
                if shapes not in known and sys.modules["tensorflow"].executing_eagerly():
                    if known:
                        was, now = next(pair for pair in zip(known[-1], shapes, strict=True) if pair[0] != pair[1])
                        what = f"{written(was)} → {written(now)}, without a trace"
                        causes.saw(XLA, line, subject=name, what=what, cost_ns=lane_clock.now_ns() - began_ns)
                    known[:] = [*known[-MOST_COMPARED:], shapes]
        except BaseException as error:
            unseen(error)
            raise
        return result

    function._call_flat = call
    hooks.undo.append(lambda: vars(kept() or hooks).pop("_call_flat", None))


def _keras_call() -> tuple[str, str]:
    frame, method = users_frame(), ""
    inner = sys._getframe(1)
    while inner is not frame and inner.f_back is not None:
        if inner.f_code.co_name in KERAS_METHODS:
            method = inner.f_code.co_name
        inner = inner.f_back
    return method, line_of(frame)


def difference(before: list[Any], now: Any) -> tuple[str, str, bool]:
    """Return the cause of a trace, the changed argument, and whether only a batch is smaller.

    An argument with a new type comes first.
    """
    old = before[-1]
    earlier = [traced.parameters for traced in before[-MOST_COMPARED:]]
    changes = []
    for name, parameter in now.parameters.items():
        if name not in old.parameters:
            return OBJECT, f"`{name}` was not given before", False
        was, is_now = old.parameters[name].type_constraint, parameter.type_constraint
        new = all(name not in parameters or parameters[name].type_constraint != is_now for parameters in earlier)
        changes += [(not new, describe(*change)) for change in _changed(name, was, is_now)]
    changes = [change for change in changes if change[1][0]]
    return min(changes, key=lambda change: change[0])[1] if changes else ("", "", False)


def _changed(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if old == new:
        return
    inner = _parts(old), _parts(new)
    if type(old) is type(new) and inner[0] is not None and inner[1] is not None and [*inner[0]] == [*inner[1]]:
        for key in inner[0]:
            yield from _changed(f"{path}[{key!r}]", inner[0][key], inner[1][key])
        return
    yield path, old, new


def _parts(kind: Any) -> dict[Any, Any] | None:
    mapping = getattr(kind, "mapping", None)
    if isinstance(mapping, dict):
        return mapping
    components = getattr(getattr(kind, "components_tuple", kind), "components", None)
    return dict(enumerate(components)) if isinstance(components, tuple) else None


retracing = Retraces()

"""Applies the code that a cause proposes, if only one edit of the cause's line is possible.

Such an edit removes or adds an argument, appends a call, or exchanges two calls.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tfmon.analysis.cause_kinds import KINDS, NOT
from tfmon.analysis.causes import Cause
from tfmon.api.change import AS_IS, Change
from tfmon.errors import UsageError
from tfmon.model.lane_events import FITS, MOVABLE, SHUFFLED
from tfmon.recordings import library
from tfmon.recordings.results import read_recorded

POSITION = re.compile(r"([^:]+):(\d+) `(.+?)`?$")
MOST_RUNS = 5
"""Number of searched recordings."""
MOST_FOLDERS = 2_000
SKIPPED = (".", "site-packages", "__pycache__", "node_modules")
Edit: TypeAlias = tuple[int, int, bytes]
"""Start, end and replacement."""


class Source:
    """A source file."""

    def __init__(self, content: bytes) -> None:
        """Raises SyntaxError or ValueError."""
        self.content = content
        nodes = list(ast.walk(ast.parse(content)))
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        self.values: dict[str, list[ast.expr | None]] = {}
        """Assigned values by name. `None` stands for a binding without assignment."""
        self.previous: dict[ast.expr, ast.expr] = {}
        """The previous value of the same name, by assigned value."""
        modules = [name for node in nodes if isinstance(node, ast.Import) for name in node.names]
        self.tensorflow = next(
            (imported.asname or imported.name for imported in modules if imported.name == "tensorflow"), ""
        )
        lines = content.splitlines(keepends=True)
        self._starts = [0, *itertools.accumulate(map(len, lines))]
        assigned = {node.targets[0]: node.value for node in nodes if isinstance(node, ast.Assign)}
        for node in nodes:
            if isinstance(node, ast.arg):
                self.values.setdefault(node.arg, []).append(None)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.values.setdefault(node.id, []).append(assigned.get(node))
            for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
                for first, second in itertools.pairwise(block if isinstance(block, list) else ()):
                    if isinstance(first, ast.Assign) and isinstance(second, ast.Assign):
                        same = _target(first) == _target(second)
                        self.previous.update({second.value: first.value} if same else {})

    def start(self, node: ast.expr) -> int:
        """Return the index of an expression's first byte."""
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.keyword) -> int:
        """Return the index after an expression."""
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def text(self, node: ast.expr) -> bytes:
        """Return an expression's text."""
        return self.content[self.start(node) : self.end(node)]

    def code(self, text: str) -> bytes:
        """Return code with the file's name for TensorFlow; raises ValueError without an import."""
        if "tf." in text and not self.tensorflow:
            raise ValueError("TensorFlow is not imported")
        return text.replace("tf.", f"{self.tensorflow}.").encode()


def _name(call: ast.expr) -> str:
    function = call.func if isinstance(call, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _target(node: ast.Assign) -> str:
    return getattr(node.targets[0], "id", "") if len(node.targets) == 1 else ""


def _without(name: str, source: Source, call: ast.Call) -> Iterator[Edit]:
    argument = next((keyword for keyword in call.keywords if keyword.arg == name), None)
    ends = [*map(source.end, call.args), *map(source.end, call.keywords)]
    if argument is not None and (before := [end for end in ends if end < source.end(argument)]):
        yield max(before), source.end(argument), b""


def _with(argument: str, source: Source, call: ast.Call) -> Iterator[Edit]:
    ends = [*map(source.end, call.args), *map(source.end, call.keywords)]
    if ends and argument.partition("=")[0] not in [keyword.arg for keyword in call.keywords]:
        yield max(ends), max(ends), b", " + source.code(argument)


def _then(text: str, source: Source, call: ast.Call) -> Iterator[Edit]:
    yield source.end(call), source.end(call), source.code(text)


def _prefix(text: str, source: Source, call: ast.Call) -> Iterator[Edit]:
    if isinstance(call.func, ast.Name):
        yield source.start(call), source.start(call), source.code(text)


def _argument(text: str, source: Source, call: ast.Call) -> Iterator[Edit]:
    if len(call.args) == 1:
        yield source.start(call.args[0]), source.end(call.args[0]), text.encode()


def _larger_batches(source: Source, call: ast.Call) -> Iterator[Edit]:
    for data in call.args:
        if isinstance(data, ast.Call) and _name(data) == "batch":
            yield from _argument("1_024", source, data)


def _swapped(first: str, second: str, source: Source, call: ast.Call) -> Iterator[Edit]:
    """Exchange two method calls, of which the second works on the result of the first."""
    for later in source.calls:
        if not isinstance(later.func, ast.Attribute) or _name(later) != second:
            continue
        value = later.func.value
        name = value.id if isinstance(value, ast.Name) else ""
        previous, values = source.previous.get(later), source.values.get(name, [])
        before = (previous or (values[0] if len(values) == 1 else None)) if name else value
        if not isinstance(before, ast.Call) or not isinstance(before.func, ast.Attribute):
            continue
        if _name(before) != first or call not in (before, later):
            continue
        receiver = before.func.value
        early = source.content[source.end(receiver) : source.end(before)]
        late = source.content[source.end(value) : source.end(later)]
        if not name:
            yield source.end(receiver), source.end(later), late + early
        elif previous is not None:
            yield source.end(receiver), source.end(before), late
            yield source.end(value), source.end(later), early
        elif all(
            len(source.values.get(node.id, [])) < 2 for node in ast.walk(before) if isinstance(node, ast.Name)
        ):
            yield source.start(later), source.end(later), source.text(receiver) + late + early


CAVEATS = frozenset((NOT + FITS, SHUFFLED, NOT + MOVABLE))
"""Traits of uncertain remedies."""
EDITS: Mapping[str, Mapping[str, Callable[[Source, ast.Call], Iterator[Edit]]]] = {
    "step_eager": {
        "compile": partial(_without, "run_eagerly"),
        "run_functions_eagerly": partial(_argument, "False"),
    },
    "trace_unrolled": {
        "range": partial(_prefix, "tf."),
        **dict.fromkeys(("SimpleRNN", "LSTM", "GRU", "RNN"), partial(_without, "unroll")),
    },
    "adapt_slow": {"adapt": _larger_batches},
    "input_sequential_map": {"map": partial(_with, "num_parallel_calls=tf.data.AUTOTUNE")},
    "input_no_prefetch": {"batch": partial(_then, ".prefetch(tf.data.AUTOTUNE)")},
    "input_no_cache": {"map": partial(_then, ".cache()")},
    "input_map_after_cache": {"map": partial(_then, ".cache()")},
    "input_map_before_batch": {"map": partial(_swapped, "map", "batch")},
    "input_dropped": {name: partial(_swapped, "map", name) for name in ("skip", "shard", "filter")},
    "input_cache_discarded": {"cache": partial(_swapped, "cache", "take")},
}
"""Edits by the id of a cause and the function that the line calls."""


def edited(id: str, content: bytes, line: int) -> bytes | None:
    """Return a file with the edited line, or `None` unless exactly one edit is possible."""
    try:
        source, functions = Source(content), EDITS.get(id, {})
        calls = [call for call in source.calls if call.func.end_lineno == line and _name(call) in functions]
        ways = [edits for call in calls if (edits := [*functions[_name(call)](source, call)])]
        for start, end, text in sorted(ways[0], reverse=True) if len(ways) == 1 else ():
            content = content[:start] + text + content[end:]
        ast.parse(content)
    except (SyntaxError, ValueError):
        return None
    return content if len(ways) == 1 else None


def change_of_cause(id: str, run: str, script: str, folder: Path) -> Change:
    """Return the change that a cause of a run proposes; raises TfmonError.

    Args:
        id: The cause.
        run: A recording. Empty for the newest recording with the cause.
        script: The name of the script.
        folder: The user's files.
    """
    runs = [run.file for run in library.runs() if run.scenario == script and not run.running]
    newest = [library.find(run)] if run else runs[: -MOST_RUNS - 1 : -1]
    if not newest:
        raise UsageError(f"there is no recording of {script}", "tfmon watch makes one, with causes")
    known: dict[str, None] = {}
    for path in newest:
        race, _ = read_recorded(path)
        for cause in (cause for lane in race.lanes for cause in lane.causes):
            if cause.id == id:
                return change_of(cause, library.run_id(path), folder)
            known[cause.id] = None
    hint = f"known causes: {', '.join(known)}" if known else "tfmon watch shows its causes"
    raise UsageError(f"{library.run_id(newest[0])} has no cause {id}", hint)


def change_of(cause: Cause, run: str, folder: Path) -> Change:
    """Return the change that a cause of this run proposes; raises UsageError."""
    position = POSITION.match(cause.place)
    caveats = [remedy.mends for remedy in KINDS[cause.id].remedies if not CAVEATS.isdisjoint(remedy.needs)]
    if any(text in cause.advice for text in caveats):
        position = None
    file, number, text = position.groups() if position is not None else ("", "0", "")
    for path in _files(folder, file):
        content = path.read_bytes()
        lines = enumerate(content.decode(errors="replace").splitlines(), 1)
        same = [at for at, line in lines if line.strip().startswith(text)]
        line = int(number) if int(number) in same else same[0] if len(same) == 1 else 0
        if line and (result := edited(cause.id, content, line)) is not None:
            name = str(path.relative_to(folder))
            return Change(f"{cause.id} of {run}", ((AS_IS, {}), ("changed", {name: result})), {name: content})
    problem = (
        f"{cause.id} cannot be applied to {cause.place or 'any line'}: its code is not one certain edit of it"
    )
    raise UsageError(problem, f"write it yourself, and try the patch: {' / '.join(cause.code)}")


def _files(folder: Path, name: str) -> Iterator[Path]:
    for root, folders, files in itertools.islice(os.walk(folder), MOST_FOLDERS):
        folders[:] = sorted(folder for folder in folders if not folder.startswith(SKIPPED))
        if name in files:
            yield Path(root, name)

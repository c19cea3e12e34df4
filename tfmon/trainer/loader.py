"""Loading a scenario file, and saying where in it something went wrong."""

from __future__ import annotations

import importlib.util
import linecache
import re
import sys
import traceback
from pathlib import Path

from tfmon.trainer.scenario import Scenario

_NODES = re.compile(r"^(\{\{.*?\}\} ?)+")
"""What TensorFlow names before a message: nodes of graphs that no user has seen."""


class ScenarioError(Exception):
    """A scenario file that cannot be used; the text is one line for the user."""


def load(path: Path) -> type[Scenario]:
    """Run a scenario file and return the scenario class that it defines.

    Its folder comes first on `sys.path`, as for a script, so that it can import its neighbours.

    Errors: whatever the file raises; ScenarioError when it does not define exactly one scenario.
    """
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("tfmon_scenario", path)
    if spec is None or spec.loader is None:
        raise ScenarioError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Scenario) and value.__module__ == spec.name
    ]
    if len(found) != 1:
        names = ", ".join(value.__name__ for value in found) or "none"
        raise ScenarioError(f"{path.name} must define one subclass of tfmon.trainer.Scenario; it has {names}")
    return found[0]


def explain(error: BaseException, path: Path) -> str:
    """Say in one line what went wrong, with the last place in the user's own file where there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name = type(error).__name__
    if isinstance(error, ScenarioError):
        return str(error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {name}: {error.msg}"
    place = _last_line_in(error, path)
    what = _heart_of(lines, name)
    if place is None:
        return what
    code = linecache.getline(str(path), place).strip()
    return f"{path.name}:{place}: {what}" + (f"   in: {code}" if code else "")


def _last_line_in(error: BaseException, path: Path) -> int | None:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.lineno and Path(frame.filename) == path
    ]
    # An error inside a traced function carries its place in its text: AutoGraph has replaced the frames.
    lines += [int(line) for line in re.findall(rf'File "{re.escape(str(path))}", line (\d+)', str(error))]
    return lines[-1] if lines else None


def _heart_of(lines: list[str], name: str) -> str:
    """Pick the line that says what happened: TensorFlow wraps it in others that say where."""
    if lines and lines[0].startswith(("in user code:", "Exception encountered when calling")):
        told = [line for line in lines if re.match(r"\w*(Error|Exception)\b.*:", line)]
        if told:
            return told[-1]
    if lines and lines[0] == "Graph execution error:":
        frames = [number for number, line in enumerate(lines) if line.startswith('File "')]
        after = lines[frames[-1] + 1 if frames else 1 :]
        lines = [line for line in after if not line.startswith(("Detected at node", "<stack", "[["))] or lines
    return f"{name}: {re.sub(_NODES, '', lines[0])}" if lines else name

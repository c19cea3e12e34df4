"""What the agent imports before it is asked for readings, read from the source: nothing that a host may lack."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfmon
from tfmon.lanes.remote.wire import files

PACKAGE = Path(tfmon.__file__).parent
FIRST = ("tfmon.lanes.remote.agent", "tfmon.lanes.remote.first_word", "tfmon.trainer.bootstrap")
LIGHT = {"model", "lanes", "trainer", "__init__"}


def imported_at_once(tree: ast.AST) -> Iterator[str]:
    """Return what a module imports when it is loaded: not in functions, nor for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(name), names=names):
                yield from (name, *(f"{name}.{alias.name}" for alias in names))
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]):
                yield name
        yield from imported_at_once(node)


def closure(roots: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """Return the modules of tfmon that are loaded with some, and the names of others'."""
    waiting, own, foreign = list(roots), set(), set()
    while waiting:
        name = waiting.pop()
        path = PACKAGE.parent.joinpath(*name.split("."))
        file = next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)
        if name in own or file is None:
            continue  # a name in a module
        own.add(name)
        waiting.append(name.rpartition(".")[0] or name)
        for other in imported_at_once(ast.parse(file.read_text("utf-8"))):
            (waiting.append if other.partition(".")[0] == "tfmon" else foreign.add)(other)
    return own, {name.partition(".")[0] for name in foreign}


def test_the_reader_tells_early_imports_from_late_ones():
    source = "if TYPE_CHECKING:\n    import a\ntry:\n    import b\nexcept ImportError:\n    pass\n"
    source += "class C:\n    from d import e\n    def f(self):\n        import g\nimportlib.import_module('h')\n"
    assert set(imported_at_once(ast.parse(source))) == {"b", "d", "d.e", "h"}


def test_the_agent_needs_the_standard_library_and_little_of_tfmon():
    own, foreign = closure(FIRST)
    assert foreign <= set(sys.stdlib_module_names) | {"__future__"}
    assert {[*name.split("."), "__init__"][1] for name in own} <= LIGHT
    assert "tfmon.lanes.launch" in own, "lanes start there as they do here"
    remote = {name.rpartition(".")[2] for name in own if name.startswith("tfmon.lanes.remote.")}
    assert not remote & {"questions", "connection"}


def test_what_it_imports_when_it_is_asked_may_lack_all_but_the_standard_library():
    own, foreign = closure(("tfmon.lanes.remote.questions",))
    assert "tfmon.probes.host" in own
    assert foreign <= set(sys.stdlib_module_names), "psutil and pynvml are imported in functions"


def test_what_is_shipped_has_all_that_it_imports_early_or_late():
    shipped = files()
    assert {"pynvml.py", "tfmon/script/site/sitecustomize.py", "tfmon/report.py"} <= shipped.keys()
    assert not [name for name in shipped if name.startswith(("tfmon/ui/", "tfmon/cli/", "tfmon/api/"))]
    del shipped["tfmon/__init__.py"]  # which offers names to a user's program alone
    for name, path in shipped.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tfmon."):
                module = str(node.module).replace(".", "/")
                assert {f"{module}.py", f"{module}/__init__.py"} & shipped.keys(), f"{name} imports {module}"


@pytest.mark.process
def test_the_shipped_code_answers_by_itself(tmp_path):
    """Without psutil and everything else that is installed here: `-S -I` leaves the standard library."""
    for name, path in files().items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    code = f"""
import sys, time
sys.path.insert(0, {str(tmp_path)!r})
import tfmon.lanes.remote.agent
early = sorted(name for name in sys.modules if name.startswith("tfmon."))
from tfmon.lanes.remote.questions import Readings, answer
for question, words in (("machine", {{}}), ("gpus", {{}}), ("doctor", {{"imports": False, "folder": "/"}})):
    assert "error" not in answer(question, words), answer(question, words)
lines = []
readings = Readings(lambda: {{}}, lines.append, every_s=0.01)
while not lines:
    time.sleep(0.01)
readings.close()
assert not {{"psutil", "numpy", "click", "textual"}} & set(sys.modules)
print(*early)
"""
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not [name for name in done.stdout.split() if name.split(".")[1] not in LIGHT]

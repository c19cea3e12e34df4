"""Who may import whom: the house as DESIGN.md draws it, read from the source with `ast`."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tfmon

PACKAGE = Path(tfmon.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SHARED = {"model", "units", "errors"}

ALLOWED: dict[str, set[str]] = {
    "model": {"model"},
    "units": {"model"},
    "errors": set(),
    "race": {"race", "model", "units", "numpy", "scipy"},
    "profile": {"profile", *SHARED},
    "probes": {"probes", "model", "errors", "psutil", "pynvml"},
    "lanes": {"lanes", "race", "model", "errors"},
    "experiments": {"experiments", "race", "model", "errors"},
    "recordings": {"recordings", "race", *SHARED, "platformdirs", "tensorboard"},
    "doctor": {"doctor", "probes", "model", "units", "errors"},
    "trainer": {"trainer", "model", "profile", "numpy", "tensorflow", "keras"},
    "script": {"script", "trainer", "model", "numpy", "tensorflow", "keras"},
    "report": {"script", "model"},
    "ui": {"ui", "race", *SHARED, "textual", "rich"},
}
"""What each room may use besides the standard library. Modules not listed wire the rooms together."""


@dataclass(frozen=True)
class Import:
    module: Path
    line: int
    name: str
    """`tensorflow`, or for a module of our own the room: `model`, `cli`."""
    late: bool
    """Inside a function: not done when the module is loaded."""

    @property
    def room(self) -> str:
        return room_of(self.module)

    def __str__(self) -> str:
        return f"{self.module.relative_to(PACKAGE)}:{self.line} imports {self.name}"


def room_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_in(source: str, module: Path) -> Iterator[Import]:
    tree = ast.parse(source)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    late = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        for name in names_in(node):
            own, _, rest = name.partition(".")
            target = rest.partition(".")[0] if own == "tfmon" else own
            if target and target != "__version__":
                yield Import(module, node.lineno, target, id(node) in late)


def names_in(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module="tfmon", level=0, names=names):
            return [f"tfmon.{alias.name}" for alias in names]
        case ast.ImportFrom(module=str(name), level=0):
            return [name]
        case ast.ImportFrom(level=level) if level:
            raise AssertionError("relative imports hide who imports whom")
        case ast.Call(func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"), args=[wanted, *_]):
            assert isinstance(wanted, ast.Constant), f"an import that cannot be read, in line {node.lineno}"
            return [str(wanted.value)]
    return []


@functools.cache
def all_imports() -> list[Import]:
    return [found for module in MODULES for found in imports_in(module.read_text("utf-8"), module)]


def outside(found: list[Import]) -> list[str]:
    return [str(one) for one in found if one.name not in sys.stdlib_module_names]


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_uses_only_what_the_design_allows(room):
    found = [one for one in all_imports() if one.room == room and one.name not in ALLOWED[room]]
    assert not outside(found)


def test_every_package_is_in_the_table():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"commands"}
    assert packages <= set(ALLOWED)


def test_tensorflow_is_imported_late_and_only_in_the_trainer():
    found = [one for one in all_imports() if one.name in ("tensorflow", "keras")]
    assert found
    assert not [str(one) for one in found if one.room not in ("trainer", "script") or not one.late]


def test_nobody_imports_the_command_line():
    assert {one.module.name for one in all_imports() if one.name in ("cli", "__main__")} == {"__main__.py"}


@pytest.mark.parametrize("name", ["psutil", "pynvml"])
def test_the_machine_is_asked_by_probes_and_doctor_only(name):
    rooms = {one.room for one in all_imports() if one.name == name}
    assert "probes" in rooms
    assert rooms <= {"probes", "doctor"}


@pytest.mark.parametrize("name", ["textual", "numpy", "scipy", "pynvml"])
def test_what_is_slow_to_load_is_not_loaded_with_the_command_line(name):
    entry = {
        "__init__",
        "__main__",
        "cli",
        "commands",
        "config",
        "settings",
        "catalog",
        "errors",
        "model",
        "units",
    }
    assert not [str(one) for one in all_imports() if one.name == name and one.room in entry]


def test_lanes_know_of_the_race_only_whose_turn_it_is_and_when_silence_means_a_stall():
    trees = [ast.parse(module.read_text("utf-8")) for module in MODULES if room_of(module) == "lanes"]
    names = {name for tree in trees for node in ast.walk(tree) for name in names_in(node)}
    assert {name for name in names if name.startswith("tfmon.race")} == {
        "tfmon.lanes.watchdog",
        "tfmon.lanes.scheduler",
    }


def test_the_race_loads_what_is_slow_only_when_it_computes():
    found = [one for one in all_imports() if one.room == "race" and one.name in ("numpy", "scipy")]
    assert found and all(one.late for one in found)


def test_the_reader_sees_every_form_of_import():
    early = "import a.b\nfrom tfmon import cli\nfrom tfmon.model.wire import x\n"
    source = early + "def f():\n    import c\n    importlib.import_module('d')\n"
    found = [(one.name, one.late) for one in imports_in(source, PACKAGE / "x.py")]
    assert found == [("a", False), ("cli", False), ("model", False), ("c", True), ("d", True)]


def test_nothing_that_is_read_is_run():
    """Metric lines, recordings and settings are data; the one thing that is run is the scenario the user named."""
    run = {"eval", "exec", "compile", "__import__"}
    unpack = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    found = []
    for module in MODULES:
        source = module.read_text()
        found += [str(one) for one in imports_in(source, module) if one.name in unpack]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in run:
                found.append(f"{module.relative_to(PACKAGE)}:{node.lineno} calls {node.func.id}")
    assert not found

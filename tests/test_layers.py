"""Who may import whom: the table of docs/architecture.md, checked against the source with `ast`."""

import ast
import functools
import gc
import graphlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tfmon

PACKAGE = Path(tfmon.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
RUN = {"eval", "exec", "compile", "__import__"}
STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
TEXT = {"units", "errors"}

ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "units": {"model"},
    "errors": set(),
    "version": set(),
    "system": {"model"},
    "analysis": {"model", *TEXT, "numpy", "pandas"},
    "profile": {"model", "analysis", *TEXT, "google", "tensorflow"},
    "probes": {"model", "system", "errors", "psutil", "pynvml"},
    "lanes": {"model", "system", "errors"},
    "lanes.remote": {"model", "system", "lanes", "probes", "doctor", *TEXT, "ray"},
    "series": {"model", "system", "analysis", "errors"},
    "recordings": {"model", "system", "analysis", *TEXT},
    "doctor": {"model", "system", "probes", *TEXT, "packaging"},
    "trainer": {"model", "system", "profile", "units", "numpy", "tensorflow", "keras"},
    "hooks": {"model", "system", "trainer", "numpy", "tensorflow", "keras"},
    "report": {"model", "system", "hooks"},
    "catalog": {"model", "errors", "platformdirs"},
    "reports": {
        *("model", "analysis", "doctor", "lanes.remote", "recordings"),
        *(*TEXT, "rich", "vl_convert", "jinja2", "markupsafe"),
    },
    "ui": {"model", "system", "analysis", *TEXT, "textual", "rich"},
    "api": {
        *("model", "system", "analysis", "catalog", "doctor", "series", "lanes", "lanes.remote"),
        *("probes", "recordings", "reports", "hooks", "ui", *TEXT, "click", "platformdirs"),
        *("tomli", "pandas", "IPython", "nbformat", "rich", "prometheus_client", "mcp", "mcp_types"),
    },
    "cli": {
        *("model", "system", "analysis", "catalog", "doctor", "lanes.remote", "probes", "recordings", "reports"),
        *("api", *TEXT, "click"),
    },
    "pytest_plugin": {"analysis", "api", "errors", "pytest"},
    "__main__": {"cli"},
    "__init__": {"api", "analysis", "errors", "recordings"},
}
"""What each package or top-level module may import besides itself and the standard library.

A subpackage with a line in the table is not part of the outer package.
"""

LOADED_LATE = {
    *("tensorflow", "google", "keras", "textual", "platformdirs", "vl_convert", "jinja2", "markupsafe"),
    *("IPython", "ray", "ui"),
}
"""What is only imported inside functions, because it is slow to load or may be missing."""


class Import(NamedTuple):
    place: str
    package: str
    name: str
    """The package imported: `tensorflow`, or for our own the part below tfmon: `model`, `lanes.remote`."""
    late: bool
    """Inside a function: not executed when the module is loaded."""


def part_of(names: Sequence[str]) -> str:
    """Return the package of a module whose names below tfmon are given."""
    inner = ".".join(names[:2])
    return inner if inner in ALLOWED else names[0] if names else ""


def package_of(module: Path) -> str:
    return part_of(module.relative_to(PACKAGE).with_suffix("").parts)


@functools.cache
def tree_of(module: Path) -> ast.Module:
    gc.disable()  # collections between the nodes take longer than parsing
    try:
        return ast.parse(module.read_text("utf-8"))
    finally:
        gc.enable()


@functools.cache
def looked_at(module: Path) -> list[tuple[ast.AST, bool]]:
    """Return the imports of a module, its calls if one may run code, and whether each is inside a function."""
    text = module.read_text("utf-8").replace("re.compile(", "")
    inner = ast.AST if any(f"{name}(" in text for name in (*RUN, "import_module")) else STATEMENTS
    found: list[tuple[ast.AST, bool]] = []
    waiting: list[tuple[ast.AST, bool]] = [(tree_of(module), False)]
    while waiting:
        node, late = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            found.append((node, late))
        inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        waiting += [(child, inside) for child in ast.iter_child_nodes(node) if isinstance(child, inner)]
    return found


def imports_in(module: Path) -> Iterator[Import]:
    for node, late in looked_at(module):
        for name in names_in(node):
            own, _, rest = name.partition(".")
            target = part_of(rest.split(".")) if own == "tfmon" else own
            if target and target not in ("__version__", "version"):
                place = f"{module.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)} imports {target}"
                yield Import(place, package_of(module), target, late)


def names_in(node: ast.AST) -> list[str]:
    """Return the full names of the modules that an import or a call imports."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module="tfmon", level=0, names=names):
            return [f"tfmon.{alias.name}" for alias in names]
        case ast.ImportFrom(module=str(name), level=0):
            return [name]
        case ast.ImportFrom(level=level) if level:
            raise AssertionError("relative imports hide who imports whom")
        case ast.Call(func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"), args=[target, *_]):
            assert isinstance(target, ast.Constant), f"an import that cannot be read, in line {node.lineno}"
            return [str(target.value)]
    return []


@functools.cache
def all_imports() -> list[Import]:
    return [found for module in MODULES for found in imports_in(module)]


def test_every_package_is_in_the_table():
    assert {package_of(module) for module in MODULES} == set(ALLOWED)


def test_a_package_imports_only_what_the_architecture_allows():
    allowed = {package: {package, *names, *sys.stdlib_module_names} for package, names in ALLOWED.items()}
    assert not [one.place for one in all_imports() if one.name not in allowed[one.package]]


def test_what_is_slow_or_may_be_missing_is_imported_inside_functions():
    slow = [one for one in all_imports() if one.name in LOADED_LATE]
    early = [one for one in slow if not one.late and one.package not in ("ui", one.name)]
    # The module that opens the screen imports it at once.
    assert not [one.place for one in early if "live.py:" not in one.place]
    assert {one.name for one in slow} == LOADED_LATE, "the table is out of date"


def test_what_runs_in_a_users_process_imports_the_standard_library_at_once():
    """The user's folder may have a module of the same name, which a later import would find: see `site`."""
    runs_there = {"hooks", "report", "trainer", "profile", "model", "system"}
    late = [one for one in all_imports() if one.package in runs_there and one.late]
    library = sys.stdlib_module_names - {*sys.builtin_module_names, *ALLOWED}
    assert not [one.place for one in late if one.name in library]


def test_no_files_import_each_other_in_a_circle():
    """Imports inside functions and those for types alone count, too."""
    parts = {module: module.relative_to(PACKAGE.parent).with_suffix("").parts for module in MODULES}
    files = {".".join(names).removesuffix(".__init__"): module for module, names in parts.items()}
    graph: dict[str, set[str]] = {}
    for name, module in files.items():
        imported: set[str] = set()
        for node, _ in looked_at(module):
            if isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                imported |= inner or {str(node.module)}
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
        graph[name] = imported & files.keys() - {name}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names them


def test_nothing_that_is_read_is_run():
    """Messages, recordings and settings are data; the one thing that is run is the scenario the user named."""
    unpack = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    found = [one.place for one in all_imports() if one.name in unpack]
    for module in MODULES:
        for node, _ in looked_at(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUN:
                found.append(f"{module.relative_to(PACKAGE)}:{node.lineno} calls {node.func.id}")
    assert not found


def test_no_module_binds_a_constant_twice():
    """Merged modules may have the same name for two things."""
    for path in MODULES:
        assigned = [one for one in tree_of(path).body if isinstance(one, ast.Assign)]
        bound = [getattr(target, "id", "") for one in assigned for target in one.targets]
        assert [name for name in {*bound} if name.isupper() and bound.count(name) > 1] == [], path

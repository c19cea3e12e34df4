"""Finds scenarios and parses their facts, without running their code."""

from __future__ import annotations

import ast
import contextlib
import difflib
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tfmon.errors import UsageError
from tfmon.model.knobs import COMMON, INPUT, MACHINE, PREPARE, STEP, VARIANT, Knob, KnobError
from tfmon.model.race import Claim, ScenarioInfo

PACKAGE = Path(__file__).resolve().parent
GROUP = "tfmon.scenarios"
"""The entry points of packages with scenarios."""
_ATTRIBUTES = {
    "knobs", "variants", "without", "contrast", "source", "claims", "examples", *(knob.name for knob in COMMON),
}  # fmt: skip
_CALLS: dict[str, type[Knob] | type[Claim]] = {"Knob": Knob, "Claim": Claim}


def built_in_folder() -> Path:
    """Return the folder of the built-in scenarios: in the package, or beside it in a checkout."""
    installed = PACKAGE / "scenarios"
    return installed if installed.is_dir() else PACKAGE.parent / "scenarios"


def own_folder() -> Path:
    """Return the user's folder of scenarios."""
    from platformdirs import user_config_path

    return user_config_path("tfmon") / "scenarios"


def list_scenarios() -> list[ScenarioInfo]:
    """Return all readable scenarios. The first scenario of a name counts, as for `race`."""
    infos: dict[str, ScenarioInfo] = {}
    for origin, path in _candidates():
        with contextlib.suppress(UsageError):
            info = read_scenario(path, origin)
            infos.setdefault(info.name, info)
    return list(infos.values())


def find_scenario(name: str) -> ScenarioInfo:
    """Return the scenario of that name or path; raises UsageError."""
    path = Path(os.path.expanduser(name))  # noqa: PTH111 - an unknown user raises nothing
    if name.endswith(".py") or ("/" in name and not _holds(path.is_dir)):
        if not _holds(path.is_file):
            raise UsageError(f"there is no file {name}", "tfmon list shows the scenarios there are")
        return read_scenario(path.resolve(), "file")
    for origin, path in _candidates():
        if path.stem.replace("_", "-") == name:
            return read_scenario(path, origin)
    names = [info.name for info in list_scenarios()]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
    stem = name if re.fullmatch(r"\w[\w-]*", name) else "mine"
    raise UsageError(f"there is no scenario {name!r}", f"{hint}; a file of your own: ./{stem}.py")


def command_scenario(argv: tuple[str, ...]) -> ScenarioInfo:
    """Return the info of a user's command; raises UsageError."""
    import shutil  # late: it loads compressors, for one function

    if shutil.which(argv[0]) is None:
        hint = "name the program first, as in: tfmon race -- python train.py"
        if argv[0].endswith(".py"):
            hint = f"a script needs its Python: tfmon race -- python {shlex.join(argv)}"
        raise UsageError(f"{argv[0]} is not a program that can be run", hint)
    script = next((word for word in argv if word.endswith(".py")), argv[0])
    return ScenarioInfo(Path(script).name, Path(script), "command", title=shlex.join(argv), command=argv)


def _candidates() -> Iterator[tuple[str, Path]]:
    for origin, folder in (("built-in", built_in_folder()), (f"yours ({own_folder()})", own_folder())):
        for path in sorted(folder.glob("[!_]*.py")):
            yield origin, path
    yield from _installed()
    for path in sorted((Path.cwd() / "scenarios").glob("[!_]*.py")):
        yield "this directory (./scenarios)", path


def _installed() -> Iterator[tuple[str, Path]]:
    """Return the scenarios of other packages. To find none, `importlib.metadata` takes ten times as long."""
    files = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(GROUP.encode() in file.read_bytes() for file in files):
        return
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.dist is not None:
            path = Path(str(entry.dist.locate_file(entry.module.replace(".", "/") + ".py")))
            if path.is_file():
                yield f"from {entry.dist.name}", path


def read_scenario(path: Path, origin: str) -> ScenarioInfo:
    """Return the info of a scenario file; raises UsageError unless its attributes are literal."""
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise UsageError(f"{path.name}:{error.lineno}: {error.msg}", "a scenario is a Python file") from error
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {str(error) or 'it is nested too deeply'}") from error
    classes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and "Scenario" in (getattr(base, "attr", getattr(base, "id", "")) for base in node.bases)
    ]
    if len(classes) != 1:
        result = ", ".join(node.name for node in classes) or "none"
        raise UsageError(
            f"{path.name} must define one subclass of tfmon.trainer.Scenario; it has {result}",
            f"tfmon new writes one with comments; to race a script as it is: tfmon race -- python {path.name}",
        )
    values = _literals(classes[0], path)
    methods = {node.name for node in classes[0].body if isinstance(node, ast.FunctionDef)}
    doc = ast.get_docstring(tree) or ast.get_docstring(classes[0]) or ""
    title, _, rest = doc.partition("\n")
    return ScenarioInfo(
        name=path.stem.replace("_", "-"),
        path=path,
        origin=origin,
        title=title.strip() or path.name,
        doc=rest.strip(),
        knobs=_knobs(values, methods, path),
        contrast=values.get("contrast", ("prefetch=off", "prefetch=auto")),
        examples=values.get("examples"),
        claims=tuple(
            replace(claim, source=claim.source or values.get("source", "")) for claim in values.get("claims", ())
        ),
    )


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:  # a name that is too long, a forbidden folder
        return False


def _literals(node: ast.ClassDef, path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for statement in node.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if value is not None and name in _ATTRIBUTES:
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) if near := difflib.get_close_matches(
                name, [knob.name for knob in COMMON], n=1, cutoff=0.85
            ):
                raise UsageError(
                    f"{path.name}:{statement.lineno}: a scenario has no `{name}`", f"did you mean {near[0]}?"
                )
            case _:
                continue
        try:
            values[name] = _evaluate(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(
                f"{path.name}:{value.lineno}: `{name}` must be written out: {error}",
                "tfmon reads a scenario without running it",
            ) from error
        if name in _KINDS and not _KINDS[name][1](values[name]):
            raise UsageError(f"{path.name}:{value.lineno}: `{name}` must be {_KINDS[name][0]}")
    return values


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "knobs": ("a tuple of Knob(...)", lambda value: _is_tuple_of(value, Knob)),
    "contrast": (
        'a tuple of settings, such as ("prefetch=off", "prefetch=auto")',
        lambda value: _is_tuple_of(value, str) and len(value) > 0,
    ),
    "variants": ('a tuple of names, such as ("eager", "graph")', lambda value: _is_tuple_of(value, str)),
    "without": ("a tuple of common knobs' names", lambda value: _is_tuple_of(value, str)),
    "source": ("a text", lambda value: isinstance(value, str)),
    "claims": ("a tuple of Claim(...)", lambda value: _is_tuple_of(value, Claim)),
    "examples": (
        "a whole number from 1, or None",
        lambda value: value is None or (type(value) is int and value > 0),
    ),
}
"""A description of the allowed values, and a check."""


def _is_tuple_of(value: object, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, kind) for item in value)


def _evaluate(node: ast.expr) -> Any:  # noqa: ANN401
    """Evaluate a literal, or a tuple or list of `Knob(...)` and `Claim(...)` calls with literal arguments."""
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_evaluate(item) for item in node.elts)
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        kind = _CALLS.get(called)
        if kind is None:
            raise ValueError(f"{ast.unparse(node)} is not a literal")
        names = [part.name for part in fields(kind)]
        values = dict(zip(names, (_evaluate(argument) for argument in node.args), strict=False))
        values.update({word.arg: _evaluate(word.value) for word in node.keywords if word.arg})
        return kind(**values)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"{ast.unparse(node)} is not a literal") from None


def _knobs(values: Mapping[str, Any], methods: Collection[str], path: Path) -> tuple[Knob, ...]:
    offered = [*STEP, *MACHINE]
    if "prepare" in methods:
        offered = [*PREPARE, *offered]
    if "data" in methods or "step" not in methods:
        offered = [*INPUT, *offered]
    variants = values.get("variants", ())
    if variants:
        # Only variants in the contrast do the same work for certain.
        sides = [word.strip() for side in values.get("contrast", ()) for word in side.split(",")]
        same = tuple(word.removeprefix("variant=") for word in sides if word.startswith("variant="))
        offered.append(replace(VARIANT, default=variants[0], choices=variants, remedies=same))
    knobs: list[Knob] = []
    for knob in (*offered, *values.get("knobs", ())):
        if knob.name in values.get("without", ()):
            continue
        if not isinstance(knob.name, str) or any(knob.name == other.name for other in knobs):
            raise UsageError(f"{path.name}: each knob needs a name of its own; {knob.name!r} is none")
        try:
            knobs.append(replace(knob, default=knob.check(values.get(knob.name, knob.default))))
        except KnobError as error:
            raise UsageError(f"{path.name}: {error}") from error
        except TypeError as error:
            raise UsageError(f"{path.name}: the knob {knob.name} is declared wrongly: {error}") from error
    return tuple(knobs)

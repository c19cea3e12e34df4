"""The code that a host needs: a zip of tfmon's own source, made from what is imported, early or late."""

from __future__ import annotations

import ast
import functools
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import tfmon

PACKAGE = Path(tfmon.__file__).parent
ROOTS = (
    "tfmon.lanes.remote.run",
    "tfmon.lanes.remote.questions",
    "tfmon.lanes.remote.readings",
    "tfmon.trainer.bootstrap",
    "tfmon.lanes.enter_view",
    "tfmon.report",
    "tfmon.script.site.sitecustomize",
    "tfmon.script.uses",
)
"""What is run or imported on a host: the agent, what it imports when it is asked, a lane's first module, and what
a user's script loads or imports."""
_OFFERS = PACKAGE / "__init__.py"
"""Offers names to a user's program, and loads what they are in then: nothing that runs on a host asks for it."""
FOREIGN = ("pynvml",)
"""Modules of one file that are not tfmon's: a host need not have them."""


@functools.cache
def packed() -> bytes:
    """Return the zip. Thread: any; it takes some tenths of a second, once."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files().items()):
            # A fixed time: equal code makes equal bytes.
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = 0o600 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def files() -> dict[str, Path]:
    """Return the files of the zip by their name in it."""
    found = {str(path.relative_to(PACKAGE.parent)): path for path in _closure(ROOTS)}
    for name in FOREIGN:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            found[f"{name}.py"] = Path(spec.origin)
    return found


def _closure(roots: tuple[str, ...]) -> set[Path]:
    """Return the files of modules, of what they import, and of the packages that they lie in."""
    waiting, seen = list(roots), set()
    while waiting:
        path = _file_of(waiting.pop())
        if path is None or path in seen:
            continue
        seen.add(path)
        waiting += _imports(path) if path != _OFFERS else ()
        parent = path.parent if path.name != "__init__.py" else path.parent.parent
        if parent != PACKAGE.parent and (parent / "__init__.py").exists():
            waiting.append(".".join(parent.relative_to(PACKAGE.parent).parts))
    return seen


def _file_of(module: str) -> Path | None:
    """Return the file of one of our modules; None for a name in a module."""
    place = PACKAGE.parent.joinpath(*module.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(path: Path) -> Iterator[str]:
    """Return the imports of tfmon in a module; of `from tfmon.a import b`, b may be a module or a name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(name), names=names, level=0):
                found = [name, *(f"{name}.{alias.name}" for alias in names)]
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]):
                found = [name]
            case _:
                continue
        yield from (name for name in found if name.partition(".")[0] == "tfmon")

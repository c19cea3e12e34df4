"""Converts a notebook to a script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tfmon.api.run_base import state_folder
from tfmon.errors import UsageError

SUFFIX = ".ipynb"
NEEDS = "pip install nbformat ipython, or tfmon[notebook]"
RUN = ("time", "capture", "tfmon")


def notebook_script(notebook: Path) -> tuple[Path, list[str]]:
    """Write the code cells as a script, and return it with the skipped lines; raises UsageError."""
    lines = ["import sys", f"sys.path[0] = {str(notebook.resolve().parent)!r}"]
    skipped: list[str] = []
    for number, source in enumerate(_code_cells(notebook), 1):
        code, left_out = _plain_code(source, f"{notebook.name}, cell {number}")
        skipped += (f"cell {number}: {line}" for line in left_out)
        lines += ["", f"# cell {number}", code]
    text = "\n".join(lines) + "\n"
    folder = state_folder() / "notebooks"
    path = folder / f"{notebook.stem}.py"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    return path, skipped


def _code_cells(notebook: Path) -> Iterator[str]:
    try:
        import nbformat
    except ImportError:
        raise UsageError("a notebook needs nbformat, which is not installed", NEEDS) from None
    try:
        # nbformat has no types.
        cells = nbformat.read(notebook, as_version=4).cells  # type: ignore[no-untyped-call]
    except OSError as error:
        raise UsageError(f"{notebook} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - nbformat raises many types
        raise UsageError(f"{notebook} is not a notebook: {str(error).partition(chr(10))[0]}") from None
    yield from (str(cell.source) for cell in cells if cell.cell_type == "code")


def _plain_code(source: str, where: str) -> tuple[str, list[str]]:
    try:
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError:
        raise UsageError("a notebook needs IPython, which is not installed", NEEDS) from None
    try:
        code = TransformerManager().transform_cell(source)
        tree = ast.parse(code)
    except SyntaxError as error:
        raise UsageError(f"{where}, line {error.lineno}: {error.msg}", "a script cannot run that") from None
    lines, skipped = code.splitlines(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and (call := _ipython_call(node.value)):
            inner = ""
            if call[0].lstrip("%") in RUN:
                inner, more = _plain_code(call[-1], where)
                skipped += more
            else:
                skipped.append(" ".join(call[:2]).strip())
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            new = [lines[first][: node.col_offset] + line for line in (inner or "pass").splitlines()]
            lines[first:last] = ["\n".join(new), *[""] * (last - first - 1)]
    result = "\n".join(lines)
    if used := next((call for node in ast.walk(ast.parse(result)) if (call := _ipython_call(node))), None):
        raise UsageError(f"{where} uses the result of {' '.join(used[:2]).strip()}", "a script has no IPython")
    return result, skipped


def _ipython_call(node: ast.AST) -> list[str]:
    if not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("get_ipython().")):
        return []
    arguments = [str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)]
    mark = {"run_line_magic": "%", "run_cell_magic": "%%"}.get(ast.unparse(node.func).rpartition(".")[2])
    return [f"{mark}{arguments[0]}", *arguments[1:]] if mark and arguments else [f"!{' '.join(arguments)}"]

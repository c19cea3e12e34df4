"""TensorFlow in other environments: where it is, for a user whose own interpreter has none.

Only folders are looked at; no interpreter is started.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tfmon.errors import TfmonError

MOST = 3
"""More interpreters than these are not named."""
_BESIDE = (".venv", "venv", "env", ".env")
_BELOW_HOME = (
    ".virtualenvs/*", ".venvs/*", "venvs/*", ".pyenv/versions/*", ".local/share/virtualenvs/*", ".conda/envs/*",
    "miniconda3", "miniconda3/envs/*", "anaconda3", "anaconda3/envs/*", "miniforge3", "miniforge3/envs/*",
    "mambaforge/envs/*", "micromamba/envs/*", "*/.venv", "*/venv",
)  # fmt: skip
"""Where environments usually are."""


def need_tensorflow(python: Path) -> None:
    """Do nothing if an interpreter has TensorFlow, or is another one than this, which says so itself.

    Raises:
        TfmonError: it has none; the hint names interpreters that have.
    """
    if python != Path(sys.executable) or importlib.util.find_spec("tensorflow") is not None:
        return
    others = [shlex.quote(str(one)) for one in find_tensorflow()]
    install = f"install it here: {sys.executable} -m pip install tensorflow"
    if not others:
        raise TfmonError(f"{sys.executable} has no TensorFlow, and no other Python with it was found", install)
    more = f" (also in {', '.join(others[1:])})" if others[1:] else ""
    hint = f"{others[0]} has: add --python {others[0]}{more}; or {install}"
    raise TfmonError(f"{sys.executable} has no TensorFlow", hint)


def find_tensorflow() -> list[Path]:
    """Return interpreters of other environments that have TensorFlow; the likeliest first, a few at most."""
    found: dict[Path, Path] = {}
    for python in _candidates():
        prefix = python.parent.parent
        if len(found) < MOST and prefix not in found and _has_tensorflow(prefix):
            found[prefix] = python
    return list(found.values())


def _candidates() -> Iterator[Path]:
    """Yield interpreters: of the active environment, the folders above, the PATH, and below the home folder."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(variable):
            yield from _pythons(Path(os.environ[variable]))
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in _BESIDE:
            yield from _pythons(folder / name)
    for name in ("python3", "python", *(f"python3.{minor}" for minor in range(14, 9, -1))):
        if found := shutil.which(name):
            yield Path(found).absolute()
            yield Path(found).resolve()
    home = Path.home()
    for pattern in _BELOW_HOME:
        for prefix in sorted(home.glob(pattern)):
            yield from _pythons(prefix)


def _pythons(prefix: Path) -> Iterator[Path]:
    python = prefix / "bin" / "python"
    if python.is_file() and os.access(python, os.X_OK):
        yield python.absolute()


def _has_tensorflow(prefix: Path) -> bool:
    return any(
        (packages / "tensorflow" / "__init__.py").is_file()
        for lib in ("lib", "lib64", "local/lib")
        for kind in ("site-packages", "dist-packages")
        for packages in prefix.glob(f"{lib}/python3*/{kind}")
    )

"""Writes a file that appears only with its whole content."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[io.BufferedWriter]:
    """Open a file that replaces `path` at the end, with the old permissions; raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            if path.exists():
                shutil.copymode(path, part)
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)

"""Small tables that outlive a run of tfmon: what it has learnt of this machine, as JSON in the state folder.

A table that cannot be read counts as empty, and one that cannot be written is not kept: no race depends on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "TFMON_STATE"
"""Environment variable that names another folder."""


def path(name: str) -> Path:
    """Return the file of a table; it may not exist."""
    from platformdirs import user_state_path

    named = os.environ.get(FOLDER_VARIABLE)
    folder = Path(named) if named else user_state_path("tfmon", appauthor=False)
    return folder / f"{name}.json"


def read(place: Path) -> dict[str, Any]:
    """Return the content of a file; empty for one that is missing or broken."""
    try:
        table = json.loads(place.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def write(place: Path, table: Mapping[str, Any]) -> bool:
    """Replace a file as a whole, so that no reader sees half of it; return whether that was possible."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=place.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(table, file, indent=1)
            Path(name).replace(place)
        except OSError:
            Path(name).unlink(missing_ok=True)
        else:
            return True
    return False

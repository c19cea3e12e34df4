"""What a lane needs in its environment that is a user's own command."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tfmon
from tfmon.model.knobs import Settings
from tfmon.model.place import HOLDER, SETTINGS, VARIABLE, Place

SITE = Path(tfmon.__file__).parent / "script" / "site"
"""The folder with the sitecustomize that lets tfmon in."""


@dataclass(frozen=True, slots=True)
class Command:
    """A user's command, and what it runs on."""

    words: tuple[str, ...]
    device: str
    """`cpu` or `gpu`."""
    settings: Settings
    """Knobs that it is asked to have."""


def lock_file() -> tuple[int, str]:
    """Return a file that the lane's processes inherit, which no folder lists, and the token in it."""
    token = secrets.token_hex(8)
    with tempfile.TemporaryFile() as file:
        file.write(token.encode())
        file.flush()
        return os.dup(file.fileno()), token


def joining_environment(environment: Mapping[str, str], place: Place, settings: Settings) -> dict[str, str]:
    """Return what is to be set so that a Python of the lane finds its pipes and its knobs."""
    before = environment.get("PYTHONPATH", "")
    path = os.pathsep.join([str(SITE), before]) if before else str(SITE)
    return {VARIABLE: place.text(), SETTINGS: json.dumps(settings), HOLDER: "", "PYTHONPATH": path}

"""How the lanes of a user's command see the working folder. Pure; `view_files` keeps what they write."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

OVERLAY, COPY, IN_PLACE = "overlay", "copy", "in place"
KEPT, NOT_KEPT = ".files", ".files.part"
"""How the names of stores end: of a recorded race, and of one whose files nobody wants."""


@dataclass(frozen=True, slots=True)
class View:
    """How the lanes of a race on one machine, or one of them, see the working folder."""

    kind: str
    """`overlay`: the same paths, and what a lane writes goes elsewhere; `copy`; or `in place`."""
    folder: str
    """The working folder."""
    reason: str = ""
    """Why it is not the better one; empty for an overlay."""
    store: str = ""
    """The folder for what the lanes of a race write, or one of them; empty in place."""
    written: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Files and bytes that each process of a lane wrote, by the name of its folder; empty before the end."""
    edited: tuple[str, ...] = ()
    """Some files of the folder itself that somebody changed while the lanes ran."""

    @property
    def text(self) -> str:
        """What it means for the user's files, in one line."""
        kept = "kept beside the recording" if self.store.endswith(KEPT) else "not kept"
        if self.kind == OVERLAY:
            return f"each lane has a copy-on-write view of {self.folder}; what it writes is {kept}"
        if self.kind == COPY:
            return f"each lane has a copy of {self.folder}; what it writes is {kept} (no view: {self.reason})"
        return f"all lanes write to {self.folder} itself{': ' * bool(self.reason)}{self.reason}"

    def of_race(self, number: int) -> View:
        """Return the view for a race that begins now, with a store of its own beside the one before."""
        if not self.store:
            return self
        before = Path(self.store)
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{number}{''.join(before.suffixes)}"
        return replace(self, store=str(before.with_name(name)))

    def of_lane(self, name: str, process: int) -> View | None:
        """Return the view of a lane's process, counted from 1; None in place."""
        own = name if process == 1 else f"{name}-{process}"
        return replace(self, store=f"{self.store}/{own}") if self.store else None


def describe(views: Mapping[str, View]) -> list[str]:
    """Return a line for each machine that says where lanes write."""
    return [f"on {host}: {view.text}" if host else view.text for host, view in views.items()]

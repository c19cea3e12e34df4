"""The views of the working folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from tfmon.model.fast_dataclass import dataclass

OVERLAY, COPY, IN_PLACE = "overlay", "copy", "in place"
KEPT, NOT_KEPT = ".files", ".files.part"
"""Suffixes of stores."""
PORTS = "ports"


@dataclass(frozen=True, slots=True)
class View:
    """The lanes' view of the working folder."""

    kind: str
    """`overlay` (writes are redirected), `copy` or `in place`."""
    folder: str
    reason: str = ""
    store: str = ""
    written: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Files and bytes by process folder."""
    edited: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Paths that a copy shares with the folder."""

    @property
    def text(self) -> str:
        """The effect on the user's files."""
        kept = "kept beside the recording" if self.store.endswith(KEPT) else "not kept"
        if self.kind == OVERLAY:
            why = f" ({self.reason})" if self.reason else ""
            return f"each lane has a copy-on-write view of {self.folder}; what it writes is {kept}{why}"
        if self.kind == COPY:
            links = f" with links to its {', '.join(self.links)}" if self.links else ""
            return (
                f"each lane has a copy of {self.folder}{links}; what it writes is {kept} (no view: {self.reason})"
            )
        return f"all lanes write to {self.folder} itself{': ' * bool(self.reason)}{self.reason}"

    @property
    def ports(self) -> str | None:
        """The folder for exchanging ports."""
        return f"{self.store}/{PORTS}" if self.store and not self.store.startswith(f"{self.folder}/") else None

    def of_lane(self, name: str, process: int) -> View | None:
        """Return the view of a lane's process, or `None` in place."""
        subfolder = name if process == 1 else f"{name}-{process}"
        return replace(self, store=f"{self.store}/{subfolder}") if self.store else None


def describe(views: Mapping[str, View]) -> list[str]:
    """Return a line per machine about where lanes write."""
    return [f"on {host}: {view.text}" if host else view.text for host, view in views.items()]

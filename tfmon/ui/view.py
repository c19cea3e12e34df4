"""What the screen knows besides the snapshot: the focus, the line it has to say, the scale of the charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfmon.model.session import Snapshot
from tfmon.ui.charset import Charset


@dataclass(frozen=True, slots=True)
class View:
    """State of the screen itself."""

    focused: str | None = None
    """Name of the lane that keys act on; None for all."""
    message: str = ""
    """What the last key press came to."""
    message_until_ns: int = 0
    lost: tuple[str, ...] = ()
    """Lanes that failed out of sight, until the user takes note; see `tfmon.ui.pinned`."""
    seen: tuple[str, ...] = ()
    """Lanes whose failure the user has seen."""
    no_race: str = ""
    """Why there is no race to show, if the first one could not be started."""
    stopping: bool = False
    """True once the user has quit and the lanes are ending."""
    top: float = 0.0
    """Top of the scale that all charts share, examples/s."""
    sent_bytes_per_s: float | None = None
    """What the screen sent to the terminal, over the last 10 s; None before that is known."""
    readonly: bool = False
    """True where keys may not change the race."""
    charset: Charset = "braille"
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that differ from the built-in ones, by the binding's id."""


def focused_index(view: View, snapshot: Snapshot) -> int | None:
    """Return the place of the focused lane; None when all are, or it is gone."""
    for place, lane in enumerate(snapshot.lanes):
        if lane.spec.name == view.focused:
            return place
    return None

"""What the screen knows besides the snapshot: the focus, the message to show, the scale of the charts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.session import Snapshot
from tfmon.units import Charset

SHARED, OWN, LOG = "shared", "own", "log"
SCALES = (SHARED, OWN, LOG)
"""Which scale the charts have: one for all lanes, one for each, or a logarithmic one for all."""
SPANS_S = (60, 300, 1_800)
"""How much time the charts show."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The vertical axis of a chart."""

    low: float = 0.0
    high: float = 0.0
    """As `low` before there is anything to draw."""
    log: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """State of the screen itself."""

    focused: str | None = None
    """Name of the lane that keys act on; None for all."""
    message: str = ""
    """What the last key press did, or why it did nothing."""
    message_until_ns: int = 0
    message_done: Callable[[Snapshot], bool] | None = None
    """Whether what the message announces has happened; None where it announces nothing."""
    race: int = 0
    """Number of the race that was drawn last."""
    unseen: tuple[str, ...] = ()
    """Lanes that failed while they were not on the screen, until the user presses Esc."""
    seen: tuple[str, ...] = ()
    """Lanes whose failure the user has seen."""
    no_race: str = ""
    """Why there is no race to show, if the first one could not be started."""
    stopping: bool = False
    """True once the user has quit and the lanes are ending."""
    metric: str = "throughput"
    """What the charts show: an id of `tfmon.ui.render.series`."""
    scale: str = SHARED
    """One of `SCALES`."""
    span_s: int = SPANS_S[0]
    """How much time the charts show."""
    scales: Mapping[str, Scale] = field(default_factory=dict)
    """The scales as last drawn, by the lane's name or `SHARED`; a new one keeps near them."""
    zoomed: bool = False
    """True while the focused lane has the whole width."""
    zoomed_from: str | None = None
    """The focus before that."""
    frozen: bool = False
    """True while the display does not follow the race."""
    live: Snapshot | None = None
    """The race that keys act on, where another moment of it is drawn."""
    behind_s: float = 0.0
    """How long ago the moment is at which the charts then end."""
    sent_bytes_per_s: float | None = None
    """What the screen sent to the terminal, over the last 10 s; None before that is known."""
    readonly: bool = False
    """True where keys may not change the race."""
    replay: bool = False
    """True where a recording is shown."""
    tabs: tuple[str, ...] = ()
    """Names of the race and of the pages beside it."""
    charset: Charset = "braille"
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that differ from the built-in ones, by the binding's id."""


def focused_index(view: View, snapshot: Snapshot) -> int | None:
    """Return the place of the focused lane; None when all are, or it is gone."""
    for place, lane in enumerate(snapshot.lanes):
        if lane.spec.name == view.focused:
            return place
    return None


def with_failures(view: View, snapshot: Snapshot, shown: Collection[str]) -> View:
    """Return the view with the lanes that failed since: seen if the lane is among those shown, else unseen.

    A lane that trains again is neither.
    """
    failed = [lane.spec.name for lane in snapshot.lanes if lane.phase in (FAILED, ABSENT)]
    new = [name for name in failed if name not in view.unseen and name not in view.seen]
    unseen = (*(name for name in view.unseen if name in failed), *(name for name in new if name not in shown))
    seen = (*(name for name in view.seen if name in failed), *(name for name in new if name in shown))
    return view if (unseen, seen) == (view.unseen, view.seen) else replace(view, unseen=unseen, seen=seen)


def acknowledged(view: View) -> View:
    """Return the view after the user has acknowledged every failure."""
    return replace(view, unseen=(), seen=(*view.seen, *view.unseen))


def standing_still(view: View, shown: Snapshot, live: Snapshot, message: str) -> View:
    """Return the view of a display that does not follow: with the message of now, and how far it is behind."""
    behind_s = (live.at_ns - shown.at_ns) / 1e9
    until_ns = 2**63 if message else 0
    return replace(view, live=live, behind_s=behind_s, message=message, message_until_ns=until_ns)

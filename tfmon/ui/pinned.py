"""What was lost sight of: lanes that failed while the user looked at something else. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tfmon import units
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.session import Snapshot
from tfmon.ui.view import View


def watched(view: View, snapshot: Snapshot, in_sight: Collection[str]) -> View:
    """Return the view with what failed since: seen if the lane was in sight, else lost until it is acknowledged.

    A lane that trains again is neither.
    """
    failed = [lane.spec.name for lane in snapshot.lanes if lane.phase in (FAILED, ABSENT)]
    new = [name for name in failed if name not in view.lost and name not in view.seen]
    lost = (*(name for name in view.lost if name in failed), *(name for name in new if name not in in_sight))
    seen = (*(name for name in view.seen if name in failed), *(name for name in new if name in in_sight))
    return view if (lost, seen) == (view.lost, view.seen) else replace(view, lost=lost, seen=seen)


def acknowledged(view: View) -> View:
    """Return the view after the user has taken note."""
    return replace(view, lost=(), seen=(*view.seen, *view.lost))


def pinned_line(view: View, snapshot: Snapshot, key: str) -> str:
    """Say which lane failed out of sight, when and why, and the key that takes this line away; "" for none."""
    lost = [lane for lane in snapshot.lanes if lane.spec.name in view.lost]
    if not lost:
        return ""
    lane, others = lost[0], len(lost) - 1
    ago = units.clock((snapshot.at_ns - lane.phase_since_ns) / 1e9)
    more = f" (and {others} more)" if others else ""
    why = f": {lane.trouble.message}" if lane.trouble is not None else ""
    return f"{lane.title}{more} {lane.phase} {ago} ago, out of sight ({key}){why}"

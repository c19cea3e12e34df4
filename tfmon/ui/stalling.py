"""What is shown of a lane that hangs, where it stands, and the keys that ask for that or end it."""

from __future__ import annotations

from collections.abc import Iterator

from tfmon import units
from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.rows import BLANK, Row, crop
from tfmon.ui.shell import Shell
from tfmon.ui.style import DIM, STRONG, TEXT

NOTE = "Enter, then S tells where it stands, K ends it"


def stalled_s(lane: LaneState, now_ns: int) -> float | None:
    """Return for how long a lane that hangs has said nothing; None for one that does not."""
    since_ns = lane.pulse.stalled_since_ns
    return None if since_ns is None or lane.over else max(0, now_ns - since_ns) / 1e9


def lines(lane: LaneState, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the lane's signs of life, for its page."""
    pulse = lane.pulse
    silent_s = stalled_s(lane, snapshot.at_ns)
    if silent_s is not None:
        yield "stalled", f"it said nothing for {units.seconds(silent_s)}, while {lane.phase}"
    elif pulse.heard_ns and not lane.over:
        yield "heard", f"{units.seconds(max(0, snapshot.at_ns - pulse.heard_ns) / 1e9)} ago"
    if pulse.gaps:
        total_s = sum(gap.until_ns - gap.since_ns for gap in pulse.gaps) / 1e9
        yield "stood still", f"{len(pulse.gaps)} times, {units.seconds(total_s)} in all: no figure holds them"
    if not lane.over:
        stack = "S tells where it stands; " if lane.tells_stack else ""
        yield "keys", f"{stack}K ends this lane, by force if it must be"


def stack_rows(lane: LaneState, now_ns: int, width: int) -> list[Row]:
    """Return where the lane's threads stood when they were asked last."""
    if lane.stack is None:
        return []
    ago = units.seconds(max(0, now_ns - lane.stack.at_ns) / 1e9)
    rows: list[Row] = [BLANK, (("  Where it stands", STRONG), (f"   asked {ago} ago, innermost call first", DIM))]
    for line in lane.stack.lines:
        rows.append(((crop(f"  {line}", width), TEXT if line.startswith("  ") else DIM),))
    return rows


def ask_stack(shell: Shell, lane: LaneState) -> None:
    """Ask a lane where it stands, and say so."""
    if lane.over:
        shell.say(f"{lane.title} has ended, so it stands nowhere")
    elif not lane.tells_stack:
        shell.say(f"{lane.title} cannot be asked where it stands")
    else:
        shell.controls.ask_stack(lane.spec.name)
        shell.say(f"asked where {lane.title} stands; a lane that is frozen answers in its turn")


def kill(shell: Shell, lane: LaneState) -> None:
    """End a lane, and say so."""
    if lane.over:
        shell.say(f"{lane.title} has ended already")
    else:
        shell.controls.kill(lane.spec.name)
        shell.say(f"ending {lane.title}; r starts it again")

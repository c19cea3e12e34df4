"""What a pane shows of a lane that does not train: on its way to the race, or after its end. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfmon import units
from tfmon.model.lane_state import (
    ABSENT,
    BUILDING,
    IMPORTING,
    NO_STEPS_HINT,
    READY,
    STARTING,
    TRACING,
    WARMING_UP,
    LaneState,
)
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, crop, spread, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, TROUBLE, strong

_STEPS = (STARTING, IMPORTING, BUILDING, TRACING, WARMING_UP, READY)
_HEADLINES = {
    STARTING: "starting Python…",
    IMPORTING: "importing TensorFlow…",
    BUILDING: "building model and data…",
    TRACING: "tracing the training step…",
    WARMING_UP: "warming up…",
    READY: "ready, waiting for its start",
}
_WORDS = ("start", "import", "build", "trace", "warm up", "ready")


NO_STEPS_NS = 30_000_000_000
"""After so long, a script without a step needs a word."""


def getting_ready(lane: LaneState) -> bool:
    """Tell whether the lane is still on its way to its first race step."""
    return lane.phase in _STEPS and not lane.points


def progress_rows(lane: LaneState, now_ns: int, width: int, height: int, accent: str) -> list[Row]:
    """Say what the lane does now and for how long, and how far it is on its way."""
    now_s = units.seconds((now_ns - lane.phase_since_ns) / 1e9)
    if lane.command and lane.phase == STARTING:
        return _no_steps_rows(now_ns - lane.phase_since_ns, now_s, width, height)
    headline = spread([(_HEADLINES.get(lane.phase, lane.phase), STRONG)], [(now_s, STRONG)], width)
    at = _STEPS.index(lane.phase)
    total_s = units.seconds((now_ns - lane.started_ns) / 1e9)
    count = spread([(f"step {at + 1} of {len(_STEPS)}", DIM)], [(f"{total_s} since the start", DIM)], width)
    return [headline, _track(at, width, accent), count][: max(1, height)]


def _no_steps_rows(for_ns: int, now_s: str, width: int, height: int) -> list[Row]:
    """Say that a script runs and has not trained yet; after a while, what to do about it."""
    late = for_ns > NO_STEPS_NS
    words = "no steps seen" if late else "the script runs, no step seen yet…"
    rows: list[Row] = [spread([(words, STRONG)], [(now_s, STRONG)], width)]
    if late:
        rows += [((line, TEXT),) for line in wrap(NO_STEPS_HINT, width, max(0, height - 1))]
    return rows[: max(1, height)]


def _track(at: int, width: int, accent: str) -> Row:
    """Draw the steps of a lane's life: done, doing, to do."""
    marks = ["✓" if place < at else "▸" if place == at else "·" for place in range(len(_STEPS))]
    if sum(len(word) + 4 for word in _WORDS) - 2 <= width:
        spans: list[tuple[str, str]] = []
        for place, (mark, word) in enumerate(zip(marks, _WORDS, strict=True)):
            style = accent if place < at else strong(accent) if place == at else DIM
            spans += [(f"{mark} ", style), (word, TEXT if place == at else DIM), ("  ", TEXT)]
        return tuple(spans[:-1])
    length = max(1, (width + 1) // len(_STEPS) - 1)
    return tuple(
        span
        for place in range(len(_STEPS))
        for span in ((("■" if place <= at else "□") * length, accent if place <= at else DIM), (" ", TEXT))
    )


def trouble_rows(lane: LaneState, width: int, height: int) -> list[Row]:
    """Say why the lane failed, what to do, and what its process wrote last."""
    trouble = lane.trouble
    message = trouble.message if trouble is not None else f"the lane is {lane.phase}"
    sign = "–" if lane.phase == ABSENT else "✗"
    lines = wrap(message, width - 2, max(1, height // 2))
    rows: list[Row] = [
        ((f"{sign if first else ' '} ", strong(TROUBLE)), (line, strong(TROUBLE)))
        for first, line in ((place == 0, line) for place, line in enumerate(lines))
    ]
    hint = trouble.hint if trouble is not None else ""
    for place, line in enumerate(wrap(hint, width - 2, max(1, height // 3))):
        rows.append((("▸ " if place == 0 else "  ", STRONG), (line, TEXT)))
    if lane.points:
        done = f"it had done {units.count(lane.steps)} steps"
        last = "" if lane.last_loss is None else f", loss {units.loss(lane.last_loss)}"
        rows += [BLANK, ((crop(done + last, width), TEXT),)]
    rows += _tail_rows(lane, width, height - len(rows))
    return rows[:height]


def _tail_rows(lane: LaneState, width: int, height: int) -> list[Row]:
    """Return the last lines of the lane's output that fit, the very last at the bottom."""
    lines = lane.ended.output_tail if lane.ended is not None else ()
    if not lines or height < 3:
        return []
    room = height - 2
    wrapped: list[str] = []
    for line in reversed(lines):
        pieces = wrap(line, width, min(4, room)) if line.strip() else []
        if len(pieces) + len(wrapped) > room:
            break
        wrapped = pieces + wrapped
    return [BLANK, (("last lines of its output", DIM),), *(((line, DIM),) for line in wrapped)]


# ---------------- what is shown of a lane that hangs, where it stands, and the keys that ask for that or end it


NOTE = "Enter, then S tells where it stands, K ends it"


def stalled_s(lane: LaneState, now_ns: int) -> float | None:
    """Return for how long a lane that hangs has said nothing; None for one that does not."""
    since_ns = lane.heartbeat.stalled_since_ns
    return None if since_ns is None or lane.over else max(0, now_ns - since_ns) / 1e9


def lines(lane: LaneState, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the lane's signs of life, for its page."""
    heartbeat = lane.heartbeat
    silent_s = stalled_s(lane, snapshot.at_ns)
    if silent_s is not None:
        yield "stalled", f"it said nothing for {units.seconds(silent_s)}, while {lane.phase}"
    elif heartbeat.heard_ns and not lane.over:
        yield "heard", f"{units.seconds(max(0, snapshot.at_ns - heartbeat.heard_ns) / 1e9)} ago"
    if heartbeat.suspensions:
        total_s = sum(gap.until_ns - gap.since_ns for gap in heartbeat.suspensions) / 1e9
        yield (
            "suspended",
            f"{len(heartbeat.suspensions)} times, {units.seconds(total_s)} in all: no figure holds them",
        )
    if not lane.over:
        stack = "S tells where it stands; " if lane.reports_stack else ""
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

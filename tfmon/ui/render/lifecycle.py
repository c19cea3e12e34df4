"""Lanes that do not train."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from tfmon import units
from tfmon.model.lane_events import STARTING
from tfmon.model.lane_state import ABSENT, HOST_LOST, NO_STEPS_HINT, STAGES, LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, beside, crop, spread, styled_lines, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, strong

LIST_ROWS = len(STAGES) + 2


NO_STEPS_NS = 30_000_000_000


def progress_rows(
    lane: LaneState, now_ns: int, width: int, height: int, accent: str, first: str = STAGES[STARTING]
) -> list[Row]:
    """Return the current stage, or all stages if `LIST_ROWS` rows fit."""
    for_s = max(0.0, (now_ns - lane.phase_since_ns) / 1e9)
    if lane.script.command and lane.phase == STARTING:
        if first.startswith("connecting"):
            return [spread([(f"{first}…", STRONG)], [(units.seconds(for_s), STRONG)], width)]
        return _no_steps_rows(lane, now_ns - lane.phase_since_ns, units.seconds(for_s), width, height)
    current, texts = [*STAGES].index(lane.phase), (first, *[*STAGES.values()][1:])
    stage = f"{texts[current]} · {int(for_s)} s"
    numbered = f"stage {current + 1} of {len(STAGES)}: {stage}"
    headline: Row = ((numbered if len(numbered) <= width else stage, STRONG),)
    total_s = f"{max(0, now_ns - lane.process.started_ns) // 1_000_000_000} s since its start"
    foot: Row = ((total_s, DIM),)
    if height < LIST_ROWS:
        return [headline, foot][: max(1, height)]
    rows = [headline]
    for index, text in enumerate(texts):
        mark, style = (
            ("✓", accent) if index < current else ("▸", strong(accent)) if index == current else ("·", DIM)
        )
        rows.append(((f"  {mark} ", style), (text, TEXT if index == current else DIM)))
    return [*rows, foot]


def _no_steps_rows(lane: LaneState, for_ns: int, now_s: str, width: int, height: int) -> list[Row]:
    reason = lane.script.not_measured.get("steps", "")
    late = for_ns > NO_STEPS_NS or bool(reason)
    text = "no steps seen" if late else "the script runs, no step seen yet…"
    rows: list[Row] = [spread([(text, STRONG)], [(now_s, STRONG)], width)]
    if late:
        rows += styled_lines(reason or NO_STEPS_HINT, width, height - 1)
    return rows[: max(1, height)]


def trouble_rows(lane: LaneState, width: int, height: int, again: str = "", *, keys: bool = True) -> list[Row]:
    """Return why a lane failed, advice, and the last output."""
    trouble = lane.trouble
    message = trouble.message if trouble is not None else f"the lane is {lane.phase}"
    sign = "–" if lane.phase == ABSENT else "✗"
    style = strong(TROUBLE)
    rows: list[Row] = [((again, STRONG),)] if again else []
    rows += beside((f"{sign} ", style), message, style, width, max(1, height // 2))
    hint, lost = (trouble.hint, trouble.kind == HOST_LOST) if trouble is not None else ("", False)
    if lost and keys and not again:
        hint = hint or "r connects again and restarts it"
    rows += beside(("▸ ", STRONG), hint, TEXT, width, max(1, height // 3))
    if lane.points:
        done = f"it had done {units.count(lane.totals.steps)} steps"
        last = "" if lane.totals.losses.last is None else f", loss {units.loss(lane.totals.losses.last)}"
        rows += [BLANK, ((crop(done + last, width), TEXT),)]
    if not lost:  # the output does not explain a lost connection
        rows += _tail_rows(lane, width, height - len(rows))
    return rows[:height]


def _tail_rows(lane: LaneState, width: int, height: int) -> list[Row]:
    lines = lane.end.event.output_tail if lane.end.event is not None else ()
    if not lines or height < 3:
        return []
    room = height - 2
    wrapped: list[str] = []
    for line in reversed(lines):
        pieces = wrap(line, width, min(4, room)) if line.strip() else []
        if len(pieces) + len(wrapped) > room:
            break
        wrapped = [*pieces, *wrapped]
    return [BLANK, (("last lines of its output", DIM),), *(((line, DIM),) for line in wrapped)]


NOTE = "Enter, then S shows its stacks, K ends it"


def stalled_s(lane: LaneState, now_ns: int) -> float | None:
    """Return how long a lane has hung in seconds, or None."""
    since_ns = lane.heartbeat.stalled_since_ns
    return None if since_ns is None or lane.over else max(0, now_ns - since_ns) / 1e9


def lines(lane: LaneState, snapshot: Snapshot, *, keys: bool = True) -> Iterator[tuple[str, str]]:
    """Yield a lane's heartbeat and the keys for a hung lane."""
    heartbeat = lane.heartbeat
    hung_s = stalled_s(lane, snapshot.at_ns)
    if hung_s is not None:
        yield "stalled", f"no message for {units.seconds(hung_s)}, while {lane.phase}"
    elif heartbeat.heard_ns and not lane.over:
        yield "last message", f"{units.seconds(max(0, snapshot.at_ns - heartbeat.heard_ns) / 1e9)} ago"
    if heartbeat.suspensions:
        total_s = sum(until_ns - since_ns for since_ns, until_ns in heartbeat.suspensions) / 1e9
        yield (
            "suspended",
            f"{len(heartbeat.suspensions)} times, {units.seconds(total_s)} in all, which do not count",
        )
    if keys and not lane.over:
        stack = "S shows its stacks; " if lane.process.reports_stack else ""
        yield "keys", f"{stack}K ends this lane, by force if necessary"


def stack_rows(lane: LaneState, now_ns: int, width: int) -> list[Row]:
    """Return the last reported stacks of a lane."""
    if lane.process.stack is None:
        return []
    ago = units.seconds(max(0, now_ns - lane.process.stack.at_ns) / 1e9)
    rows: list[Row] = [BLANK, (("  Stacks", STRONG), (f"   reported {ago} ago, innermost call first", DIM))]
    for line in lane.process.stack.lines:
        path, mark, call = line.partition('", line ')
        if mark:  # keep the file and the line number, and crop the folders
            room = width - 3 - cell_len(mark + call)
            line = path if cell_len(path) <= room else f'  File "…{path[len(path) - max(8, room - 9) :]}'
            line += mark + call
        rows.append(((crop(f"  {line.replace(' []', '')}", width), TEXT if line.startswith("  ") else DIM),))
    return rows

"""Why a lane's process ended, in words. Pure."""

from __future__ import annotations

from tfmon.model.events import LaneEnded
from tfmon.model.lane_state import (
    LOWER_THE_BATCH,
    NO_STEPS_HINT,
    OUT_OF_MEMORY,
    LaneState,
    Trouble,
)

NO_INPUT_HINT = "a lane has no standard input: give the script what it reads as an argument or a file"


def trouble_of(event: LaneEnded, stalled_since_ns: int | None) -> Trouble | None:
    """Return why a child ended that did not say so itself; None for an end that was requested and went well.

    `stalled_since_ns` is the last sign of life of a lane that had stalled, which is a failure however it ended.
    """
    how = f"was ended by {event.signal}" if event.signal is not None else f"exited with code {event.exit_code}"
    if stalled_since_ns is not None:
        stalled_s = (event.at_ns - stalled_since_ns) / 1e9
        requested = ", as requested" if event.requested else ""
        return Trouble(f"the lane said nothing for {stalled_s:.0f} s, and {how}{requested}", "r starts it again")
    if event.requested:
        return None
    if event.signal == "SIGKILL" and event.memory_kills:
        message = f"out of memory, it seems: the lane was ended by SIGKILL, and {event.memory_kills}"
        return Trouble(message, LOWER_THE_BATCH, OUT_OF_MEMORY)
    return Trouble(f"the lane {how}" if event.signal is not None else f"the lane {how} and did not say why")


def trouble_of_script(state: LaneState, event: LaneEnded) -> Trouble:
    """Say how a script failed: with its own last words, or without a step."""
    if event.signal is not None:
        return Trouble(f"the script was ended by {event.signal}")
    if event.exit_code:
        last = event.output_tail[-1].strip() if event.output_tail else ""
        message = f"the script exited with code {event.exit_code}" + (f": {last}" if last else "")
        return Trouble(message, NO_INPUT_HINT if last.startswith("EOFError") else "")
    hint = state.not_measured.get("steps", NO_STEPS_HINT)
    return Trouble("the script ended, and no training step was seen", hint)

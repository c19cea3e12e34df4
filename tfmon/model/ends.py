"""How a lane's child ended that did not say why itself, in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfmon.model.events import LaneEnded

OUT_OF_MEMORY = "out_of_memory"
LOWER_THE_BATCH = "b lowers the batch size and starts the lane again; r starts it as it was"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a lane cannot go on, in words."""

    message: str
    hint: str = ""
    kind: str = "error"


def trouble_of(event: LaneEnded, stalled_since_ns: int | None) -> Trouble | None:
    """Return what there is to say of an end; None for one that was asked for and went as it should.

    `stalled_since_ns` is the last sign of life of a lane that had stalled, which is a failure however it ended.
    """
    if stalled_since_ns is not None:
        silent_s = (event.at_ns - stalled_since_ns) / 1e9
        asked = ", as was asked" if event.asked else ""
        message = f"the lane said nothing for {silent_s:.0f} s, and {_how(event)}{asked}"
        return Trouble(message, "r starts it again")
    if event.asked:
        return None
    if event.signal == "SIGKILL" and event.memory_kills:
        message = f"out of memory, it seems: the lane was ended by SIGKILL, and {event.memory_kills}"
        return Trouble(message, LOWER_THE_BATCH, OUT_OF_MEMORY)
    if event.signal is not None:
        return Trouble(f"the lane {_how(event)}")
    return Trouble(f"the lane {_how(event)} and did not say why")


def _how(event: LaneEnded) -> str:
    return f"was ended by {event.signal}" if event.signal is not None else f"left with exit code {event.exit_code}"

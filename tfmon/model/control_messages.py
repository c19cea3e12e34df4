"""Messages from a viewer to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfmon.model.knobs import KnobValue

Action: TypeAlias = Literal[
    "change knob", "pause", "resume", "restart", "end", "report stack", "change mode", "begin race",
    "begin crossover", "begin tuning", "profile lanes", "undo", "end series", "examine", "watch gpus", "repeat",
    "await start", "follow", "suspend", "continue", "leave", "end run", "end now",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    """An action, which may return text."""

    action: Action
    lanes: tuple[str, ...] = ()
    name: str = ""
    """Name of a knob, mode, scenario, signal or terminal."""
    values: tuple[KnobValue, ...] = ()
    number: int = 0
    """Of the answer, for viewers."""

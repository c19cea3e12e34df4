"""Messages from widgets to their screen."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class LaneClicked(Message):
    """A lane's pane was clicked."""

    lane: int
    twice: bool


@dataclass
class KnobStepped(Message):
    """The mouse changed a knob."""

    name: str
    direction: int


@dataclass
class TimelineClicked(Message):
    """A cell of a replay's time line was clicked."""

    cell: int

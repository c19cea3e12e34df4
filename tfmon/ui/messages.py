"""The messages that widgets send to their screen."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class LaneClicked(Message):
    """The pane of a lane was clicked."""

    lane: int
    twice: bool


@dataclass
class KnobStepped(Message):
    """A knob was stepped with the wheel or the right button of the mouse."""

    name: str
    direction: int


@dataclass
class TimelineClicked(Message):
    """The time line of a replay was clicked, at a cell of its row."""

    cell: int

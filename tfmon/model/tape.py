"""What the screen shows of a replay, and asks of its player."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Mark:
    """Something worth finding again on the time line."""

    at_ns: int
    text: str
    """Such as "batch_size 64 (cpu)"."""
    kind: Literal["knob", "wish", "trouble"]


@dataclass(frozen=True, slots=True)
class Tape:
    """How far a replay is."""

    at_ns: int
    from_ns: int
    to_ns: int
    event: int
    """Events that have happened."""
    events: int
    """Events of the recording."""
    playing: bool
    speed: int
    marks: tuple[Mark, ...] = ()
    note: str = ""
    """What is wrong with the recording; empty if nothing is."""

    @property
    def at_end(self) -> bool:
        """True when nothing is left to happen."""
        return self.event >= self.events


class Playback(Protocol):
    """What can be asked of a player. Thread: one."""

    def tape(self) -> Tape:
        """Return how far it is."""

    def tick(self, seconds: float) -> None:
        """Play on after so much time has passed, where it plays."""

    def toggle(self) -> None:
        """Pause or play; at the end, play from the beginning."""

    def step(self, direction: int) -> None:
        """Pause, and go one event on or back."""

    def skip(self, seconds: float) -> None:
        """Go on, or back for a negative figure."""

    def go_to(self, at_ns: int) -> None:
        """Show a moment of the race."""

    def go_to_mark(self, direction: int) -> None:
        """Go to the next mark, or the one before."""

    def change_speed(self, direction: int) -> None:
        """Play faster, or slower."""

"""Interfaces between the screen and the rest of the program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from tfmon.model.control_messages import ControlMessage
from tfmon.model.knobs import KnobValue
from tfmon.model.session import Snapshot

ANSWER_S = 5.0
Say: TypeAlias = Callable[[str], object]


class ExperimentError(ValueError):
    """An experiment is not possible."""


class Controls(Protocol):
    """Requests of a series to the lanes."""

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Change a setting."""

    def resume(self, lanes: Sequence[str]) -> None:
        """Continue paused lanes."""

    def set_mode(self, mode: str) -> None:
        """Set the mode of the race."""

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Train only one lane, in slices; "" ends that."""

    def restart(self, lanes: Sequence[str]) -> None:
        """Restart lanes."""


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A marked event on the time line."""

    at_ns: int
    text: str
    kind: Literal["knob", "request", "trouble"]


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The position of a replay."""

    at_ns: int
    from_ns: int
    to_ns: int
    event: int
    events: int
    playing: bool
    speed: int
    marks: tuple[TimeMark, ...] = ()
    note: str = ""
    started_ns: int | None = None
    """The start signal."""

    @property
    def at_end(self) -> bool:
        """Whether all is played."""
        return self.event >= self.events


class ReplayControls(Protocol):
    """Requests to a player. Thread: one."""

    def state(self) -> ReplayState:
        """Return the position."""

    def tick(self, seconds: float) -> None:
        """Advance, if it plays."""

    def toggle(self) -> None:
        """Pause or play; at the end, restart."""

    def step(self, direction: int) -> None:
        """Pause, and move one event."""

    def skip(self, seconds: float) -> None:
        """Move forward or back."""

    def go_to(self, at_ns: int) -> None:
        """Move to a time."""

    def go_to_mark(self, direction: int) -> None:
        """Move to another mark."""

    def change_speed(self, direction: int) -> None:
        """Play faster or slower."""


NOT_CLOSED = "was not closed: tfmon was killed, or could not write on"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A recording in a list."""

    id: str
    """Such as "20260102-030405-small-dense"."""
    path: str
    started: str = ""
    """ISO 8601 with offset."""
    scenario: str = ""
    mode: str = ""
    lanes: tuple[str, ...] = ()
    verdict: str = ""
    ratio: float | None = None
    failure: str = ""
    seconds: float | None = None
    bytes: int = 0
    running: bool = False
    problem: str = ""

    @property
    def outcome(self) -> str:
        """Its result, or why there is none."""
        if self.problem or self.failure:
            return self.problem or self.failure
        return self.verdict or ("still running" if self.running else NOT_CLOSED)


class ScenarioRow(NamedTuple):
    """A scenario in a list."""

    name: str
    title: str
    doc: str
    origin: str


class Runs(Protocol):
    """The user's recordings. Every method may block, and raises TfmonError."""

    def list(self) -> Sequence[RunInfo]:
        """Return all, the oldest first."""

    def delete(self, id: str) -> None:
        """Delete a recording that is not being written."""

    def report(self, path: str) -> str:
        """Write a report here; return a message."""

    def replay(self, id: str) -> Source:
        """Open a recording; the caller stops it."""


class Source(ABC):
    """A race, recording or sweep on a screen; by default nothing can change it.

    Errors are raised as TfmonError. Thread: the screen's, except for methods that may block.
    """

    tabs: Sequence[str] | None = None
    """The allowed pages. `None` for all."""
    playback: ReplayControls | None = None
    runs: Runs | None = None
    detachable = False
    refusal = ""
    """Why no key can change anything."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the present state."""

    def send(self, command: ControlMessage) -> None:
        """Request a change and return at once."""
        raise NotImplementedError(self.refusal)

    def ask(self, command: ControlMessage, timeout_s: float | None = None) -> str:
        """Send a command and return the answer."""
        raise NotImplementedError(self.refusal)

    def scenarios(self) -> Sequence[ScenarioRow]:
        """Return the scenarios that can be raced."""
        return ()

    def table(self) -> str:
        """Return all results as text."""
        return ""

    def repeat(self) -> str:
        """Return the command that repeats the race."""
        return ""

    def watch_gpus(self) -> str:
        """Read all GPUs; return why there are none. May block."""
        return ""

    def start(self, say: Say) -> None:
        """Start the lanes. May block."""

    def stop(self) -> None:
        """End every lane, or close the recording. May block."""

    def end_now(self) -> None:
        """Do not wait for ending commands."""

    def leave(self) -> None:
        """Leave a detachable run, which continues."""

    def lost(self) -> str:
        """Return a line about a run that died."""
        return ""

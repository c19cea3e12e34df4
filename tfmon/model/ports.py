"""Interfaces between the screen and the rest of the program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.header import Closed, Header
from tfmon.model.knobs import KnobValue
from tfmon.model.race import ScenarioInfo
from tfmon.model.requests import Command
from tfmon.model.session import Snapshot

ANSWER_S = 5.0
Say: TypeAlias = Callable[[str], object]


class Controls(Protocol):
    """Requests of a series to the lanes."""

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Change a setting."""

    def resume(self, lanes: Sequence[str]) -> None:
        """Continue paused lanes."""

    def set_mode(self, mode: str) -> None:
        """Set the mode of the race."""

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Train only one lane, in slices, or all with ""."""

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

    @property
    def at_end(self) -> bool:
        """Whether all events are played."""
        return self.event >= self.events


class ReplayControls(Protocol):
    """Requests to a player, which also has the methods that keys name. Thread: one."""

    def state(self) -> ReplayState:
        """Return the position."""

    def tick(self, seconds: float) -> None:
        """Advance a playing replay."""

    def go_to(self, at_ns: int) -> None:
        """Move to a time."""


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
    header: Header | None = None
    closed: Closed | None = None

    @property
    def file(self) -> Path:
        """The path."""
        return Path(self.path)

    @property
    def outcome(self) -> str:
        """The result, or why it is missing."""
        if self.problem or self.failure:
            return self.problem or self.failure
        return self.verdict or ("still running" if self.running else NOT_CLOSED)


class Runs(Protocol):
    """The user's recordings. Methods may block. Raises: TfmonError."""

    def list(self) -> Sequence[RunInfo]:
        """Return all recordings, the oldest first."""

    def delete(self, id: str) -> None:
        """Delete a finished recording."""

    def report(self, path: str) -> str:
        """Write a report; return a message."""

    def replay(self, id: str) -> Source:
        """Open a recording. The caller closes it."""


class Source(ABC):
    """A race, recording or sweep on a screen, by default unchangeable.

    Raises: TfmonError. Thread: the screen's, except for methods that may block.
    """

    tabs: Sequence[str] | None = None
    """The allowed pages, or `None` for all."""
    playback: ReplayControls | None = None
    runs: Runs | None = None
    detachable = False
    refusal = ""
    """Why keys change nothing."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the present state."""

    def send(self, command: Command) -> None:
        """Request a change and return at once."""
        raise NotImplementedError(self.refusal)

    def ask(self, command: Command, timeout_s: float | None = None) -> str:
        """Send a command and return the answer."""
        raise NotImplementedError(self.refusal)

    def scenarios(self) -> Sequence[ScenarioInfo]:
        """Return the scenarios that can be raced."""
        return ()

    def table(self) -> str:
        """Return all results as text."""
        return ""

    def start(self, say: Say) -> None:
        """Start the lanes. May block."""

    def stop(self) -> None:
        """End the lanes or the recording. May block."""

    def leave(self) -> None:
        """Leave a detachable run, which continues."""

    def lost(self) -> str:
        """Return a line about a dead run."""
        return ""

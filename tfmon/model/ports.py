"""The screen's requests to the rest of the program; the screen has no access to processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tfmon.model.knobs import KnobValue


class ExperimentError(ValueError):
    """An experiment is not possible; the message contains the reason and the possible experiments."""


class Controls(Protocol):
    """Requests of the user. Every method returns at once; events of the session report the results."""

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Change a setting of a lane; a knob that is not live restarts the lane."""

    def pause(self, lanes: Sequence[str]) -> None:
        """Pause lanes at their next step boundary."""

    def resume(self, lanes: Sequence[str]) -> None:
        """Continue paused lanes."""

    def set_mode(self, mode: str) -> None:
        """Set the mode of the race; see `race.MODES`."""

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Train only one lane, in slices of `slice_s` (default: the race's); "" ends that."""

    def restart(self, lanes: Sequence[str]) -> None:
        """Restart lanes with the settings in effect."""

    def kill(self, lane: str) -> None:
        """End one lane, by force if it does not respond; the others continue."""

    def ask_stack(self, lane: str) -> None:
        """Request the stacks of a lane's threads; the answer, if any, is an event."""

    def race(self, scenario: str) -> None:
        """End this race and start the default race of another scenario.

        Raises: TfmonError if that scenario cannot be raced; this race then continues.
        """

    def stop(self) -> None:
        """End every lane and wait for them: at most 3 s plus the grace of user's commands."""

    def end_now(self) -> None:
        """Do not wait any longer for user's commands that are ending."""


class Experiments(Protocol):
    """Experiments on the lanes of the race; the snapshot's `experiment` has the progress."""

    def start_crossover(self, knob: str, low: float | None = None, high: float | None = None) -> None:
        """Race the first two lanes over a knob's values, within optional bounds; raises ExperimentError."""

    def start_tuning(self, lane: str, *, everything: bool) -> None:
        """Try the most promising change on a lane, or with `everything` one after the other until nothing helps.

        Raises: ExperimentError if that is not possible.
        """

    def undo(self) -> str:
        """Undo the change that was kept last, and return its text; raises ExperimentError if none exists."""

    def stop(self) -> None:
        """End the running experiment, if any; the lanes return to their settings."""


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
    """The start signal, from which the race counts its time. `None` without one."""

    @property
    def at_end(self) -> bool:
        """Whether all events have happened."""
        return self.event >= self.events


class ReplayControls(Protocol):
    """Requests to a player. Thread: one."""

    def state(self) -> ReplayState:
        """Return the position."""

    def tick(self, seconds: float) -> None:
        """Advance by this time, if it plays."""

    def toggle(self) -> None:
        """Pause or play; at the end, play from the beginning."""

    def step(self, direction: int) -> None:
        """Pause, and move one event forward or back."""

    def skip(self, seconds: float) -> None:
        """Move forward, or back for negative seconds."""

    def go_to(self, at_ns: int) -> None:
        """Move to a time of the race."""

    def go_to_mark(self, direction: int) -> None:
        """Move to the next or previous mark."""

    def change_speed(self, direction: int) -> None:
        """Play faster or slower."""


NOT_CLOSED = "was not closed: tfmon was killed, or could not write on"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A recording in a list."""

    id: str
    """Its name on the command line, such as "20260102-030405-small-dense"; never changes."""
    path: str
    started: str = ""
    """Local time with its offset from UTC, ISO 8601. Empty if the recording is unreadable."""
    scenario: str = ""
    mode: str = ""
    lanes: tuple[str, ...] = ()
    """Titles of the lanes, with the settings in which they differed at the end."""
    verdict: str = ""
    """Empty for a recording that was not closed."""
    ratio: float | None = None
    failure: str = ""
    """Why a lane failed, such as "A failed: ValueError: …". Empty if none did."""
    seconds: float | None = None
    """From the start signal to the end. `None` if unknown."""
    bytes: int = 0
    running: bool = False
    problem: str = ""

    @property
    def outcome(self) -> str:
        """One line about the result: the problem, the failure, the verdict, or that there is none yet."""
        if self.problem or self.failure:
            return self.problem or self.failure
        return self.verdict or ("still running" if self.running else NOT_CLOSED)

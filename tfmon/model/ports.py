"""What the screen requests from the rest of the program, so that it never sees a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tfmon.model.knobs import KnobValue


class ExperimentError(ValueError):
    """An experiment that is not possible; the text says why, and what is possible."""


class Controls(Protocol):
    """Requests of the user. Every method returns at once; events in the session say what came of a request."""

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Request another setting of a lane; a knob that is not live restarts the lane with it."""

    def pause(self, lanes: Sequence[str]) -> None:
        """Pause lanes at their next step boundary."""

    def resume(self, lanes: Sequence[str]) -> None:
        """Let paused lanes train again."""

    def set_mode(self, mode: str) -> None:
        """Set how the lanes share the machine; see `race.MODES`."""

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Let one lane train by itself, in slices of `slice_s`, or the race's for None; "" ends that."""

    def restart(self, lanes: Sequence[str]) -> None:
        """End lanes and start them again with the settings in effect."""

    def kill(self, lane: str) -> None:
        """End one lane, by force if it does not respond; the others go on."""

    def ask_stack(self, lane: str) -> None:
        """Request the stacks of a lane's threads; the answer, if any, comes as an event."""

    def race(self, scenario: str) -> None:
        """End this race and start the default race of another scenario.

        Raises: TfmonError when that scenario cannot be raced; this race then goes on.
        """

    def stop(self) -> None:
        """End every lane and wait until all are gone: 3 s at most, and the grace of user's commands."""

    def end_now(self) -> None:
        """Wait no longer for user's commands that are ending."""


class Experiments(Protocol):
    """Experiments on the lanes of the race; the snapshot's `experiment` says how far one is."""

    def start_crossover(self, knob: str, low: float | None = None, high: float | None = None) -> None:
        """Race the first two lanes over a knob's values, within bounds if any; raises ExperimentError."""

    def start_tuning(self, lane: str, *, everything: bool) -> None:
        """Try the most promising change on a lane, or with `everything` one after the other until nothing helps.

        Raises: ExperimentError when that is not possible.
        """

    def undo(self) -> str:
        """Take back the change that was kept last, and return its text; raises ExperimentError for none."""

    def stop(self) -> None:
        """End the running experiment, if any; the lanes get their settings back."""


@dataclass(frozen=True, slots=True)
class TimeMark:
    """An event that is marked on the time line."""

    at_ns: int
    text: str
    """Such as "batch_size 64 (cpu)"."""
    kind: Literal["knob", "request", "trouble"]


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The position of a replay."""

    at_ns: int
    from_ns: int
    to_ns: int
    event: int
    """Events that have happened."""
    events: int
    """Events of the recording."""
    playing: bool
    speed: int
    marks: tuple[TimeMark, ...] = ()
    note: str = ""
    """What is wrong with the recording; empty if nothing is."""
    started_ns: int | None = None
    """When the lanes got the start signal, from which the race counts its time; None where they got none."""

    @property
    def at_end(self) -> bool:
        """True when nothing is left to happen."""
        return self.event >= self.events


class ReplayControls(Protocol):
    """Requests to a player. Thread: one."""

    def state(self) -> ReplayState:
        """Return the position."""

    def tick(self, seconds: float) -> None:
        """Advance by so much time, where it plays."""

    def toggle(self) -> None:
        """Pause or play; at the end, play from the beginning."""

    def step(self, direction: int) -> None:
        """Pause, and go one event forward or back."""

    def skip(self, seconds: float) -> None:
        """Go forward, or back for negative seconds."""

    def go_to(self, at_ns: int) -> None:
        """Show a moment of the race."""

    def go_to_mark(self, direction: int) -> None:
        """Go to the next mark, or the one before."""

    def change_speed(self, direction: int) -> None:
        """Play faster, or slower."""


NOT_CLOSED = "was not closed: tfmon was killed, or could not write on"
"""What is known of a recording without its last line."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a list says of one recording."""

    id: str
    """Its name on the command line, such as "20260102-030405-small-dense"; never changes."""
    path: str
    started: str = ""
    """Local time with its offset from UTC, ISO 8601; empty where the recording cannot be read."""
    scenario: str = ""
    mode: str = ""
    lanes: tuple[str, ...] = ()
    """Titles of the lanes, with the settings in which they differed at the end."""
    verdict: str = ""
    """Empty for a recording that was not closed."""
    ratio: float | None = None
    failure: str = ""
    """Why a lane failed, such as "A failed: ValueError: …"; empty if none did."""
    seconds: float | None = None
    """From the start signal to the end; None where that is not known."""
    bytes: int = 0
    running: bool = False
    """True while it is written."""
    problem: str = ""
    """Why it cannot be read; empty for one that can."""

    @property
    def outcome(self) -> str:
        """One line on what came of it: the problem, the failure, the verdict, or that it has none yet."""
        if self.problem or self.failure:
            return self.problem or self.failure
        return self.verdict or ("still running" if self.running else NOT_CLOSED)

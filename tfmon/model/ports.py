"""What the screen asks of the rest of the program, so that it never sees a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tfmon.model.knobs import KnobValue


class ExperimentError(ValueError):
    """A experiment that cannot be made; the text says why and what can be."""


class Controls(Protocol):
    """Wishes of the user. Every method returns at once; what came of a wish is seen in the session."""

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        """Ask a lane for another setting; a knob that is not live restarts the lane with it."""

    def pause(self, lanes: Sequence[str]) -> None:
        """Pause lanes at their next step boundary."""

    def resume(self, lanes: Sequence[str]) -> None:
        """Let paused lanes train on."""

    def set_mode(self, mode: str) -> None:
        """Let the lanes train in turns or at once; see `session.MODES`."""

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Let one lane train by itself, in slices whatever the mode, while the others hold; "" ends that.

        A slice lasts `slice_s` seconds; as long as in the race where that is None.
        """

    def restart(self, lanes: Sequence[str]) -> None:
        """End lanes and start them again with the settings in force."""

    def kill(self, lane: str) -> None:
        """End one lane, by force if it does not heed; the others go on."""

    def ask_stack(self, lane: str) -> None:
        """Have a lane tell where its threads stand; the answer comes as an event, if it comes."""

    def race(self, scenario: str) -> None:
        """End this race and start the default race of another scenario.

        Errors: TfmonError when that scenario cannot be raced; the race that runs goes on.
        """

    def stop(self) -> None:
        """End every lane and wait until all are gone: 3 s at most."""


class Experiments(Protocol):
    """Series of measurements on the lanes of the race. How far one is stands in the snapshot's `experiment`."""

    def start_crossover(self, knob: str) -> None:
        """Race the first two lanes over the values of a knob.

        Errors: ExperimentError, in words, when that cannot be.
        """

    def start_tuning(self, lane: str, *, everything: bool) -> None:
        """Try on a lane what may help it: the likeliest change, or one after the other until nothing helps.

        Errors: ExperimentError, in words, when that cannot be.
        """

    def undo(self) -> str:
        """Take back the change that was kept last, and return what that was.

        Errors: ExperimentError, in words, when there is none.
        """

    def stop(self) -> None:
        """End the experiment that runs, if one does; the lanes get their settings back."""


# ---------------- what the screen shows of a replay, and asks of its player


@dataclass(frozen=True, slots=True)
class Mark:
    """Something worth finding again on the time line."""

    at_ns: int
    text: str
    """Such as "batch_size 64 (cpu)"."""
    kind: Literal["knob", "request", "trouble"]


@dataclass(frozen=True, slots=True)
class ReplayState:
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


class ReplayControls(Protocol):
    """What can be asked of a player. Thread: one."""

    def state(self) -> ReplayState:
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

"""Messages from a viewer to the process that runs the lanes; events of the session report the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfmon.model.knobs import KnobValue


@dataclass(frozen=True, slots=True)
class ChangeKnob:
    """Change a setting of a lane; a knob that is not live restarts the lane."""

    lane: str
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True)
class ChangeLanes:
    """Pause lanes at the next step boundary, resume, restart or end them, or request their stacks."""

    action: Literal["pause", "resume", "restart", "end", "report_stack"]
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeMode:
    """Set the mode of the race."""

    mode: str


@dataclass(frozen=True, slots=True)
class BeginRace:
    """End this race and start another scenario's default race. After an error, this race continues."""

    scenario: str


@dataclass(frozen=True, slots=True)
class BeginCrossover:
    """Race the first two lanes over a knob's values."""

    knob: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class BeginTuning:
    """Try the most promising change on a lane, or (`everything`) changes until nothing helps."""

    lane: str
    everything: bool


@dataclass(frozen=True, slots=True)
class ProfileLanes:
    """Profile a lane and return the report, or profile two lanes for the session."""

    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run, with the name of the signal that requested it."""

    signal: str = ""


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform an action without arguments.

    Attributes:
        action: `await_start` returns the lines for the start, `repeat` a command, `examine` the doctor's report,
            `undo` the undone change, `watch_gpus` the reason if there are no GPUs.
    """

    action: Literal[
        "await_start",
        "repeat",
        "examine",
        "watch_gpus",
        "undo",
        "end_series",
        "suspend",
        "continue",
        "leave",
        "end_now",
    ]


ControlMessage: TypeAlias = (
    ChangeKnob
    | ChangeLanes
    | ChangeMode
    | BeginRace
    | BeginCrossover
    | BeginTuning
    | ProfileLanes
    | EndRun
    | Perform
)

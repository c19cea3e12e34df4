"""Messages from a viewer to the process that runs the lanes.

Events of the session report the results. Only some messages return text.
"""

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
    """Pause lanes at their next step boundary, resume, restart or end them, or request their stacks."""

    action: Literal["pause", "resume", "restart", "end", "report_stack"]
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeMode:
    """Set the mode of the race; see `race.MODES`."""

    mode: str


@dataclass(frozen=True, slots=True)
class BeginRace:
    """End this race and start the default race of another scenario. After an error, this race continues."""

    scenario: str


@dataclass(frozen=True, slots=True)
class BeginCrossover:
    """Race the first two lanes over a knob's values, within optional bounds."""

    knob: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class BeginTuning:
    """Try the most promising change on a lane, or one after the other until nothing helps."""

    lane: str
    everything: bool


@dataclass(frozen=True, slots=True)
class ProfileLanes:
    """Profile a lane and return the report, or profile two lanes alternately for the session."""

    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run, with the name of the signal that requested it, if any."""

    signal: str = ""


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform an action without arguments.

    Attributes:
        action: `await_start` returns the lines to display at the start of the run, `repeat` the command that
            repeats the race, `examine` the doctor's report, and `undo` the change that it undid. `watch_gpus`
            starts to read all GPUs and returns the reason if there are none.
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

"""Messages from a viewer to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfmon.model.knobs import KnobValue


@dataclass(frozen=True, slots=True)
class ChangeKnob:
    """Change a setting of a lane."""

    lane: str
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True)
class ChangeLanes:
    """Pause, resume, restart or end lanes, or request their stacks."""

    action: Literal["pause", "resume", "restart", "end", "report_stack"]
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeMode:
    """Set the mode of the race."""

    mode: str


@dataclass(frozen=True, slots=True)
class BeginRace:
    """End this race and start another scenario's."""

    scenario: str


@dataclass(frozen=True, slots=True)
class BeginCrossover:
    """Race two lanes over a knob's values."""

    knob: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class BeginTuning:
    """Try one change, or everything."""

    lane: str
    everything: bool


@dataclass(frozen=True, slots=True)
class ProfileLanes:
    """Profile one or two lanes."""

    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run."""

    signal: str = ""


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform an action; some return text."""

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

"""The commands of a viewer to a run, and the requests of the monitor to a lane's child."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import KnobValue
from tfmon.model.profile import NOT_COUNTED, CpuCounters
from tfmon.model.readings import Missing

Action: TypeAlias = Literal[
    "change knob", "pause", "resume", "restart", "end", "report stack", "change mode", "begin race",
    "begin crossover", "begin tuning", "profile lanes", "undo", "end series", "examine", "watch gpus", "repeat",
    "await start", "follow", "suspend", "continue", "leave", "end run", "end now",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    """An action, which may return text."""

    action: Action
    lanes: tuple[str, ...] = ()
    name: str = ""
    """Name of a knob, mode, scenario, signal or terminal."""
    values: tuple[KnobValue, ...] = ()
    number: int = 0
    """Of the answer, for viewers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """The first request: what to train."""

    scenario: str
    device: str
    """`cpu` or `gpu`."""
    devices: int = 1
    settings: dict[str, KnobValue] = field(default_factory=dict)
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetKnob:
    """Change a live knob; answered by KnobApplied or KnobRefused."""

    request: int
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Train, at the start or after a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSlice:
    """Train for one slice, then pause; answered by SliceEnded."""

    round: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Stop at the next step boundary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeProfile:
    """Profile some steps; answered by Profiled or ProfileFailed."""

    folder: str
    steps: int
    on_gpu: bool = False
    chrome: str = ""
    counters: CpuCounters | Missing = NOT_COUNTED


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportStack:
    """Report a script's stacks; answered by StackReported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End now."""


Request: TypeAlias = Assign | SetKnob | Run | RunSlice | Pause | TakeProfile | ReportStack | Stop

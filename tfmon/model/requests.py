"""The monitor's requests to a lane's child over the request pipe, one frozen dataclass each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tfmon.model.knobs import KnobValue
from tfmon.model.profile import NOT_COUNTED, CpuCounters
from tfmon.model.readings import Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """The scenario and device to train. The first request."""

    scenario: str
    device: str
    """`cpu` or `gpu`; the environment selects the GPUs."""
    devices: int = 1
    """Number of devices, under one strategy."""
    settings: dict[str, KnobValue] = field(default_factory=dict)
    steps: int | None = None
    """Measured steps before the child finishes. `None` without a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetKnob:
    """Change a live knob; answered by KnobApplied or KnobRefused with the same number."""

    request: int
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Train: the start of the race, or the end of a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSlice:
    """Train for one slice while the other lanes are stopped, then pause; answered by SliceEnded."""

    round: int
    """Slices of the same round are compared."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Stop at the next step boundary and use no CPU until Run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeProfile:
    """Train some steps under TensorFlow's profiler; answered by Profiled or ProfileFailed."""

    folder: str
    steps: int
    on_gpu: bool = False
    """The lane's GPU should be in the trace."""
    chrome: str = ""
    """A file for the trace in Chrome's format. Empty for none."""
    counters: CpuCounters | Missing = NOT_COUNTED
    """Counters of the processor, measured by the monitor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportStack:
    """Report the stacks of all threads; answered by StackReported. A scenario's child gets a signal instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End now."""


Request: TypeAlias = Assign | SetKnob | Run | RunSlice | Pause | TakeProfile | ReportStack | Stop

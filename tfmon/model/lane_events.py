"""The events that a lane sends over the event pipe.

The field types have the limits that the codec checks, so that sums and divisions are safe.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from tfmon.model.account import Accounted
from tfmon.model.event_base import LaneEvent, Stamp
from tfmon.model.knobs import KnobValue
from tfmon.model.profile import Profile
from tfmon.model.readings import Amount, Range, SliceLoad
from tfmon.model.script_events import (
    CauseSeen,
    DefaultsResolved,
    InputDescribed,
    KnobOffered,
    NotMeasured,
    PathsUsed,
    Progressed,
    StackReported,
    StepDescribed,
)

SLICE_START = "after a switch"
"""Marks windows just after the switch to the lane."""
IN_A_STEP = "suspended in a step"
"""Marks windows with a suspension outside of steps or while it waited."""
STALL = "stall"
SUSPENDED = "suspended"
STOOD_STILL = "stood still until its end"
"""Marks a stalled lane's last window."""
STOPPED = "suspended or paused"
PROTOCOL = 2
Bin: TypeAlias = Annotated[int, Range(0, 64 * 64)]
"""Up to 2^64 ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(LaneEvent):
    """The first event of a child."""

    protocol: int
    pid: int
    python: str
    reports_stack: bool = False
    """On SIGUSR1 (a scenario's child), or on ReportStack."""
    unlike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEntered(LaneEvent):
    """A lane entered another phase."""

    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrariesLoaded(LaneEvent):
    """TensorFlow is loaded."""

    tensorflow: str
    keras: str
    numpy: str
    device_name: str
    gpu_uuid: str | None = None
    gpu_uuids: tuple[str, ...] = ()
    """In TensorFlow's order."""
    bfloat16: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built(LaneEvent):
    """Model and data are built."""

    parameters: Amount
    examples: Amount | None
    settings: dict[str, KnobValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(LaneEvent):
    """The work between two synchronised points, up to the end of the latest step.

    It begins at the end of the previous one, or after a pause at the first step.
    """

    at_ns: Stamp
    span_ns: Annotated[int, Range(1, 10**17)]
    steps: Amount
    examples: Amount
    step: Amount
    input_ns: Amount
    call_ns: Amount
    """Dispatch and, on the CPU, compute."""
    sync_ns: Amount
    report_ns: Amount
    longest_ns: Amount
    histogram: dict[Bin, Amount]
    loss: float | None
    settings: dict[str, KnobValue]
    marks: tuple[str, ...] = ()
    round: int | None = None
    gpu_memory_allocated_bytes: int | None = None
    gpu_memory_peak_bytes: int | None = None
    left_out_ns: dict[str, Amount] = field(default_factory=dict)
    """Time before it in no window, by reason."""
    traced_steps: Amount = 0
    traced_ns: Amount = 0
    """A part of `call_ns`."""
    traced: str = ""
    computing_share: Annotated[float, Range(0, 1)] | None = None
    """Of `call_ns`, from a profile."""
    sampled: Amount = 0
    """Steps before it with a barrier around each part, in no other figure."""
    sampled_examples: Amount = 0
    sampled_input_ns: Amount = 0
    sampled_copy_ns: Amount | None = None
    sampled_call_ns: Amount = 0
    sampled_tail_ns: Amount = 0
    """After the call, on the device."""
    windows: Annotated[int, Range(1, 10**17)] = 1
    """Old ones are added up."""

    @property
    def since_ns(self) -> int:
        """The previous window's end, or the first step's start."""
        return self.at_ns - self.span_ns - sum(self.left_out_ns.values())

    def implausible(self) -> str:
        """Return why these figures are impossible, or ""."""
        parts_ns = self.input_ns + self.call_ns + self.sync_ns + self.report_ns
        return f"its parts take {parts_ns} ns of {self.span_ns}" if parts_ns > 2 * self.span_ns else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobApplied(LaneEvent):
    """A knob took effect in the child."""

    at_ns: Stamp
    request: int
    knob: str
    value: KnobValue
    step: Amount
    gap_ns: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRefused(LaneEvent):
    """A knob could not be changed; training continues."""

    request: int
    knob: str
    value: KnobValue
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFailed(LaneEvent):
    """A lane reports why it fails."""

    kind: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceEnded(LaneEvent):
    """A slice ended; the lane pauses."""

    round: int
    load: SliceLoad | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled(LaneEvent):
    """Profiled steps, which are in no window."""

    folder: str
    profile: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFailed(LaneEvent):
    """A profile failed; training continues."""

    folder: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(LaneEvent):
    """A lane did all its steps, or was stopped."""

    steps: Amount
    measured: Amount | None = None


FromLane: TypeAlias = (
    Hello
    | PhaseEntered
    | LibrariesLoaded
    | Built
    | DefaultsResolved
    | Window
    | KnobApplied
    | KnobRefused
    | LaneFailed
    | SliceEnded
    | Profiled
    | ProfileFailed
    | Finished
    | KnobOffered
    | Progressed
    | NotMeasured
    | StepDescribed
    | InputDescribed
    | StackReported
    | PathsUsed
    | CauseSeen
    | Accounted
)

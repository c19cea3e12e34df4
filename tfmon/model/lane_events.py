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
"""Mark of windows just after the switch to the lane."""
IN_A_STEP = "suspended in a step"
"""Mark of windows in which the lane was suspended outside of steps or while it waited."""
STALL = "stall"
SUSPENDED = "suspended"
"""Mark of windows that overlap a suspension of tfmon or the machine."""
STOOD_STILL = "stood still until its end"
"""Mark of the window in which a stalled lane was ended."""
STOPPED = "suspended or paused"
"""Reason of time that is in no share of the lane's time."""
PROTOCOL = 2
"""A child with another version is refused."""
Bin: TypeAlias = Annotated[int, Range(0, 64 * 64)]
"""Of a histogram, up to 2^64 ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(LaneEvent):
    """The first event of a child, before it loads anything."""

    protocol: int
    pid: int
    python: str
    reports_stack: bool = False
    """A scenario's child writes its stacks to stderr on SIGUSR1, a script's answers ReportStack."""
    unlike: tuple[str, ...] = ()
    """Differences from a local lane's environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(LaneEvent):
    """Only in older recordings."""


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
    """Model of its GPU. Empty for the CPU."""
    gpu_uuid: str | None = None
    """From the CUDA driver."""
    gpu_uuids: tuple[str, ...] = ()
    """In TensorFlow's order. Empty if unknown."""
    bfloat16: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built(LaneEvent):
    """Model and data are built."""

    parameters: Amount
    examples: Amount | None
    settings: dict[str, KnobValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(LaneEvent):
    """The work of a lane between two synchronised points, up to the end of its latest step.

    A window begins at the end of the previous one, or after a pause at the first step.
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
    """Waiting for the device at the window's end, by reading the loss."""
    report_ns: Amount
    longest_ns: Amount
    histogram: dict[Bin, Amount]
    loss: float | None
    settings: dict[str, KnobValue]
    """At the end, if a knob changed."""
    marks: tuple[str, ...] = ()
    """Why it is discarded. Empty for steady state."""
    round: int | None = None
    """`None` if the lanes train concurrently."""
    gpu_memory_allocated_bytes: int | None = None
    """Live tensors, from TensorFlow's allocator."""
    gpu_memory_peak_bytes: int | None = None
    left_out_ns: dict[str, Amount] = field(default_factory=dict)
    """Time before this window in no window, by reason."""
    traced_steps: Amount = 0
    traced_ns: Amount = 0
    """A part of `call_ns`."""
    traced: str = ""
    """The function traced last, and the argument that caused the trace if known."""
    computing_share: Annotated[float, Range(0, 1)] | None = None
    """Share of `call_ns` in which an operation ran on the CPU, from a profile under these settings."""
    sampled: Amount = 0
    """Steps before this window with a barrier around each part; they are in no other figure."""
    sampled_examples: Amount = 0
    sampled_input_ns: Amount = 0
    sampled_copy_ns: Amount | None = None
    """To the device."""
    sampled_call_ns: Amount = 0
    """On an asynchronous device only the launch."""
    sampled_tail_ns: Amount = 0
    """From the return of the call until the device had finished."""
    windows: Annotated[int, Range(1, 10**17)] = 1
    """Old windows of a recording are added up."""

    @property
    def since_ns(self) -> int:
        """The end of the previous window, or the start of the first step."""
        return self.at_ns - self.span_ns - sum(self.left_out_ns.values())

    def implausible(self) -> str:
        """Return why these figures are impossible, or ""."""
        parts_ns = self.input_ns + self.call_ns + self.sync_ns + self.report_ns
        return f"its parts take {parts_ns} ns of {self.span_ns}" if parts_ns > 2 * self.span_ns else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobApplied(LaneEvent):
    """A knob took effect in the child."""

    at_ns: Stamp
    """End of the first step with the new value."""
    request: int
    knob: str
    value: KnobValue
    step: Amount
    gap_ns: Amount
    """Longest time between two steps around the change."""


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
    """`device_absent`, `no_tensorflow`, `scenario`, `out_of_memory`, `protocol` or `error`."""
    message: str
    """One line with the error, and the last frame in the user's file."""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceEnded(LaneEvent):
    """The last step of a slice is done; the lane pauses."""

    round: int
    load: SliceLoad | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled(LaneEvent):
    """Some steps were trained under the profiler; they are in no window."""

    folder: str
    profile: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFailed(LaneEvent):
    """A profile failed; training continues."""

    folder: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(LaneEvent):
    """A lane did all its steps, or was requested to stop."""

    steps: Amount
    measured: Amount | None = None
    """Steps of steady windows."""


FromLane: TypeAlias = (
    Hello
    | Prepared
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

"""What a lane says over the event pipe, one frozen dataclass each; `script_events` has what only a script says.

The types of the fields hold the limits that the codec checks: figures that are summed up and divided by must be
possible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

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

PROTOCOL = 2
"""Version of the pipe between a lane and the monitor; a child that says another one is refused."""
Bin: TypeAlias = Annotated[int, Range(0, 64 * 64)]
"""A bin of `window_sums`, up to 2^64 ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(LaneEvent):
    """The first event of a child, before it loads anything."""

    protocol: int
    pid: int
    python: str
    reports_stack: bool = False
    """True for a child that can report its stacks: a scenario's writes them to stderr on SIGUSR1, a script's
    answers ReportStack with StackReported."""
    unlike: tuple[str, ...] = ()
    """In what its surroundings are not those of a lane of the monitor's own machine; see `model.surroundings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(LaneEvent):
    """The answer to Prepare: TensorFlow is loaded, and the child waits for Assign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEntered(LaneEvent):
    """A lane entered another phase; see `lane_state.PHASES`."""

    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrariesLoaded(LaneEvent):
    """TensorFlow is loaded and the lane knows what it trains on."""

    tensorflow: str
    keras: str
    numpy: str
    device_name: str
    """Model of the GPU that this lane computes on; empty for the CPU, which the monitor knows."""
    gpu_uuid: str | None = None
    """UUID of the GPU that the lane really got, from the CUDA driver; None on a CPU or where it is unknown."""
    gpu_uuids: tuple[str, ...] = ()
    """Those of all its GPUs, in TensorFlow's order; empty where they are unknown, and in old recordings."""
    bfloat16: bool = False
    """Whether the CPU of its machine computes in bfloat16; false where that is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built(LaneEvent):
    """The model and the data are built."""

    parameters: Amount
    """Trainable values of the model."""
    examples: Amount | None
    """Examples in the data, None where the pipeline does not know its length."""
    settings: dict[str, KnobValue]
    """Every knob and its value in effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(LaneEvent):
    """What a lane did between two synchronised points, up to the end of its latest step.

    A window begins where the one before ended; after a pause it begins at the first step. The parts of the time
    are summed over the window's steps and do not overlap.
    """

    at_ns: Stamp
    """End of the window."""
    span_ns: Annotated[int, Range(1, 10**17)]
    """Wall time from its beginning to its end."""
    steps: Amount
    examples: Amount
    """Examples whose training was completed in the window."""
    step: Amount
    """Steps done since the lane started to race, including this window's."""
    input_ns: Amount
    """Waiting for the next batch."""
    call_ns: Amount
    """In the step call: dispatch and, on the CPU, compute."""
    sync_ns: Amount
    """Waiting for the device at the window's end, by reading the loss."""
    report_ns: Amount
    """Spent by tfmon itself on measuring and reporting."""
    longest_ns: Amount
    """The longest time from the end of one step to the end of the next."""
    histogram: dict[Bin, Amount]
    """Step times (end to end), counted in the bins of `tfmon.model.window_sums`."""
    loss: float | None
    """Loss of the window's last step, where it has one."""
    settings: dict[str, KnobValue]
    """Every knob and its value while the window lasted (at its end, if one changed)."""
    marks: tuple[str, ...] = ()
    """Why the window is discarded, such as "warm-up" or "knob change"; empty for steady state."""
    round: int | None = None
    """Round of the slice that the window lies in; None while the lanes train concurrently."""
    gpu_memory_allocated_bytes: int | None = None
    """Tensors alive now, from TensorFlow's allocator; None where it keeps no figures."""
    gpu_memory_peak_bytes: int | None = None
    left_out_ns: dict[str, Amount] = field(default_factory=dict)
    """Time between the end of the window before and this one's that is in neither, by reason."""
    traced_steps: Amount = 0
    """Steps in which a tf.function was traced."""
    traced_ns: Amount = 0
    """Time of these steps; a part of `call_ns`."""
    traced: str = ""
    """Which function was traced last, and the argument that caused it where that is known."""
    computing_share: Annotated[float, Range(0, 1)] | None = None
    """Share of `call_ns` in which an operation of the step ran on the CPU, from a profile of a few steps under
    these settings; None where none was taken."""
    sampled: Amount = 0
    """Steps trained before this window with a barrier around each part; no other figure includes them."""
    sampled_examples: Amount = 0
    sampled_input_ns: Amount = 0
    """Waiting for the batch, summed over these steps as the next three are."""
    sampled_copy_ns: Amount | None = None
    """Copying the batch to the device; None where there is nothing to copy to."""
    sampled_call_ns: Amount = 0
    """In the step call; on a device that works asynchronously, only the launch."""
    sampled_tail_ns: Amount = 0
    """From the call's return until the device had done the step."""
    windows: Annotated[int, Range(1, 10**17)] = 1
    """How many it was: old windows of a recording are added up."""

    @property
    def since_ns(self) -> int:
        """The end of the window before; of the first one, the beginning of the first step."""
        return self.at_ns - self.span_ns - sum(self.left_out_ns.values())

    def implausible(self) -> str:
        """Return why these figures cannot be; empty if they can."""
        parts_ns = self.input_ns + self.call_ns + self.sync_ns + self.report_ns
        return f"its parts take {parts_ns} ns of {self.span_ns}" if parts_ns > 2 * self.span_ns else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobApplied(LaneEvent):
    """A knob took effect in the child."""

    at_ns: Stamp
    """End of the first step under the new value."""
    request: int
    knob: str
    value: KnobValue
    step: Amount
    """Number of that first step, counted since the lane started to race."""
    gap_ns: Amount
    """Longest time between the ends of two steps around the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRefused(LaneEvent):
    """A requested knob could not be changed; the lane trains on as before."""

    request: int
    knob: str
    value: KnobValue
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFailed(LaneEvent):
    """A lane says why it fails, before it ends."""

    kind: str
    """`device_absent`, `no_tensorflow`, `scenario`, `out_of_memory`, `protocol` or `error`."""
    message: str
    """One line: what failed, with the last frame in the user's own file where there is one."""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceEnded(LaneEvent):
    """A slice is over and its last step done; the lane pauses."""

    round: int
    load: SliceLoad | None = None
    """Who used the CPU in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled(LaneEvent):
    """Some steps were trained under the profiler; no window includes them."""

    folder: str
    """As in the request."""
    profile: Profile
    """What the lane read in the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFailed(LaneEvent):
    """A requested profile could not be taken; the lane trains on."""

    folder: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(LaneEvent):
    """A lane did all its steps, or was told to stop, and ends now."""

    steps: Amount
    """All that it trained since it began to race."""
    measured: Amount | None = None
    """Those of steady windows; None where that is not said."""


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
)

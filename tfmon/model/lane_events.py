"""What a lane says over the metric pipe, one frozen dataclass each.

The child does not know its lane's name, so the reader fills in `lane`. Stamps (`at_ns`) are those of
`time.monotonic_ns`, which all processes of one machine share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tfmon.model.knobs import KnobValue

PROTOCOL = 1
"""Version of the pipe between a lane and the monitor; a child that says another one is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first words of a child, before it loads anything."""

    lane: str = ""
    at_ns: int
    protocol: int
    pid: int
    python: str
    reports_stack: bool = False
    """True for a child that tells the stacks of its threads: a scenario's writes them to stderr on SIGUSR1,
    whatever it does; a script's answers ReportStack with StackReported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A child that was told to prepare has loaded TensorFlow, and waits to be a lane."""

    lane: str = ""
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEntered:
    """A lane went on to another part of its life; see `session.PHASES`."""

    lane: str = ""
    at_ns: int
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrariesLoaded:
    """TensorFlow is loaded and the lane knows what it trains on."""

    lane: str = ""
    at_ns: int
    tensorflow: str
    keras: str
    numpy: str
    device_name: str
    """Model of the GPU that this lane computes on; empty for the CPU, which the monitor knows."""
    gpu_uuid: str | None = None
    """UUID of the GPU the lane really got, as the CUDA driver says; None on a CPU or where it is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The model and the data stand."""

    lane: str = ""
    at_ns: int
    parameters: int
    """Trainable values of the model."""
    examples: int | None
    """Examples in the data, None where the pipeline does not know its length."""
    settings: dict[str, KnobValue]
    """Every knob and its value in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a lane did between two synchronised points, up to the end of its latest step.

    A window begins where the one before ended, so that nothing is lost; after a pause it begins at the first
    step. Time shares are summed over the window's steps and do not overlap.
    """

    lane: str = ""
    at_ns: int
    """End of the window."""
    span_ns: int
    """Wall time from its beginning to its end."""
    steps: int
    examples: int
    """Examples whose training was completed in the window."""
    step: int
    """Steps done since the lane started to race, including this window's."""
    input_ns: int
    """Waiting for the next batch."""
    call_ns: int
    """In the step call: dispatch and, on the CPU, compute."""
    sync_ns: int
    """Waiting for the device at the window's end, by reading the loss."""
    report_ns: int
    """Spent by tfmon itself on measuring and reporting."""
    longest_ns: int
    """The longest time from the end of one step to the end of the next."""
    histogram: dict[int, int]
    """Step times (end to end), counted in the bins of `tfmon.model.lane_statistics`."""
    loss: float | None
    """Loss of the window's last step; None for a step that has none."""
    settings: dict[str, KnobValue]
    """Every knob and its value while the window lasted (at its end, if one changed)."""
    marks: tuple[str, ...] = ()
    """Why the window is no part of steady state, such as "warm-up" or "knob change"; empty if it is."""
    round: int | None = None
    """Round of the slice that the window lies in; None while the lanes train at once."""
    gpu_memory_allocated_bytes: int | None = None
    """TensorFlow's allocator, tensors alive now; None where it keeps no figures."""
    gpu_memory_peak_bytes: int | None = None
    traced_steps: int = 0
    """Steps in which a tf.function was traced."""
    traced_ns: int = 0
    """Time of these steps; a part of `call_ns`."""
    traced: str = ""
    """Which function was traced last, and which argument made it trace anew where that is known."""
    computing_share: float | None = None
    """Share of `call_ns`, from 0 to 1, in which an operation of the step ran on the CPU: by a profile of a few
    steps under these settings; None where none was taken."""
    sampled: int = 0
    """Steps trained before this window, between two barriers; none of its other figures has a part in them."""
    sampled_examples: int = 0
    sampled_input_ns: int = 0
    """Waiting for the batch, summed over these steps as the next three are."""
    sampled_copy_ns: int | None = None
    """Copying the batch to the device; None where there is nothing to copy to."""
    sampled_call_ns: int = 0
    """In the step call, which on a device that works asynchronously is the launch alone."""
    sampled_tail_ns: int = 0
    """From the call's return until the device had done the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobApplied:
    """A knob took effect in the child."""

    lane: str = ""
    at_ns: int
    """End of the first step under the new value."""
    request: int
    knob: str
    value: KnobValue
    step: int
    """Number of that first step, counted since the lane started to race."""
    gap_ns: int
    """Longest time between the ends of two steps around the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRefused:
    """A knob was asked for and could not be changed; the lane trains on as before."""

    lane: str = ""
    at_ns: int
    request: int
    knob: str
    value: KnobValue
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFailed:
    """A lane says why it cannot go on, before it ends."""

    lane: str = ""
    at_ns: int
    kind: str
    """`device_absent`, `no_tensorflow`, `scenario`, `out_of_memory`, `protocol` or `error`."""
    message: str
    """One line: what failed, with the last frame in the user's own file where there is one."""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceEnded:
    """A slice is over and its last step done; the lane holds."""

    lane: str = ""
    at_ns: int
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """Some steps were trained under the profiler, none of which is in a window."""

    lane: str = ""
    at_ns: int
    folder: str
    """As the request named it."""
    path: str
    """The profile: TensorFlow's `.xplane.pb` file."""
    note: str = ""
    """Why it has fewer steps than were asked for; "" if it has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFailed:
    """A profile was asked for and could not be taken; the lane trains on."""

    lane: str = ""
    at_ns: int
    folder: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A lane did all the steps it was asked for, or was told to stop, and ends now."""

    lane: str = ""
    at_ns: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobOffered:
    """A user's script has a knob that can be changed while it trains."""

    lane: str = ""
    at_ns: int
    knob: str
    value: KnobValue
    """In force now."""
    default: KnobValue
    help: str
    choices: tuple[KnobValue, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """How far a user's script is in what Keras does for it."""

    lane: str = ""
    at_ns: int
    doing: str
    """`fit`, `validation`, `evaluate` or `predict`; empty for none of them."""
    epoch: int = 0
    """From 1; 0 outside of `fit`."""
    epochs: int = 0
    batch: int = 0
    """Batches done in this epoch."""
    batches: int | None = None
    """Batches of an epoch; None where the data do not tell their length."""
    metrics: dict[str, float] = field(default_factory=dict)
    """As Keras shows them: means since the epoch began; those of validation as of its last time."""
    epochs_done: int = 0
    """Epochs that this `fit` has ended, which the next two are sums over."""
    validation_ns: int = 0
    between_ns: int = 0
    """From the last step of an epoch to the first of the next, without validation: callbacks, checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReported:
    """Where the threads of a lane's child stand, as it told on being asked.

    Read by the monitor from what a scenario's child wrote to stderr.
    """

    lane: str = ""
    at_ns: int
    lines: tuple[str, ...]


FromLane: TypeAlias = (
    Hello
    | Prepared
    | PhaseEntered
    | LibrariesLoaded
    | Built
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
    | StackReported
)

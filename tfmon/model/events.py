"""Everything that can happen in a race, one frozen dataclass each.

The first group travels over the metric pipe, from a lane to the monitor; the child does not know its lane's
name, so the reader fills in `lane`. The second group is made by the monitor. Stamps (`at_ns`) are those of
`time.monotonic_ns`, which all processes of one machine share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tfmon.model.knobs import KnobValue
from tfmon.model.readings import Reading

PROTOCOL = 1
"""Version of the pipe between a lane and the monitor; a child that says another one is refused."""

# ---------------------------------------------------------------- from a lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first words of a child, before it loads anything."""

    lane: str = ""
    at_ns: int
    protocol: int
    pid: int
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEntered:
    """A lane went on to another part of its life; see `session.PHASES`."""

    lane: str = ""
    at_ns: int
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipped:
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
    """Step times (end to end), counted in the bins of `tfmon.model.histogram`."""
    loss: float | None
    """Loss of the window's last step; None for a step that has none."""
    settings: dict[str, KnobValue]
    """Every knob and its value while the window lasted (at its end, if one changed)."""
    marks: tuple[str, ...] = ()
    """Why the window is no part of steady state, such as "warm-up" or "knob change"; empty if it is."""
    turn: int | None = None
    """Round of the slice that the window lies in; None while the lanes train at once."""
    gpu_in_use_bytes: int | None = None
    """TensorFlow's allocator, tensors alive now; None where it keeps no figures."""
    gpu_peak_bytes: int | None = None


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
class TurnEnded:
    """A slice is over and its last step done; the lane holds."""

    lane: str = ""
    at_ns: int
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A lane did all the steps it was asked for, or was told to stop, and ends now."""

    lane: str = ""
    at_ns: int
    steps: int


# ---------------------------------------------------------------- made by the monitor


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStarted:
    """A child was started for a lane; what is known of an earlier child of that lane is over."""

    lane: str
    at_ns: int
    pid: int
    settings: dict[str, KnobValue]
    """Every knob and the value it starts with."""
    source: str = ""
    """Digest of the scenario file, to tell whether an earlier child trained the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEnded:
    """A lane's child is gone and reaped."""

    lane: str
    at_ns: int
    exit_code: int | None
    """What it returned; None when a signal ended it."""
    signal: str | None
    """Name of the signal that ended it, such as "SIGKILL"."""
    asked: bool
    """True when the monitor had told it to end."""
    output_tail: tuple[str, ...] = ()
    """The last lines it wrote to stdout and stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line on the metric pipe that could not be read."""

    lane: str
    at_ns: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobAsked:
    """A wish was sent to a lane."""

    lane: str
    at_ns: int
    request: int
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSample:
    """CPU and memory of a lane's process tree."""

    lane: str
    at_ns: int
    cpu_pct: Reading
    """Since the sample before; 100 is one core kept busy."""
    private_bytes: Reading
    """Memory that no other process shares, summed over the tree."""
    processes: int
    pids: tuple[int, ...] = ()
    """The tree's processes, to find them again in a GPU's list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU as its driver sees it."""

    lane: str = ""
    at_ns: int
    key: str
    """The device's UUID."""
    index: int
    name: str
    busy_pct: Reading
    """Share of time in which at least one kernel ran, averaged over the tick."""
    busy_source: str
    """`samples` (true average over our tick) or `driver window` (its last 1/6 to 1 s)."""
    used_bytes: Reading
    total_bytes: Reading
    power_w: Reading
    power_limit_w: Reading
    temperature_c: Reading
    held_by_pid: dict[int, int | None] = field(default_factory=dict)
    """Memory the driver holds for each process, as it numbers them; None where it does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The machine as a whole."""

    lane: str = ""
    at_ns: int
    cpu_pct: Reading
    """All cores together since the sample before; 100 is one core kept busy."""
    memory_used_bytes: Reading
    memory_total_bytes: Reading


FromLane: TypeAlias = (
    Hello
    | PhaseEntered
    | Equipped
    | Built
    | Window
    | KnobApplied
    | KnobRefused
    | LaneFailed
    | TurnEnded
    | Finished
)
Event: TypeAlias = FromLane | LaneStarted | LaneEnded | BadLine | KnobAsked | TreeSample | GpuSample | HostSample

"""Everything that can happen in a race, one frozen dataclass each.

The first group travels over the metric pipe, from a lane to the monitor; the child does not know its lane's
name, so the reader fills in `lane`. The others are made by the monitor. Stamps (`at_ns`) are those of
`time.monotonic_ns`, which all processes of one machine share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tfmon.model.knobs import KnobValue
from tfmon.model.race import Machine, Race, Recorded
from tfmon.model.readings import NOT_READ, Missing, Reading
from tfmon.model.spec import LaneSpec
from tfmon.model.trials import Trial

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
    tells_stack: bool = False
    """True for a child that tells the stacks of its threads: a scenario's writes them to stderr on SIGUSR1,
    whatever it does; a script's answers TellStack with StackTold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
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
class TurnEnded:
    """A slice is over and its last step done; the lane holds."""

    lane: str = ""
    at_ns: int
    turn: int


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
class StackTold:
    """Where the threads of a lane's child stand, as it told on being asked.

    Read by the monitor from what a scenario's child wrote to stderr.
    """

    lane: str = ""
    at_ns: int
    lines: tuple[str, ...]


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
    command: str = ""
    """The user's own command that was started; empty for a scenario."""


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
    memory_kills: str = ""
    """What the kernel tells of processes that it killed for lack of memory just before; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePrinted:
    """What a lane wrote to stdout and stderr since it was told last, in whole lines, safe to show."""

    lane: str
    at_ns: int
    """When it was told, a quarter of a second after it was printed at most."""
    lines: tuple[str, ...]
    dropped_bytes: int = 0
    """How much came before these lines and was left out, because the lane printed faster than it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line on the metric pipe that could not be read, or several that came together."""

    lane: str
    at_ns: int
    problem: str
    """What was wrong with the last of them."""
    lines: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStalled:
    """A lane that should train has said nothing for too long; whatever it says next ends that."""

    lane: str
    at_ns: int
    since_ns: int
    """Its last sign of life, or when it should have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodStill:
    """tfmon was stopped, or the machine slept: what a lane measured over that time is no measurement."""

    lane: str
    at_ns: int
    """When it went on."""
    since_ns: int
    lasted_s: float
    """On a clock that goes on while the machine sleeps, which the stamps do not."""


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


@dataclass(frozen=True, slots=True)
class ClockReason:
    """Why a GPU does not run at full clocks."""

    text: str
    level: str
    """`info`, `warning` or `alarm`."""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Something that went wrong in a GPU, as its driver reported it."""

    at_ns: int
    code: int | None
    """Number of the XID message; None where the driver gives none."""
    text: str
    by_program: bool = False
    """True for what a program most likely did wrong, and no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU, or one instance of a GPU that is split up (MIG), as its driver sees it."""

    lane: str = ""
    at_ns: int
    key: str
    """The device's UUID."""
    index: int
    name: str
    kind: str = "nvidia"
    """`nvidia`, `mig` (an instance of an NVIDIA GPU) or `apple`."""
    part_of: str = ""
    """UUID of the whole GPU that an instance is part of: power, energy, temperature, clocks and PCIe are then
    those of the whole GPU."""
    every_s: float = 1.0
    """How often it is sampled."""
    busy_pct: Reading
    """Share of time in which at least one kernel ran, averaged over the tick."""
    busy_max_pct: Reading = NOT_READ
    """The busiest sample within the tick."""
    busy_source: str
    """`samples` (true average over our tick), `driver window` (its last 1/6 to 1 s), `sysfs` or `ioreg`."""
    used_bytes: Reading
    total_bytes: Reading
    reserved_bytes: Reading = NOT_READ
    """What the driver keeps for itself; not in `used_bytes`."""
    unified: bool = False
    """True where the memory is the machine's own, shared with the CPU."""
    power_w: Reading
    power_source: str = ""
    """`energy counter` (true average over the last second or more) or `driver` (its own average)."""
    power_limit_w: Reading
    energy_j: Reading = NOT_READ
    """Used since the driver was loaded."""
    temperature_c: Reading
    sm_clock_mhz: Reading = NOT_READ
    sm_clock_max_mhz: Reading = NOT_READ
    memory_clock_mhz: Reading = NOT_READ
    memory_clock_max_mhz: Reading = NOT_READ
    clock_reasons: tuple[ClockReason, ...] | Missing = NOT_READ
    """What holds the clocks down; empty at full clocks."""
    pcie_sent_bytes_per_s: Reading = NOT_READ
    """From the GPU to the host."""
    pcie_received_bytes_per_s: Reading = NOT_READ
    """From the host to the GPU."""
    pcie_source: str = ""
    """`counter` (true average over the tick) or `20 ms peek` (every 5 s)."""
    pcie_generation: Reading = NOT_READ
    pcie_generation_max: Reading = NOT_READ
    """What GPU and slot can both do."""
    pcie_width: Reading = NOT_READ
    pcie_width_max: Reading = NOT_READ
    pcie_warning: str = ""
    """What is wrong with the link, such as "4 of 16 lanes"; empty if nothing is."""
    ecc_errors: Reading = NOT_READ
    """Memory errors that could not be corrected, since the driver was loaded."""
    remapped_rows: Reading = NOT_READ
    """Rows of memory that were replaced for good."""
    faults: tuple[GpuFault, ...] = ()
    """What went wrong while tfmon watched; the latest last."""
    faults_told: bool = False
    """False where the driver would not tell, so that no fault means nothing."""
    held_by_pid: dict[int, int | None] = field(default_factory=dict)
    """Memory the driver holds for each process, as it numbers them; None where it does not tell."""
    held_why: str = ""
    """Why the driver lists no processes; empty where it does."""
    busy_by_pid: dict[int, float] | Missing = NOT_READ
    """Share of the GPU's time in percent, by process; processes that used none may be left out."""
    foreign_pids: bool = False
    """True in a container, where the driver may number processes as the host does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The machine as a whole, and what may disturb a race on it.

    Units: shares of CPU time and rates over the time since the sample before; 100 % of CPU is one core.
    """

    lane: str = ""
    at_ns: int
    cpu_pct: Reading
    """All cores together since the sample before; 100 is one core kept busy."""
    memory_used_bytes: Reading
    memory_total_bytes: Reading
    usable_cores: Reading = NOT_READ
    """What a lane may keep busy: the least of the machine's cores, the affinity and the container's quota."""
    monitor_cpu_pct: Reading = NOT_READ
    """tfmon's own process."""
    others_cpu_pct: Reading = NOT_READ
    """Processes that are neither tfmon nor in a lane's tree."""
    steal_pct: Reading = NOT_READ
    """Time that the hypervisor gave to other machines while this one had work for a core."""
    swap_in_bytes_per_s: Reading = NOT_READ
    """Read back from swap."""
    swap_out_bytes_per_s: Reading = NOT_READ
    """Written to swap."""
    cpu_pressure_pct: Reading = NOT_READ
    """Share of the last 10 s in which some process had work and no core."""
    memory_pressure_pct: Reading = NOT_READ
    """Share of the last 10 s in which some process waited for memory."""
    throttled_pct: Reading = NOT_READ
    """Share of the quota's periods in which the lanes' control group had used it up."""
    throttled_ms_per_s: Reading = NOT_READ
    """Time for which they then stood still, summed over the cores that they wanted."""
    package_power_w: Reading = NOT_READ
    """All CPU packages together: cores, caches and what else is on the chip, without memory modules."""


# ---------------------------------------------------------------- about the race as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceBegan:
    """A race begins: what was known of the lanes of an earlier one is dropped."""

    lane: str = ""
    at_ns: int
    race: Race
    specs: tuple[LaneSpec, ...]
    """Its lanes; none while that is not known yet."""
    source: str = ""
    """Digest of the scenario file; empty while the lanes are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKnown:
    """More is known of the machine."""

    lane: str = ""
    at_ns: int
    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStarted:
    """The lanes got the start signal."""

    lane: str = ""
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged:
    """The lanes share the machine in another way from now on; see `race.MODES`."""

    lane: str = ""
    at_ns: int
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDealt:
    """It is a lane's turn, or nobody's where `lane` is empty."""

    lane: str
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneChanged:
    """A lane got the machine for itself, in slices, or all train again as the mode says."""

    lane: str = ""
    at_ns: int
    alone: str
    """Name of that lane; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTold:
    """A series of measurements began, or got further."""

    lane: str = ""
    at_ns: int
    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Wished:
    """A wish of the user's, or of a trial's, that is no knob; what came of it is told by other events."""

    lane: str = ""
    at_ns: int
    wish: str
    """`pause`, `go on`, `restart`, `profile` or `race`."""
    lanes: tuple[str, ...] = ()
    scenario: str = ""
    """Which one to race instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The race was broken off."""

    lane: str = ""
    at_ns: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingTold:
    """Where the race is recorded, or that it no longer is. No part of a recording itself."""

    lane: str = ""
    at_ns: int
    recording: Recorded


FromLane: TypeAlias = (
    Hello
    | Standby
    | PhaseEntered
    | Equipped
    | Built
    | Window
    | KnobApplied
    | KnobRefused
    | LaneFailed
    | TurnEnded
    | Profiled
    | ProfileFailed
    | Finished
    | KnobOffered
    | Progressed
    | StackTold
)
AboutRace: TypeAlias = (
    RaceBegan
    | MachineKnown
    | ClockStarted
    | ModeChanged
    | TurnDealt
    | AloneChanged
    | TrialTold
    | Wished
    | Interrupted
    | RecordingTold
)
Event: TypeAlias = (
    FromLane
    | LaneStarted
    | LaneEnded
    | LanePrinted
    | LaneStalled
    | StoodStill
    | BadLine
    | KnobAsked
    | TreeSample
    | GpuSample
    | HostSample
    | AboutRace
)

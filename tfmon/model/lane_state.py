"""All that is known of one lane. Pure: no clock, no lock, no process; `lane_changes` says how events change it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from tfmon.model.events import Event, LaneEnded, LaneStalled, LaneStarted, Suspended
from tfmon.model.gpu_accounting import GpuEnergy
from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import FromLane, PhaseEntered, Progressed, StackReported, Window
from tfmon.model.lane_statistics import KnobMark, Mean, Measurements, Point, SliceSpeed, WindowSums
from tfmon.model.readings import Missing, Reading
from tfmon.model.spec import LaneSpec, title

# ---------------- how a lane's child ended that did not say why itself, in words. Pure


OUT_OF_MEMORY = "out_of_memory"
LOWER_THE_BATCH = "b lowers the batch size and starts the lane again; r starts it as it was"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a lane cannot go on, in words."""

    message: str
    hint: str = ""
    kind: str = "error"


def trouble_of(event: LaneEnded, stalled_since_ns: int | None) -> Trouble | None:
    """Return what there is to say of an end; None for one that was asked for and went as it should.

    `stalled_since_ns` is the last sign of life of a lane that had stalled, which is a failure however it ended.
    """
    if stalled_since_ns is not None:
        silent_s = (event.at_ns - stalled_since_ns) / 1e9
        asked = ", as was asked" if event.requested else ""
        message = f"the lane said nothing for {silent_s:.0f} s, and {_how(event)}{asked}"
        return Trouble(message, "r starts it again")
    if event.requested:
        return None
    if event.signal == "SIGKILL" and event.memory_kills:
        message = f"out of memory, it seems: the lane was ended by SIGKILL, and {event.memory_kills}"
        return Trouble(message, LOWER_THE_BATCH, OUT_OF_MEMORY)
    if event.signal is not None:
        return Trouble(f"the lane {_how(event)}")
    return Trouble(f"the lane {_how(event)} and did not say why")


def _how(event: LaneEnded) -> str:
    return f"was ended by {event.signal}" if event.signal is not None else f"left with exit code {event.exit_code}"


# ---------------- the log of a lane: the lines that it printed and what happened to it


LOG_LINES = 500
"""Lines of a lane that are kept; each has 500 characters at most."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: what the lane printed, or in our words what happened to it."""

    at_ns: int
    """For a printed line, when it was read."""
    kind: Literal["printed", "event", "trouble"]
    text: str


# ---------------- signs of life of a lane, and the times that it, tfmon or the machine stood still. Pure


STALL = "stall"
"""Mark of the first window after a lane that had said nothing spoke again."""
SUSPENDED = "suspended"
"""Mark of windows that reach into a time in which tfmon or the machine stood still."""
MOST_GAPS = 16
_FROM_LANE = tuple(kind for kind in get_args(FromLane) if kind is not StackReported)
"""Signs of life: what a lane says by itself. A stack it tells because it was asked, also while it hangs."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """A time in which tfmon or the machine stood still."""

    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What is known of a lane's being alive."""

    heard_ns: int = 0
    """When it said something last, by its own word."""
    longest_window_ns: int = 0
    """The longest window yet; of those that show how long its steps take."""
    warm_up_ns: int = 0
    """How long it warmed up, tracing and compiling included; 0 before that is over."""
    stalled_since_ns: int | None = None
    """Its last sign of life, if it has said nothing for too long; None while all is well."""
    suspensions: tuple[Suspension, ...] = ()

    def after(self, event: Event, phase_since_ns: int) -> Heartbeat:
        """Return what is known after an event; `phase_since_ns` is when the lane's phase before it began."""
        match event:
            case LaneStarted():
                return Heartbeat(heard_ns=event.at_ns, suspensions=self.suspensions)
            case LaneStalled():
                return replace(self, stalled_since_ns=event.since_ns)
            case Suspended():
                return replace(self, suspensions=(*self.suspensions[1 - MOST_GAPS :], Suspension(event.since_ns, event.at_ns)))
            case Window():
                longest_window_ns = self.longest_window_ns if self.marks(event) else max(self.longest_window_ns, event.span_ns)
                return replace(self, heard_ns=event.at_ns, longest_window_ns=longest_window_ns, stalled_since_ns=None)
            case PhaseEntered(phase="warming up"):
                return replace(self, heard_ns=event.at_ns, stalled_since_ns=None, warm_up_ns=0)
            case PhaseEntered(phase="ready"):
                warm_up_ns = max(0, event.at_ns - phase_since_ns)
                return replace(self, heard_ns=event.at_ns, stalled_since_ns=None, warm_up_ns=warm_up_ns)
            case _ if isinstance(event, _FROM_LANE):
                return replace(self, heard_ns=event.at_ns, stalled_since_ns=None)
        return self

    def marks(self, window: Window) -> tuple[str, ...]:
        """Return why a window that comes now is no measurement; empty if it is one."""
        began_ns = window.at_ns - window.span_ns
        still = any(gap.since_ns < window.at_ns and began_ns < gap.until_ns for gap in self.suspensions)
        stalled = self.stalled_since_ns is not None
        return (STALL,) * stalled + (SUSPENDED,) * still


# ----------------

STARTING, IMPORTING, BUILDING, TRACING = "starting", "importing", "building", "tracing"
WARMING_UP, READY, RACING, PAUSED = "warming up", "ready", "racing", "paused"
DONE, FAILED, ABSENT = "done", "failed", "absent"
PHASES = (
    STARTING, IMPORTING, BUILDING, TRACING, WARMING_UP, READY, RACING, PAUSED, DONE, FAILED, ABSENT,
)  # fmt: skip
"""The parts of a lane's life, in order. `ready` waits for the start signal that all lanes get together."""
OVER = (DONE, FAILED, ABSENT)
"""Phases that a lane does not leave without a restart."""

SLICE_START = "slice start"
"""Mark of the windows at the start of a slice."""

NO_STEPS_HINT = (
    "Keras' fit is seen by itself; in a loop of your own: from tfmon import report, then "
    "report.step(examples=len(x), loss=loss)"
)
"""What to do about a script that tfmon sees no step of."""
NOT_SAMPLED = Missing("not sampled yet")
NO_GPU = Missing("no GPU in this lane")

HISTORY_WINDOWS = 1_500
"""Windows kept for the charts; at five a second these are five minutes."""
RECENT_NS = 5_000_000_000
"""How far back the throughput that is shown as current reaches."""


@dataclass(frozen=True, slots=True)
class KnobRequest:
    """A wish that the child has not answered yet."""

    request: int
    value: KnobValue
    at_ns: int


@dataclass(frozen=True, slots=True)
class LaneState:
    """All that is known of one lane."""

    spec: LaneSpec
    phase: str = STARTING
    phase_since_ns: int = 0
    started_ns: int = 0
    pid: int | None = None
    python: str = ""
    tensorflow: str = ""
    keras: str = ""
    numpy: str = ""
    device_name: str = ""
    gpu_uuid: str | None = None
    parameters: int | None = None
    data_examples: int | None = None
    """Examples in the data: the largest batch that can be made."""
    settings: dict[str, KnobValue] = field(default_factory=dict)
    """Knobs in force, as the child said."""
    requested: dict[str, KnobRequest] = field(default_factory=dict)
    """Knobs asked for and not yet answered."""
    refused: str = ""
    """Why the latest wish was refused; empty when it was not."""
    steps: int = 0
    examples: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    measurements: Measurements = field(default_factory=Measurements)
    computing_share: float | None = None
    """Share of a step's call in which an operation ran on the CPU; see `events.Window`."""
    traced: str = ""
    """Which function was traced last while the lane raced, and why; empty for none."""
    source: str = ""
    """Digest of the scenario file that the lane was started with."""
    command: str = ""
    """The user's own command that the lane runs; empty for a scenario."""
    progress: Progressed | None = None
    """How far a user's script is in what Keras does for it; None where it has not told."""
    points: tuple[Point, ...] = ()
    knob_marks: tuple[KnobMark, ...] = ()
    tree_cpu_pct: Reading = NOT_SAMPLED
    private_bytes: Reading = NOT_SAMPLED
    tree_at_ns: int | None = None
    """When CPU and memory were sampled last."""
    processes: int | None = None
    pids: tuple[int, ...] = ()
    racing_cpu_pct: Mean = field(default_factory=Mean)
    """CPU of the process tree while the lane raced."""
    racing_gpu_busy_pct: Mean = field(default_factory=Mean)
    """The lane's GPU, by whomever it was kept busy, while the lane raced."""
    gpu_memory_used_bytes: Reading = NO_GPU
    """Memory of the GPU that this lane takes, as `gpu_memory_source` knows it."""
    gpu_memory_source: str = ""
    """`driver`, `only process`, `TensorFlow's allocator` (a lower bound) or `device change`; see `gpu_share`."""
    gpu_lane_busy_pct: Reading = NO_GPU
    """Share of the GPU's time that the lane's own processes took, over the last 2 s."""
    gpu_used_before: float | None = None
    """Bytes in use on the whole GPU before this lane opened it."""
    gpu_energy: GpuEnergy = field(default_factory=GpuEnergy)
    gpu_memory_allocated_bytes: int | None = None
    gpu_memory_peak_bytes: int | None = None
    trouble: Trouble | None = None
    ended: LaneEnded | None = None
    log: tuple[LogLine, ...] = ()
    """What it printed and what happened to it, the children before this one included."""
    bad_lines: int = 0
    last_bad_line: str = ""
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    """Its signs of life."""
    reports_stack: bool = False
    """Whether it can be asked for the stacks of its threads."""
    stack: StackReported | None = None
    """The stacks that it told last."""

    @property
    def title(self) -> str:
        """What the lane is called on the screen: its device, and what tells it apart as it is in force now."""
        return title(self.spec, self.settings)

    @property
    def steady(self) -> WindowSums:
        """Sums since the lane began to race, or a knob or the mode last changed."""
        return self.measurements.steady

    @property
    def slices(self) -> tuple[SliceSpeed, ...]:
        """Slices since then, oldest first; only what was steady in them."""
        return self.measurements.slices

    @property
    def discarded(self) -> dict[str, int]:
        """Windows left out of steady state, by reason."""
        return self.measurements.discarded

    @property
    def gpu_training_w(self) -> Reading:
        """About what the lane's GPU draws while the lane trains, since a knob or the mode last changed."""
        return NO_GPU if self.spec.kind == "cpu" else self.gpu_energy.training_w

    @property
    def gpu_j_per_1000_examples(self) -> Reading:
        """About how much energy the lane's GPU takes for 1,000 examples, in its own slices, idle power included.

        Source: `gpu_training_w` over the steady throughput.
        """
        watts, speed = self.gpu_training_w, self.steady.examples_per_s
        if isinstance(watts, Missing):
            return watts
        return 1_000 * watts / speed if speed else Missing("no steady step yet")

    def slices_under(self, settings: Settings) -> tuple[SliceSpeed, ...]:
        """Return the slices that ran under these settings, also before a knob was changed; oldest first."""
        return self.measurements.slices_under(settings, self.settings)

    @property
    def over(self) -> bool:
        """True when the lane cannot train on without a restart."""
        return self.phase in OVER

    def recent(self) -> WindowSums:
        """Return the sums over the steady windows of the last 5 s of training, since the last knob change.

        These make the throughput that is shown as current.
        """
        if not self.points:
            return WindowSums()
        since_ns = self.points[-1].at_ns - RECENT_NS
        if self.knob_marks:
            since_ns = max(since_ns, self.knob_marks[-1].at_ns)
        steps = examples = span_ns = windows = 0
        for point in reversed(self.points):
            if point.at_ns - point.span_ns < since_ns:
                break
            if point.steady:
                windows += 1
                steps += point.steps
                examples += point.examples
                span_ns += point.span_ns
        return WindowSums(windows=windows, steps=steps, examples=examples, span_ns=span_ns)


def seconds_left(state: LaneState) -> float | None:
    """Return how long the rest of a script's `fit` takes at the present pace, in the lane's own time.

    What an epoch took besides its steps (validation, callbacks) counts as in the epochs before.
    Errors: None where the pace, or the number of batches, is not known.
    """
    progress, pace = state.progress, state.recent().steps_per_s or state.steady.steps_per_s
    if progress is None or not progress.batches or not progress.epochs or not pace or progress.doing == "":
        return None
    epochs = max(0, progress.epochs - progress.epoch)
    batches = epochs * progress.batches + max(0, progress.batches - progress.batch)
    beside_ns = (progress.validation_ns + progress.between_ns) / max(1, progress.epochs_done)
    return batches / pace + (epochs + 1) * beside_ns / 1e9

"""The events that a lane sends over the event pipe. The codec checks the limits of the field types."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Annotated, TypeAlias

from tfmon.model.account import TimePart
from tfmon.model.event_base import LaneEvent, Range
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import FiniteFloat, KnobValue
from tfmon.model.profile import Profile
from tfmon.model.readings import Amount, SliceLoad

STARTING, IMPORTING, BUILDING, TRACING = "starting", "importing", "building", "tracing"
WARMING_UP, READY, RACING, PAUSED = "warming up", "ready", "racing", "paused"
"""Phases. A `ready` lane waits for the common start."""
OUT_OF_MEMORY = "out_of_memory"
LOWER_THE_BATCH = "b lowers the batch size and starts the lane again; r starts it as it was"
SLICE_START = "after a switch"
IN_A_STEP = "suspended in a step"
"""Windows with a suspension between steps or during a wait."""
STALL = "stall"
SUSPENDED = "suspended"
STOOD_STILL = "stood still until its end"
STOPPED = "suspended or paused"
PROTOCOL = 2
CHANNEL_CLOSED = "the script closed tfmon's channel"
FIT, ON_BATCH, EAGER = "fit", "train_on_batch", "eager"
"""Traits of a step."""
RUN_EAGERLY, FUNCTIONS_EAGERLY = "run_eagerly", "run_functions_eagerly"
COMPILES, SEES_BATCHES = "compiles", "sees batches"
DATASET, BATCH, SHUFFLE, CACHE, FILE_CACHE = "dataset", "batch", "shuffle", "cache", "cache in a file"
"""Parts of the dataset."""
SEQUENTIAL, UNCACHED, RANDOM = "sequential map", "uncached work", "random map"
ENDLESS, READ = "endless", "stages read"
SHORT, SPARE = "a short wait", "time to spare"
FITS, MOVABLE, SHUFFLED = "fits in memory", "can be moved", "shuffled before"
MADE, DIFFERS, UNROLLS = "made again", "other arrays", "unrolled layer"
MOST_CAUSES = 32
BINS_PER_OCTAVE = 64
Bin: TypeAlias = Annotated[int, Range(0, 64 * BINS_PER_OCTAVE)]
"""Bins of a histogram of step times, of up to 2^64 ns."""


def bin_of(duration_ns: float) -> int:
    """Return the index of a duration's bin."""
    return math.floor(math.log2(max(duration_ns, 1.0)) * BINS_PER_OCTAVE)


def middle_ns(bin_index: int) -> float:
    """Return the geometric middle of a bin."""
    return float(2.0 ** ((bin_index + 0.5) / BINS_PER_OCTAVE))


def histogram_of(durations_ns: Iterable[float]) -> dict[int, int]:
    """Count durations into bins."""
    bins: dict[int, int] = {}
    for duration_ns in durations_ns:
        index = bin_of(duration_ns)
        bins[index] = bins.get(index, 0) + 1
    return bins


def quantile_ns(bins: Mapping[int, int], fraction: float) -> float | None:
    """Return a quantile (nearest rank), to within 0.55 %."""
    rank = max(1, math.ceil(fraction * sum(bins.values())))
    seen = 0
    for index in sorted(bins):
        seen += bins[index]
        if seen >= rank:
            return middle_ns(index)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(LaneEvent):
    """The first event of a child."""

    protocol: int
    pid: int
    python: str
    reports_stack: bool = False
    """A scenario's child reports on SIGUSR1, a script on ReportStack."""
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
    bfloat16: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built(LaneEvent):
    """Model and data are built."""

    parameters: Amount
    examples: Amount | None
    settings: dict[str, KnobValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(LaneEvent):
    """The work between two synchronised points: from the previous window, or the first step after a pause."""

    span_ns: Annotated[int, Range(1, 10**17)]
    steps: Amount
    examples: Amount
    step: Amount
    input_ns: Amount
    call_ns: Amount
    """Time of dispatch and, on the CPU, of computing."""
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
    """Earlier time in no window, by reason."""
    traced_steps: Amount = 0
    traced_ns: Amount = 0
    """Included in `call_ns`."""
    traced: str = ""
    computing_share: Annotated[float, Range(0, 1)] | None = None
    """Share of `call_ns`, from a profile."""
    sampled: Amount = 0
    """Steps with a barrier around each part, in no other field."""
    sampled_examples: Amount = 0
    sampled_input_ns: Amount = 0
    sampled_copy_ns: Amount | None = None
    sampled_call_ns: Amount = 0
    sampled_tail_ns: Amount = 0
    """Time on the device after the call."""
    windows: Annotated[int, Range(1, 10**17)] = 1

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
    """A lane failed."""

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
    """A profile of steps, which no window contains."""

    folder: str
    profile: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFailed(LaneEvent):
    """A profile failed; training continues."""

    folder: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(LaneEvent):
    """A lane finished its steps, or was stopped."""

    steps: Amount
    measured: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobOffered(LaneEvent):
    """A script's knob that can change during training."""

    knob: str
    value: KnobValue
    default: KnobValue
    help: str
    choices: tuple[KnobValue, ...] = ()
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsResolved(LaneEvent):
    """The resolved defaults of TensorFlow and its environment."""

    values: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed(LaneEvent):
    """Progress of a user's script in Keras."""

    doing: str
    """`fit`, `validation`, `evaluate`, `predict` or ""."""
    epoch: Amount = 0
    """The epoch from 1, or 0 outside of `fit`."""
    epochs: Amount = 0
    batch: Amount = 0
    batches: Amount | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """Means of the present epoch."""
    epochs_done: Amount = 0
    """Finished epochs, of which the next two fields are sums."""
    validation_ns: Amount = 0
    between_ns: Amount = 0
    """Without validation."""
    restored: Amount = 0
    backup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured(LaneEvent):
    """A figure is unavailable."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDescribed(LaneEvent):
    """The definition of the present step."""

    text: str
    traits: tuple[str, ...] = ()

    @property
    def position(self) -> str:
        """The position, such as `train.py:17`."""
        return re.sub(r"(:\d+).*", r"\1", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDescribed(LaneEvent):
    """The input of a user's script."""

    traits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReported(LaneEvent):
    """The stacks of a child's threads."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsUsed(LaneEvent):
    """Files, folders and ports used for the first time."""

    uses: dict[str, str]
    """`w` written, `r` read, `d` deleted, `m` new folder, `b` bound port, `b43211` bound instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSeen(LaneEvent):
    """An observed cause of slowness; figures are sums."""

    cause: str
    place: str
    """A position such as "train.py:17 `def step(x):`"."""
    subject: str = ""
    what: str = ""
    """A detail such as "`x`: (32, 28) → (17, 28)"."""
    count: Amount = 1
    cost_ns: Amount = 0
    of_ns: Amount = 0
    """Time since the first step began."""
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of the replaced observation."""
        return self.cause, self.place, self.subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted(LaneEvent):
    """The account of a process up to `at_ns`."""

    parts: tuple[TimePart, ...]
    trained: bool = True
    last: bool = False

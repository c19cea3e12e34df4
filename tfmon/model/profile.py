"""The result of a profile. Units: mean nanoseconds per captured step."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from tfmon.model.event_base import Range
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.readings import Missing, Reading

BottleneckKind: TypeAlias = Literal[
    "retracing",
    "compute",
    "input",
    "sync",
    "transfer",
    "other",
    "eager",
    "dispatch",
    "step",
    "mixed",
    "all-reduce",
]
"""`other` is Python between steps. `eager` is dispatch of single operations. `step` is dispatch or compute, if not
distinguished. `mixed` is two bottlenecks. `all-reduce` sums gradients over devices.
"""

NAMELESS = "no operation named"
"""Text for profiles without names."""
NO_MEMORY = Missing("a profile of an older version does not tell it")

Mode: TypeAlias = Literal["graph", "xla", "eager", "unknown"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the input pipeline."""

    name: str
    busy_ns: float
    """Sum over threads, possibly above the step's time."""
    elements: float


@dataclass(frozen=True, slots=True)
class Input:
    """The input pipeline."""

    wait_ns: Reading
    stages: tuple[Stage, ...]
    python_ns: Reading


@dataclass(frozen=True, slots=True)
class Call:
    """The loop's thread during the step. The parts add up to `total_ns`."""

    total_ns: float
    """Calls of tf.functions without step marks, or in eager mode all except input."""
    dispatch_ns: float
    """Time of Python, TensorFlow's runtime and launches, or on a GPU of the whole call."""
    python_ns: Reading
    compute_ns: Reading
    tracing_ns: float
    compile_ns: float


@dataclass(frozen=True, slots=True)
class GpuTime:
    """The time of a GPU: kernels, exposed copies and idle time add up to the step."""

    name: str
    kernels_ns: float
    all_reduce_ns: float
    h2d_ns: float
    d2h_ns: float
    h2d_exposed_ns: float
    d2h_exposed_ns: float
    """Copies while nothing else ran."""
    h2d_bytes: Reading
    d2h_bytes: Reading
    idle_ns: float
    idle_input_ns: float
    idle_launch_ns: float
    idle_tracing_ns: float
    idle_other_ns: float


@dataclass(frozen=True, slots=True)
class Op:
    """An operation, summed over its runs."""

    name: str
    kind: str
    device: str
    count: int
    self_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a step. Concurrent operations share the time. Other time belongs to copies, then to the loop."""

    name: str
    kind: str
    device: str
    step_ns: float
    self_ns: float = 0.0
    """Sum over threads."""
    count: int = 0

    @property
    def runs(self) -> bool:
        """Whether the part is an operation."""
        return bool(self.kind)


@dataclass(frozen=True, slots=True)
class Ops:
    """The operations that TensorFlow records."""

    top: tuple[Op, ...]
    runs: int
    time_ns: float
    busy_ns: float
    parallelism: Reading
    """Mean number of concurrent operations."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A function that was traced or compiled."""

    function: str
    count: int
    cost_ns: Reading


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """Counters of the processor, shortly before a profile."""

    instructions_per_cycle: float
    stalled_share: Reading
    """Share of cycles that wait, usually for memory."""


NOT_COUNTED = Missing("the processor's counters are read for CPU lanes of this machine, shortly before a profile")


@dataclass(frozen=True, slots=True)
class Allocated:
    """Memory of an operation at the peak."""

    name: str
    allocated_bytes: int
    """Up to twice the tensors' size."""
    blocks: int
    shape: str = ""


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The peak of an allocator."""

    place: str
    allocated_bytes: int
    before_bytes: int
    unknown_bytes: int
    """Negative if frees were lost."""
    operations: tuple[Allocated, ...]
    reached_in: str
    highest_bytes: int


@dataclass(frozen=True, slots=True)
class ProfileBottleneck:
    """The bottleneck of the lane."""

    kind: BottleneckKind
    text: str
    shares: dict[str, float]


@dataclass(frozen=True, slots=True)
class Profile:
    """A capture of some training steps."""

    steps: Annotated[int, Range(1, 10**6)]
    step_ns: Annotated[float, Range(1, 1e18)]
    """Time from the first step's start to the last step's end, over the number of steps."""
    longest_ns: float
    mode: Mode
    input: Input
    call: Call | Missing
    sync_ns: Reading
    other_ns: float
    drain_ns: float
    devices: tuple[GpuTime, ...]
    ops: Ops | Missing
    retraced_steps: int
    retraces: tuple[Repeat, ...]
    compiles: tuple[Repeat, ...]
    bottleneck: ProfileBottleneck | Missing
    host_only: bool
    notes: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    counters: CpuCounters | Missing = NOT_COUNTED
    memory: tuple[MemoryPeak, ...] | Missing = NO_MEMORY

    @property
    def computing_share(self) -> float | None:
        """Share of the calls in which an operation ran."""
        call = self.call
        if isinstance(call, Missing) or isinstance(call.compute_ns, Missing) or not call.total_ns:
            return None
        return min(1.0, call.compute_ns / call.total_ns)

    @property
    def calling_share(self) -> float | None:
        """Share of calls in the time without input and waits."""
        if isinstance(self.call, Missing) or not self.call.total_ns:
            return None
        return self.call.total_ns / (self.call.total_ns + self.other_ns)

"""The result of a profile. Units: mean nanoseconds per captured step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from tfmon.model.readings import Missing, Range, Reading

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
"""`other` is Python between the steps; `eager` is dispatch of single operations; `step` is dispatch or compute if
not distinguished; `mixed` is two of them; `all-reduce` sums gradients over devices.
"""

NAMELESS = "no operation named"
"""As for JAX."""
NO_MEMORY = Missing("a profile of an older version does not tell it")

Mode: TypeAlias = Literal["graph", "xla", "eager", "unknown"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the input pipeline."""

    name: str
    busy_ns: float
    """On all threads: can exceed the step's time."""
    elements: float


@dataclass(frozen=True, slots=True)
class Input:
    """The input pipeline."""

    wait_ns: Reading
    stages: tuple[Stage, ...]
    """The busiest first."""
    python_ns: Reading


@dataclass(frozen=True, slots=True)
class Call:
    """The loop's thread during the step; the parts add up to `total_ns`."""

    total_ns: float
    """Without its mark, calls of a tf.function; eager: all but the input."""
    dispatch_ns: float
    """Python, TensorFlow's runtime, launches. On a GPU this is all."""
    python_ns: Reading
    compute_ns: Reading
    tracing_ns: float
    compile_ns: float


@dataclass(frozen=True, slots=True)
class GpuTime:
    """A GPU; `kernels`, the exposed copies and `idle` add up to the step."""

    name: str
    kernels_ns: float
    all_reduce_ns: float
    """Only kernels that sum over GPUs."""
    h2d_ns: float
    d2h_ns: float
    h2d_exposed_ns: float
    d2h_exposed_ns: float
    """While nothing else ran."""
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
    """Without operations inside it."""
    share: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the time of a step; the parts add up to it.

    Concurrent operations share the time equally. Time without operations belongs to copies, then to the loop.
    """

    name: str
    kind: str
    device: str
    step_ns: float
    self_ns: float = 0.0
    """On all threads; more than `step_ns` if others ran beside it."""
    count: int = 0

    @property
    def runs(self) -> bool:
        """Whether it is an operation."""
        return bool(self.kind)


@dataclass(frozen=True, slots=True)
class Ops:
    """The operations; TensorFlow does not record the cheapest."""

    top: tuple[Op, ...]
    runs: int
    time_ns: float
    busy_ns: float
    parallelism: Reading
    """While any ran."""


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
    """Of the cycles, waiting for a result, usually for memory."""


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
    """Such as GPU:0, or TensorFlow's name."""
    allocated_bytes: int
    before_bytes: int
    """Usually weights and the optimizer."""
    unknown_bytes: int
    """Negative if frees were lost."""
    operations: tuple[Allocated, ...]
    reached_in: str
    """The operation that made the peak."""
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
    """From the first step's start to the end of the last one's work, over their number."""
    longest_ns: float
    mode: Mode
    input: Input
    call: Call | Missing
    sync_ns: Reading
    """Usually reading a result."""
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
        """Of the calls, in which an operation ran."""
        call = self.call
        if isinstance(call, Missing) or isinstance(call.compute_ns, Missing) or not call.total_ns:
            return None
        return min(1.0, call.compute_ns / call.total_ns)

    @property
    def calling_share(self) -> float | None:
        """Of the time without input and waits."""
        if isinstance(self.call, Missing) or not self.call.total_ns:
            return None
        return self.call.total_ns / (self.call.total_ns + self.other_ns)

"""The result of a profile: the time of a step by parts, the operations, and the bottleneck.

Units: mean nanoseconds per captured step, unless a field has another unit.
"""

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
they are not distinguished; `mixed` is two of them; `all-reduce` sums gradients over several devices.
"""

NAMELESS = "no operation named"
"""Memory without an operation in the trace, as for JAX."""
NO_MEMORY = Missing("a profile of an older version does not tell it")

Mode: TypeAlias = Literal["graph", "xla", "eager", "unknown"]
"""`unknown` if the trace has neither a tf.function nor single operations."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the input pipeline."""

    name: str
    busy_ns: float
    """Without earlier stages, on all threads: can exceed the step's time."""
    elements: float


@dataclass(frozen=True, slots=True)
class Input:
    """The input pipeline."""

    wait_ns: Reading
    stages: tuple[Stage, ...]
    """The busiest first, without stages that only pass elements on."""
    python_ns: Reading


@dataclass(frozen=True, slots=True)
class Call:
    """The loop's thread during the step; the parts do not overlap and add up to `total_ns`."""

    total_ns: float
    """The call of the step. In a trace without its mark: calls of a tf.function; eager: all but the input."""
    dispatch_ns: float
    """Without computation: Python, TensorFlow's runtime, launches. On a GPU this is all of it."""
    python_ns: Reading
    """Part of it outside TensorFlow's runtime."""
    compute_ns: Reading
    tracing_ns: float
    """Calls that traced, without their operations."""
    compile_ns: float
    """Calls in which XLA compiled without tracing, without their operations."""


@dataclass(frozen=True, slots=True)
class GpuTime:
    """A GPU; `kernels`, the exposed copies and `idle` do not overlap and add up to the step."""

    name: str
    kernels_ns: float
    """With kernels or anything but a copy from or to the host."""
    all_reduce_ns: float
    """Part with only kernels that sum over several GPUs, including the wait for the slowest."""
    h2d_ns: float
    d2h_ns: float
    h2d_exposed_ns: float
    d2h_exposed_ns: float
    """While nothing else ran; copies in both directions count as from the host."""
    h2d_bytes: Reading
    d2h_bytes: Reading
    idle_ns: float
    idle_input_ns: float
    idle_launch_ns: float
    idle_tracing_ns: float
    idle_other_ns: float
    """Idle time by the activity of the loop's thread."""


@dataclass(frozen=True, slots=True)
class Op:
    """An operation of the step, summed over its runs."""

    name: str
    kind: str
    """Such as MatMul. Without one, the name of the kernel or of XLA."""
    device: str
    count: int
    self_ns: float
    """Without operations inside it."""
    share: float
    """Of the self time of all operations."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the time of a step; the parts do not overlap and add up to it.

    Concurrent operations share the time equally. Time without operations belongs to copies, then to the loop.
    """

    name: str
    kind: str
    """The type of an operation."""
    device: str
    step_ns: float
    self_ns: float = 0.0
    """On all threads or queues; more than `step_ns` if others ran beside it."""
    count: int = 0

    @property
    def runs(self) -> bool:
        """Whether it is an operation."""
        return bool(self.kind)


@dataclass(frozen=True, slots=True)
class Ops:
    """The operations of the step; TensorFlow does not record its cheapest ones."""

    top: tuple[Op, ...]
    runs: int
    time_ns: float
    """Their self time."""
    busy_ns: float
    parallelism: Reading
    """Mean number of concurrent operations while any ran."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A function that was traced or compiled during the capture."""

    function: str
    count: int
    cost_ns: Reading


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """Counters of the processor over all threads of a CPU lane, shortly before its profile."""

    instructions_per_cycle: float
    stalled_share: Reading
    """Share of cycles in which the next instruction waited for a result, usually for memory."""


NOT_COUNTED = Missing("the processor's counters are read for CPU lanes of this machine, shortly before a profile")


@dataclass(frozen=True, slots=True)
class Allocated:
    """Memory of an operation that was not freed before the peak."""

    name: str
    allocated_bytes: int
    """Up to twice the size of the tensors."""
    blocks: int
    shape: str = ""
    """Of the largest tensor, such as [64,128]."""


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The peak of an allocator during the captured steps."""

    place: str
    """The device, such as GPU:0, with a restriction to some blocks; or TensorFlow's name."""
    allocated_bytes: int
    before_bytes: int
    """Allocated before the capture: usually weights, and the state of the optimizer."""
    unknown_bytes: int
    """Missing in the trace, whose profiler lost events; negative if frees were lost."""
    operations: tuple[Allocated, ...]
    reached_in: str
    """The operation that made the peak. Empty if memory was only freed."""
    highest_bytes: int
    """Since the process began."""


@dataclass(frozen=True, slots=True)
class ProfileBottleneck:
    """The bottleneck of the lane."""

    kind: BottleneckKind
    text: str
    shares: dict[str, float]
    """Of step time, from 0 to 1; they add up to at most 1."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A capture of some training steps."""

    steps: Annotated[int, Range(1, 10**6)]
    step_ns: Annotated[float, Range(1, 1e18)]
    """From the start of the first step to the end of the last one's work, over the number of steps."""
    longest_ns: float
    mode: Mode
    input: Input
    call: Call | Missing
    sync_ns: Reading
    """Outside of pipeline and step while the GPU worked: usually reading a result."""
    other_ns: float
    drain_ns: float
    devices: tuple[GpuTime, ...]
    ops: Ops | Missing
    retraced_steps: int
    retraces: tuple[Repeat, ...]
    compiles: tuple[Repeat, ...]
    bottleneck: ProfileBottleneck | Missing
    host_only: bool
    """Whether the trace has nothing of the lane's GPU."""
    notes: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    """The longest part first. Empty in an old recording."""
    counters: CpuCounters | Missing = NOT_COUNTED
    memory: tuple[MemoryPeak, ...] | Missing = NO_MEMORY
    """The device's allocator first."""

    @property
    def computing_share(self) -> float | None:
        """Share of the calls' time in which an operation ran on the CPU, 0 to 1."""
        call = self.call
        if isinstance(call, Missing) or isinstance(call.compute_ns, Missing) or not call.total_ns:
            return None
        return min(1.0, call.compute_ns / call.total_ns)

    @property
    def calling_share(self) -> float | None:
        """Share of step calls in the loop's time without input and waits, 0 to 1."""
        if isinstance(self.call, Missing) or not self.call.total_ns:
            return None
        return self.call.total_ns / (self.call.total_ns + self.other_ns)

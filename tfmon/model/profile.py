"""What a profile says: where the time of a step went, what ran, and what limits the lane.

Units: times are means over the captured steps, in nanoseconds a step, unless a field says otherwise.
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
"""`other` is Python between the steps; `eager` is dispatch of single operations; `step` is dispatch or compute,
where they are not told apart; `mixed` is two of them; `all-reduce` adds gradients up over several devices."""

NAMELESS = "no operation named"
"""What allocated memory where the trace tells no operation, as of what JAX runs."""
NO_MEMORY = Missing("a profile of an older version does not tell it")

Mode: TypeAlias = Literal["graph", "xla", "eager", "unknown"]
"""How the step ran; `unknown` when the trace shows neither a tf.function nor single operations."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the input pipeline, such as Map or BatchV2."""

    name: str
    busy_ns: float
    """Its own work without that of the stages before it, on all threads: it may exceed the step's time."""
    elements: float
    """What it made, a step."""


@dataclass(frozen=True, slots=True)
class Input:
    """The input pipeline."""

    wait_ns: Reading
    """The loop waited for the next batch."""
    stages: tuple[Stage, ...]
    """The busiest first. Without stages that only pass on what other threads made."""
    python_ns: Reading
    """Python functions in the pipeline, on all threads."""


@dataclass(frozen=True, slots=True)
class Call:
    """What the loop's thread did in the step; the parts do not overlap and add up to `total_ns`."""

    total_ns: float
    """The call of the step. In a trace that does not mark it: calls of a tf.function; eager: all but the input."""
    dispatch_ns: float
    """Nothing of the step was computed: Python, TensorFlow's runtime, launching. On a GPU this is all of it."""
    python_ns: Reading
    """Of that, before and after TensorFlow's runtime was at work: binding arguments, making results."""
    compute_ns: Reading
    """Operations of the step ran on the CPU meanwhile."""
    tracing_ns: float
    """Calls that traced, without their operations: building a graph, and making it ready to run."""
    compile_ns: float
    """Calls in which XLA compiled and that traced nothing, without their operations."""


@dataclass(frozen=True, slots=True)
class GpuTime:
    """A GPU in the trace; `kernels`, the exposed copies and `idle` do not overlap and add up to the step."""

    name: str
    kernels_ns: float
    """Kernels ran, or anything but a copy from or to the host."""
    all_reduce_ns: float
    """Of that, only those that add values up over several GPUs; with the wait for the slowest of them."""
    h2d_ns: float
    d2h_ns: float
    """Copies from the host and to the host were under way."""
    h2d_exposed_ns: float
    d2h_exposed_ns: float
    """Of that, nothing else ran; where both ways were under way, it counts as from the host."""
    h2d_bytes: Reading
    d2h_bytes: Reading
    idle_ns: float
    idle_input_ns: float
    idle_launch_ns: float
    idle_tracing_ns: float
    idle_other_ns: float
    """The device's idle time by what the loop's thread did meanwhile; `other` is reading results and Python."""


@dataclass(frozen=True, slots=True)
class Op:
    """An operation of the step, summed over its runs."""

    name: str
    kind: str
    """Its type, such as MatMul; the kernel's or XLA's own name where there is none."""
    device: str
    count: int
    """Runs in the whole capture."""
    self_ns: float
    """Without the operations that ran inside it."""
    share: float
    """Of the self time of all operations."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the time of a step; the parts do not overlap and add up to it.

    Operations that run at once share that time equally. Where none runs, copies have it, then what the loop does.
    """

    name: str
    kind: str
    """The type of the operation; empty for a part in which no operation ran."""
    device: str
    """Empty for the loop's thread."""
    step_ns: float
    """Its part of a step."""
    self_ns: float = 0.0
    """Its own time a step on all threads or queues; more than `step_ns` where others ran beside it."""
    count: int = 0
    """Runs in the whole capture."""

    @property
    def runs(self) -> bool:
        """Whether it is an operation."""
        return bool(self.kind)


@dataclass(frozen=True, slots=True)
class Ops:
    """The operations of the step that the trace shows; TensorFlow does not record its cheapest ones."""

    top: tuple[Op, ...]
    """The ten that took most, by self time."""
    runs: int
    """Operations that ran in the whole capture."""
    time_ns: float
    """Their self time, added up."""
    busy_ns: float
    """At least one of them ran."""
    parallelism: Reading
    """How many ran at once while any ran."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A function that was traced or compiled during the capture."""

    function: str
    count: int
    """In the whole capture."""
    cost_ns: Reading
    """What it took each time: building the graph, or compiling it."""


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """What the processor counted in all threads of a CPU lane while it trained, shortly before its profile."""

    instructions_per_cycle: float
    stalled_share: Reading
    """Of the cycles, from 0 to 1: in these the next instruction waited for a result, as a rule for memory."""


NOT_COUNTED = Missing("the processor's counters are read for CPU lanes of this machine, shortly before a profile")


@dataclass(frozen=True, slots=True)
class Allocated:
    """Memory of an operation that was not given back before the peak."""

    name: str
    """Of the operation; or what else is known, such as the input pipeline."""
    allocated_bytes: int
    """What the allocator took for it: up to twice what the tensors need."""
    blocks: int
    shape: str = ""
    """Of the largest, such as [64,128]; empty where the trace does not tell it."""


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The most that an allocator had handed out at once during the captured steps, and for what."""

    place: str
    """The device, such as GPU:0, and which blocks unless all; TensorFlow's name of any other allocator."""
    allocated_bytes: int
    before_bytes: int
    """Of that, allocated before the capture: as a rule weights, and the state of the optimizer."""
    unknown_bytes: int
    """Of that, not in the trace, whose profiler lost events; negative where memory was given back unseen."""
    operations: tuple[Allocated, ...]
    """The rest, the most first."""
    reached_in: str
    """The operation whose block made it the peak; empty where memory was only given back."""
    highest_bytes: int
    """The peak since the process began."""


@dataclass(frozen=True, slots=True)
class ProfileBottleneck:
    """What limits the lane."""

    kind: BottleneckKind
    text: str
    """One sentence with the number behind it."""
    shares: dict[str, float]
    """Parts of step time, from 0 to 1, by the kinds of bottleneck. They add up to at most 1."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A capture of some training steps, read."""

    steps: Annotated[int, Range(1, 10**6)]
    step_ns: Annotated[float, Range(1, 1e18)]
    """From the beginning of the first step to the end of the last one's work, over the number of steps."""
    longest_ns: float
    """The longest step, on the loop's thread."""
    mode: Mode
    input: Input
    call: Call | Missing
    sync_ns: Reading
    """The loop was outside of pipeline and step while the GPU worked: as a rule, it read a result."""
    other_ns: float
    """The loop was outside of pipeline and step otherwise."""
    drain_ns: float
    """After the last step, until the GPU had done its work."""
    devices: tuple[GpuTime, ...]
    ops: Ops | Missing
    retraced_steps: int
    """Steps in which a function was traced or compiled."""
    retraces: tuple[Repeat, ...]
    compiles: tuple[Repeat, ...]
    bottleneck: ProfileBottleneck | Missing
    host_only: bool
    """The lane's GPU left nothing in the trace, so that only what the host did is known."""
    notes: tuple[str, ...]
    """What else has to be said, a sentence each."""
    parts: tuple[Part, ...] = ()
    """The whole time of a step, the longest part first; empty in a recording of an older version."""
    counters: CpuCounters | Missing = NOT_COUNTED
    memory: tuple[MemoryPeak, ...] | Missing = NO_MEMORY
    """Of each allocator that did anything, that of the device that computes first."""

    @property
    def computing_share(self) -> float | None:
        """Share of the calls' time in which an operation ran on the CPU, 0 to 1; None where it is not known."""
        call = self.call
        if isinstance(call, Missing) or isinstance(call.compute_ns, Missing) or not call.total_ns:
            return None
        return min(1.0, call.compute_ns / call.total_ns)

    @property
    def calling_share(self) -> float | None:
        """Share of the loop's time without input and waits that step calls take, 0 to 1; None for unknown."""
        if isinstance(self.call, Missing) or not self.call.total_ns:
            return None
        return self.call.total_ns / (self.call.total_ns + self.other_ns)

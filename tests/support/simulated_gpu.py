"""A training loop on a device that works while the host goes on, simulated: its clocks, its windows' sums.

The host takes a batch, copies it, launches the step's kernels one after another, and goes on. Kernels wait in a
queue that has room for a few steps; if it is full, a launch waits. This is CUDA's behaviour as a lane's
clocks see it: launches return at once, copies from pageable memory and reads of a result do not.
"""

from collections import deque
from dataclasses import dataclass

from support.measured_lanes import measured_lane
from tfmon.model.lane_state import LaneState

KERNELS = 20
QUEUE_STEPS = 4
STEPS, WINDOW_STEPS = 600, 100


@dataclass
class Gpu:
    """The times of one step in microseconds."""

    input: float
    launch: float
    copy: float
    device: float
    between: float = 0
    reads: bool = False
    graph: bool = True


class _Clock:
    """The time on the host, and the time at which the device will have finished its queue."""

    def __init__(self, lane: Gpu) -> None:
        self.lane, self.now, self.idle_from = lane, 0.0, 0.0
        self.ends: deque[float] = deque()

    def call(self, *, copies: bool = True) -> None:
        """Launch a step. `copies` is False if its batch is already on the device."""
        lane = self.lane
        if copies:
            self.now += lane.copy
        for _ in range(KERNELS):
            self.now += lane.launch / KERNELS
            while len(self.ends) >= QUEUE_STEPS * KERNELS:
                self.now = max(self.now, self.ends.popleft())
            self.idle_from = max(self.idle_from, self.now) + lane.device / KERNELS
            self.ends.append(self.idle_from)

    def read(self) -> None:
        """Wait until the device has done all."""
        self.now = max(self.now, self.idle_from)
        self.ends.clear()


def simulate(lane: Gpu) -> LaneState:
    """Return the state of a lane after six windows, each with a sampled step before it."""
    clock = _Clock(lane)
    sums = dict.fromkeys(("input_ns", "call_ns", "sync_ns", "span_ns"), 0.0)
    sampled = dict.fromkeys(("sampled_input_ns", "sampled_copy_ns", "sampled_call_ns", "sampled_tail_ns"), 0.0)
    for _ in range(STEPS // WINDOW_STEPS):
        _sample(clock, sampled)
        began = clock.now
        for _ in range(WINDOW_STEPS):
            clock.now += lane.between
            at = clock.now
            clock.now += lane.input
            sums["input_ns"] += clock.now - at
            at = clock.now
            clock.call()
            sums["call_ns"] += clock.now - at
            at = clock.now
            if lane.reads:
                clock.read()
            sums["sync_ns"] += clock.now - at
        at = clock.now
        clock.read()
        sums["sync_ns"] += clock.now - at
        sums["span_ns"] += clock.now - began
    in_ms = {name: value / 1_000 for name, value in {**sums, **sampled}.items()}
    settings = {"graph": lane.graph, "sync_every_step": lane.reads}
    windows = STEPS // WINDOW_STEPS
    return measured_lane("gpu:0", settings=settings, steps=STEPS, sampled=windows, **in_ms)


def busy_share(state: LaneState, lane: Gpu) -> float:
    """Return the share of the windows' time in which the device worked."""
    return STEPS * lane.device * 1_000 / state.steady.span_ns


def _sample(clock: _Clock, sampled: dict[str, float]) -> None:
    """Train a step from an idle device, as `tfmon.trainer.stepper` does."""
    lane = clock.lane
    sampled["sampled_input_ns"] += lane.input
    clock.now += lane.input + lane.copy
    sampled["sampled_copy_ns"] += lane.copy
    at = clock.now
    clock.call(copies=False)
    sampled["sampled_call_ns"] += clock.now - at
    at = clock.now
    clock.read()
    sampled["sampled_tail_ns"] += clock.now - at

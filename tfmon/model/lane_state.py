"""All that is known of one lane, and how each event changes it. Pure: no clock, no lock, no process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tfmon.model import gpu_share
from tfmon.model.ends import Trouble, trouble_of
from tfmon.model.energy import GpuEnergy
from tfmon.model.events import BadLine, Event, KnobAsked, LaneEnded, LaneStarted, StoodStill
from tfmon.model.knobs import KnobValue, Settings, show
from tfmon.model.lane_events import (
    Built,
    Equipped,
    Finished,
    Hello,
    KnobApplied,
    KnobOffered,
    KnobRefused,
    LaneFailed,
    PhaseEntered,
    Progressed,
    StackTold,
    Window,
)
from tfmon.model.lane_log import LogLine, grown
from tfmon.model.measured import Measured
from tfmon.model.measures import KnobMark, Mean, Point, Tally, TurnSpeed
from tfmon.model.pulse import STOOD_STILL, Pulse
from tfmon.model.readings import Missing, Reading, known
from tfmon.model.samples import GpuSample, TreeSample
from tfmon.model.spec import LaneSpec, title

STARTING, IMPORTING, BUILDING, TRACING = "starting", "importing", "building", "tracing"
WARMING_UP, READY, RACING, PAUSED = "warming up", "ready", "racing", "paused"
DONE, FAILED, ABSENT = "done", "failed", "absent"
PHASES = (
    STARTING, IMPORTING, BUILDING, TRACING, WARMING_UP, READY, RACING, PAUSED, DONE, FAILED, ABSENT,
)  # fmt: skip
"""The parts of a lane's life, in order. `ready` waits for the start signal that all lanes get together."""
OVER = (DONE, FAILED, ABSENT)
"""Phases that a lane does not leave without a restart."""

TURN_START = "turn start"
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
class Asked:
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
    asked: dict[str, Asked] = field(default_factory=dict)
    """Knobs asked for and not yet answered."""
    refused: str = ""
    """Why the latest wish was refused; empty when it was not."""
    steps: int = 0
    examples: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    measured: Measured = field(default_factory=Measured)
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
    gpu_held_bytes: Reading = NO_GPU
    """Memory of the GPU that this lane takes, as `gpu_held_source` knows it."""
    gpu_held_source: str = ""
    """`driver`, `only process`, `TensorFlow's allocator` (a lower bound) or `device change`; see `gpu_share`."""
    gpu_lane_busy_pct: Reading = NO_GPU
    """Share of the GPU's time that the lane's own processes took, over the last 2 s."""
    gpu_used_before: float | None = None
    """Bytes in use on the whole GPU before this lane opened it."""
    gpu_energy: GpuEnergy = field(default_factory=GpuEnergy)
    gpu_in_use_bytes: int | None = None
    gpu_peak_bytes: int | None = None
    trouble: Trouble | None = None
    ended: LaneEnded | None = None
    log: tuple[LogLine, ...] = ()
    """What it printed and what happened to it, the children before this one included."""
    bad_lines: int = 0
    last_bad_line: str = ""
    pulse: Pulse = field(default_factory=Pulse)
    """Its signs of life."""
    tells_stack: bool = False
    """Whether it can be asked for the stacks of its threads."""
    stack: StackTold | None = None
    """The stacks that it told last."""

    @property
    def title(self) -> str:
        """What the lane is called on the screen: its device, and what tells it apart as it is in force now."""
        return title(self.spec, self.settings)

    @property
    def steady(self) -> Tally:
        """Sums since the lane began to race, or a knob or the mode last changed."""
        return self.measured.steady

    @property
    def turns(self) -> tuple[TurnSpeed, ...]:
        """Slices since then, oldest first; only what was steady in them."""
        return self.measured.turns

    @property
    def excluded(self) -> dict[str, int]:
        """Windows left out of steady state, by reason."""
        return self.measured.excluded

    @property
    def gpu_training_w(self) -> Reading:
        """About what the lane's GPU draws while the lane trains, since a knob or the mode last changed."""
        return NO_GPU if self.spec.kind == "cpu" else self.gpu_energy.training_w

    @property
    def gpu_j_per_1000_examples(self) -> Reading:
        """About how much energy the lane's GPU takes for 1,000 examples, in its own turns, idle power included.

        Source: `gpu_training_w` over the steady throughput.
        """
        watts, speed = self.gpu_training_w, self.steady.examples_per_s
        if isinstance(watts, Missing):
            return watts
        return 1_000 * watts / speed if speed else Missing("no steady step yet")

    def turns_under(self, settings: Settings) -> tuple[TurnSpeed, ...]:
        """Return the slices that ran under these settings, also before a knob was changed; oldest first."""
        return self.measured.turns_under(settings, self.settings)

    @property
    def over(self) -> bool:
        """True when the lane cannot train on without a restart."""
        return self.phase in OVER

    def recent(self) -> Tally:
        """Return the sums over the steady windows of the last 5 s of training, since the last knob change.

        These make the throughput that is shown as current.
        """
        if not self.points:
            return Tally()
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
        return Tally(windows=windows, steps=steps, examples=examples, span_ns=span_ns)


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


def advance(state: LaneState, event: Event) -> LaneState:
    """Return the lane's state after an event; an event that does not concern it changes nothing."""
    pulse = state.pulse.after(event, state.phase_since_ns)
    if isinstance(event, Window) and (marks := state.pulse.marks(event)):
        event = replace(event, marks=(*event.marks, *marks))
    after, log = _advance(state, event), grown(state.log, event)
    same = pulse is after.pulse and log is after.log
    return after if same else replace(after, pulse=pulse, log=log)


def _advance(state: LaneState, event: Event) -> LaneState:
    match event:
        case Window():
            return _after_window(state, event)
        case TreeSample():
            return _after_tree_sample(state, event)
        case GpuSample():
            return take_gpu_sample(state, event, alone=True)
        case PhaseEntered():
            return state if state.over else _enter(state, event.phase, event.at_ns)
        case KnobAsked():
            asked = Asked(event.request, event.value, event.at_ns)
            return replace(state, asked={**state.asked, event.knob: asked}, refused="")
        case KnobApplied():
            return _after_knob(state, event)
        case KnobRefused():
            return replace(state, asked=_without(state.asked, event.knob, event.request), refused=event.reason)
        case LaneStarted():
            same = event.source == state.source
            earlier = state.measured.afresh(state.settings).earlier if same else ()
            fresh = LaneState(spec=state.spec, started_ns=event.at_ns, pid=event.pid, source=event.source)
            fresh = replace(fresh, measured=Measured(earlier=earlier), command=event.command)
            held = NO_GPU if state.spec.kind == "cpu" else NOT_SAMPLED
            fresh = replace(fresh, gpu_held_bytes=held, gpu_lane_busy_pct=held)
            return replace(fresh, phase_since_ns=event.at_ns, settings=event.settings)
        case Hello():
            return replace(state, pid=event.pid, python=event.python, tells_stack=event.tells_stack)
        case Equipped():
            return replace(
                state,
                tensorflow=event.tensorflow,
                keras=event.keras,
                numpy=event.numpy,
                device_name=event.device_name,
                gpu_uuid=event.gpu_uuid,
            )
        case Built():
            return replace(
                state,
                parameters=event.parameters,
                data_examples=event.examples,
                settings=event.settings,
            )
        case LaneFailed():
            phase = ABSENT if event.kind == "device_absent" else FAILED
            trouble = Trouble(event.message, event.hint, event.kind)
            return replace(_enter(state, phase, event.at_ns), trouble=trouble)
        case Finished():
            return _enter(state, DONE, event.at_ns)
        case LaneEnded():
            return _after_end(state, event)
        case KnobOffered():
            return replace(state, settings={**state.settings, event.knob: event.value})
        case Progressed():
            return replace(state, progress=event)
        case BadLine():
            return replace(state, bad_lines=state.bad_lines + event.lines, last_bad_line=event.problem)
        case StoodStill():
            mark = KnobMark(event.at_ns, f"{STOOD_STILL} {event.lasted_s:.0f} s", 0)
            kept = disturbed(state, event.since_ns, event.at_ns, STOOD_STILL)
            return replace(kept, knob_marks=(*state.knob_marks[-63:], mark))
        case StackTold():
            return replace(state, stack=event)
        case _:
            return state


def _enter(state: LaneState, phase: str, at_ns: int) -> LaneState:
    if phase == state.phase:
        return state
    return replace(state, phase=phase, phase_since_ns=at_ns)


def _after_tree_sample(state: LaneState, sample: TreeSample) -> LaneState:
    if state.over:
        return state
    racing = state.phase == RACING
    return replace(
        state,
        tree_cpu_pct=sample.cpu_pct,
        private_bytes=sample.private_bytes,
        tree_at_ns=sample.at_ns,
        processes=sample.processes,
        pids=sample.pids,
        racing_cpu_pct=state.racing_cpu_pct.plus(sample.cpu_pct) if racing else state.racing_cpu_pct,
    )


def take_gpu_sample(state: LaneState, sample: GpuSample, *, alone: bool) -> LaneState:
    """Return the lane's state after a sample of a GPU; `alone` is False when other lanes train on it, too."""
    if state.over or not trains_on(state, sample):
        return state
    racing = state.phase == RACING
    busy, energy, before = state.racing_gpu_busy_pct, state.gpu_energy, state.gpu_used_before
    if before is None and state.phase in (STARTING, IMPORTING):
        before = known(sample.used_bytes)
    opened = state.phase not in (STARTING, IMPORTING, BUILDING)
    held, source = gpu_share.held_bytes(
        sample,
        state.pids,
        alone=alone and opened,
        peak_bytes=state.gpu_peak_bytes or state.gpu_in_use_bytes,
        before_bytes=None if sample.part_of else before,
    )
    return replace(
        state,
        racing_gpu_busy_pct=busy.plus(sample.busy_pct) if racing else busy,
        gpu_held_bytes=held,
        gpu_held_source=source,
        gpu_lane_busy_pct=gpu_share.busy_pct(sample, state.pids, alone=alone and opened),
        gpu_used_before=before,
        gpu_energy=energy.plus(sample, state.points, shared=not alone) if racing else energy.interrupted(),
    )


def measure_afresh(state: LaneState) -> LaneState:
    """Return the state with steady state beginning anew: what was measured until now was another thing."""
    return replace(state, measured=state.measured.afresh(state.settings), gpu_energy=GpuEnergy())


def disturbed(state: LaneState, since_ns: int, until_ns: int, reason: str) -> LaneState:
    """Return the state without what was measured in a stretch of time that something disturbed."""
    measured = state.measured.disturbed(since_ns, until_ns, reason)
    if measured is state.measured:
        return state
    out = {one.at_ns for one in state.measured.latest} - {one.at_ns for one in measured.latest}
    points = tuple(replace(one, steady=False) if one.at_ns in out else one for one in state.points)
    return replace(state, measured=measured, points=points)


def trains_on(state: LaneState, gpu: GpuSample) -> bool:
    """Return whether a lane trains on this GPU: by UUID, or by index until the lane has told its UUID.

    CUDA gives the UUID of an instance (MIG) without saying that it is one, so the first word does not count.
    """
    if state.spec.kind != "gpu":
        return False
    if state.gpu_uuid:
        return gpu.key.removeprefix("MIG-") == state.gpu_uuid.removeprefix("GPU-") or gpu.key == state.gpu_uuid
    return gpu.index == state.spec.index and not gpu.part_of


def _after_window(state: LaneState, window: Window) -> LaneState:
    steady = not window.marks
    point = Point(window.at_ns, window.span_ns, window.examples, window.steps, steady, window.turn is not None)
    loss = window.loss
    return replace(
        state,
        steps=window.step,
        examples=state.examples + window.examples + window.sampled_examples,
        first_loss=loss if state.first_loss is None else state.first_loss,
        last_loss=loss if loss is not None else state.last_loss,
        measured=state.measured.plus(window),
        points=(*state.points[-(HISTORY_WINDOWS - 1) :], point),
        settings=window.settings,
        computing_share=window.computing_share,
        traced=window.traced or state.traced,
        gpu_in_use_bytes=window.gpu_in_use_bytes,
        gpu_peak_bytes=window.gpu_peak_bytes,
    )


def _after_knob(state: LaneState, event: KnobApplied) -> LaneState:
    mark = KnobMark(event.at_ns, f"{event.knob} {show(event.value)}", event.gap_ns)
    return replace(
        measure_afresh(state),
        settings={**state.settings, event.knob: event.value},
        asked=_without(state.asked, event.knob, event.request),
        refused="",
        knob_marks=(*state.knob_marks[-63:], mark),
    )


def _without(asked: dict[str, Asked], knob: str, request: int) -> dict[str, Asked]:
    """Drop a wish that was answered, unless a newer one for the same knob is under way."""
    return {name: wish for name, wish in asked.items() if name != knob or wish.request > request}


def _after_end(state: LaneState, event: LaneEnded) -> LaneState:
    stalled_since_ns = state.pulse.stalled_since_ns
    state = replace(state, ended=event, asked={})
    if state.over:
        return state
    if state.command and event.exit_code == 0 and state.steps:
        return _enter(state, DONE, event.at_ns)
    trouble = trouble_of(event, stalled_since_ns)
    if trouble is None:
        return _enter(state, DONE, event.at_ns)
    if state.command and stalled_since_ns is None and not event.memory_kills:
        trouble = _trouble_of_script(state, event)
    return replace(_enter(state, FAILED, event.at_ns), trouble=trouble)


def _trouble_of_script(state: LaneState, event: LaneEnded) -> Trouble:
    """Say how a script ended that did not end well: with its own last words, or without a step."""
    if event.signal is not None:
        return Trouble(f"the script was ended by {event.signal}")
    if event.exit_code:
        last = event.output_tail[-1].strip() if event.output_tail else ""
        return Trouble(f"the script left with exit code {event.exit_code}" + (f": {last}" if last else ""))
    return Trouble("the script ended, and no training step was seen", NO_STEPS_HINT)

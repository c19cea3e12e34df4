"""The state of one lane, as readers see it; `lane.Lane` changes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tfmon.model.account import Accounted
from tfmon.model.events import EndRequested, KnobRequested, LaneEnded
from tfmon.model.histogram import middle_ns
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import STALL, STOPPED, SUSPENDED, Window
from tfmon.model.lane_use import GpuUse, SliceClock, TreeUse
from tfmon.model.profile import Profile
from tfmon.model.readings import Missing, Reading
from tfmon.model.script_events import CauseSeen, Progressed, StackReported
from tfmon.model.spec import LaneSpec, short_title, title
from tfmon.model.speed import SpeedWatch
from tfmon.model.state_part import StatePart
from tfmon.model.windows import LaneWindow, Measurements, SliceSpeed, WindowSums

STARTING, IMPORTING, BUILDING, TRACING = "starting", "importing", "building", "tracing"
WARMING_UP, READY, RACING, PAUSED = "warming up", "ready", "racing", "paused"
DONE, FAILED, ABSENT = "done", "failed", "absent"
PHASES = (
    STARTING, IMPORTING, BUILDING, TRACING, WARMING_UP, READY, RACING, PAUSED, DONE, FAILED, ABSENT,
)  # fmt: skip
"""The phases of a lane, in order. A `ready` lane waits for the common start signal."""
STAGES = {
    STARTING: "starting Python",
    IMPORTING: "loading TensorFlow",
    BUILDING: "building model and data",
    TRACING: "tracing the training step",
    WARMING_UP: "warming up",
    READY: "ready, waiting for the start",
}
OVER = (DONE, FAILED, ABSENT)

OUT_OF_MEMORY = "out_of_memory"
HOST_LOST = "host_lost"
LOWER_THE_BATCH = "b lowers the batch size and starts the lane again; r starts it as it was"
NO_STEPS_HINT = (
    "Keras' fit and loops of TensorFlow are seen by themselves; in any other loop: from tfmon import report, then "
    "report.step(examples=len(x), loss=loss)"
)
VERSIONS = ("tensorflow", "keras", "numpy", "python")

LEAST_STILL_S, TIMES_LONGEST = 5.0, 5
"""A lane stalls if a step has run for this time, and for this multiple of its longest step."""
RECENT_NS = 5_000_000_000
MOST_KNOB_MARKS = 64
MOST_POINTS = 256


State = TypeVar("State", bound="LaneState")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a lane cannot continue, in words."""

    message: str
    hint: str = ""
    kind: str = "error"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the lane printed, or a text of tfmon about the lane."""

    at_ns: int
    kind: Literal["printed", "event", "trouble"]
    text: str
    dropped_bytes: int = 0
    """Bytes of output missing in the log before this line."""


@dataclass(frozen=True, slots=True)
class KnobMark:
    """A change of a knob, for the charts."""

    at_ns: int
    text: str
    gap_ns: int


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Losses reported by windows; when there are too many, every second one is dropped."""

    points: tuple[tuple[int, float], ...] = ()
    every: int = 1
    """One of this many losses is kept."""
    seen: int = 0
    first: float | None = None
    last: float | None = None
    lost: int = 0
    """The first step with a loss that is not a number, after the last finite loss. 0 if none exists."""

    def plus(self, step: int, loss: float | None) -> LossCurve:
        """Return the curve with the loss of a step; unchanged for `None`."""
        if loss is None:
            return self
        first, points, every = loss if self.first is None else self.first, self.points, self.every
        if not self.seen % every:
            points = (*points, (step, loss))
        if len(points) >= MOST_POINTS:
            points, every = points[::2], 2 * every
        lost = 0 if math.isfinite(loss) else self.lost or step
        return LossCurve(points, every, self.seen + 1, first, loss, lost)


@dataclass
class ProcessInfo(StatePart):
    """The present process of a lane."""

    number: int = 0
    """Number of the process in this lane, from 1. 0 before the first."""
    pid: int | None = None
    started_ns: int = 0
    source: str = ""
    data_examples: int | None = None
    """Examples in its data: the largest possible batch."""
    versions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(VERSIONS, ""))
    device_name: str = ""
    bfloat16: bool = False
    gpu_uuids: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    """Differences between this process's environment and a local lane's."""
    reports_stack: bool = False
    stack: StackReported | None = None
    bad_lines: int = 0
    last_bad_line: str = ""

    def uses_gpu(self, key: str) -> bool:
        """Return whether the process uses the GPU of that UUID, or may do so because its GPUs are unknown.

        For a MIG instance, CUDA reports a UUID with the prefix of a GPU, so prefixes are not compared.
        """
        number = key.removeprefix("MIG-")
        return not self.gpu_uuids or any(uuid in (f"GPU-{number}", number, key) for uuid in self.gpu_uuids)


@dataclass
class ScriptFacts(StatePart):
    """Facts about a user's script. Empty for a scenario."""

    command: str = ""
    progress: Progressed | None = None
    """The latest progress in Keras. `None` before the first report."""
    validation: LossCurve = field(default_factory=LossCurve)
    """Validation losses by the number of epochs of the last `fit`."""
    not_measured: dict[str, str] = field(default_factory=dict)
    """Figures that are unavailable, such as `examples`, with the reason."""
    step: str = ""
    step_traits: tuple[str, ...] = ()
    input_traits: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    """Locations of its steps, such as `train.py:17`; each is a phase of it, the latest last."""
    uses: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    causes: tuple[CauseSeen, ...] = ()
    """Observed causes of slowness, with the latest figures of each cause and place."""

    @property
    def between_steps(self) -> bool:
        """Whether it does something other than steps: it validates, or an epoch has ended."""
        progress = self.progress
        trains = ("fit", "training")
        return progress is not None and (progress.doing not in trains or progress.batch == progress.batches)


@dataclass
class Totals(StatePart):
    """Training since the lane was started, under all settings."""

    steps: int = 0
    steps_before: int = 0
    """Steps of earlier processes; a part of `steps`."""
    measured_steps: int = 0
    """Steps of steady windows, which `--steps` counts."""
    examples: int = 0
    trained_ns: int = 0
    losses: LossCurve = field(default_factory=LossCurve)


@dataclass
class StepFacts(StatePart):
    """Facts about the steps of a lane besides their times."""

    computing_share: float | None = None
    """Share of a step's call in which an operation ran on the CPU; see `lane_events.Window`."""
    calling_share: float | None = None
    """Share of calls in a step of a script's own loop, without input. `None` before a profile."""
    profiles: tuple[Profile, ...] = ()
    """The latest profiles under the settings in effect, oldest first."""
    traced: str = ""
    """The function traced last during the race, and the reason. Empty if none."""


@dataclass
class Changes(StatePart):
    """Changes of a running lane."""

    requested: dict[str, KnobRequested] = field(default_factory=dict)
    refused: str = ""
    refused_ns: int = 0
    marks: tuple[KnobMark, ...] = ()
    """Changes in effect, marks of modes and other events for the charts."""

    def answer(self, knob: str, request: int) -> None:
        """Remove an answered request; a newer request for the same knob stays."""
        items = self.requested.items()
        self.requested = {name: one for name, one in items if name != knob or one.request > request}

    def mark(self, at_ns: int, text: str, gap_ns: int = 0) -> None:
        """Add a mark, of a change that can leave a gap between two steps."""
        self.marks = (*self.marks[1 - MOST_KNOB_MARKS :], KnobMark(at_ns, text, gap_ns))


@dataclass
class LaneEnd(StatePart):
    """How a lane and its process ended."""

    requested: EndRequested | None = None
    """When its command was asked to end, and its grace. `None` before."""
    stood_still_s: float | None = None
    """Time without a finished step when it was asked to end. `None` if there was no stall."""
    killed: bool = False
    """Whether the user ended this lane, not the race."""
    event: LaneEnded | None = None


@dataclass
class Heartbeat(StatePart):
    """The signs of life of a lane."""

    heard_ns: int = 0
    """Stamp of its last event, on its own clock."""
    longest_window_ns: int = 0
    """Only of windows that show the duration of steps."""
    warm_up_ns: int = 0
    """Duration of the warm-up, with tracing and compiling. 0 before its end."""
    stalled_since_ns: int | None = None
    """Its last sign of life, if a stall is under way, or `None`."""
    suspensions: tuple[tuple[int, int], ...] = ()

    def hear(self, at_ns: int) -> None:
        """Store a sign of life."""
        self.heard_ns, self.stalled_since_ns = at_ns, None

    def reasons_to_discard(self, window: Window) -> tuple[str, ...]:
        """Return why a window that arrives now does not count. Empty if it counts."""
        began_ns = window.at_ns - window.span_ns
        suspended = any(since_ns < window.at_ns and began_ns < until_ns for since_ns, until_ns in self.suspensions)
        return (STALL,) * (self.stalled_since_ns is not None) + (SUSPENDED,) * suspended


@dataclass
class LaneState(StatePart):
    """The state of one lane."""

    spec: LaneSpec
    phase: str = STARTING
    phase_since_ns: int = 0
    phase_before: str = STARTING
    turn_since_ns: int = 0
    """Start of training in its slice, or of waiting for the next slice. 0 before the first."""
    process: ProcessInfo = field(default_factory=ProcessInfo)
    script: ScriptFacts = field(default_factory=ScriptFacts)
    settings: dict[str, KnobValue] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)
    totals: Totals = field(default_factory=Totals)
    measurements: Measurements = field(default_factory=Measurements)
    speed: SpeedWatch = field(default_factory=SpeedWatch)
    step: StepFacts = field(default_factory=StepFacts)
    step_clock: SliceClock = field(default_factory=SliceClock)
    """Time in slices since the end of its last window."""
    tree: TreeUse = field(default_factory=TreeUse)
    gpu_use: GpuUse = field(default_factory=GpuUse)
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    trouble: Trouble | None = None
    end: LaneEnd = field(default_factory=LaneEnd)
    account: Accounted | None = None
    """The latest account of its process. `None` before the first."""
    log: tuple[LogLine, ...] = ()
    """Printed lines and events, also of earlier processes."""
    differs: tuple[str, ...] | None = None
    """Knobs in which the lanes of the race differ now. `None` outside of a session."""
    mark: str = ""
    """`#` and its id, if another lane has the same device and settings. Otherwise empty."""

    def copy(self: State) -> State:
        """Return a copy that later changes do not affect."""
        return self._copy_as(type(self))

    def snapshot(self) -> LaneState:
        """Return a copy for readers."""
        return self._copy_as(LaneState)

    def _copy_as(self, kind: type[State]) -> State:
        result = object.__new__(kind)
        vars(result).update(
            {name: part.copy() if isinstance(part, StatePart) else part for name, part in vars(self).items()}
        )
        return result

    @property
    def in_effect(self) -> dict[str, KnobValue]:
        """All knobs with their values in effect, or the spec's values before the first report."""
        return {**self.spec.settings, **self.settings}

    @property
    def title(self) -> str:
        """The lane's title: its device, and every setting in which the lanes of the race differ now."""
        return " ".join(filter(None, (title(self.spec, self.settings, self.differs), self.mark)))

    @property
    def memory_bytes(self) -> Reading:
        """Private memory of its processes for reports: the last sample before its last window, or else the peak.

        Later samples may be of a process that exits.
        """
        if self.tree.memory.latest is not None or isinstance(self.tree.private_bytes, Missing):
            return self.tree.memory.latest[1] if self.tree.memory.latest is not None else self.tree.private_bytes
        return self.tree.peak_private_bytes if self.points else Missing("not sampled while the lane raced")

    @property
    def short_title(self) -> str:
        """The short title for narrow places, such as "batch 256 · graph off"."""
        differs = self.spec.apart if self.differs is None else self.differs
        return " ".join(filter(None, (short_title(self.spec, self.settings, differs), self.mark)))

    @property
    def points(self) -> tuple[LaneWindow, ...]:
        """The last windows of its process, with discarded ones."""
        return self.measurements.recent

    @property
    def steady(self) -> WindowSums:
        """Sums since the lane began to race, or a knob or the mode last changed."""
        return self.measurements.steady

    @property
    def steps_per_s(self) -> float | None:
        """Steps over the time of steady state. `None` if unknown, also if the steps are not recognized."""
        return None if "steps" in self.script.not_measured else self.steady.steps_per_s

    def step_ms(self, fraction: float) -> float | None:
        """Return a quantile of the step times of steady state in milliseconds. `None` as for `steps_per_s`."""
        return None if "steps" in self.script.not_measured else self.steady.step_ms(fraction)

    @property
    def slices(self) -> tuple[SliceSpeed, ...]:
        """Slices since the start of steady state, oldest first; only their steady parts."""
        return self.measurements.slices

    @property
    def discarded_shares(self) -> dict[str, float]:
        """Discarded shares of its time from the first step to the last, by reason, largest first."""
        times_ns, ran_ns = self.measurements.discarded_ns, self.measurements.ran_ns
        shares = {reason: time_ns / ran_ns for reason, time_ns in times_ns.items() if reason != STOPPED and ran_ns}
        return dict(sorted(shares.items(), key=lambda one: -one[1]))

    @property
    def over(self) -> bool:
        """Whether the lane needs a restart to train."""
        return self.phase in OVER

    @property
    def to_change(self) -> dict[str, KnobValue]:
        """The requested values that are not in effect, by knob."""
        now = self.in_effect.items()
        return {name: one.value for name, one in self.changes.requested.items() if (name, one.value) not in now}

    @property
    def state(self) -> str:
        """Its phase, or the state of a lane that was ended before it was done."""
        ended = self.phase == DONE and (self.end.killed or self.end.requested is not None)
        return "ended on request" if ended else self.phase

    def step_runs_s(self, now_ns: int) -> float:
        """Return the running time of the current step in seconds, without other lanes' slices. 0 without one."""
        if self.over:
            now_ns = self.phase_since_ns
        elif self.phase != RACING:
            return 0.0
        clock = self.step_clock
        if clock.granted_ns is not None or clock.spent_ns or (self.points and self.points[-1].in_slice):
            return clock.until(now_ns) / 1e9
        return max(0, now_ns - self.heartbeat.heard_ns) / 1e9

    def stands_still_s(self, now_ns: int) -> float | None:
        """Return the time without a finished step, up to now or its end. `None` if that is normal.

        It is normal for a script that validates, is between two epochs, or has ended.
        """
        if not self.points or self.state == DONE or self.script.between_steps or self.end.requested is not None:
            return self.end.stood_still_s
        runs_s, longest_ns = self.step_runs_s(now_ns), max(self.steady.histogram, default=0)
        return runs_s if runs_s >= max(LEAST_STILL_S, TIMES_LONGEST * middle_ns(longest_ns) / 1e9) else None

    def recent(self) -> WindowSums:
        """Return the sums over the steady windows of the last 5 s, at least one, since the last knob change.

        This is the current throughput. For a lane that has ended, return its whole steady state, as in the table.
        """
        if self.over:
            return self.steady
        changed_ns = self.changes.marks[-1].at_ns if self.changes.marks else 0
        since_ns = self.points[-1].at_ns - RECENT_NS if self.points else 0
        steps = examples = span_ns = windows = 0
        for point in reversed(self.points):
            if point.since_ns < changed_ns or (point.since_ns < since_ns and windows):
                break
            if point.steady:
                windows += 1
                steps += point.steps
                examples += point.examples
                span_ns += point.span_ns
        return WindowSums(windows=windows, steps=steps, examples=examples, span_ns=span_ns)

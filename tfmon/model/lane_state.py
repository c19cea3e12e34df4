"""The state of one lane."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Literal, TypeVar

from tfmon.model.events import EndRequested, KnobRequested, LaneEnded
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import (
    BUILDING,
    IMPORTING,
    PAUSED,
    RACING,
    READY,
    STALL,
    STARTING,
    STOPPED,
    SUSPENDED,
    TRACING,
    WARMING_UP,
    Accounted,
    CauseSeen,
    Progressed,
    StackReported,
    Window,
    middle_ns,
)
from tfmon.model.lane_use import GpuUse, SliceClock, TreeUse
from tfmon.model.profile import Profile
from tfmon.model.readings import Missing, Reading
from tfmon.model.spec import LaneSpec, short_title, title
from tfmon.model.speed import SpeedWatch
from tfmon.model.windows import LaneWindow, Measurements, SliceSpeed, StatePart, WindowSums, sums_of

DONE, FAILED, ABSENT = "done", "failed", "absent"
PHASES = (
    STARTING, IMPORTING, BUILDING, TRACING, WARMING_UP, READY, RACING, PAUSED, DONE, FAILED, ABSENT,
)  # fmt: skip
STAGES = {
    STARTING: "starting Python",
    IMPORTING: "loading TensorFlow",
    BUILDING: "building model and data",
    TRACING: "tracing the training step",
    WARMING_UP: "warming up",
    READY: "ready, waiting for the start",
}
OVER = (DONE, FAILED, ABSENT)

HOST_LOST = "host_lost"
NO_STEPS_HINT = (
    "Keras' fit and loops of TensorFlow are detected; in any other loop: from tfmon import report, then "
    "report.step(examples=len(x), loss=loss)"
)
VERSIONS = ("tensorflow", "keras", "numpy", "python")

LEAST_STILL_S, TIMES_LONGEST = 5.0, 5
"""Least time of a stall in seconds, and in longest steps."""
RECENT_NS = 5_000_000_000
MOST_KNOB_MARKS = 64
MOST_POINTS = 256


State = TypeVar("State", bound=StatePart)


def copied(state: StatePart, kind: type[State]) -> State:
    """Return an independent copy as another kind. It shares the containers, which never change."""
    result = object.__new__(kind)
    vars(result).update(
        {
            name: copied(part, type(part)) if isinstance(part, StatePart) else part
            for name, part in vars(state).items()
        }
    )
    return result


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a lane cannot continue."""

    message: str
    hint: str = ""
    kind: str = "error"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A printed line, or a text of tfmon."""

    at_ns: int
    kind: Literal["printed", "event", "trouble"]
    text: str
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class KnobMark:
    """A change of a knob, for the charts."""

    at_ns: int
    text: str
    gap_ns: int


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The losses, thinned out if there are too many."""

    points: tuple[tuple[int, float], ...] = ()
    every: int = 1
    seen: int = 0
    first: float | None = None
    last: float | None = None
    lost: int = 0
    """First step of the present non-finite losses."""

    def with_loss(self, step: int, loss: float | None) -> LossCurve:
        """Return the curve with another loss."""
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
    pid: int | None = None
    started_ns: int = 0
    source: str = ""
    data_examples: int | None = None
    """The largest possible batch."""
    versions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(VERSIONS, ""))
    device_name: str = ""
    bfloat16: bool = False
    gpu_uuids: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    reports_stack: bool = False
    stack: StackReported | None = None
    bad_lines: int = 0
    last_bad_line: str = ""

    def uses_gpu(self, key: str) -> bool:
        """Return whether the process may use a GPU.

        Prefixes are not compared: CUDA reports a MIG instance with the prefix of a GPU.
        """
        number = key.removeprefix("MIG-")
        return not self.gpu_uuids or any(uuid in (f"GPU-{number}", number, key) for uuid in self.gpu_uuids)


@dataclass
class ScriptFacts(StatePart):
    """Facts about a user's script."""

    command: str = ""
    progress: Progressed | None = None
    validation: LossCurve = field(default_factory=LossCurve)
    not_measured: dict[str, str] = field(default_factory=dict)
    step: str = ""
    step_traits: tuple[str, ...] = ()
    input_traits: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    uses: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    causes: tuple[CauseSeen, ...] = ()

    @property
    def between_steps(self) -> bool:
        """Whether the script validates, or an epoch ended."""
        progress = self.progress
        trains = ("fit", "training")
        return progress is not None and (progress.doing not in trains or progress.batch == progress.batches)


@dataclass
class Totals(StatePart):
    """Training since the lane was started."""

    steps: int = 0
    steps_before: int = 0
    measured_steps: int = 0
    examples: int = 0
    trained_ns: int = 0
    losses: LossCurve = field(default_factory=LossCurve)


@dataclass
class StepFacts(StatePart):
    """Facts about the steps besides their times."""

    computing_share: float | None = None
    calling_share: float | None = None
    profiles: tuple[Profile, ...] = ()
    traced: str = ""


@dataclass
class Changes(StatePart):
    """Changes of a running lane."""

    requested: dict[str, KnobRequested] = field(default_factory=dict)
    refused: str = ""
    refused_ns: int = 0
    marks: tuple[KnobMark, ...] = ()

    def answer(self, knob: str, request: int) -> None:
        """Remove a request, unless there is a newer one."""
        items = self.requested.items()
        self.requested = {name: item for name, item in items if name != knob or item.request > request}

    def mark(self, at_ns: int, text: str, gap_ns: int = 0) -> None:
        """Add a mark for the charts."""
        self.marks = (*self.marks[1 - MOST_KNOB_MARKS :], KnobMark(at_ns, text, gap_ns))


@dataclass
class LaneEnd(StatePart):
    """How a lane and its process ended."""

    requested: EndRequested | None = None
    stood_still_s: float | None = None
    killed: bool = False
    event: LaneEnded | None = None


@dataclass
class Heartbeat(StatePart):
    """The signs of life of a lane."""

    heard_ns: int = 0
    longest_window_ns: int = 0
    warm_up_ns: int = 0
    stalled_since_ns: int | None = None
    """Last sign of life before the present stall."""
    suspensions: tuple[tuple[int, int], ...] = ()

    def hear(self, at_ns: int) -> None:
        """Store a sign of life."""
        self.heard_ns, self.stalled_since_ns = at_ns, None

    def reasons_to_discard(self, window: Window) -> tuple[str, ...]:
        """Return why a window does not count."""
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
    process: ProcessInfo = field(default_factory=ProcessInfo)
    script: ScriptFacts = field(default_factory=ScriptFacts)
    settings: dict[str, KnobValue] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)
    totals: Totals = field(default_factory=Totals)
    measurements: Measurements = field(default_factory=Measurements)
    speed: SpeedWatch = field(default_factory=SpeedWatch)
    step: StepFacts = field(default_factory=StepFacts)
    step_clock: SliceClock = field(default_factory=SliceClock)
    tree: TreeUse = field(default_factory=TreeUse)
    gpu_use: GpuUse = field(default_factory=GpuUse)
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    trouble: Trouble | None = None
    end: LaneEnd = field(default_factory=LaneEnd)
    account: Accounted | None = None
    log: tuple[LogLine, ...] = ()
    differs: tuple[str, ...] | None = None
    mark: str = ""
    """`#` and the id, for equal titles."""

    @property
    def in_effect(self) -> dict[str, KnobValue]:
        """The knobs of the spec and the reported values."""
        return {**self.spec.settings, **self.settings}

    @property
    def title(self) -> str:
        """The device, and the settings in which lanes differ."""
        return " ".join(filter(None, (title(self.spec, self.settings, self.differs), self.mark)))

    @property
    def memory_bytes(self) -> Reading:
        """The last sample before the last window."""
        if self.tree.memory.latest is not None or isinstance(self.tree.private_bytes, Missing):
            return self.tree.memory.latest[1] if self.tree.memory.latest is not None else self.tree.private_bytes
        return self.tree.peak_private_bytes if self.points else Missing("not sampled while the lane raced")

    @property
    def short_title(self) -> str:
        """A title such as "batch 256 · graph off"."""
        differs = self.spec.apart if self.differs is None else self.differs
        return " ".join(filter(None, (short_title(self.spec, self.settings, differs), self.mark)))

    @property
    def points(self) -> tuple[LaneWindow, ...]:
        """The recent windows of the process."""
        return self.measurements.recent

    @property
    def steady(self) -> WindowSums:
        """Sums since the last change."""
        return self.measurements.steady

    @property
    def steps_per_s(self) -> float | None:
        """The speed, if steps are recognized."""
        return None if "steps" in self.script.not_measured else self.steady.steps_per_s

    def step_ms(self, fraction: float) -> float | None:
        """Return a quantile of the step times."""
        return None if "steps" in self.script.not_measured else self.steady.step_ms(fraction)

    @property
    def slices(self) -> tuple[SliceSpeed, ...]:
        """The steady parts of slices, oldest first."""
        return self.measurements.slices

    @property
    def discarded_shares(self) -> dict[str, float]:
        """The discarded shares by reason, largest first."""
        times_ns, ran_ns = self.measurements.discarded_ns, self.measurements.ran_ns
        shares = {reason: time_ns / ran_ns for reason, time_ns in times_ns.items() if reason != STOPPED and ran_ns}
        return dict(sorted(shares.items(), key=lambda share: -share[1]))

    @property
    def over(self) -> bool:
        """Whether the lane has ended."""
        return self.phase in OVER

    @property
    def to_change(self) -> dict[str, KnobValue]:
        """The requested values not in effect."""
        now = self.in_effect.items()
        return {
            name: request.value
            for name, request in self.changes.requested.items()
            if (name, request.value) not in now
        }

    @property
    def state(self) -> str:
        """The phase, or that the lane was ended."""
        ended = self.phase == DONE and (self.end.killed or self.end.requested is not None)
        return "ended on request" if ended else self.phase

    def step_runs_s(self, now_ns: int) -> float:
        """Return the step's time without other lanes' slices."""
        if self.over:
            now_ns = self.phase_since_ns
        elif self.phase != RACING:
            return 0.0
        clock = self.step_clock
        if clock.granted_ns is not None or clock.spent_ns or (self.points and self.points[-1].in_slice):
            return clock.until(now_ns) / 1e9
        return max(0, now_ns - self.heartbeat.heard_ns) / 1e9

    def stalled_s(self, now_ns: int) -> float | None:
        """Return how long the lane has hung, or `None`."""
        since_ns = self.heartbeat.stalled_since_ns
        return None if since_ns is None or self.over else max(0, now_ns - since_ns) / 1e9

    def stands_still_s(self, now_ns: int) -> float | None:
        """Return the time without a step, or `None` if normal."""
        if not self.points or self.state == DONE or self.script.between_steps or self.end.requested is not None:
            return self.end.stood_still_s
        runs_s, longest_ns = self.step_runs_s(now_ns), max(self.steady.histogram, default=0)
        return runs_s if runs_s >= max(LEAST_STILL_S, TIMES_LONGEST * middle_ns(longest_ns) / 1e9) else None

    def recent(self) -> WindowSums:
        """Return the sums of the last 5 s without a histogram, or of an ended lane's steady state."""
        if self.over:
            return self.steady
        changed_ns = self.changes.marks[-1].at_ns if self.changes.marks else 0
        since_ns = self.points[-1].at_ns - RECENT_NS if self.points else 0
        steady: list[LaneWindow] = []
        for point in reversed(self.points):
            if point.since_ns < changed_ns or (point.since_ns < since_ns and steady):
                break
            if point.steady:
                steady.append(point)
        return sums_of(steady)

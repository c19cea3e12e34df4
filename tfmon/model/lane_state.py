"""All that is known of one lane. Pure; `lane_reducer` says how events change it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tfmon.model.events import EndRequested, KnobRequested, LaneEnded
from tfmon.model.heartbeat import Heartbeat
from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_statistics import STOPPED, KnobMark, LossCurve, Measurements, Point, SliceSpeed
from tfmon.model.lane_use import GpuUse, SliceClock, TreeUse
from tfmon.model.profile import Profile
from tfmon.model.readings import Missing, Reading
from tfmon.model.script_events import CauseSeen, Progressed, StackReported
from tfmon.model.spec import LaneSpec, short_title, title
from tfmon.model.speed import SpeedWatch
from tfmon.model.window_sums import WindowSums, middle_ns

STARTING, IMPORTING, BUILDING, TRACING = "starting", "importing", "building", "tracing"
WARMING_UP, READY, RACING, PAUSED = "warming up", "ready", "racing", "paused"
DONE, FAILED, ABSENT = "done", "failed", "absent"
PHASES = (
    STARTING, IMPORTING, BUILDING, TRACING, WARMING_UP, READY, RACING, PAUSED, DONE, FAILED, ABSENT,
)  # fmt: skip
"""The phases of a lane, in order. A `ready` lane waits for the start signal that all lanes get together."""
STAGES = {
    STARTING: "starting Python",
    IMPORTING: "loading TensorFlow",
    BUILDING: "building model and data",
    TRACING: "tracing the training step",
    WARMING_UP: "warming up",
    READY: "ready, waiting for the start",
}
"""The stages of getting ready, in order, and what a lane does in each."""
OVER = (DONE, FAILED, ABSENT)
"""Phases that only a restart ends."""

STOOD_STILL = "stood still until its end"
"""Mark of the window in which a lane that stood still was ended."""
OUT_OF_MEMORY = "out_of_memory"
HOST_LOST = "host_lost"
"""Kinds of trouble."""
LOWER_THE_BATCH = "b lowers the batch size and starts the lane again; r starts it as it was"
NO_STEPS_HINT = (
    "Keras' fit and loops of TensorFlow are seen by themselves; in any other loop: from tfmon import report, then "
    "report.step(examples=len(x), loss=loss)"
)
"""What to do about a script in which tfmon sees no step."""
VERSIONS = ("tensorflow", "keras", "numpy", "python")

LEAST_STILL_S, TIMES_LONGEST = 5.0, 5
"""A lane stands still if a step has run for so long, and for so many times its longest step."""
RECENT_NS = 5_000_000_000
"""How far back the throughput that is shown as current reaches."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a lane cannot go on, in words."""

    message: str
    hint: str = ""
    kind: str = "error"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: what the lane printed, or in our words what happened to it."""

    at_ns: int
    """For a printed line, when it was read."""
    kind: Literal["printed", "event", "trouble"]
    text: str
    dropped_bytes: int = 0
    """How much of the output the log lacks, where the line tells that."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """The present process of a lane, and what it told of itself."""

    number: int = 0
    """Which process of the lane this is, from 1; 0 before the first."""
    pid: int | None = None
    started_ns: int = 0
    source: str = ""
    """Digest of the scenario file that it was started with."""
    data_examples: int | None = None
    """Examples in its data: the largest possible batch."""
    versions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(VERSIONS, ""))
    """What it loaded, by the names of `VERSIONS`; "" for unknown."""
    device_name: str = ""
    bfloat16: bool = False
    """Whether the CPU of its machine computes in bfloat16."""
    gpu_uuids: tuple[str, ...] = ()
    """Those of its GPUs, as CUDA tells them; empty while they are not known."""
    unlike: tuple[str, ...] = ()
    """What disturbs it: in what its surroundings are not those of a lane of the monitor's own machine."""
    reports_stack: bool = False
    """Whether it can report the stacks of its threads."""
    stack: StackReported | None = None
    """The stacks that it reported last."""
    bad_lines: int = 0
    """Lines that could not be read."""
    last_bad_line: str = ""


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """What is known of a user's script; nothing for a scenario."""

    command: str = ""
    """The user's own command that the lane runs; empty for a scenario."""
    progress: Progressed | None = None
    """How far it is in what Keras does for it; None before it says so."""
    validation: LossCurve = field(default_factory=LossCurve)
    """Losses of validation by the epochs that its last `fit` had done."""
    not_measured: dict[str, str] = field(default_factory=dict)
    """What cannot be known of it, such as `examples`, and why."""
    step: str = ""
    """What is counted as a step, by its file and line; empty where that was not told."""
    step_traits: tuple[str, ...] = ()
    """How its steps are made, as `StepDescribed` lists it."""
    input_traits: tuple[str, ...] = ()
    """What it trains from, as `InputDescribed` lists it."""
    places: tuple[str, ...] = ()
    """Where it has made its steps, such as `train.py:17`; each is a phase of it, the latest last."""
    uses: dict[str, str] = field(default_factory=dict)
    """What it does with files, folders and ports; see `script_events.PathsUsed`."""
    resolved: dict[str, str] = field(default_factory=dict)
    """What TensorFlow made of its defaults, such as TF32."""
    causes: tuple[CauseSeen, ...] = ()
    """What slows it down as its process observed it, the newest figures of each cause and place."""

    @property
    def between_steps(self) -> bool:
        """Whether it does something else than steps: it validates, or an epoch has ended."""
        progress = self.progress
        trains = ("fit", "training")
        return progress is not None and (progress.doing not in trains or progress.batch == progress.batches)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a lane has trained since it was started, under all settings."""

    steps: int = 0
    steps_before: int = 0
    """Steps of the processes that the present one replaced; a part of `steps`."""
    measured_steps: int = 0
    """Steps of steady windows: what `--steps` counts."""
    examples: int = 0
    trained_ns: int = 0
    """Time of all its steps, the discarded ones included."""
    losses: LossCurve = field(default_factory=LossCurve)
    """The loss by steps."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What is known of the steps of a lane besides their times."""

    computing_share: float | None = None
    """Share of a step's call in which an operation ran on the CPU; see `lane_events.Window`."""
    calling_share: float | None = None
    """Share of a step of a script's own loop, without input, that its calls take; None before a profile."""
    profiles: tuple[Profile, ...] = ()
    """The latest profiles under the settings in effect, the oldest first."""
    traced: str = ""
    """Which function was traced last while the lane raced, and why; empty for none."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is changed in a lane while it runs."""

    requested: dict[str, KnobRequested] = field(default_factory=dict)
    """Knobs requested and not answered yet."""
    refused: str = ""
    """Why the latest request was refused; empty when it was not."""
    refused_ns: int = 0
    """When that was."""
    marks: tuple[KnobMark, ...] = ()
    """Changes in effect, as the charts mark them; those of a mode and other events, too."""

    def answered(self, knob: str, request: int) -> dict[str, KnobRequested]:
        """Return the requests without one that was answered; a newer one for the same knob is still under way."""
        return {name: one for name, one in self.requested.items() if name != knob or one.request > request}


@dataclass(frozen=True, slots=True)
class LaneEnd:
    """How a lane was ended, and how its process ended."""

    requested: EndRequested | None = None
    """Since when its command has been asked to end, and how long it has for that; None before."""
    stood_still_s: float | None = None
    """For how long no step had ended when it was asked to end; None where that was right."""
    killed: bool = False
    """Whether the user ended this lane, and not the race."""
    event: LaneEnded | None = None
    """How its last process ended; None while it runs."""


@dataclass(frozen=True, slots=True)
class LaneState:
    """All that is known of one lane."""

    spec: LaneSpec
    phase: str = STARTING
    phase_since_ns: int = 0
    phase_before: str = STARTING
    turn_since_ns: int = 0
    """Since when it trains in its slice, or waits for the next one; 0 before the first."""
    process: ProcessInfo = field(default_factory=ProcessInfo)
    script: ScriptFacts = field(default_factory=ScriptFacts)
    settings: dict[str, KnobValue] = field(default_factory=dict)
    """Knobs in effect, as the child said."""
    changes: Changes = field(default_factory=Changes)
    totals: Totals = field(default_factory=Totals)
    measurements: Measurements = field(default_factory=Measurements)
    speed: SpeedWatch = field(default_factory=SpeedWatch)
    """Its step time since its settings last changed, and when that changed by itself."""
    step: StepFacts = field(default_factory=StepFacts)
    step_clock: SliceClock = field(default_factory=SliceClock)
    """How long it has trained in slices since the end of its last window."""
    tree: TreeUse = field(default_factory=TreeUse)
    """What its processes take of its machine."""
    gpu_use: GpuUse = field(default_factory=GpuUse)
    """What it takes of its GPUs."""
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    trouble: Trouble | None = None
    end: LaneEnd = field(default_factory=LaneEnd)
    log: tuple[LogLine, ...] = ()
    """What it printed and what happened to it, the children before this one included."""
    differs: tuple[str, ...] | None = None
    """Knobs in which the lanes of the race differ now; None where no session says so."""
    mark: str = ""
    """`#` and its id, where another lane has the same device and settings; otherwise empty."""

    @property
    def in_effect(self) -> dict[str, KnobValue]:
        """Every knob with its value in effect, or before the lane has reported any, with that of its spec."""
        return {**self.spec.settings, **self.settings}

    @property
    def title(self) -> str:
        """The lane's name for people: its device, and every setting in which the lanes of the race differ now."""
        return " ".join(filter(None, (title(self.spec, self.settings, self.differs), self.mark)))

    @property
    def memory_bytes(self) -> Reading:
        """Memory that its processes share with no other, in reports: the last sample before its last window.

        Later ones may be of a process that exits, so where there is none before, it is the peak.
        """
        if self.tree.memory.latest is not None or isinstance(self.tree.private_bytes, Missing):
            return self.tree.memory.latest[1] if self.tree.memory.latest is not None else self.tree.private_bytes
        return self.tree.peak_private_bytes if self.points else Missing("not sampled while the lane raced")

    @property
    def short_title(self) -> str:
        """The same for narrow places, such as "batch 256 · graph off"."""
        differs = self.spec.apart if self.differs is None else self.differs
        return " ".join(filter(None, (short_title(self.spec, self.settings, differs), self.mark)))

    @property
    def points(self) -> tuple[Point, ...]:
        """The last windows of its process, the discarded ones included."""
        return self.measurements.points

    @property
    def steady(self) -> WindowSums:
        """Sums since the lane began to race, or a knob or the mode last changed."""
        return self.measurements.steady

    @property
    def slices(self) -> tuple[SliceSpeed, ...]:
        """Slices since then, oldest first; only what was steady in them."""
        return self.measurements.slices

    @property
    def discarded_shares(self) -> dict[str, float]:
        """Share of its time from the first step to the last that is discarded, by reason, the largest first."""
        times_ns, ran_ns = self.measurements.discarded_ns, self.measurements.ran_ns
        shares = {reason: time_ns / ran_ns for reason, time_ns in times_ns.items() if reason != STOPPED and ran_ns}
        return dict(sorted(shares.items(), key=lambda one: -one[1]))

    def slices_under(self, settings: Settings) -> tuple[SliceSpeed, ...]:
        """Return the slices that ran under these settings, also before a knob was changed; oldest first."""
        return self.measurements.slices_under(settings, self.settings)

    @property
    def over(self) -> bool:
        """True when the lane cannot train on without a restart."""
        return self.phase in OVER

    @property
    def to_change(self) -> dict[str, KnobValue]:
        """The values that are requested and not in effect, by knob."""
        now = self.in_effect.items()
        return {name: one.value for name, one in self.changes.requested.items() if (name, one.value) not in now}

    @property
    def state(self) -> str:
        """Its phase; of a lane that was ended before it was done, that."""
        ended = self.phase == DONE and (self.end.killed or self.end.requested is not None)
        return "ended on request" if ended else self.phase

    def step_runs_s(self, now_ns: int) -> float:
        """Return for how long the present or last step has run, without others' slices; 0 before it or paused."""
        if self.over:
            now_ns = self.phase_since_ns
        elif self.phase != RACING:
            return 0.0
        clock = self.step_clock
        if clock.granted_ns is not None or clock.spent_ns or (self.points and self.points[-1].in_slice):
            return clock.until(now_ns) / 1e9
        return max(0, now_ns - self.heartbeat.heard_ns) / 1e9

    def stands_still_s(self, now_ns: int) -> float | None:
        """Return for how long no step has ended, or had when it was ended; None where that may be right.

        A script that validates, or is between two epochs, may take its time; so may one that has ended by itself.
        """
        if not self.points or self.state == DONE or self.script.between_steps or self.end.requested is not None:
            return self.end.stood_still_s
        runs_s, longest_ns = self.step_runs_s(now_ns), max(self.steady.histogram, default=0)
        return runs_s if runs_s >= max(LEAST_STILL_S, TIMES_LONGEST * middle_ns(longest_ns) / 1e9) else None

    def recent(self) -> WindowSums:
        """Return the sums over the steady windows of the last 5 s, and at least one, since the last knob change.

        These make the throughput that is shown as current. Of a lane that has ended it is all of its steady state,
        as in the table: the same figure everywhere.
        """
        if self.over:
            return self.steady
        changed_ns = self.changes.marks[-1].at_ns if self.changes.marks else 0
        since_ns = self.points[-1].at_ns - RECENT_NS if self.points else 0
        steps = examples = span_ns = windows = 0
        for point in reversed(self.points):
            began_ns = point.at_ns - point.span_ns
            if began_ns < changed_ns or (began_ns < since_ns and windows):
                break
            if point.steady:
                windows += 1
                steps += point.steps
                examples += point.examples
                span_ns += point.span_ns
        return WindowSums(windows=windows, steps=steps, examples=examples, span_ns=span_ns)

"""Everything that can happen in a race: what lanes say, what is sampled, and what the monitor adds to it.

Stamps (`at_ns`) are those of `time.monotonic_ns` on the monitor's machine, which all its processes share; those of
other machines are turned into these where they come in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tfmon.model.gpu import GpuSample
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import FromLane
from tfmon.model.race import Machine, Race, RecordingState
from tfmon.model.readings import NOT_READ, HostSample, Reading, TreeSample
from tfmon.model.series import Combination, Experiment, SweepState
from tfmon.model.spec import LaneSpec
from tfmon.model.views import View


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorEvent:
    """What all events of the monitor about a lane have."""

    lane: str
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStarted(MonitorEvent):
    """A child was started for a lane; it replaces an earlier child of that lane."""

    pid: int
    settings: dict[str, KnobValue]
    """Every knob and the value it starts with."""
    source: str = ""
    """Digest of the scenario file, to tell whether an earlier child trained the same."""
    command: str = ""
    """The user's own command that was started; empty for a scenario."""
    renewed: bool = False
    """Whether it goes on with the measurement of the child before it, as a fresh process of the same lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequested(MonitorEvent):
    """A user's command got SIGINT, as Ctrl+C sends it, and some time to end."""

    grace_s: float
    """After this time it gets SIGTERM, then SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEnded(MonitorEvent):
    """A lane's child is gone and reaped."""

    exit_code: int | None
    """What it returned; None when a signal ended it."""
    signal: str | None
    """Name of the signal that ended it, such as "SIGKILL"."""
    requested: bool
    """True when the monitor had told it to end."""
    output_tail: tuple[str, ...] = ()
    """The last lines it wrote to stdout and stderr."""
    memory_kills: str = ""
    """What the kernel tells of processes that it killed for lack of memory just before; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePrinted(MonitorEvent):
    """What a lane wrote to stdout and stderr since the last such event, in whole lines, safe to show."""

    at_ns: int
    """Half a second after it was printed at most."""
    lines: tuple[str, ...]
    dropped_bytes: int = 0
    """How much was dropped before these lines, because the lane printed too fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine(MonitorEvent):
    """A line on the metric pipe that could not be read, or several that came together."""

    problem: str
    """What was wrong with the last of them."""
    lines: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStalled(MonitorEvent):
    """A lane that should train has said nothing for too long; the next thing it says ends that."""

    since_ns: int
    """Its last sign of life, or when it should have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(MonitorEvent):
    """tfmon was stopped, or the machine slept; what a lane measured over that time is discarded."""

    at_ns: int
    """When it continued."""
    since_ns: int
    lasted_s: float
    """On a clock that runs while the machine sleeps, unlike that of the stamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRequested(MonitorEvent):
    """A knob request was sent to a lane."""

    request: int
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceEvent:
    """What all events about the race have."""

    lane: str = ""
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceBegan(RaceEvent):
    """A race begins; the lanes of an earlier one are dropped."""

    race: Race
    specs: tuple[LaneSpec, ...]
    """Its lanes; none while that is not known yet."""
    source: str = ""
    """Digest of the scenario file; empty while the lanes are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKnown(RaceEvent):
    """More is known of a machine."""

    machine: Machine
    host: str = ""
    """Which one, as `LaneSpec.host` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStarted(RaceEvent):
    """The lanes got the start signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(RaceEvent):
    """The lanes share the machine in another way from now on; see `race.MODES`."""

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceGranted(MonitorEvent):
    """A lane's slice began; with an empty `lane`, one has ended and none begins."""

    beside: tuple[str, ...] = ()
    """Lanes of other machines whose slices run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveChanged(RaceEvent):
    """A lane got the machine for itself, in slices, or all train again as the mode says."""

    exclusive: str
    """Name of that lane; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentChanged(RaceEvent):
    """An experiment began, or got further."""

    experiment: Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChanged(RaceEvent):
    """A sweep got further."""

    combinations: tuple[Combination, ...]
    """Those about which more is known than before."""
    running: dict[int, str]
    visits_s: tuple[float, ...]
    lost: dict[str, str]
    over: bool
    ended: str

    def after(self, sweep: SweepState) -> SweepState:
        """Return the sweep with what is known now, and with the same objects for what did not change."""
        combinations = list(sweep.combinations)
        for one in self.combinations:
            combinations[one.number] = one
        small = self.running, self.visits_s, self.lost, self.over, self.ended
        return SweepState(sweep.plan, tuple(combinations), *small)


def change_of(before: SweepState, now: SweepState, at_ns: int) -> SweepChanged:
    """Return what changed from one state of a sweep to another."""
    pairs = zip(before.combinations, now.combinations, strict=True)
    return SweepChanged(
        at_ns=at_ns,
        combinations=tuple(one for old, one in pairs if one is not old),
        **{name: getattr(now, name) for name in ("running", "visits_s", "lost", "over", "ended")},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequested(RaceEvent):
    """The user or an experiment requested something besides a knob; other events say what came of it."""

    action: str
    """`pause`, `resume`, `restart`, `profile`, `end` or `race`."""
    lanes: tuple[str, ...] = ()
    scenario: str = ""
    """Which one to race instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(RaceEvent):
    """The race was broken off."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesWritten(RaceEvent):
    """The lanes have ended, and it is known what they wrote in their views of the working folder."""

    views: dict[str, View]
    """As in `Race`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingChanged(RaceEvent):
    """The recording of the race began, moved or stopped. Not part of a recording itself."""

    recording: RecordingState


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent(RaceEvent):
    """What all events about the connection to another machine have."""

    host: str
    """Its name, as `LaneSpec.host` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConnecting(HostEvent):
    """A connection is being made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConnected(HostEvent):
    """The agent there answers, and it is known what machine it is."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMeasured(HostEvent):
    """What the connection and the agent are like, measured every few seconds."""

    round_trip_ns: int
    """From the monitor to the agent and back: the quickest tenth."""
    offset_ns: int
    """What is added to the stamps of that machine."""
    error_ns: int
    """How far from the truth `offset_ns` is at most."""
    agent_cpu_pct: Reading = NOT_READ
    """CPU of the agent's own process, probes included; 100 is one core kept busy."""
    agent_bytes: Reading = NOT_READ
    """Memory of the agent's own process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLost(HostEvent):
    """The connection is gone, and with it every lane there."""

    reason: str
    """In one line."""


Event: TypeAlias = (
    FromLane
    | LaneStarted
    | EndRequested
    | LaneEnded
    | LanePrinted
    | LaneStalled
    | Suspended
    | BadLine
    | KnobRequested
    | TreeSample
    | GpuSample
    | HostSample
    | RaceBegan
    | MachineKnown
    | ClockStarted
    | ModeChanged
    | SliceGranted
    | ExclusiveChanged
    | ExperimentChanged
    | SweepChanged
    | UserRequested
    | Interrupted
    | FilesWritten
    | RecordingChanged
    | HostConnecting
    | HostConnected
    | LinkMeasured
    | HostLost
)

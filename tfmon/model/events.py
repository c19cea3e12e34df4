"""All events of a race: events of lanes, samples, and events of the monitor.

Stamps (`at_ns`) are those of `time.monotonic_ns` on the monitor's machine. Stamps of other machines are converted
when they arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tfmon.model.gpu import GpuSample
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import FromLane
from tfmon.model.race import Machine, Race, RecordingState
from tfmon.model.readings import NOT_READ, HostSample, Reading, TreeSample
from tfmon.model.series import SeriesStep
from tfmon.model.spec import LaneSpec
from tfmon.model.views import View


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorEvent:
    """Fields of all events of the monitor about a lane."""

    lane: str
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStarted(MonitorEvent):
    """A process was started for a lane; it replaces the lane's earlier process."""

    pid: int
    settings: dict[str, KnobValue]
    source: str = ""
    """Digest of the scenario file, to compare it with an earlier child's file."""
    command: str = ""
    renewed: bool = False
    """Whether this fresh process continues the measurement of the previous one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequested(MonitorEvent):
    """A user's command received SIGINT, as from Ctrl+C, and time to end."""

    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEnded(MonitorEvent):
    """A lane's process has ended and was reaped."""

    exit_code: int | None
    """`None` if a signal ended it."""
    signal: str | None
    requested: bool
    output_tail: tuple[str, ...] = ()
    memory_kills: str = ""
    """The kernel's recent out-of-memory kills, in words. Empty if there were none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePrinted(MonitorEvent):
    """Complete lines that a lane wrote to stdout and stderr since the last such event, without control codes."""

    at_ns: int
    """At most half a second after the output."""
    lines: tuple[str, ...]
    dropped_bytes: int = 0
    """Bytes dropped before these lines, because the lane printed too fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine(MonitorEvent):
    """One or more lines on the metric pipe could not be read."""

    problem: str
    lines: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStalled(MonitorEvent):
    """A lane that should train has sent nothing for too long; its next event ends the stall."""

    since_ns: int
    """Its last sign of life, or the time when it should have started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(MonitorEvent):
    """tfmon was stopped, or the machine slept; measurements of that time are discarded."""

    at_ns: int
    since_ns: int
    lasted_s: float
    """Uses CLOCK_BOOTTIME, which includes suspend time, unlike the stamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRequested(MonitorEvent):
    """A knob request was sent to a lane."""

    request: int
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceEvent:
    """Fields of all events about the race."""

    lane: str = ""
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceBegan(RaceEvent):
    """A race begins; lanes of an earlier race are dropped."""

    race: Race
    specs: tuple[LaneSpec, ...]
    source: str = ""
    """Digest of the scenario file. Empty while the lanes are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKnown(RaceEvent):
    """New facts about a machine."""

    machine: Machine
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStarted(RaceEvent):
    """The lanes received the start signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(RaceEvent):
    """The mode of the race changed; see `race.MODES`."""

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceGranted(MonitorEvent):
    """A lane's slice began; with an empty `lane`, a slice ended and none begins."""

    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveChanged(RaceEvent):
    """A lane got the machine for itself, in slices, or (empty) all lanes train again."""

    exclusive: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAdvanced(RaceEvent):
    """A series began or made a step."""

    step: SeriesStep


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequested(RaceEvent):
    """A request of the user or of an experiment other than a knob; other events report the result."""

    action: str
    """`pause`, `resume`, `restart`, `profile`, `end` or `race`."""
    lanes: tuple[str, ...] = ()
    scenario: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(RaceEvent):
    """The race was interrupted."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesWritten(RaceEvent):
    """The lanes have ended, and the files that they wrote in their views of the working folder are known."""

    views: dict[str, View]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingChanged(RaceEvent):
    """The recording of the race began, moved or stopped. Not part of a recording."""

    recording: RecordingState


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent(RaceEvent):
    """Fields of all events about the connection to another machine."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConnecting(HostEvent):
    """tfmon connects to a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConnected(HostEvent):
    """The agent on a machine answers."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMeasured(HostEvent):
    """Measurements of the connection and the agent, every few seconds."""

    round_trip_ns: int
    """From the monitor to the agent and back: the 10 % quantile."""
    offset_ns: int
    """Added to the stamps of that machine."""
    error_ns: int
    """Largest error of `offset_ns`."""
    agent_cpu_pct: Reading = NOT_READ
    """CPU of the agent process, with probes; 100 is one busy core."""
    agent_bytes: Reading = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLost(HostEvent):
    """The connection was lost, and with it every lane on that machine."""

    reason: str


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
    | SeriesAdvanced
    | UserRequested
    | Interrupted
    | FilesWritten
    | RecordingChanged
    | HostConnecting
    | HostConnected
    | LinkMeasured
    | HostLost
)

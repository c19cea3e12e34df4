"""All events of a race. Stamps are from the monitor's `time.monotonic_ns`."""

from __future__ import annotations

from tfmon.model.event_base import Event
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.folder_views import View
from tfmon.model.knobs import KnobValue
from tfmon.model.race import Machine, Race, RecordingState
from tfmon.model.readings import NOT_READ, Reading
from tfmon.model.series import SeriesStep
from tfmon.model.spec import LaneSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStarted(Event):
    """A process was started for a lane."""

    pid: int
    settings: dict[str, KnobValue]
    source: str = ""
    command: str = ""
    renewed: bool = False
    """Whether the measurement continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequested(Event):
    """A user's command received SIGINT."""

    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEnded(Event):
    """A lane's process has ended and was reaped."""

    exit_code: int | None
    signal: str | None
    requested: bool
    output_tail: tuple[str, ...] = ()
    memory_kills: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePrinted(Event):
    """Lines that a lane wrote, without control codes."""

    lines: tuple[str, ...]
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine(Event):
    """Lines could not be read."""

    problem: str
    lines: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStalled(Event):
    """A lane has sent nothing for too long."""

    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(Event):
    """tfmon was stopped, or the machine slept."""

    since_ns: int
    lasted_s: float
    """Uses CLOCK_BOOTTIME, which includes suspend time, unlike the stamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRequested(Event):
    """A knob request was sent to a lane."""

    request: int
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceBegan(Event):
    """A race begins."""

    race: Race
    specs: tuple[LaneSpec, ...]
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKnown(Event):
    """New facts about a machine."""

    machine: Machine
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStarted(Event):
    """The lanes received the start signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Event):
    """The mode of the race changed."""

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceGranted(Event):
    """A lane's slice began, or no slice runs."""

    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveChanged(Event):
    """The lane that trains alone changed."""

    exclusive: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAdvanced(Event):
    """A series began or made a step."""

    step: SeriesStep


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequested(Event):
    """A request other than a knob."""

    action: str
    lanes: tuple[str, ...] = ()
    scenario: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(Event):
    """The race was interrupted."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesWritten(Event):
    """The files in the lanes' views are known."""

    views: dict[str, View]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingChanged(Event):
    """The recording began, moved or stopped. Not recorded."""

    recording: RecordingState


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent(Event):
    """An event about the connection to another machine."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConnecting(HostEvent):
    """tfmon connects to a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConnected(HostEvent):
    """The agent answers."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMeasured(HostEvent):
    """Measurements of the connection and the agent."""

    round_trip_ns: int
    """The 10 % quantile."""
    offset_ns: int
    """Amount that is added to the machine's stamps."""
    error_ns: int
    agent_cpu_pct: Reading = NOT_READ
    agent_bytes: Reading = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLost(HostEvent):
    """The connection to a host and its lanes was lost."""

    reason: str

"""The first line of a recording, the one written when it is closed, and the marks on its time line."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tfmon import units
from tfmon.analysis.analysis import analyse
from tfmon.errors import UsageError
from tfmon.model.events import Event, Interrupted, LaneEnded, ModeChanged, RaceBegan, UserRequested
from tfmon.model.knobs import KnobValue, show
from tfmon.model.lane_events import KnobApplied, KnobRefused, LaneFailed
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.ports import TimeMark
from tfmon.model.race import BetweenProcesses, Machine
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.model.views import View
from tfmon.version import __version__

SCHEMA = 8
"""Version of recordings and JSON objects; others are refused. New events, and fields with a default, need no new
version. 3: views have no `kept`; what only a gate reads of a lane is in `figures`. 2: `bottleneck` was `bound`;
`error` and `reason` were `why`; `gpu_memory_*` were `gpu_memory_held_bytes` and `gpu_memory_in_use_bytes`."""

LONGEST_LINE_BYTES = 16 * 2**20
"""The longest line, a snapshot with eight lanes, takes 7 MiB."""
ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES", "KERAS_BACKEND", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_COUNT", "TF_GPU_THREAD_MODE",
    "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_USE_LEGACY_KERAS", "TF_XLA_FLAGS", "XLA_FLAGS",
)  # fmt: skip
"""The only recorded environment variables: they change the speed of TensorFlow."""
_TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tensorflow-macos")


class RecordingError(UsageError):
    """A recording that cannot be found, read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a recording: the race that it records."""

    schema: int
    tfmon: str
    python: str
    """Of tfmon itself; each lane reports its own."""
    tensorflow: str | None
    """The version beside tfmon; `None` if the lanes use another Python. Each lane reports its own."""
    started: str
    """Local time with its offset from UTC, ISO 8601."""
    started_ns: int
    scenario: str
    title: str
    source: str
    mode: str
    lanes: tuple[LaneSpec, ...]
    knobs: dict[str, KnobValue]
    """Every knob of the scenario with its default; LaneStarted has the values at the start."""
    machine: Machine
    environment: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, Machine] = field(default_factory=dict)
    """The other machines of the lanes, by `LaneSpec.host`."""
    between: BetweenProcesses | None = None
    """The between-process variance of earlier races: a part of every interval."""
    views: dict[str, View] = field(default_factory=dict)
    """The views of the working folder for a user's command, by host, and the folder of the lanes' files."""

    @property
    def lane_names(self) -> dict[str, str]:
        """What each lane is called on the time line: its device, or its id where settings tell lanes apart."""
        return {one.name: one.id if one.id and (one.apart or one.number) else one.name for one in self.lanes}

    @property
    def recorded_on(self) -> str:
        """On what machines, with which versions and when it was recorded."""
        return " · ".join(
            (
                *_size(self.machine),
                self.machine.system,
                *(f"{host}: {', '.join(_size(machine))}" for host, machine in self.hosts.items()),
                f"TensorFlow {self.tensorflow or '–'}, Python {self.python}, tfmon {self.tfmon}",
                self.started[:10],
            )
        )

    def wall_s(self, at_ns: int) -> float:
        """Return the wall-clock time of an event, in seconds since the epoch."""
        return datetime.fromisoformat(self.started).timestamp() + (at_ns - self.started_ns) / 1e9


def _size(machine: Machine) -> tuple[str, str]:
    size = f"{machine.cores} cores, {units.memory(machine.memory_bytes)}"
    return f"{machine.cpu_name or 'unknown CPU'}, {size}", ", ".join(machine.gpus) or "no GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """How a race ended, for lists; all of it follows from the events."""

    at_ns: int
    events: int
    seconds: float | None
    """From the start signal to the end; `None` if the race never started."""
    verdict: str
    ratio: float | None
    tensorflow: str | None
    lanes: tuple[str, ...] = ()
    """Titles of the lanes at the end; older recordings have none."""
    failure: str = ""
    """Why lanes failed, or empty if none did, and in older recordings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The snapshot after the events before it: a replay goes on from here, to the digit."""

    known: Snapshot


def header_of(event: RaceBegan, known: Snapshot, python: Path) -> Header:
    """Return the header of a race that begins now, in lanes that use this interpreter."""
    named = {spec.host for spec in event.specs} - {""}
    return Header(
        schema=SCHEMA,
        tfmon=__version__,
        python=platform.python_version(),
        tensorflow=_installed_tensorflow() if python == Path(sys.executable) else None,
        started=datetime.now().astimezone().isoformat(timespec="milliseconds"),
        started_ns=time.monotonic_ns(),
        scenario=event.race.scenario,
        title=event.race.title,
        source=event.source,
        mode=event.race.mode,
        lanes=event.specs,
        knobs={knob.name: knob.default for knob in event.race.knobs},
        machine=known.machine,
        hosts={host: state.machine for host, state in known.hosts.items() if host in named},
        between=event.race.between,
        views=event.race.views,
        environment={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    )


def closed_of(known: Snapshot, at_ns: int, events: int) -> Closed:
    """Return the last line of a race that is over."""
    result = analyse(known)
    return Closed(
        at_ns=at_ns,
        events=events,
        seconds=known.raced_s,
        verdict=result.outcome,
        ratio=result.verdict.ratio,
        tensorflow=next((one for lane in known.lanes if (one := lane.process.versions["tensorflow"])), None),
        lanes=tuple(lane.title for lane in known.lanes),
        failure="; ".join(_failures(known)),
    )


def _failures(known: Snapshot) -> Iterator[str]:
    for lane in known.lanes:
        if lane.phase not in (FAILED, ABSENT) or lane.trouble is None:
            continue
        end = lane.end.event if lane.script.command else None
        said = end.output_tail if end is not None and end.exit_code else ()
        why = (said[-1].strip() if said else "") or lane.trouble.message
        yield f"{lane.phase}: {why}" if len(known.lanes) == 1 else f"{lane.spec.id} {lane.phase}: {why}"


def _installed_tensorflow() -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # late: it loads what reads e-mails

    for name in _TENSORFLOWS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


MARKING = {
    kind.__name__
    for kind in (Interrupted, KnobApplied, KnobRefused, LaneEnded, LaneFailed, ModeChanged, UserRequested)
}


def mark_of(event: Event, names: Mapping[str, str]) -> list[TimeMark]:
    """Return the mark of an event, if it has one; `names` has what each lane is called there, by its key."""

    def named(lane: str) -> str:
        return names.get(lane, lane)

    match event:
        case KnobApplied():
            return [TimeMark(event.at_ns, f"{event.knob} {show(event.value)} ({named(event.lane)})", "knob")]
        case KnobRefused():
            return [
                TimeMark(event.at_ns, f"{event.knob} {show(event.value)} refused ({named(event.lane)})", "knob")
            ]
        case ModeChanged():
            return [TimeMark(event.at_ns, f"mode {event.mode}", "request")]
        case UserRequested():
            about = event.scenario or ", ".join(map(named, event.lanes))
            return [TimeMark(event.at_ns, f"{event.action} {about}".strip(), "request")]
        case LaneFailed():
            return [TimeMark(event.at_ns, f"{named(event.lane)} failed", "trouble")]
        case LaneEnded(requested=False):
            how = f"{named(event.lane)} ended: {event.signal or f'exit code {event.exit_code}'}"
            return [] if event.exit_code == 0 else [TimeMark(event.at_ns, how, "trouble")]
        case Interrupted():
            return [TimeMark(event.at_ns, event.reason, "trouble")]
        case _:
            return []

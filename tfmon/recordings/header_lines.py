"""The header of a recording, and its marks."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from tfmon import units
from tfmon.errors import UsageError
from tfmon.model.event_base import Event
from tfmon.model.events import Interrupted, LaneEnded, ModeChanged, RaceBegan, UserRequested
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.header import SCHEMA, Header
from tfmon.model.knobs import show
from tfmon.model.lane_events import KnobApplied, KnobRefused, LaneFailed
from tfmon.model.ports import TimeMark
from tfmon.model.race import Machine
from tfmon.model.session import Snapshot
from tfmon.version import __version__

LONGEST_LINE_BYTES = 16 * 2**20
"""A snapshot with eight lanes takes 7 MiB."""
ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES", "KERAS_BACKEND", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_COUNT", "TF_GPU_THREAD_MODE",
    "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_USE_LEGACY_KERAS", "TF_XLA_FLAGS", "XLA_FLAGS",
)  # fmt: skip
"""The recorded variables."""
_TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tensorflow-macos")


class RecordingError(UsageError):
    """A recording cannot be used."""


def recorded_on(header: Header) -> str:
    """Return a text with machines, versions and date."""
    return " · ".join(
        (
            *_size(header.machine),
            header.machine.system,
            *(f"{host}: {', '.join(_size(machine))}" for host, machine in header.hosts.items()),
            f"TensorFlow {header.tensorflow or '–'}, Python {header.python}, tfmon {header.tfmon}",
            header.started[:10],
        )
    )


def _size(machine: Machine) -> tuple[str, str]:
    size = f"{machine.cores} cores, {units.memory(machine.memory_bytes)}"
    return f"{machine.cpu_name or 'unknown CPU'}, {size}", ", ".join(machine.gpus) or "no GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The exact snapshot after the events before it, for a replay from here."""

    known: Snapshot


def header_of(event: RaceBegan, known: Snapshot, python: Path) -> Header:
    """Return the header of a new race."""
    hosts = {spec.host for spec in event.specs} - {""}
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
        hosts={host: state.machine for host, state in known.hosts.items() if host in hosts},
        between=event.race.between,
        views=event.race.views,
        environment={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    )


def _installed_tensorflow() -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # late: it loads the email package

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
    """Return the mark of an event, if any."""

    def title(lane: str) -> str:
        return names.get(lane, lane)

    match event:
        case KnobApplied():
            return [TimeMark(event.at_ns, f"{event.knob} {show(event.value)} ({title(event.lane)})", "knob")]
        case KnobRefused():
            return [
                TimeMark(event.at_ns, f"{event.knob} {show(event.value)} refused ({title(event.lane)})", "knob")
            ]
        case ModeChanged():
            return [TimeMark(event.at_ns, f"mode {event.mode}", "request")]
        case UserRequested():
            about = event.scenario or ", ".join(map(title, event.lanes))
            return [TimeMark(event.at_ns, f"{event.action} {about}".strip(), "request")]
        case LaneFailed():
            return [TimeMark(event.at_ns, f"{title(event.lane)} failed", "trouble")]
        case LaneEnded(requested=False):
            how = f"{title(event.lane)} ended: {event.signal or f'exit code {event.exit_code}'}"
            return [] if event.exit_code == 0 else [TimeMark(event.at_ns, how, "trouble")]
        case Interrupted():
            return [TimeMark(event.at_ns, event.reason, "trouble")]
        case _:
            return []

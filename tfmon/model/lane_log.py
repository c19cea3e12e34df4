"""The log of a lane: what it printed, and in words what happened to it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tfmon.model.events import BadLine, EndRequested, Event, LaneEnded, LanePrinted, LaneStarted
from tfmon.model.knobs import show
from tfmon.model.lane_events import (
    Built,
    Finished,
    KnobApplied,
    KnobRefused,
    LaneFailed,
    LibrariesLoaded,
    NotMeasured,
    PhaseEntered,
    Profiled,
    ProfileFailed,
    Window,
)

LOG_LINES = 500
"""Lines of a lane's log that are kept; each has 500 characters at most."""
_OF_A_PROFILE = re.compile(
    r"^(?:\d{4}-\d\d-\d\d [\d:.]+: )?I(?:\d{4} [\d:.]+ +\d+)? *"
    r"\S*(?:profiler_session|save_profile|cupti_\w+)\.cc:\d+\]"
)
"""What TensorFlow prints about each of the short profiles that tfmon takes: five lines every few seconds."""

_CHATTER = re.compile(
    r"^(?:\d{4}-\d\d-\d\d [\d:.]+:? )?I(?:\d{4} [\d:.]+ +\d+)? *\S+\.cc:\d+\]"
    r"|^WARNING: All log messages before absl::|^To enable the following instructions:"
)
"""What TensorFlow prints of itself when it is loaded."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: what the lane printed, or in our words what happened to it."""

    at_ns: int
    """For a printed line, when it was read."""
    kind: Literal["printed", "event", "trouble"]
    text: str
    dropped_bytes: int = 0
    """How much of the output the log lacks, where the line tells that."""


def without_chatter(lines: Iterable[str]) -> list[str]:
    """Return the lines of an output but for what TensorFlow tells of itself."""
    return [line for line in lines if not _CHATTER.match(line)]


def without_profiles(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of an output but for those about tfmon's own profiles."""
    return (line for line in lines if not _OF_A_PROFILE.match(line))


def append_log(log: tuple[LogLine, ...], event: Event) -> tuple[LogLine, ...]:
    """Return a lane's log after an event; the same object if there is nothing to add."""
    new = tuple(LogLine(event.at_ns, kind, text) for kind, text in _log_lines(event))
    if isinstance(event, LanePrinted) and event.dropped_bytes:
        dropped = event.dropped_bytes + sum(line.dropped_bytes for line in log)
        told = f"dropped {dropped:,} bytes in all, printed faster than they are shown"
        new = (*new, LogLine(event.at_ns, "trouble", told, dropped))
        log = tuple(line for line in log if not line.dropped_bytes)
    return (*log, *new)[-LOG_LINES:] if new else log


def _log_lines(event: Event) -> Iterator[tuple[Literal["printed", "event", "trouble"], str]]:
    match event:
        case Window():
            if event.traced_steps:
                yield "event", f"traced {event.traced or 'a function'} ({event.traced_ns / 1e6:.0f} ms)"
        case LanePrinted():
            for line in without_profiles(event.lines):
                yield "printed", line
        case LaneStarted():
            settings = ", ".join(f"{knob}={show(value)}" for knob, value in event.settings.items())
            what = "renewed" if event.renewed else "started"
            yield "event", f"{what}, process {event.pid}; {settings}".rstrip("; ")
        case PhaseEntered():
            yield "event", event.phase
        case LibrariesLoaded():
            yield "event", f"TensorFlow {event.tensorflow}, Keras {event.keras} {event.device_name}".rstrip()
        case Built():
            examples = "?" if event.examples is None else f"{event.examples:,}"
            yield "event", f"built: {event.parameters:,} parameters, {examples} examples"
        case KnobApplied():
            in_effect = f"{event.knob}={show(event.value)} in effect from step {event.step:,}"
            yield "event", f"{in_effect}; longest gap between steps {event.gap_ns / 1e6:.1f} ms"
        case KnobRefused():
            yield "trouble", f"{event.knob}={show(event.value)} refused: {event.reason}"
        case NotMeasured() if event.reason:
            yield "event", f"{event.what}: {event.reason}"
        case Profiled():
            yield "event", "profiled"
        case ProfileFailed():
            yield "trouble", f"no profile: {event.reason}"
        case BadLine():
            yield "trouble", f"unreadable line ignored: {event.problem}"
        case LaneFailed():
            yield "trouble", " · ".join(part for part in (event.message, event.hint) if part)
        case Finished():
            measured = "" if event.measured is None else f", {event.measured:,} of them measured"
            yield "event", f"finished after {event.steps:,} steps{measured}"
        case EndRequested():
            yield "event", f"Ctrl+C was sent; the process has {event.grace_s:g} s to end"
        case LaneEnded():
            how = f"ended by {event.signal}" if event.signal else f"exited with code {event.exit_code}"
            yield ("event" if event.requested or event.exit_code == 0 else "trouble"), f"process {how}"

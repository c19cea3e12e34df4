"""The log and the end of a lane."""

from __future__ import annotations

import math
import re
import shlex
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from tfmon.model import events, lane_events
from tfmon.model.event_base import Event
from tfmon.model.gpu_samples import GpuSample, held_text
from tfmon.model.knobs import PYTHON, Knob, not_offered, show
from tfmon.model.lane_events import LOWER_THE_BATCH, OUT_OF_MEMORY, STARTING, NotMeasured
from tfmon.model.lane_state import DONE, FAILED, NO_STEPS_HINT, LaneState, LogLine, Trouble

LOG_LINES = 500
_OF_A_PROFILE = re.compile(
    r"^(?:\d{4}-\d\d-\d\d [\d:.]+: )?I(?:\d{4} [\d:.]+ +\d+)? *"
    r"\S*(?:profiler_session|save_profile|cupti_\w+)\.cc:\d+\]"
)

_CHATTER = re.compile(
    r"^(?:\d{4}-\d\d-\d\d [\d:.]+:? )?I(?:\d{4} [\d:.]+ +\d+)? *\S+\.cc:\d+\](?! total_region)"
    r"|^WARNING: All log messages before absl::|^To enable the following instructions:"
)


def without_chatter(lines: Iterable[str]) -> list[str]:
    """Return the lines without TensorFlow's start-up messages."""
    return [line for line in lines if not _CHATTER.match(line)]


def append_log(log: tuple[LogLine, ...], event: Event) -> tuple[LogLine, ...]:
    """Return a lane's log after an event."""
    new = tuple(LogLine(event.at_ns, kind, text) for kind, text in _log_lines(event))
    if isinstance(event, events.LanePrinted) and event.dropped_bytes:
        dropped = event.dropped_bytes + sum(line.dropped_bytes for line in log)
        dropped_text = f"dropped {dropped:,} bytes in all, printed faster than they are shown"
        new = (*new, LogLine(event.at_ns, "trouble", dropped_text, dropped))
        log = tuple(line for line in log if not line.dropped_bytes)
    return (*log, *new)[-LOG_LINES:] if new else log


def _log_lines(event: Event) -> Iterator[tuple[Literal["printed", "event", "trouble"], str]]:
    match event:
        case lane_events.Window() if event.traced_steps:
            yield "event", f"traced {event.traced or 'a function'} ({event.traced_ns / 1e6:.0f} ms)"
        case events.LanePrinted():
            for line in (line for line in event.lines if not _OF_A_PROFILE.match(line)):
                yield "printed", line
        case events.LaneStarted():
            settings = ", ".join(f"{knob}={show(value)}" for knob, value in event.settings.items())
            action = "renewed" if event.renewed else "started"
            yield "event", f"{action}, process {event.pid}; {settings}".rstrip("; ")
        case lane_events.PhaseEntered():
            yield "event", event.phase
        case lane_events.LibrariesLoaded():
            loaded = ("TensorFlow", event.tensorflow), ("Keras", event.keras)
            versions = ", ".join(f"{name} {version}" for name, version in loaded if version)
            yield "event", f"{versions or 'TensorFlow is not loaded'} {event.device_name}".rstrip()
        case lane_events.Built():
            examples = "?" if event.examples is None else f"{event.examples:,}"
            yield "event", f"built: {event.parameters:,} parameters, {examples} examples"
        case lane_events.KnobApplied():
            in_effect = f"{event.knob}={show(event.value)} in effect from step {event.step:,}"
            yield "event", f"{in_effect}; longest gap between steps {event.gap_ns / 1e6:.1f} ms"
        case lane_events.KnobRefused():
            yield "trouble", f"{event.knob}={show(event.value)} refused: {event.reason}"
        case NotMeasured() if event.reason:
            yield "event", f"{event.what}: {event.reason}"
        case lane_events.Profiled():
            yield "event", "profiled"
        case lane_events.ProfileFailed():
            yield "trouble", f"no profile: {event.reason}"
        case events.BadLine():
            yield "trouble", f"unreadable line ignored: {event.problem}"
        case lane_events.LaneFailed():
            yield "trouble", " · ".join(part for part in (event.message, event.hint) if part)
        case lane_events.Finished():
            measured = "" if event.measured is None else f", {event.measured:,} of them measured"
            yield "event", f"finished after {event.steps:,} steps{measured}"
        case events.EndRequested():
            yield "event", f"Ctrl+C was sent; the process has {event.grace_s:g} s to end"
        case events.LaneEnded():
            how = f"ended by {event.signal}" if event.signal else f"exited with code {event.exit_code}"
            yield ("event" if event.requested or event.exit_code == 0 else "trouble"), f"process {how}"


MOST_CHARACTERS = 300
_TRACEBACK, _IN_GRAPH = "Traceback (most recent call last)", "Graph execution error:"
_NODE = re.compile(r"\s*\[\[\{\{node .*")
LOADED = "python"
"""Figure of the event that tfmon was loaded."""
HINTS = {
    "EOFError": "its standard input has ended: a lane gets what is piped to tfmon or redirected, and the keyboard "
    "if it is the only one and there is no screen",
    "NameError: name 'get_ipython'": (
        "only IPython has get_ipython: name the notebook itself (.ipynb), or remove such lines from its export"
    ),
}
ELSEWHERE = "--lane gpu takes the idlest GPU, --wait-idle waits until one is free"
_OUT_OF_MEMORY = re.compile(r"(?i)out[ _]of[ _]memory|ResourceExhausted|\bOOM\b|failed to allocate")


def trouble_of(event: events.LaneEnded, state: LaneState) -> Trouble | None:
    """Return the trouble of a silently ended child. A stalled lane has failed."""
    how = f"was ended by {event.signal}" if event.signal is not None else f"exited with code {event.exit_code}"
    stalled_since_ns = state.heartbeat.stalled_since_ns
    if stalled_since_ns is not None:
        silence = "no step" if state.totals.steps else "not a word"
        if event.requested:
            how = f"ended {'on request' if state.end.killed else 'with tfmon'}"
            how += f" by {event.signal}" if event.signal else ""
        return Trouble(f"{silence} for {(event.at_ns - stalled_since_ns) / 1e9:.0f} s; {how}")
    if event.requested:
        return None
    if event.signal == "SIGKILL" and event.memory_kills:
        message = f"out of memory, it seems: the lane was ended by SIGKILL, and {event.memory_kills}"
        return Trouble(message, "" if state.script.command else LOWER_THE_BATCH, OUT_OF_MEMORY)
    if event.signal is not None:
        return Trouble(f"the lane {how}")
    if state.phase == STARTING:
        return Trouble(f"the lane {how} before it sent a message: is its interpreter a Python from 3.10 on?")
    return Trouble(f"the lane {how} without giving a reason")


def trouble_of_script(state: LaneState, event: events.LaneEnded) -> Trouble | None:
    """Return the trouble of a script."""
    if state.end.requested is not None and event.signal in ("SIGTERM", "SIGKILL"):
        took_s = (event.at_ns - state.end.requested.at_ns) / 1e9
        hint = "" if took_s < state.end.requested.grace_s else "the setting `grace` gives it more time"
        return Trouble(f"the script did not end within {took_s:.0f} s of Ctrl+C: killed by {event.signal}", hint)
    if state.end.requested is None and event.signal is not None:
        return Trouble(f"the script was ended by {event.signal}")
    if state.end.requested is None and event.exit_code:
        reason, last = reason_in(event.output_tail), last_line(event.output_tail)
        message = f"the script exited with code {event.exit_code}"
        if reason or last:
            message += f": {reason}" if reason else f"; it last printed: {last}"
        known = (text for begins, text in HINTS.items() if reason.startswith(begins))
        hint = next(known, fragments_in(event.output_tail))
        return Trouble(message, hint)
    if state.totals.steps or state.end.requested is not None:
        return None
    if begun := went_on(state):
        return Trouble(f"the script {begun}, and nothing was left to train", "remove that backup to train again")
    unknown = state.script.not_measured
    reason = unknown.get("steps") or _why_unseen(state.script.command, loaded=LOADED in unknown)
    return Trouble("the script ended, and no training step was seen", reason)


_FREE = {"pool": re.compile(r"total_region_allocated_bytes_: (\d+)"), "used": re.compile(r"^\s*InUse:\s+(\d+)")}
_ASKED = re.compile(r"OOM when allocating tensor with shape\[([\d,]+)\] and type (\w+)")
_BYTES = {"half": 2, "bfloat16": 2, "float": 4, "int32": 4, "double": 8, "int64": 8, "complex64": 8}


def fragments_in(output: Sequence[str]) -> str:
    """Return a text about a fragmented memory pool."""
    pool_bytes: dict[str, int] = {}
    wanted_bytes = 0
    for line in output:
        for name, pattern in _FREE.items():
            if result := pattern.search(line):
                pool_bytes[name] = int(result[1])
        if (result := _ASKED.search(line)) and result[2] in _BYTES:
            wanted_bytes = math.prod(map(int, result[1].split(","))) * _BYTES[result[2]]
    free_bytes = pool_bytes.get("pool", 0) - pool_bytes.get("used", 0)
    if "used" not in pool_bytes or not wanted_bytes or free_bytes < wanted_bytes:
        return ""
    sizes = f"{free_bytes / 2**30:.1f} GiB of TensorFlow's pool were free for {wanted_bytes / 2**30:.1f}"
    return f"the GPU is not full: {sizes}, but in fragments; {ASYNC}"


ASYNC = "--set allocator=cuda_malloc_async (TF_GPU_ALLOCATOR) has none"


def went_on(lane: LaneState) -> str:
    """Return a text about the restored checkpoint."""
    progress = lane.script.progress
    if progress is None or not progress.restored:
        return ""
    return f"went on from {progress.backup or 'a checkpoint'} (epoch {progress.restored} of {progress.epochs})"


def _why_unseen(command: str, *, loaded: bool) -> str:
    try:
        argv = shlex.split(command)
    except ValueError:
        argv = command.split()
    for before, word in zip(["", *argv], argv, strict=False):
        if Path(before).name == "env" and word in ("-i", "-", "--ignore-environment"):
            return f"`env {word}` takes away the variables by which tfmon is loaded"
        if re.fullmatch(r"-[a-zA-Z]*[IES][a-zA-Z]*", word) and Path(before).name.startswith("python"):
            return f"`{Path(before).name} {word}` ignores PYTHONPATH or `site`, by which tfmon is loaded"
    if loaded:
        return f"{NO_STEPS_HINT}. A process that it starts must get PYTHONPATH and TFMON_PIPES"
    return (
        "none of its Python processes loaded tfmon: the command runs another program, or Python without the "
        "variables PYTHONPATH and TFMON_PIPES or without the descriptors that it inherits"
    )


def code_of_command(state: LaneState) -> int:
    """Return the exit code as a shell does."""
    end = state.end.event
    if end is None:
        return 0
    name = end.signal or ""
    return 128 + signal.Signals[name] if name in signal.Signals.__members__ else end.exit_code or 0


def signal_name(number: int) -> str:
    """Return a signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def reason_in(output: Sequence[str]) -> str:
    """Return the error below the last traceback."""
    lines = [text for line in output if (text := _NODE.sub("", line).rstrip())]
    begins = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not begins:
        return ""
    below = lines[begins[-1] + 1 :]
    index = next((number for number, line in enumerate(below) if not line[0].isspace()), None)
    if index is None:
        return ""
    kind, _, message = below[index].partition(":")
    kind = kind.rpartition(".")[2]
    if message.strip() in ("", _IN_GRAPH) and below[index + 1 :]:
        message = below[-1]  # TensorFlow writes its reason at the end
    return f"{kind}: {message.strip()}".rstrip(": ")[:MOST_CHARACTERS]


def last_line(output: Sequence[str]) -> str:
    """Return the last non-empty line."""
    return next((text[:MOST_CHARACTERS] for line in reversed(output) if (text := line.strip())), "")


def explain_end(
    lane: LaneState, gpus: Sequence[GpuSample], lane_pids: Collection[int], knobs: Sequence[Knob] = ()
) -> None:
    """Explain a lack of GPU memory or an unknown knob."""
    if lane.script.command and lane.phase == DONE and lane.end.requested is None:
        offered = [knob.name for knob in knobs]
        # Windows also show values that a library chose itself.
        for name in lane.spec.settings if lane.points else lane.in_effect:
            if name not in (*offered, PYTHON):
                lane.phase, lane.trouble = FAILED, Trouble(*not_offered(name, offered), kind="scenario")
                return
    trouble = lane.trouble
    if trouble is None or (trouble.kind != OUT_OF_MEMORY and not _OUT_OF_MEMORY.search(trouble.message)):
        return
    held = next(filter(None, (held_text(gpu, lane.spec.place_of(gpu.index), lane_pids) for gpu in gpus)), "")
    if held and held not in trouble.message:
        message = f"out of memory, because {held}. The lane said: {trouble.message}"
        hint = "; ".join(filter(None, (ELSEWHERE, trouble.hint)))
        lane.trouble = replace(trouble, message=message, hint=hint)

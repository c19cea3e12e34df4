"""The processor's counters for a process, by Linux's `perf`."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from tfmon.model.profile import CpuCounters
from tfmon.model.readings import Missing
from tfmon.system.programs import run_program

COUNTED_S = 2
INSTRUCTIONS, CYCLES, STALLED = EVENTS = ("instructions", "cycles", "stalled-cycles-backend")
"""Names of `perf` for every processor; some lack the last. Source: perf-list(1)."""
NO_PERF = "the program perf is not installed (Debian: linux-perf)"
NOT_SUPPORTED = "the processor's counters cannot be read here, as in most virtual machines"
NOT_ALLOWED = "the system does not allow it: /proc/sys/kernel/perf_event_paranoid must be 2 or less"
NOT_BY_THIS = "this processor does not count them by that name"
DID_NOT_RUN = "the lane did not train while it was counted"


def count(pid: int) -> CpuCounters | Missing:
    """Count for `COUNTED_S` seconds, or return the obstacle at once."""
    obstacle = _obstacle()
    if obstacle:
        return Missing(obstacle)
    counted = _perf("-p", str(pid), "--", "sleep", str(COUNTED_S))
    if isinstance(counted, Missing):
        return counted
    instructions, cycles = counted.get(INSTRUCTIONS), counted.get(CYCLES)
    if not instructions or not cycles:
        return Missing(DID_NOT_RUN)
    stalled = counted[STALLED] / cycles if STALLED in counted else Missing(NOT_BY_THIS)
    return CpuCounters(instructions / cycles, stalled)


@functools.cache
def _obstacle() -> str:
    counted = _perf("--", "true")
    return counted.reason if isinstance(counted, Missing) else "" if CYCLES in counted else NOT_SUPPORTED


def _perf(*options: str) -> dict[str, float] | Missing:
    program = shutil.which("perf")
    if program is None:
        return Missing(NO_PERF)
    events = ",".join(f"{event}:u" for event in EVENTS)
    try:
        command = [program, "stat", "-x", ";", "-e", events, *options]
        answer = run_program(command, COUNTED_S + 10, environ={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired) as error:
        return Missing(f"perf could not be run: {type(error).__name__}")
    result: dict[str, float] = {}
    for line in answer.stderr.splitlines():
        value, _unit, name = (*line.split(";"), "", "")[:3]
        event = next((known for known in reversed(EVENTS) if known in name), None)
        if event is not None and value.isdecimal():  # two kinds of cores have a line each
            result[event] = result.get(event, 0.0) + float(value)
    if answer.returncode and not result:
        first = next(filter(None, answer.stderr.splitlines()), f"exit code {answer.returncode}")
        return Missing(
            NOT_ALLOWED if "perf_event_paranoid" in answer.stderr else f"perf says: {first.strip()[:100]}"
        )
    return result

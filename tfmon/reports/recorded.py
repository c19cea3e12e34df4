"""Reports of recorded races and of sweeps, by their files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tfmon.analysis.analysis import Analysis, analyse
from tfmon.analysis.sweep import rank
from tfmon.doctor.report import run_checks
from tfmon.errors import TfmonError
from tfmon.recordings import sweeps
from tfmon.reports import race, sweep
from tfmon.reports.gather import gather
from tfmon.reports.private import hider, keep
from tfmon.reports.race_json import to_json
from tfmon.reports.sections import Report


def of_race(path: Path, again: Callable[[Analysis], str], host: str = "") -> tuple[Report, bool]:
    """Return the report of a recording, and whether that is cut off; raises RecordingError.

    Args:
        path: The recording.
        again: Returns the command that repeats a race; raises TfmonError where there is none.
        host: Name of this machine: the doctor examines it, without TensorFlow, where it is that of the race.
    """
    course = gather(path)
    found, header = analyse(course.end), course.header
    try:
        command = again(found)
    except TfmonError as error:
        command = f"no command line can: {error.line}"
    here = host and course.end.machine.hostname == host
    examined = run_checks(sys.executable, imports=False) if here else None
    data = {**to_json(found, header), "recording": path.name}
    return replace(race.report(found, header, course, command, examined), data=data), course.torn


def of_sweep(path: Path) -> Report:
    """Return the report of a sweep; raises TfmonError."""
    described = sweep.describe(rank(sweeps.read(path)), sweeps.began(path))
    return replace(described, data={**described.data, "file": path.name})


def hides(report: Report, host: str = "", *, everything: bool = False) -> Callable[[str], str]:
    """Return a function that hides in a text whose machines they were, and what looks like a secret.

    Args:
        report: What is written.
        host: Name of this machine, which is hidden, too.
        everything: Hide nothing.
    """
    return keep if everything else hider({host, *report.hosts}, report.others)

"""The report of a recorded race, with the present findings of the doctor on its machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tfmon.analysis.analysis import Analysis, analyse
from tfmon.doctor.report import run_checks
from tfmon.errors import TfmonError
from tfmon.reports import Report
from tfmon.reports.checks import findings
from tfmon.reports.gather import gather
from tfmon.reports.race import report
from tfmon.reports.race_json import to_json


def of_race(path: Path, again: Callable[[Analysis], str], host: str = "") -> tuple[Report, bool]:
    """Return the report of a recording, and whether that is cut off; the doctor examines `host`, this machine."""
    course = gather(path)
    result, header = analyse(course.end), course.header
    try:
        command = again(result)
    except TfmonError as error:
        command = f"no command line can: {error.line}"
    here = host and course.end.machine.hostname == host
    examination = findings(run_checks(sys.executable, imports=False) if here else None)
    data = {**to_json(result, header), "recording": path.name}
    return replace(report(result, header, course, command, examination), data=data), course.torn

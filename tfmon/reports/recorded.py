"""The report of a recorded race."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tfmon.analysis.analysis import Analysis, analyse
from tfmon.analysis.summarise import summarise
from tfmon.doctor.diagnosis import Diagnosis
from tfmon.doctor.facts import gather_facts
from tfmon.errors import TfmonError
from tfmon.reports import Report
from tfmon.reports.findings import findings
from tfmon.reports.race_report import report
from tfmon.reports.recorded_numbers import gather


def of_race(path: Path, again: Callable[[Analysis], str], host: str = "") -> tuple[Report, bool]:
    """Return the report of a recording, and whether the recording is cut off.

    If the race ran on `host`, this machine, the report includes the doctor's findings.
    """
    course = gather(path)
    analysis = analyse(course.end)
    result = replace(summarise(analysis, course.header), recording=Path(path.name))
    try:
        command = again(analysis)
    except TfmonError as error:
        command = f"no command line can: {error.line}"
    is_here = host and result.machine.hostname == host
    examination = findings(Diagnosis(gather_facts(imports=False)) if is_here else None)
    return report(analysis, result, course, command, examination), course.torn

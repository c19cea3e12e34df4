"""What the doctor found: lines for people, and one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tfmon.doctor.checks import BROKEN, FAIRNESS, GPU, NOT_APPLICABLE, OK, TENSORFLOW, WARNING, Finding
from tfmon.doctor.report import Report
from tfmon.model.codec import clean
from tfmon.reports import head

_HEADINGS = {TENSORFLOW: "TensorFlow", GPU: "GPU", FAIRNESS: "A fair race"}
_MARKS = {OK: ("✓", "+"), WARNING: ("!", "!"), BROKEN: ("✗", "x"), NOT_APPLICABLE: ("–", "-")}
_WORDS = {OK: "ok", WARNING: "warning", BROKEN: "broken", NOT_APPLICABLE: "n/a"}
_MARGIN = " " * 13
_PLAIN = str.maketrans({"…": "...", "°": " deg ", "–": "-", "×": "x", "≈": "~"})


def to_text(
    report: Report,
    *,
    verbose: bool = False,
    ascii_only: bool = False,
    paint: Callable[[str, str], str] = lambda text, status: text,
) -> str:
    """Write the report in lines; `paint` may colour a mark by its status.

    With `verbose`, checks that do not apply and the evidence are written, too.
    """
    text = "\n".join(_lines(report, verbose, ascii_only, paint))
    return text.translate(_PLAIN).encode("ascii", "replace").decode() if ascii_only else text


def _lines(report: Report, verbose: bool, plain: bool, paint: Callable[[str, str], str]) -> Iterator[str]:
    width = max(len(one.title) for one in report.results)
    for subject, heading in _HEADINGS.items():
        yield heading
        for one in report.of(subject):
            status = one.finding.status
            if status == NOT_APPLICABLE and not verbose:
                continue
            mark = paint(f"{_MARKS[status][plain]} {_WORDS[status]:7}", status)
            yield f"  {mark}  {one.title:{width}}  {_line(one.finding.found)}"
            yield from _details(one.finding, verbose)
        yield ""
    passed = report.count(NOT_APPLICABLE)
    if passed and not verbose:
        yield f"{passed} of {len(report.results)} checks do not apply here; -v shows them, and the evidence."
    yield _line(report.answer)
    if report.lane is not None:
        yield f"A lane trains here: {_line('; '.join(filter(None, (report.lane.found, report.lane.fix))))}"


def _details(finding: Finding, verbose: bool) -> Iterator[str]:
    if finding.expected:
        yield f"{_MARGIN}expected: {_line(finding.expected)}"
    if finding.fix:
        yield f"{_MARGIN}fix: {_line(finding.fix)}"
    for line in finding.evidence if verbose else ():
        if line:
            yield f"{_MARGIN}seen: {_line(line)}"


def _line(text: str) -> str:
    """Return text from elsewhere as one line that cannot steer a terminal."""
    return " ".join(clean(text).split("\n"))


def to_json(report: Report) -> dict[str, Any]:
    """Return the report as plain values."""
    obstacle = report.no_gpu
    return {
        **head(),
        "python": report.python,
        "tensorflow": report.tensorflow or None,
        "imported": report.imported,
        "gpus": None if report.gpus is None else list(report.gpus),
        "exit_code": report.exit_code,
        "answer": report.answer,
        "no_gpu": None if obstacle is None else {"reason": obstacle.reason, "fix": obstacle.hint},
        "seconds": round(report.seconds, 3),
        "lane": None if report.lane is None else {"found": report.lane.found, "fix": report.lane.fix or None},
        "checks": [
            {
                "id": one.id,
                "title": one.title,
                "subject": one.subject,
                "status": one.finding.status,
                "found": one.finding.found,
                "expected": one.finding.expected,
                "fix": one.finding.fix,
                "evidence": [line for line in one.finding.evidence if line],
                "source": one.source,
            }
            for one in report.results
        ],
    }

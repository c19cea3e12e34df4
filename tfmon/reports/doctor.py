"""What the doctor found, in sections and as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmon.doctor.facts import BROKEN, FAIRNESS, GPU, NOT_APPLICABLE, OK, TENSORFLOW, WARNING
from tfmon.doctor.report import Report as Examined
from tfmon.doctor.report import Result
from tfmon.model.codec import clean
from tfmon.reports import head, text
from tfmon.reports.sections import QUIET, VERDICT, Block, Item, Items, Note, Report, Section
from tfmon.reports.text import Paint

_HEADINGS = {TENSORFLOW: "TensorFlow", GPU: "GPU", FAIRNESS: "A fair race"}
_MARKS = {OK: ("✓", "+"), WARNING: ("!", "!"), BROKEN: ("✗", "x"), NOT_APPLICABLE: ("–", "-")}
_WORDS = {OK: "ok", WARNING: "warning", BROKEN: "broken", NOT_APPLICABLE: "n/a"}


def to_text(
    report: Examined, *, verbose: bool = False, ascii_only: bool = False, paint: Paint = text.unpainted
) -> str:
    """Write the report in lines; `paint` may colour a mark by its status.

    With `verbose`, checks that do not apply and the evidence are written, too.
    """
    written = text.write(describe(report, verbose=verbose, ascii_only=ascii_only), last=True, paint=paint)
    return text.plain(written) if ascii_only else written


def describe(report: Examined, *, verbose: bool = False, ascii_only: bool = False) -> Report:
    """Return the doctor's findings in sections."""
    sections = [
        Section(heading, (Items([_item(one, verbose, ascii_only) for one in report.of(subject)
                                 if verbose or one.finding.status != NOT_APPLICABLE]),))
        for subject, heading in _HEADINGS.items()
    ]  # fmt: skip
    answer, passed = [Note(_line(report.answer), VERDICT)], report.count(NOT_APPLICABLE)
    if passed and not verbose:
        rest = f"{passed} of {len(report.results)} checks do not apply here"
        answer.insert(0, Note(f"{rest}; `tfmon doctor -v` shows them, and the evidence."))
    return Report("What the doctor finds", sections, answer)


def findings(report: Examined | None) -> Sequence[Block]:
    """Return the obstacles to a race on its machine; None for a machine that could not be examined."""
    if report is None:
        return [Note("The doctor did not examine it: this report was written on another machine.", QUIET)]
    told = [one for one in report.results if one.finding.status in (WARNING, BROKEN)]
    if not told:
        return [Note("The doctor finds nothing that slows a race down.")]
    heading = Note("What the doctor finds as this report is written:")
    return [heading, Items([_item(one, verbose=False, plain=False) for one in told])]


def _item(one: Result, verbose: bool, plain: bool) -> Item:
    finding = one.finding
    details = [
        f"{name}: {_line(said)}" for name, said in (("expected", finding.expected), ("fix", finding.fix)) if said
    ]
    details += [f"seen: {_line(line)}" for line in finding.evidence if line and verbose]
    label = f"{_MARKS[finding.status][plain]} {_WORDS[finding.status]}"
    return Item(label, one.title, _line(finding.found), tuple(details), finding.status)


def _line(text: str) -> str:
    """Return text from elsewhere as one line that cannot steer a terminal."""
    return " ".join(clean(text).split("\n"))


def to_json(report: Examined) -> dict[str, Any]:
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

"""A check, and its possible findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfmon.doctor.facts import Facts

OK, WARNING, BROKEN, NOT_APPLICABLE = "ok", "warning", "broken", "not applicable"
TENSORFLOW, GPU, FAIRNESS = "tensorflow", "gpu", "fairness"

NVIDIA, INSTALL = "https://docs.nvidia.com/", "https://www.tensorflow.org/install/pip"
KERNEL = "https://docs.kernel.org/admin-guide/"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check."""

    status: str
    found: str
    expected: str = ""
    """Empty if the check passed."""
    fix: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """Judges the facts."""

    id: str
    title: str
    subject: str
    source: str
    """A URL or the name of an interface."""
    judge: Callable[[Facts], Finding]


def check(id: str, title: str, subject: str, source: str) -> Callable[[Callable[[Facts], Finding]], Check]:
    """Turn a function into a check."""
    return lambda judge: Check(id, title, subject, source, judge)


def ok(finding: str, *evidence: str) -> Finding:
    """The check passes."""
    return Finding(OK, finding, evidence=evidence)


def warning(finding: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Something works, but not well."""
    return Finding(WARNING, finding, expected, fix, evidence)


def broken(finding: str, expected: str, fix: str, *evidence: str) -> Finding:
    """TensorFlow, the GPU or a race cannot work."""
    return Finding(BROKEN, finding, expected, fix, evidence)


def not_applicable(reason: str) -> Finding:
    """The check does not apply."""
    return Finding(NOT_APPLICABLE, reason)

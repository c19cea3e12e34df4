"""A check, and its possible findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfmon.doctor.facts import Facts

OK, WARNING, BROKEN, NOT_APPLICABLE = "ok", "warning", "broken", "not applicable"
TENSORFLOW, GPU, FAIRNESS = "tensorflow", "gpu", "fairness"
"""Subjects: whether TensorFlow runs, whether it has a GPU, whether a race is fair."""

NVIDIA, INSTALL = "https://docs.nvidia.com/", "https://www.tensorflow.org/install/pip"
KERNEL = "https://docs.kernel.org/admin-guide/"
"""The source of most checks."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check."""

    status: str
    """`ok`, `warning`, `broken` or `not applicable`."""
    found: str
    expected: str = ""
    """The good state, or empty if the check passed."""
    fix: str = ""
    """The correction for this platform and environment; may be empty."""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """Judges one thing by the facts."""

    id: str
    title: str
    subject: str
    """`tensorflow`, `gpu` or `fairness`."""
    source: str
    """Documentation of the rule: a URL or the name of an interface."""
    judge: Callable[[Facts], Finding]


def check(id: str, title: str, subject: str, source: str) -> Callable[[Callable[[Facts], Finding]], Check]:
    """Turn a function that judges facts into a check."""
    return lambda judge: Check(id, title, subject, source, judge)


def ok(finding: str, *evidence: str) -> Finding:
    """Return that all is fine."""
    return Finding(OK, finding, evidence=evidence)


def warning(finding: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Return something that works, but not well."""
    return Finding(WARNING, finding, expected, fix, evidence)


def broken(finding: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Return the findings that prevent TensorFlow, the GPU or a race."""
    return Finding(BROKEN, finding, expected, fix, evidence)


def not_applicable(reason: str) -> Finding:
    """Return that the check does not apply here."""
    return Finding(NOT_APPLICABLE, reason)

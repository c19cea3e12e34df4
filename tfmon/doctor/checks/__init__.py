"""What a check is, and what it finds. The checks themselves stand in the modules of this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfmon.doctor.facts import Facts

OK, WARNING, BROKEN, NOT_APPLICABLE = "ok", "warning", "broken", "not applicable"
TENSORFLOW, GPU, FAIRNESS = "tensorflow", "gpu", "fairness"
"""Subjects: whether TensorFlow runs, whether it has a GPU, whether a race is fair."""

NVIDIA, INSTALL = "https://docs.nvidia.com/", "https://www.tensorflow.org/install/pip"
KERNEL = "https://docs.kernel.org/admin-guide/"
"""Where most sources of the checks are."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    status: str
    """`ok`, `warning`, `broken` or `not applicable`."""
    found: str
    expected: str = ""
    """What would be fine; empty if it is."""
    fix: str = ""
    """What to do on this platform and in this environment; empty if there is nothing to do."""
    evidence: tuple[str, ...] = ()
    """What it was read from."""


@dataclass(frozen=True, slots=True)
class Check:
    """Judges one thing by the facts."""

    id: str
    title: str
    subject: str
    """`tensorflow`, `gpu` or `fairness`."""
    source: str
    """Where the rule is documented: a URL or the name of an interface."""
    judge: Callable[[Facts], Finding]

    def __call__(self, facts: Facts) -> Finding:
        """Return the finding."""
        return self.judge(facts)


def check(id: str, title: str, subject: str, source: str) -> Callable[[Callable[[Facts], Finding]], Check]:
    """Turn a function that judges facts into a check."""
    return lambda judge: Check(id, title, subject, source, judge)


def ok(found: str, *evidence: str) -> Finding:
    """Return that all is fine."""
    return Finding(OK, found, evidence=evidence)


def warning(found: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Return something that works, but not well."""
    return Finding(WARNING, found, expected, fix, evidence)


def broken(found: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Return the findings that prevent TensorFlow, the GPU or a race."""
    return Finding(BROKEN, found, expected, fix, evidence)


def not_applicable(reason: str) -> Finding:
    """Return that the check does not apply here."""
    return Finding(NOT_APPLICABLE, reason)

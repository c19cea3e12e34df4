"""What a check finds, and what a check is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfmon.doctor.facts import Facts

OK, WARNING, BROKEN, NOT_APPLICABLE = "ok", "warning", "broken", "not applicable"
TENSORFLOW, GPU, FAIRNESS = "tensorflow", "gpu", "fairness"
"""What a check is about: whether TensorFlow runs, whether it has a GPU, whether a race is fair."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    status: str
    """`ok`, `warning`, `broken` or `not applicable`."""
    found: str
    expected: str = ""
    """What would be fine; empty where it is."""
    fix: str = ""
    """What to do, for this platform and environment; empty where there is nothing to do."""
    evidence: tuple[str, ...] = ()
    """What it was read from."""


@dataclass(frozen=True, slots=True)
class Check:
    """A question to the facts."""

    id: str
    title: str
    subject: str
    """`tensorflow`, `gpu` or `fairness`."""
    source: str
    """Where it is written what is right; a URL or the name of an interface."""
    judge: Callable[[Facts], Finding]

    def __call__(self, facts: Facts) -> Finding:
        """Return the finding."""
        return self.judge(facts)


def check(id: str, title: str, subject: str, source: str) -> Callable[[Callable[[Facts], Finding]], Check]:
    """Make a check of a function."""
    return lambda judge: Check(id, title, subject, source, judge)


def ok(found: str, *evidence: str) -> Finding:
    """Find that all is fine."""
    return Finding(OK, found, evidence=evidence)


def warning(found: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Find something that works, but not well."""
    return Finding(WARNING, found, expected, fix, evidence)


def broken(found: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Find what stands in the way."""
    return Finding(BROKEN, found, expected, fix, evidence)


def not_applicable(why: str) -> Finding:
    """Find that the question does not arise here."""
    return Finding(NOT_APPLICABLE, why)

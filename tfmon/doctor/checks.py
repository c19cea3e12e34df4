"""Checks and their findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tfmon.doctor.facts import Facts
from tfmon.model.fast_dataclass import dataclass

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
    """Empty for a passed check."""
    fix: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the facts."""

    id: str
    title: str
    subject: str
    source: str
    """A URL or the name of an interface."""
    judge: Judge


Judge: TypeAlias = Callable[[Facts], Finding]


class Checks(list[Check]):
    """The checks of one module, in the order of the report."""

    def add(self, title: str, subject: str, source: str) -> Callable[[Judge], Judge]:
        """Return a decorator that adds a check with the id of a function's name."""

        def decorate(judge: Judge) -> Judge:
            id = judge.__name__.lstrip("_").replace("_", "-")
            self.append(Check(id, title, subject, source, judge))
            return judge

        return decorate


def ok(finding: str, *evidence: str) -> Finding:
    """Return the finding of a passed check."""
    return Finding(OK, finding, evidence=evidence)


def warning(finding: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Return a finding that something works badly."""
    return Finding(WARNING, finding, expected, fix, evidence)


def broken(finding: str, expected: str, fix: str, *evidence: str) -> Finding:
    """Return a finding that TensorFlow, the GPU or a race cannot work."""
    return Finding(BROKEN, finding, expected, fix, evidence)


def not_applicable(reason: str) -> Finding:
    """Return the finding of an inapplicable check."""
    return Finding(NOT_APPLICABLE, reason)

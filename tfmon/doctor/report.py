"""All findings together: the answer to the question, and the exit code."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tfmon.doctor.checks import cuda, fairness, imported, nvidia, packages, python
from tfmon.doctor.facts import Facts
from tfmon.doctor.findings import BROKEN, FAIRNESS, GPU, TENSORFLOW, WARNING, Check, Finding
from tfmon.doctor.gathering import HERE, Roots, gather
from tfmon.probes.gpus import Obstacle

EXIT_FINE, EXIT_WARNINGS, EXIT_NO_GPU, EXIT_NO_TENSORFLOW = 0, 1, 2, 3
CHECKS: tuple[Check, ...] = (
    *python.CHECKS,
    *packages.CHECKS,
    *python.SUPPORT_CHECKS,
    *nvidia.CHECKS,
    *cuda.CHECKS,
    *imported.CHECKS,
    *fairness.GPU_CHECKS,
    *fairness.CHECKS,
)


@dataclass(frozen=True, slots=True)
class Result:
    """A check and what it found."""

    check: Check
    finding: Finding


@dataclass(frozen=True, slots=True)
class Report:
    """What all checks found."""

    facts: Facts
    results: tuple[Result, ...]
    seconds: float = 0.0
    """How long gathering and judging took."""

    def of(self, subject: str, *statuses: str) -> list[Result]:
        """Return the results about a subject that have one of the statuses; all without any."""
        found = [one for one in self.results if one.check.subject == subject]
        return [one for one in found if one.finding.status in statuses] if statuses else found

    def count(self, status: str) -> int:
        """Return how many checks have a status."""
        return sum(one.finding.status == status for one in self.results)

    @property
    def no_gpu(self) -> Obstacle | None:
        """What keeps TensorFlow from the GPU first of all, or None."""
        return no_gpu_reason(self.facts, self.results)

    @property
    def exit_code(self) -> int:
        """0 all fine, 1 warnings, 2 no usable GPU, 3 TensorFlow unusable."""
        if self.of(TENSORFLOW, BROKEN):
            return EXIT_NO_TENSORFLOW
        if self.no_gpu is not None:
            return EXIT_NO_GPU
        return EXIT_WARNINGS if self.count(WARNING) or self.count(BROKEN) else EXIT_FINE

    @property
    def answer(self) -> str:
        """Why TensorFlow does not use the GPU, or that it does, and whether a race would be fair; a sentence."""
        broken = self.of(TENSORFLOW, BROKEN)
        if broken:
            first = broken[0]
            return f"TensorFlow cannot be used: {first.check.title}: {first.finding.found}."
        obstacle = self.no_gpu
        if obstacle is not None:
            return f"TensorFlow uses no GPU here: {obstacle.why}."
        names = ", ".join(dict.fromkeys(gpu.name for gpu in self.facts.driver.devices)) or "the GPU"
        asked = self.facts.imported is not None
        uses = f"TensorFlow {'uses' if asked else 'should find'} {names}"
        unfair = self.of(FAIRNESS, WARNING)
        if unfair:
            words = ", ".join(one.check.title for one in unfair[:3]) + (", …" if unfair[3:] else "")
            return f"{uses}, but a race may be unfair: {words}."
        if self.exit_code == EXIT_FINE:
            return f"{uses}, and this machine is fit for a fair race."
        return f"{uses}; see the warnings."


def run_checks(python: str | Path = sys.executable, *, imports: bool = True, places: Roots = HERE) -> Report:
    """Gather the facts of an interpreter and its machine, and run every check on them.

    Thread: any; blocks for half a second, with `imports` for as long as TensorFlow takes to import.
    """
    begun = time.monotonic()
    facts = gather(python, imports=imports, places=places)
    return Report(facts, judge(facts), time.monotonic() - begun)


def judge(facts: Facts) -> tuple[Result, ...]:
    """Run every check on facts that are known."""
    return tuple(Result(check, check(facts)) for check in CHECKS)


def no_gpu_reason(facts: Facts, results: tuple[Result, ...] | None = None) -> Obstacle | None:
    """Return why TensorFlow has no GPU, or None: what tfmon's screen says, and what only the checks can know.

    TensorFlow's own word counts most: where it lists a GPU there is no reason, whatever the checks say.
    """
    if facts.imported is not None and facts.imported.gpus:
        return None
    if facts.obstacle is not None:
        return facts.obstacle
    found = judge(facts) if results is None else results
    for one in found:
        if one.check.subject == GPU and one.finding.status == BROKEN:
            return Obstacle(f"{one.check.title}: {one.finding.found}", one.finding.fix)
    return None

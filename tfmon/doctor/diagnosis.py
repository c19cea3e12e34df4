"""All findings, the conclusion, and the exit code."""

from __future__ import annotations

from typing import NamedTuple

from tfmon.doctor import fairness, imported, nvidia, packages
from tfmon.doctor.checks import BROKEN, FAIRNESS, GPU, TENSORFLOW, WARNING, Check, Finding
from tfmon.doctor.facts import Facts
from tfmon.probes.find_gpus import Obstacle

EXIT_FINE, EXIT_WARNINGS, EXIT_NO_GPU, EXIT_NO_TENSORFLOW = 0, 1, 2, 3
CHECKS: tuple[Check, ...] = (*packages.CHECKS, *nvidia.CHECKS, *imported.CHECKS, *fairness.CHECKS)


class Result(NamedTuple):
    """A check and its finding."""

    check: Check
    finding: Finding


class Diagnosis:
    """The findings about a machine."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.results = [Result(check, check.judge(facts)) for check in CHECKS]

    def results_about(self, subject: str, *statuses: str) -> list[Result]:
        """Return the results about a subject, with these statuses if any."""
        results = [result for result in self.results if result.check.subject == subject]
        return [result for result in results if result.finding.status in statuses] if statuses else results

    def count(self, status: str) -> int:
        """Count the checks with a status."""
        return sum(result.finding.status == status for result in self.results)

    @property
    def no_gpu(self) -> Obstacle | None:
        """Why TensorFlow has no GPU."""
        if self.facts.imported is not None and self.facts.imported.gpus:
            return None
        if self.facts.obstacle is not None:
            return self.facts.obstacle
        for check, finding in self.results_about(GPU, BROKEN):
            return Obstacle(f"{check.title}: {finding.found}", finding.fix)
        return None

    @property
    def exit_code(self) -> int:
        """0 all fine, 1 warnings, 2 no usable GPU, 3 TensorFlow unusable."""
        if self.results_about(TENSORFLOW, BROKEN):
            return EXIT_NO_TENSORFLOW
        if self.no_gpu is not None:
            return EXIT_NO_GPU
        return EXIT_WARNINGS if self.count(WARNING) or self.count(BROKEN) else EXIT_FINE

    @property
    def answer(self) -> str:
        """The conclusion in a sentence."""
        for check, finding in self.results_about(TENSORFLOW, BROKEN):
            return f"TensorFlow cannot be used: {check.title}: {finding.found}."
        if self.no_gpu is not None:
            return f"TensorFlow uses no GPU here: {self.no_gpu.reason}."
        names = ", ".join(dict.fromkeys(gpu.name for gpu in self.facts.visibility.physical_gpus)) or "the GPU"
        imported = self.facts.imported
        uses = f"TensorFlow {'uses' if imported is not None and imported.works else 'should find'} {names}"
        unfair = [finding.check.title for finding in self.results_about(FAIRNESS, WARNING)]
        if unfair:
            return f"{uses}, but a race may be unfair: {', '.join(unfair[:3])}{', …' if unfair[3:] else ''}."
        if self.exit_code == EXIT_FINE:
            return f"{uses}, and this machine is ready for a fair race."
        return f"{uses}; see the warnings."

"""The doctor: has the facts gathered, runs every check on them, and draws the conclusion and the exit code."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tfmon.doctor import fairness, imported, nvidia, packages
from tfmon.doctor.facts import BROKEN, FAIRNESS, GPU, TENSORFLOW, WARNING, Check, Facts, Finding, Running
from tfmon.doctor.gather import HERE, Roots, gather
from tfmon.probes.obstacles import Obstacle

EXIT_FINE, EXIT_WARNINGS, EXIT_NO_GPU, EXIT_NO_TENSORFLOW = 0, 1, 2, 3
CHECKS: tuple[Check, ...] = (
    *packages.CHECKS,
    *nvidia.CHECKS,
    *imported.CHECKS,
    *fairness.CHECKS,
)


@dataclass(frozen=True, slots=True)
class Result:
    """A check and its result."""

    id: str
    title: str
    subject: str
    source: str
    """These four fields as in `Check`."""
    finding: Finding


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The results of all checks."""

    python: str
    results: tuple[Result, ...]
    tensorflow: str = ""
    """Version of its installed TensorFlow, or empty if unknown."""
    imported: bool | None = None
    """Whether TensorFlow could be imported; `None` if not tried."""
    gpus: tuple[str, ...] | None = None
    """The GPUs that TensorFlow lists; `None` if it was not imported."""
    devices: tuple[str, ...] = ()
    """The models of the GPUs that the driver lists."""
    no_gpu: Obstacle | None = None
    """The reason if TensorFlow has no GPU."""
    seconds: float = 0.0
    """Duration of gathering the facts."""

    def of(self, subject: str, *statuses: str) -> list[Result]:
        """Return the results about a subject that have one of the statuses; all without any."""
        result = [one for one in self.results if one.subject == subject]
        return [one for one in result if one.finding.status in statuses] if statuses else result

    def count(self, status: str) -> int:
        """Return how many checks have a status."""
        return sum(one.finding.status == status for one in self.results)

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
        """A sentence: whether TensorFlow uses the GPU or the reason, and whether a race would be fair."""
        broken = self.of(TENSORFLOW, BROKEN)
        if broken:
            return f"TensorFlow cannot be used: {broken[0].title}: {broken[0].finding.found}."
        if self.no_gpu is not None:
            return f"TensorFlow uses no GPU here: {self.no_gpu.reason}."
        names = ", ".join(self.devices) or "the GPU"
        uses = f"TensorFlow {'should find' if self.imported is None else 'uses'} {names}"
        unfair = self.of(FAIRNESS, WARNING)
        if unfair:
            titles = ", ".join(one.title for one in unfair[:3]) + (", …" if unfair[3:] else "")
            return f"{uses}, but a race may be unfair: {titles}."
        if self.exit_code == EXIT_FINE:
            return f"{uses}, and this machine is ready for a fair race."
        return f"{uses}; see the warnings."


def run_checks(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    roots: Roots = HERE,
    running: Running | None = None,
) -> Diagnosis:
    """Gather the facts of an interpreter and its machine, and run every check on them.

    Thread: any; blocks for half a second, with `imports` for as long as TensorFlow takes to import.
    """
    begun = time.monotonic()
    facts = gather(python, imports=imports, roots=roots, running=running)
    return report_on(facts, time.monotonic() - begun)


def report_on(facts: Facts, seconds: float) -> Diagnosis:
    """Judge facts; gathering them took `seconds`."""
    results = judge(facts)
    imported = facts.imported
    return Diagnosis(
        python=facts.python.executable,
        results=results,
        tensorflow="" if facts.wheel is None else facts.wheel.version,
        imported=None if imported is None else imported.works,
        gpus=None if imported is None else imported.gpus,
        devices=tuple(dict.fromkeys(gpu.name for gpu in facts.visibility.physical_gpus)),
        no_gpu=no_gpu_reason(facts, results),
        seconds=seconds,
    )


def judge(facts: Facts) -> tuple[Result, ...]:
    """Run every check on facts that are known."""
    return tuple(Result(one.id, one.title, one.subject, one.source, one(facts)) for one in CHECKS)


def no_gpu_reason(facts: Facts, results: tuple[Result, ...] | None = None) -> Obstacle | None:
    """Return why TensorFlow has no GPU, or None: the obstacle on the screen, else the first broken check."""
    if facts.imported is not None and facts.imported.gpus:
        return None
    if facts.obstacle is not None:
        return facts.obstacle
    result = judge(facts) if results is None else results
    for one in result:
        if one.subject == GPU and one.finding.status == BROKEN:
            return Obstacle(f"{one.title}: {one.finding.found}", one.finding.fix)
    return None

"""The doctor: gathers the facts, runs every check on them, and draws the conclusion and the exit code.

All facts are gathered first; the checks read nothing else. Tests replace the roots of what is read.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tfmon.doctor.checks import (
    BROKEN,
    FAIRNESS,
    GPU,
    TENSORFLOW,
    WARNING,
    Check,
    Finding,
    amd,
    cuda,
    fairness,
    imported,
    nvidia,
    packages,
    system,
)
from tfmon.doctor.children import import_tensorflow, open_libraries
from tfmon.doctor.facts import VARIABLES, Build, Facts, Import, Library, Running
from tfmon.doctor.interpreter import describe_interpreter, find_shadows, list_distributions, read_build, shadows_on
from tfmon.doctor.machine import DriverReader, LoadWatch, read_host, read_platform
from tfmon.model.views import default_base
from tfmon.probes.gpus import read_visibility
from tfmon.probes.obstacles import LIBRARY, Obstacle
from tfmon.probes.views import find_view
from tfmon.probes.wheel import find_home, find_wheel

EXIT_FINE, EXIT_WARNINGS, EXIT_NO_GPU, EXIT_NO_TENSORFLOW = 0, 1, 2, 3
CHECKS: tuple[Check, ...] = (
    *system.PYTHON_CHECKS,
    *packages.CHECKS,
    *system.GPU_CHECKS,
    *nvidia.CHECKS,
    *amd.CHECKS,
    *cuda.CHECKS,
    *imported.CHECKS,
    *fairness.CHECKS,
)


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the facts are read: on this machine, unless a test says otherwise."""

    root: Path = Path("/")
    """The folder of /proc, /sys, /dev and /etc."""
    folder: Path | None = None
    """The working directory."""
    environ: Mapping[str, str] | None = None
    library: str = LIBRARY
    """File name of the driver's library."""


HERE = Roots()


def gather(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    roots: Roots = HERE,
    running: Running | None = None,
) -> Facts:
    """Return the facts about an interpreter and this machine.

    Takes well under a second without `imports`, unless the driver is slow.

    Args:
        imports: Import TensorFlow too, in a child.
        running: The race that runs meanwhile; its probes know what others use, and its lanes are no others.
    Thread: any; blocks.
    """
    environ = dict(os.environ if roots.environ is None else roots.environ)
    watch = LoadWatch()
    platform = read_platform(roots.root, environ)
    interpreter = describe_interpreter(python, environ=environ)
    hidden = shadows_on(interpreter.path)
    blocked = {str(Path(shadow).parent) for shadow in hidden}
    path = [folder for folder in interpreter.path if folder not in blocked]
    distributions = list_distributions(path)
    wheel, home = find_wheel(path), find_home(path)
    build = Build()
    if wheel is not None and home is not None:
        build = read_build(home, distributions, wheel.distribution)
    reader = DriverReader(roots.root, lists_processes=not platform.wsl)
    visibility = read_visibility(
        environ=environ,
        root=roots.root,
        library=roots.library,
        system=platform.system,
        machine=interpreter.machine or platform.machine,
        examine=reader,
    )
    facts = Facts(
        python=interpreter,
        visibility=visibility,
        platform=platform,
        environ=MappingProxyType({name: environ[name] for name in VARIABLES if name in environ}),
        distributions=distributions,
        wheel=wheel,
        home="" if home is None else str(home),
        build=build,
        shadows=hidden,
        local_shadows=_local_shadows(roots.folder or Path.cwd(), home),
        driver=reader.driver,
    )
    libraries = _open(facts, environ)
    others = watch.finish() if running is None else running.others
    imported = _import(facts, environ) if imports else None
    host = read_host(roots.root, others=others)
    own = frozenset() if running is None else running.pids
    view = None
    if running is None and roots.root == HERE.root:
        view = find_view(str(roots.folder or Path.cwd()), default_base(), clear=False)
    return replace(facts, libraries=libraries, host=host, imported=imported, view=view, own_pids=own)


def _local_shadows(folder: Path, home: Path | None) -> tuple[str, ...]:
    if home is not None and folder.resolve() == home.resolve():
        return ()
    return find_shadows(folder, alone=home is None)


def _open(facts: Facts, environ: Mapping[str, str]) -> tuple[Library, ...] | None:
    """Open the libraries if there may be an NVIDIA GPU and a TensorFlow that could use it."""
    if facts.platform.system != "Linux" or not facts.has_nvidia:
        return None
    if facts.wheel is None or facts.wheel.has_cuda is False:
        return None
    return open_libraries(facts.python.executable, facts.home, facts.build, environ=environ)


def _import(facts: Facts, environ: Mapping[str, str]) -> Import | None:
    """Import TensorFlow if it would be imported; a file that shadows it is not run."""
    if facts.python.error or facts.wheel is None or facts.shadows:
        return None
    return import_tensorflow(facts.python.executable, environ=environ)


@dataclass(frozen=True, slots=True)
class Result:
    """A check and what it found."""

    id: str
    title: str
    subject: str
    source: str
    """These four as in `Check`."""
    finding: Finding


@dataclass(frozen=True, slots=True)
class Report:
    """What all checks found, in values that can be sent from one machine to another."""

    python: str
    """The examined interpreter."""
    results: tuple[Result, ...]
    tensorflow: str = ""
    """Version of its TensorFlow, as it is installed; empty if unknown."""
    imported: bool | None = None
    """Whether TensorFlow could be imported; None if that was not tried."""
    gpus: tuple[str, ...] | None = None
    """The GPUs that TensorFlow lists; None if it was not imported."""
    devices: tuple[str, ...] = ()
    """The models of the GPUs that the driver lists."""
    no_gpu: Obstacle | None = None
    """What keeps TensorFlow from the GPU, or None."""
    seconds: float = 0.0
    """How long gathering and judging took."""
    lane: Finding | None = None
    """Whether a lane trains with the interpreter; None if that was not tried."""

    def of(self, subject: str, *statuses: str) -> list[Result]:
        """Return the results about a subject that have one of the statuses; all without any."""
        found = [one for one in self.results if one.subject == subject]
        return [one for one in found if one.finding.status in statuses] if statuses else found

    def count(self, status: str) -> int:
        """Return how many checks have a status."""
        return sum(one.finding.status == status for one in self.results)

    @property
    def exit_code(self) -> int:
        """0 all fine, 1 warnings, 2 no usable GPU, 3 TensorFlow unusable, or no lane trains."""
        if self.of(TENSORFLOW, BROKEN) or (self.lane is not None and self.lane.status == BROKEN):
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
            words = ", ".join(one.title for one in unfair[:3]) + (", …" if unfair[3:] else "")
            return f"{uses}, but a race may be unfair: {words}."
        if self.exit_code == EXIT_FINE:
            return f"{uses}, and this machine is ready for a fair race."
        return f"{uses}; see the warnings."


def run_checks(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    roots: Roots = HERE,
    running: Running | None = None,
) -> Report:
    """Gather the facts of an interpreter and its machine, and run every check on them.

    Thread: any; blocks for half a second, with `imports` for as long as TensorFlow takes to import.
    """
    begun = time.monotonic()
    return report_on(gather(python, imports=imports, roots=roots, running=running), begun)


def report_on(facts: Facts, begun_s: float) -> Report:
    """Judge facts that are known; `begun_s` is when they were begun to be gathered."""
    results = judge(facts)
    imported = facts.imported
    return Report(
        python=facts.python.executable,
        results=results,
        tensorflow="" if facts.wheel is None else facts.wheel.version,
        imported=None if imported is None else imported.works,
        gpus=None if imported is None else imported.gpus,
        devices=tuple(dict.fromkeys(gpu.name for gpu in facts.driver.devices)),
        no_gpu=no_gpu_reason(facts, results),
        seconds=time.monotonic() - begun_s,
    )


def judge(facts: Facts) -> tuple[Result, ...]:
    """Run every check on facts that are known."""
    return tuple(Result(one.id, one.title, one.subject, one.source, one(facts)) for one in CHECKS)


def no_gpu_reason(facts: Facts, results: tuple[Result, ...] | None = None) -> Obstacle | None:
    """Return why TensorFlow has no GPU, or None: the obstacle that the screen shows, else the first broken check.

    A GPU that TensorFlow itself lists counts more than any check.
    """
    if facts.imported is not None and facts.imported.gpus:
        return None
    if facts.obstacle is not None:
        return facts.obstacle
    found = judge(facts) if results is None else results
    for one in found:
        if one.subject == GPU and one.finding.status == BROKEN:
            return Obstacle(f"{one.title}: {one.finding.found}", one.finding.fix)
    return None

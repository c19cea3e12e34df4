"""The facts that the checks judge, plain values that travel from machine to machine; and what a check is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tfmon.model.gpu import GpuSample
from tfmon.model.views import View
from tfmon.probes.base import Gpu
from tfmon.probes.gpus import conclude
from tfmon.probes.interpreter import Build, Distribution, Interpreter, Wheel
from tfmon.probes.obstacles import GpuVisibility, Obstacle

VARIABLES = (
    "CONDA_PREFIX", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "KERAS_BACKEND",
    "LD_LIBRARY_PATH", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "PYTHONPATH", "TF_CUDNN_DETERMINISTIC", "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_XLA_FLAGS", "VIRTUAL_ENV",
)  # fmt: skip
"""The only environment variables that are read."""


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library that TensorFlow opens when it looks for GPUs."""

    name: str
    error: str = ""
    """Why it could not be opened, or empty if it was."""
    path: str = ""
    version: str = ""
    """Read for cuDNN only."""
    wheel: bool = False
    """It is a file of the interpreter's packages."""


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The files of the NVIDIA driver."""

    module_version: str = ""
    """Version of its kernel module."""
    nodes: tuple[str, ...] = ()
    """Its files in /dev."""
    denied: tuple[str, ...] = ()
    """Files in /dev that this user may not open."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The system around the interpreter."""

    system: str = "Linux"
    machine: str = "x86_64"
    distribution: str = ""
    """Such as "ubuntu", from /etc/os-release."""
    container: str = ""
    """Docker, podman, kubernetes or container, or empty outside of a container."""
    wsl: int = 0
    """Version of the Windows Subsystem for Linux, or 0 outside of it."""


@dataclass(frozen=True, slots=True)
class OthersLoad:
    """What other programs, and other machines on the same host, take from this machine."""

    cores: float | None = None
    """Cores that programs other than tfmon and its lanes kept busy; `None` if unknown."""
    stolen_share: float | None = None
    """Share of the CPU time that the hypervisor gave to other machines; `None` if unknown."""
    source: str = ""
    """The measurement and its duration."""


@dataclass(frozen=True, slots=True)
class Running:
    """The race that runs while the doctor examines the machine."""

    pids: tuple[int, ...] = ()
    others: OthersLoad = OthersLoad()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Processors, memory and the other programs."""

    cores: int = 1
    usable_cores: float = 1
    """Cores that this process may use, by its affinity and the quota of its container."""
    quota_cores: float | None = None
    governors: tuple[str, ...] = ()
    total_bytes: int = 0
    available_bytes: int = 0
    others: OthersLoad = OthersLoad()
    on_battery: bool | None = None


@dataclass(frozen=True, slots=True)
class Import:
    """What happened when the interpreter imported TensorFlow and listed its devices."""

    exit_code: int | None = 0
    """Negative for a signal; `None` if it took too long."""
    version: str = ""
    path: str = ""
    gpus: tuple[str, ...] = ()
    built_with_cuda: bool | None = None
    text: str = ""
    """Its stderr."""
    seconds: float = 0.0

    @property
    def works(self) -> bool:
        """Whether TensorFlow could be imported."""
        return self.exit_code == 0 and bool(self.version)


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts."""

    python: Interpreter
    visibility: GpuVisibility
    platform: Platform = Platform()
    environ: dict[str, str] = field(default_factory=dict)
    distributions: tuple[Distribution, ...] = ()
    wheel: Wheel | None = None
    """The TensorFlow that Python would import without the files that shadow it."""
    home: str = ""
    build: Build = field(default_factory=Build)
    shadows: tuple[str, ...] = ()
    """Files and folders that Python imports instead of TensorFlow."""
    local_shadows: tuple[str, ...] = ()
    """The shadows in the working directory, which affect scripts that start there."""
    libraries: tuple[Library, ...] | None = None
    """`None` if they were not opened."""
    driver: DriverFiles = DriverFiles()
    samples: tuple[GpuSample, ...] = ()
    host: HostFacts = HostFacts()
    imported: Import | None = None
    """`None` if the import was skipped."""
    view: View | None = None
    """The view of the working folder for lanes of a script; `None` if it was not tried."""
    own_pids: tuple[int, ...] = ()
    """Processes of the running race's lanes, which do not count as other programs."""

    @property
    def obstacle(self) -> Obstacle | None:
        """What keeps tfmon from planning a GPU lane, as its screen says."""
        search = conclude(self.visibility, lambda: self.wheel)
        return None if search.usable else Obstacle(search.reason, search.hint)

    @property
    def has_nvidia(self) -> bool:
        """Whether there is any sign of an NVIDIA GPU."""
        return self.visibility.has_nvidia or bool(self.driver.nodes)

    def sample_of(self, gpu: Gpu) -> GpuSample | None:
        """Return the sample of a GPU, or None without one."""
        return next((one for one in self.samples if one.key == gpu.uuid), None)

    def version_of(self, name: str) -> str:
        """Return the version of an installed package, or ""."""
        return next((one.version for one in self.distributions if one.name == name), "")


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

    def __call__(self, facts: Facts) -> Finding:
        """Return the finding."""
        return self.judge(facts)


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

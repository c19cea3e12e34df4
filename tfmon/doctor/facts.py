"""What the checks go by: everything is gathered first, and nothing is asked of the machine afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tfmon.probes.gpus import GpuVisibility, Obstacle, conclude
from tfmon.probes.wheel import Wheel

VARIABLES = (
    "CONDA_PREFIX",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "KERAS_BACKEND",
    "LD_LIBRARY_PATH",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
    "PYTHONPATH",
    "TF_CUDNN_DETERMINISTIC",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_XLA_FLAGS",
    "VIRTUAL_ENV",
)
"""The only variables of the environment that are looked at."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that is examined, by its own account."""

    executable: str
    error: str = ""
    """Why it gave no account of itself; empty if it did."""
    version: tuple[int, int, int] = (0, 0, 0)
    machine: str = ""
    """What it was built for, such as "x86_64"."""
    translated: bool = False
    """It runs under Rosetta: built for Intel, on Apple Silicon."""
    bits: int = 64
    free_threaded: bool = False
    prefix: str = ""
    base_prefix: str = ""
    path: tuple[str, ...] = ()
    """Its import path, without the working directory."""
    pip: bool = True
    conda: bool = False
    uv: bool = False
    """Its environment was made by uv."""
    managed: bool = False
    """The system forbids pip to install into it."""
    libc: str = ""
    """Such as "glibc 2.36"; empty where there is none of GNU's."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed package."""

    name: str
    """In lower case and with dashes."""
    version: str
    folder: str
    """Its `.dist-info` folder."""


@dataclass(frozen=True, slots=True)
class Build:
    """What the TensorFlow wheel says of itself."""

    cuda_version: str = ""
    cudnn_version: str = ""
    capabilities: tuple[str, ...] = ()
    """Such as "sm_80" and "compute_90"."""
    requires_python: str = ""
    requires: tuple[str, ...] = ()
    """Its `Requires-Dist` lines."""
    tags: tuple[str, ...] = ()
    """Such as "cp311-cp311-manylinux_2_17_x86_64"."""
    installer: str = ""
    """Such as "pip" or "conda"."""


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library that TensorFlow opens when it looks for GPUs, and what became of opening it."""

    name: str
    error: str = ""
    """Why it could not be opened; empty if it could."""
    path: str = ""
    """The file that was opened."""
    version: str = ""
    """What it says of itself; only cuDNN is asked."""
    wheel: bool = False
    """Its file lies among the packages of the interpreter."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One NVIDIA GPU, as its driver describes it; None is what it does not tell."""

    index: int
    uuid: str
    name: str
    capability: tuple[int, int] | None = None
    """Compute capability, such as (9, 0)."""
    persistence: bool | None = None
    exclusive: bool | None = None
    """Its compute mode lets only one process use it, or none."""
    instances: bool | None = None
    """It is split up (MIG)."""
    power_limit_w: float | None = None
    power_default_w: float | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    busy_pct: float | None = None
    used_bytes: int | None = None
    total_bytes: int | None = None
    processes: tuple[int, ...] | None = None
    clock_reasons: int | None = None
    """Bits that say why its clocks are not at their highest."""
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The NVIDIA driver."""

    version: str = ""
    """Of its library."""
    module_version: str = ""
    """Of its kernel module."""
    cuda: tuple[int, int] | None = None
    """The newest CUDA it can run, such as (12, 4)."""
    devices: tuple[GpuFacts, ...] = ()
    nodes: tuple[str, ...] = ()
    """Its files in /dev that are there."""
    denied: tuple[str, ...] = ()
    """Those that this user may not open."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The system around the interpreter."""

    system: str = "Linux"
    machine: str = "x86_64"
    distribution: str = ""
    """Such as "ubuntu", from /etc/os-release."""
    container: str = ""
    """Docker, podman, kubernetes or container; empty outside of one."""
    wsl: int = 0
    """Version of the Windows Subsystem for Linux; 0 outside of it."""


@dataclass(frozen=True, slots=True)
class Host:
    """Processors, memory and what else runs."""

    cores: int = 1
    affinity: int = 1
    """Cores this process may run on."""
    quota_cores: float | None = None
    throttled_share: float | None = None
    """Share of its periods in which a control group used its quota up."""
    cpu_flags: frozenset[str] | None = None
    """Instruction sets; None where the system does not tell."""
    governors: tuple[str, ...] = ()
    turbo: bool | None = None
    total_bytes: int = 0
    available_bytes: int = 0
    swap_used_bytes: int = 0
    others_cores: float | None = None
    """Cores that other programs kept busy while the facts were gathered."""
    steal_share: float | None = None
    """Share of the time that the hypervisor gave to other machines in that while."""
    on_battery: bool | None = None


@dataclass(frozen=True, slots=True)
class Import:
    """What happened when the interpreter imported TensorFlow and listed its devices."""

    exit_code: int | None = 0
    """Negative for a signal; None when it took too long."""
    version: str = ""
    path: str = ""
    gpus: tuple[str, ...] = ()
    built_with_cuda: bool | None = None
    text: str = ""
    """What it wrote to stderr."""
    seconds: float = 0.0

    @property
    def works(self) -> bool:
        """Whether TensorFlow could be imported."""
        return self.exit_code == 0 and bool(self.version)


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known."""

    python: Interpreter
    sight: GpuVisibility
    platform: Platform = Platform()
    environ: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    distributions: tuple[Distribution, ...] = ()
    wheel: Wheel | None = None
    """The TensorFlow that would be imported, after what shadows it is gone."""
    home: str = ""
    """The folder it lies in."""
    build: Build = Build()
    shadows: tuple[str, ...] = ()
    """Files and folders on the import path that are imported instead of TensorFlow."""
    local_shadows: tuple[str, ...] = ()
    """Those in the working directory, which only scripts that start there see."""
    libraries: tuple[Library, ...] | None = None
    """None where they were not looked for."""
    driver: DriverFacts = DriverFacts()
    host: Host = Host()
    imported: Import | None = None
    """None where the import was skipped."""

    @property
    def obstacle(self) -> Obstacle | None:
        """What keeps tfmon from planning a GPU lane; the same that its screen says."""
        search = conclude(self.sight, lambda: self.wheel)
        return None if search.gpus else Obstacle(search.why, search.hint)

    @property
    def has_nvidia(self) -> bool:
        """Whether there is any sign of an NVIDIA GPU."""
        sight = self.sight
        return bool(sight.physical_gpus or sight.driver_runs or sight.has_board or self.driver.nodes)

    def version_of(self, name: str) -> str:
        """Return the version of an installed package, or ""."""
        return next((one.version for one in self.distributions if one.name == name), "")

"""The facts for the checks: plain values, also sent from other machines."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.folder_views import View
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.readings import HostSample
from tfmon.probes.base import Gpu
from tfmon.probes.cuda import Library, XlaFiles, find_xla_files, open_libraries
from tfmon.probes.find_gpus import LIBRARY, GpuVisibility, Obstacle, conclude, look, read_visibility
from tfmon.probes.host_probe import HostProbe
from tfmon.probes.interpreter import (
    Distribution,
    Import,
    Interpreter,
    Wheel,
    describe_interpreter,
    distributions,
    find_shadows,
    find_wheel,
    import_tensorflow,
    shadows_on,
)
from tfmon.probes.machine import in_wsl, read_machine, read_memory
from tfmon.probes.view_support import find_view
from tfmon.system.limits import limited_memory, read_text
from tfmon.system.view_files import recordings_folder

VARIABLES = (
    "CONDA_PREFIX", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "KERAS_BACKEND",
    "LD_LIBRARY_PATH", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "PYTHONPATH", "TF_CUDNN_DETERMINISTIC", "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_XLA_FLAGS", "VIRTUAL_ENV",
    "XLA_FLAGS",
)  # fmt: skip
"""The only variables that are read."""
HERE = Path("/")
WATCH_S = 0.3
"""Least time of measuring the load of other programs."""
_GROUPS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "container"}


@dataclass(frozen=True, slots=True)
class Platform:
    """The system of the interpreter."""

    system: str = "Linux"
    machine: str = "x86_64"
    distribution: str = ""
    container: str = ""
    wsl: int = 0


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Processors, memory and load."""

    cores: int = 1
    usable_cores: float = 1
    quota_cores: float | None = None
    governors: tuple[str, ...] = ()
    total_bytes: int = 0
    available_bytes: int = 0
    samples: tuple[HostSample, ...] = ()
    on_battery: bool | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about an interpreter and a machine."""

    python: Interpreter
    visibility: GpuVisibility
    platform: Platform = field(default_factory=Platform)
    environ: dict[str, str] = field(default_factory=dict)
    distributions: tuple[Distribution, ...] = ()
    wheel: Wheel | None = None
    """Without the files that shadow it."""
    shadows: tuple[str, ...] = ()
    """Imported instead of TensorFlow."""
    local_shadows: tuple[str, ...] = ()
    """In the working directory: they affect scripts there."""
    libraries: tuple[Library, ...] | None = None
    xla: XlaFiles | None = None
    samples: tuple[GpuSample, ...] = ()
    host: HostFacts = field(default_factory=HostFacts)
    imported: Import | None = None
    view: View | None = None
    """View of the working folder."""
    own_pids: tuple[int, ...] = ()
    """Processes of the running race."""
    seconds: float = 0.0

    @property
    def build(self) -> Wheel:
        """The installed TensorFlow, or one without facts."""
        return self.wheel or Wheel()

    @property
    def obstacle(self) -> Obstacle | None:
        """Why tfmon plans no GPU lane."""
        search = conclude(self.visibility, lambda: self.wheel)
        return None if search.usable else Obstacle(search.reason, search.hint)

    @property
    def has_nvidia(self) -> bool:
        """Whether an NVIDIA GPU may exist."""
        return self.visibility.has_nvidia or bool(self.visibility.nodes)

    @property
    def gpus(self) -> list[Gpu]:
        """The visible GPUs, or all GPUs."""
        return self.visibility.visible_gpus() or list(self.visibility.physical_gpus)

    def version_of(self, name: str) -> str:
        """Return the version of a package, or ""."""
        return next((distribution.version for distribution in self.distributions if distribution.name == name), "")


def gather_facts(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    folder: Path | None = None,
    samples: tuple[HostSample, ...] | None = None,
    own_pids: tuple[int, ...] = (),
    environ: Mapping[str, str] = os.environ,
    root: Path = HERE,
    library: str = LIBRARY,
) -> Facts:
    """Return the facts about an interpreter and this machine.

    A race passes its processes and the samples of the machine. Without `imports`, the call takes under a second.
    Thread: any; blocks.
    """
    begun = time.monotonic()
    watch = HostProbe(dict, own_cpu_s=lambda: sum(os.times()[:4]))
    watch.sample_machine()
    system = _read_platform(root, environ)
    interpreter = describe_interpreter(python, environ=environ)
    shadows = shadows_on(interpreter.path)
    blocked = {str(Path(shadow).parent) for shadow in shadows}
    path = [folder for folder in interpreter.path if folder not in blocked]
    wheel = find_wheel(path)
    visibility = read_visibility(
        environ=environ,
        root=root,
        library=library,
        system=system.system,
        machine=interpreter.machine or system.machine,
    )
    gpu_samples = tuple(look(visibility.physical_gpus))
    folder = folder or Path.cwd()
    separate = wheel is None or folder.resolve() != Path(wheel.home).resolve()
    libraries = xla = imported = view = None
    has_gpu = system.system == "Linux" and (visibility.has_nvidia or visibility.nodes)
    if has_gpu and wheel is not None and wheel.has_cuda is not False:
        libraries = open_libraries(interpreter.executable, wheel, environ=environ)
        xla = find_xla_files(wheel.home, folder, environ, root)
    load = samples
    if load is None:
        time.sleep(max(0.0, begun + WATCH_S - time.monotonic()))
        load = (watch.sample_machine(),)
    if imports and not interpreter.error and wheel is not None and not shadows:
        imported = import_tensorflow(interpreter.executable, environ=environ)
    if samples is None and root == HERE:
        view = find_view(str(folder), recordings_folder())
    return Facts(
        python=interpreter,
        visibility=visibility,
        platform=system,
        environ={name: environ[name] for name in VARIABLES if name in environ},
        distributions=tuple(distributions(path)),
        wheel=wheel,
        shadows=shadows,
        local_shadows=find_shadows(folder, alone=wheel is None) if separate else (),
        libraries=libraries,
        xla=xla,
        samples=gpu_samples,
        host=_read_host(root, load),
        imported=imported,
        view=view,
        own_pids=own_pids,
        seconds=time.monotonic() - begun,
    )


def _read_platform(root: Path, environ: Mapping[str, str]) -> Platform:
    match = re.search(r"^ID=[\"']?([\w.-]+)", read_text(root / "etc/os-release"), re.MULTILINE)
    return Platform(
        system=platform.system(),
        machine=platform.machine(),
        distribution=match[1] if match else "",
        container=_container(root, environ),
        wsl=_wsl(root),
    )


def _container(root: Path, environ: Mapping[str, str]) -> str:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    groups = read_text(root / "proc/1/cgroup")
    for word, name in _GROUPS.items():
        if word in groups:
            return name
    return "container" if "container" in environ else ""


def _wsl(root: Path) -> int:
    if not in_wsl(root):
        return 0
    version = read_text(root / "proc/version")
    return 2 if "microsoft-standard" in version or "WSL2" in version or (root / "dev/dxg").exists() else 1


def _read_host(root: Path, samples: tuple[HostSample, ...]) -> HostFacts:
    machine = read_machine(root)
    total, available = _memory(root)
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    supplies = list((root / "sys/class/power_supply").glob("*"))
    mains = [
        read_text(supply / "online").strip()
        for supply in supplies
        if read_text(supply / "type").strip() == "Mains"
    ]
    return HostFacts(
        cores=machine.cores,
        usable_cores=machine.usable_cores,
        quota_cores=machine.quota_cores,
        governors=tuple(sorted({read_text(file).strip() for file in files} - {""})),
        total_bytes=total,
        available_bytes=available,
        samples=samples,
        on_battery=all(online == "0" for online in mains) if mains else None,
    )


def _memory(root: Path) -> tuple[int, int]:
    try:
        total, available = read_memory(root / "proc" if (root / "proc/meminfo").exists() else None)
    except OSError:
        return 0, 0
    return limited_memory(total, available, root)

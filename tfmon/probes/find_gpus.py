"""Finds the GPUs that a lane could use, or the obstacle, without TensorFlow."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.race import Machine
from tfmon.model.spec import INSTANCE
from tfmon.probes.base import Gpu, Probe, absent_gpu, within
from tfmon.probes.interpreter import Wheel, read_wheel
from tfmon.probes.nvidia import nvml
from tfmon.probes.nvidia.probe import NvidiaProbe
from tfmon.probes.other_gpus import AmdProbe, AppleProbe, list_amd_gpus
from tfmon.system.limits import read_text

LIBRARY = "libnvidia-ml.so.1"
AMD_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Each selects from the result of the one before. Source: AMD's "GPU isolation techniques"."""
_INSTALL_METAL = "pip install 'tensorflow>=2.18,<2.20' tensorflow-metal==1.2.0"
_EXCLUSIVE = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why TensorFlow can use no GPU."""

    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class GpuVisibility:
    """Facts about the GPUs, known without TensorFlow."""

    system: str
    machine: str
    visible: str | None = None
    order: str | None = None
    physical_gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    failure: nvml.NvmlFailure | None = None
    answered: bool = True
    driver_loaded: bool = False
    gpu_on_bus: bool = False
    module_version: str = ""
    """Of the driver's kernel module."""
    nodes: tuple[str, ...] = ()
    """The driver's files in /dev."""
    denied: tuple[str, ...] = ()
    """Files that this user may not open."""
    amd_gpus: tuple[Gpu, ...] = ()
    amd_variable: str = ""
    """The variable that may hide AMD GPUs."""

    @property
    def has_nvidia(self) -> bool:
        """Whether an NVIDIA GPU may exist."""
        return bool(self.physical_gpus or self.driver_loaded or self.gpu_on_bus)

    def system_obstacle(self) -> Obstacle | None:
        """Return why no TensorFlow supports GPUs on this system."""
        if self.system == "Darwin" and self.machine != "arm64":
            return Obstacle(
                "TensorFlow has no GPU support on Intel Macs, nor in an Intel Python on Apple Silicon",
                "on Apple Silicon, install an arm64 Python and make a new environment with it",
            )
        if self.system not in ("Linux", "Darwin"):
            return Obstacle(f"TensorFlow has no GPU support on {self.system}", "on Windows, use WSL2")
        return None

    def driver_obstacle(self) -> Obstacle | None:
        """Return why the NVIDIA driver lists no GPU."""
        if self.system != "Linux" or self.physical_gpus:
            return None
        failure = self.failure
        if not self.answered:
            hint = "`nvidia-smi` would hang too: restart the machine; see `dmesg` for the cause"
            return Obstacle("the NVIDIA driver does not answer", hint)
        if failure is None:
            hint = "in a container, start it with --gpus all; else see `nvidia-smi` and `dmesg`"
            return Obstacle("the NVIDIA driver lists no GPU", hint)
        if failure.code == nvml.LIBRARY_NOT_FOUND and self.driver_loaded:
            hint = "in a container, start it with --gpus all; else install the driver's libraries"
            return Obstacle(f"the NVIDIA driver is loaded, but its library {LIBRARY} was not found", hint)
        if failure.code == nvml.LIBRARY_NOT_FOUND and self.gpu_on_bus:
            hint = "install the NVIDIA driver, restart, and check that `nvidia-smi` lists the GPU"
            return Obstacle("there is an NVIDIA GPU, but no driver for it", hint)
        return Obstacle(failure.reason, failure.hint)

    def hidden_obstacle(self) -> Obstacle | None:
        """Return how CUDA_VISIBLE_DEVICES hides every GPU."""
        if not self.physical_gpus:
            return None
        if _has_instances(self.visible):
            if self.visible_instances({}):
                return None
            hint = "`nvidia-smi -L` lists the instances; unset CUDA_VISIBLE_DEVICES to see all"
            return Obstacle(f'CUDA_VISIBLE_DEVICES="{self.visible}" names no MIG instance that is there', hint)
        if not self.visible_gpus():
            first = self.physical_gpus[0]
            return Obstacle(
                f'hidden by CUDA_VISIBLE_DEVICES="{self.visible}"',
                f"unset CUDA_VISIBLE_DEVICES to race on GPU {first.index} ({first.name})",
            )
        if all(gpu.instances == () for gpu in self.visible_gpus()):
            first = self.visible_gpus()[0]
            return Obstacle(
                f"{first.name} is split up (MIG), but has no instance",
                f"make one with `sudo nvidia-smi mig -i {first.index} -cgi 0 -C`,"
                f" or make the GPU whole with `sudo nvidia-smi -i {first.index} -mig 0`",
            )
        return None

    def wheel_obstacle(self, wheel: Wheel | None) -> Obstacle | None:
        """Return why this TensorFlow cannot use a GPU."""
        if self.system == "Darwin":
            installed = wheel is not None and wheel.metal
            return None if installed else Obstacle("tensorflow-metal is not installed", _INSTALL_METAL)
        if wheel is None or wheel.has_cuda is not False or wheel.rocm:
            return None
        package = f"{wheel.distribution} {wheel.version}".strip()
        hint = f"pip uninstall {wheel.distribution} && pip install 'tensorflow[and-cuda]'"
        return Obstacle(f"CPU-only TensorFlow ({package})", hint)

    def visible_gpus(self) -> list[Gpu]:
        """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in a program's order."""
        listed = self.physical_gpus
        return [listed[position] for position in visible_positions(self.visible, [gpu.uuid for gpu in listed])]

    def visible_instances(self, indexes: Mapping[str, int]) -> tuple[Gpu, ...]:
        """Return the instances in the variable, or of the visible GPUs (`indexes`)."""
        listed = [(gpu, instance) for gpu in self.physical_gpus for instance in gpu.instances or ()]
        if _has_instances(self.visible):
            positions = _named_positions(self.visible or "", INSTANCE, [gpu.uuid for _, gpu in listed])
            listed = [listed[position] for position in dict.fromkeys(positions)]
        else:
            listed = [(gpu, instance) for gpu, instance in listed if gpu.uuid in indexes]
        return tuple(replace(instance, index=indexes.get(gpu.uuid, gpu.index)) for gpu, instance in listed)

    def doubt(self) -> str:
        """Return why GPUs may be mistaken for each other."""
        mixed = len({gpu.name for gpu in self.physical_gpus}) > 1
        first = (self.visible or "").partition(",")[0].strip()
        if mixed and _is_number(first) and self.order != "PCI_BUS_ID":
            return (
                f"CUDA_VISIBLE_DEVICES={self.visible} is read in the driver's order;"
                " CUDA may count the fastest first"
            )
        return ""


def visible_positions(value: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the positions in `uuids` of the visible GPUs, in a program's order.

    Numbers, or UUIDs (or unique beginnings), count up to the first entry of the other kind or without a GPU. A GPU
    that is listed twice hides all. Source: CUDA C++ Programming Guide, "CUDA environment variables".
    """
    if value is None:
        return list(range(len(uuids)))
    if _is_number(value.partition(",")[0].strip()):
        words = itertools.takewhile(_is_number, (word.strip() for word in value.split(",")))
        positions = [*itertools.takewhile(lambda position: position < len(uuids), map(int, words))]
    else:
        positions = _named_positions(value, "GPU-", uuids)
    return positions if len(set(positions)) == len(positions) else []


def _has_instances(value: str | None) -> bool:
    return (value or "").strip().startswith(INSTANCE)


def _named_positions(value: str, prefix: str, uuids: Sequence[str]) -> list[int]:
    """Return the positions of UUIDs or their unique beginnings, up to the first other word."""
    positions: list[int] = []
    for word in (word.strip() for word in value.split(",")):
        named = [position for position, uuid in enumerate(uuids) if uuid.startswith(word)]
        if not word.startswith(prefix) or len(named) != 1:
            break
        positions += named
    return positions


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


@dataclass(frozen=True, slots=True)
class GpuSearch:
    """The result of a search for GPUs."""

    gpus: tuple[Gpu, ...] = ()
    instances: tuple[Gpu, ...] = ()
    reason: str = ""
    hint: str = ""
    note: str = ""
    driver: str = ""

    @property
    def whole(self) -> tuple[Gpu, ...]:
        """GPUs that are not split."""
        return tuple(gpu for gpu in self.gpus if not gpu.split)

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """Whole GPUs first, then instances."""
        return (*self.whole, *self.instances)

    @property
    def sampled(self) -> tuple[Gpu, ...]:
        """Whole and split GPUs, and instances."""
        return (*self.gpus, *self.instances)


def find_gpus(python: str | Path | None = None, visibility: GpuVisibility | None = None) -> GpuSearch:
    """Return the GPUs that `python` could use."""
    return conclude(visibility or read_visibility(), lambda: read_wheel(python))


def read_visibility(
    *,
    timeout_s: float = 5.0,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    library: str = LIBRARY,
    system: str = "",
    machine: str = "",
) -> GpuVisibility:
    """Return the facts of the GPUs.

    Without persistence mode the driver's first call takes seconds; after `timeout_s` it is abandoned. Thread: any.
    Source: NVML, /proc/driver/nvidia/version, /dev, /sys.
    """
    environ = os.environ if environ is None else environ
    system, machine = system or platform.system(), machine or platform.machine()
    visible, order = environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER")
    if system != "Linux":
        return GpuVisibility(system, machine, visible, order)
    module = read_text(root / "proc/driver/nvidia/version")
    version = re.search(r"Kernel Module.*?\b(\d{3,}\.\d+(?:\.\d+)*)\b", module)
    answer = within(timeout_s, lambda: _list_gpus(library))
    listed, failure, driver = answer if answer is not None else ((), None, "")
    entries = (entry.name for entry in (root / "dev").glob("*"))  # the first call of the driver may create some
    names = sorted(name for name in entries if re.fullmatch(r"nvidia(\d+|ctl|-uvm)|dxg", name))
    return GpuVisibility(
        system,
        machine,
        visible,
        order,
        physical_gpus=listed,
        driver=driver,
        failure=failure,
        answered=answer is not None,
        driver_loaded=bool(module),
        gpu_on_bus=not listed and _is_gpu_on_bus(root),
        module_version=version[1] if version is not None else "",
        nodes=tuple(f"/dev/{name}" for name in names),
        denied=tuple(f"/dev/{name}" for name in names if not os.access(root / "dev" / name, os.R_OK | os.W_OK)),
        amd_gpus=tuple(gpu for gpu, _ in list_amd_gpus(root)),
        amd_variable=next((name for name in AMD_VARIABLES if environ.get(name)), ""),
    )


def conclude(visibility: GpuVisibility, wheel: Callable[[], Wheel | None]) -> GpuSearch:
    """Return the usable GPUs, or the first obstacle."""
    obstacle = visibility.system_obstacle()
    if obstacle is None:
        obstacle = visibility.driver_obstacle() or visibility.hidden_obstacle()
        installed = wheel()
        for_amd = installed is not None and installed.rocm
        if visibility.amd_gpus and (for_amd or (obstacle is not None and not visibility.has_nvidia)):
            return _conclude_amd(visibility, installed)
        if obstacle is None:
            obstacle = visibility.wheel_obstacle(installed)
    if obstacle is not None:
        return GpuSearch(reason=obstacle.reason, hint=obstacle.hint)
    if visibility.system == "Darwin":
        return GpuSearch(gpus=(Gpu(index=0, uuid="apple-gpu-0", name="Apple GPU", physical_gpu=0),))
    gpus = tuple(replace(gpu, index=index) for index, gpu in enumerate(visibility.visible_gpus()))
    instances = visibility.visible_instances({gpu.uuid: gpu.index for gpu in gpus})
    return GpuSearch(gpus=gpus, instances=instances, note=visibility.doubt(), driver=visibility.driver)


def _conclude_amd(visibility: GpuVisibility, wheel: Wheel | None) -> GpuSearch:
    if wheel is not None and not wheel.rocm:
        result = f"there is an AMD GPU, but this TensorFlow ({wheel.distribution}) is not built for ROCm"
        return GpuSearch(reason=result, hint="install tensorflow-rocm as AMD's ROCm documentation says")
    if name := visibility.amd_variable:
        reason = f"of AMD GPUs, tfmon does not know which ones {name} leaves"
        return GpuSearch(reason=reason, hint=f"unset {name}; --lane gpu:N names one")
    return GpuSearch(gpus=visibility.amd_gpus)


def with_devices(machine: Machine, search: GpuSearch, wheel: Wheel | None) -> Machine:
    """Return a machine with its GPUs and the Python that trains."""
    tensorflow = ""
    if wheel is not None:
        tensorflow = wheel.version or "unknown version"
        tensorflow += "" if wheel.distribution == "tensorflow" else f" ({wheel.distribution})"
    gpus = search.gpus or search.instances
    return replace(
        machine,
        gpus=tuple(gpu.name for gpu in gpus),
        driver=search.driver,
        power_limits_w=tuple(gpu.power_limit_w for gpu in gpus),
        python=machine.python if wheel is None else wheel.python,
        tensorflow=tensorflow,
    )


def _list_gpus(library: str) -> tuple[tuple[Gpu, ...], nvml.NvmlFailure | None, str]:
    import ctypes  # late: not needed without a GPU

    try:
        ctypes.CDLL(library)
    except OSError as error:  # avoids the import of pynvml
        absent = library in str(error) and "no such file" in str(error).casefold()  # not a dependency
        return (), nvml.NvmlFailure(nvml.LIBRARY_NOT_FOUND if absent else nvml.BROKEN_LIBRARY), ""
    try:
        opened = nvml.open_nvml()
    except nvml.CallFailedError as error:
        return (), error.failure, ""
    version = opened.ask("nvmlSystemGetDriverVersion") or ""
    try:
        listed, failure = nvml.list_physical_gpus(opened)
        return tuple(_with_facts(opened, gpu, handle) for gpu, handle in listed), failure, version
    except nvml.CallFailedError as error:
        return (), error.failure, version
    finally:
        opened.ask("nvmlShutdown")


def _with_facts(opened: nvml.Nvml, gpu: Gpu, handle: Any) -> Gpu:
    """Source: NVML; limits in mW."""
    instances = nvml.list_instances(opened, gpu, handle)
    limit_mw = opened.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    default_mw = opened.ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    capability = opened.ask("nvmlDeviceGetCudaComputeCapability", handle)
    mode = opened.ask("nvmlDeviceGetComputeMode", handle)
    return replace(
        gpu,
        instances=None if instances is None else tuple(instance for instance, _ in instances),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        power_default_w=None if default_mw is None else default_mw / 1000,
        capability=None if capability is None else (int(capability[0]), int(capability[1])),
        exclusive=None if mode is None else mode in _EXCLUSIVE,
    )


def _is_gpu_on_bus(root: Path) -> bool:
    """Vendor 0x10de is NVIDIA, class 0x03 a display."""
    return any(
        read_text(device / "vendor").strip() == "0x10de" and read_text(device / "class").startswith("0x03")
        for device in (root / "sys/bus/pci/devices").glob("*")
    )


BEFORE_S = 5.0
TIMEOUT_S = 10.0


def gpu_probes(gpus: Sequence[Gpu], before_s: float = 0.0) -> list[Probe]:
    """Return the probe of GPUs, which have one maker."""
    if not gpus:
        return []
    if gpus[0].uuid.startswith(("GPU-", "MIG-")):
        return [NvidiaProbe(gpus, before_s=before_s)]
    return [AmdProbe(gpus) if gpus[0].uuid.startswith("AMD-") else AppleProbe(gpus[0])]


def look(gpus: Sequence[Gpu], timeout_s: float = TIMEOUT_S) -> list[GpuSample]:
    """Return a sample of each GPU. Thread: any."""
    wanted = {gpu.uuid for gpu in gpus}

    def work() -> list[GpuSample]:
        samples: list[GpuSample] = []
        for probe in gpu_probes(gpus, before_s=BEFORE_S):
            with contextlib.closing(probe):
                samples += (event for event in probe.sample() if isinstance(event, GpuSample))
        return [sample for sample in samples if sample.key in wanted]

    result = within(timeout_s, work)
    return [absent_gpu(gpu, 0, "the driver does not answer") for gpu in gpus] if result is None else result

"""The GPUs that a lane could train on, or the reason why there is none. TensorFlow is not imported for it."""

from __future__ import annotations

import os
import platform
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from tfmon.model.race import Machine
from tfmon.probes.base import Gpu
from tfmon.probes.machine import read_text
from tfmon.probes.nvidia.nvml import (
    LIBRARY_NOT_FOUND,
    Nvml,
    NvmlFailure,
    PhysicalGpu,
    list_physical_gpus,
    open_nvml,
)
from tfmon.probes.wheel import Wheel, read_wheel

LIBRARY = "libnvidia-ml.so.1"
_INSTALL_METAL = "pip install 'tensorflow>=2.18,<2.20' tensorflow-metal==1.2.0"


@dataclass(frozen=True, slots=True)
class GpuSearch:
    """The result of a search for GPUs."""

    gpus: tuple[Gpu, ...] = ()
    """Those a lane could use, in the order of their `index`."""
    reason: str = ""
    """Why there is none, in one line; empty if there is one."""
    hint: str = ""
    """What to do about it; may be empty."""
    note: str = ""
    """What may be wrong about the GPUs found; mostly empty."""
    driver: str = ""
    """Version of the NVIDIA driver; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps TensorFlow from every GPU."""

    reason: str
    """In one line."""
    hint: str = ""
    """What to do about it; may be empty."""


@dataclass(frozen=True, slots=True)
class GpuVisibility:
    """What can be known of the GPUs without TensorFlow."""

    system: str
    machine: str
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES."""
    order: str | None = None
    """CUDA_DEVICE_ORDER."""
    physical_gpus: tuple[PhysicalGpu, ...] = ()
    """What the NVIDIA driver lists. Their handles are closed."""
    driver: str = ""
    """Version of the NVIDIA driver's library; empty if unknown."""
    failure: NvmlFailure | None = None
    """Why the driver lists nothing, or not every GPU."""
    answered: bool = True
    """False when the driver took too long."""
    driver_loaded: bool = False
    """The kernel module is loaded."""
    gpu_on_bus: bool = False
    """An NVIDIA GPU is on the PCI bus; looked for when the driver lists none."""


Listed: TypeAlias = tuple[list[PhysicalGpu], NvmlFailure | None, str]
"""The GPUs that the driver lists, why it lists no more, and its version."""
Examine: TypeAlias = Callable[[Nvml, Sequence[PhysicalGpu]], None]


def find_gpus(python: str | Path | None = None, visibility: GpuVisibility | None = None) -> GpuSearch:
    """Return the GPUs that a lane run by `python` (this interpreter by default) could use.

    Source, Thread: as `read_visibility`, called by default; the files of the TensorFlow of `python`.
    """
    return conclude(visibility or read_visibility(), lambda: read_wheel(python))


def read_visibility(
    *,
    timeout_s: float = 5.0,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    library: str = LIBRARY,
    system: str = "",
    machine: str = "",
    examine: Examine | None = None,
) -> GpuVisibility:
    """Return what can be known of the GPUs.

    Takes a few milliseconds without an NVIDIA driver, and at most `timeout_s` with a slow one: without persistence
    mode the first call takes seconds.

    Args:
        examine: Reads more while the driver's library is open, in the thread that calls the driver.
    Source: NVML's list of devices, CUDA_VISIBLE_DEVICES, /proc/driver/nvidia, /sys/bus/pci.
    Thread: any; the driver is called in a thread of its own, which is abandoned if the driver hangs.
    """
    environ = os.environ if environ is None else environ
    system, machine = system or platform.system(), machine or platform.machine()
    visible, order = environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER")
    if system != "Linux":
        return GpuVisibility(system, machine, visible, order)
    answer = _within(timeout_s, lambda: _list_gpus(library, examine))
    listed, failure, driver = answer if answer is not None else ([], None, "")
    return GpuVisibility(
        system,
        machine,
        visible,
        order,
        physical_gpus=tuple(listed),
        driver=driver,
        failure=failure,
        answered=answer is not None,
        driver_loaded=(root / "proc/driver/nvidia/version").exists(),
        gpu_on_bus=not listed and _is_gpu_on_bus(root),
    )


def conclude(visibility: GpuVisibility, wheel: Callable[[], Wheel | None]) -> GpuSearch:
    """Return the GPUs that can be used, or the first obstacle. The wheel is read last, and only if needed."""
    obstacle = system_obstacle(visibility) or driver_obstacle(visibility) or hidden_obstacle(visibility)
    obstacle = obstacle or wheel_obstacle(visibility, wheel())
    if obstacle is not None:
        return GpuSearch(reason=obstacle.reason, hint=obstacle.hint)
    if visibility.system == "Darwin":
        return GpuSearch(gpus=(Gpu(index=0, uuid="apple-gpu-0", name="Apple GPU", physical_gpu=0),))
    gpus = tuple(
        Gpu(index, one.uuid, one.name, physical_gpu=one.index, power_limit_w=one.power_limit_w)
        for index, one in enumerate(visible_gpus(visibility))
    )
    return GpuSearch(gpus=gpus, note=doubt(visibility), driver=visibility.driver)


def with_devices(machine: Machine, search: GpuSearch, wheel: Wheel | None) -> Machine:
    """Return a machine with what is known of its GPUs and of the Python that trains."""
    tensorflow = ""
    if wheel is not None:
        tensorflow = wheel.version or "unknown version"
        tensorflow += "" if wheel.distribution == "tensorflow" else f" ({wheel.distribution})"
    return replace(
        machine,
        gpus=tuple(gpu.name for gpu in search.gpus),
        driver=search.driver,
        power_limits_w=tuple(gpu.power_limit_w for gpu in search.gpus),
        python=machine.python if wheel is None else wheel.python,
        tensorflow=tensorflow,
    )


def system_obstacle(visibility: GpuVisibility) -> Obstacle | None:
    """Return why no TensorFlow supports GPUs on this system, or None."""
    if visibility.system == "Darwin" and visibility.machine != "arm64":
        return Obstacle(
            "TensorFlow has no GPU support on Intel Macs, nor in an Intel Python on Apple Silicon",
            "on Apple Silicon, install an arm64 Python and make a new environment with it",
        )
    if visibility.system not in ("Linux", "Darwin"):
        return Obstacle(f"TensorFlow has no GPU support on {visibility.system}", "on Windows, use WSL2")
    return None


def driver_obstacle(visibility: GpuVisibility) -> Obstacle | None:
    """Return why the NVIDIA driver lists no GPU at all, or None."""
    if visibility.system != "Linux" or visibility.physical_gpus:
        return None
    failure = visibility.failure
    if not visibility.answered:
        hint = "`nvidia-smi` would hang too: restart the machine; see `dmesg` for the cause"
        return Obstacle("the NVIDIA driver does not answer", hint)
    if failure is None:
        hint = "in a container, start it with --gpus all; else see `nvidia-smi` and `dmesg`"
        return Obstacle("the NVIDIA driver lists no GPU", hint)
    if failure.code == LIBRARY_NOT_FOUND and visibility.driver_loaded:
        hint = "in a container, start it with --gpus all; else install the driver's libraries"
        return Obstacle(f"the NVIDIA driver is loaded, but its library {LIBRARY} was not found", hint)
    if failure.code == LIBRARY_NOT_FOUND and visibility.gpu_on_bus:
        hint = "install the NVIDIA driver, restart, and check that `nvidia-smi` lists the GPU"
        return Obstacle("there is an NVIDIA GPU, but no driver for it", hint)
    return Obstacle(failure.reason, failure.hint)


def hidden_obstacle(visibility: GpuVisibility) -> Obstacle | None:
    """Return how CUDA_VISIBLE_DEVICES hides every GPU that the driver lists, or None."""
    if not visibility.physical_gpus:
        return None
    if (visibility.visible or "").strip().startswith("MIG-"):
        return Obstacle(
            "CUDA_VISIBLE_DEVICES names a MIG instance, which tfmon cannot give to a lane",
            "turn MIG off, or name a whole GPU",
        )
    if not visible_gpus(visibility):
        first = visibility.physical_gpus[0]
        return Obstacle(
            f'hidden by CUDA_VISIBLE_DEVICES="{visibility.visible}"',
            f"unset CUDA_VISIBLE_DEVICES to race on GPU {first.index} ({first.name})",
        )
    return None


def wheel_obstacle(visibility: GpuVisibility, wheel: Wheel | None) -> Obstacle | None:
    """Return why this TensorFlow cannot use a GPU, or None. A lane reports a TensorFlow that is not installed."""
    if visibility.system == "Darwin":
        installed = wheel is not None and wheel.metal
        return None if installed else Obstacle("tensorflow-metal is not installed", _INSTALL_METAL)
    if wheel is None or wheel.has_cuda is not False:
        return None
    package = f"{wheel.distribution} {wheel.version}".strip()
    hint = f"pip uninstall {wheel.distribution} && pip install 'tensorflow[and-cuda]'"
    return Obstacle(f"CPU-only TensorFlow ({package})", hint)


def visible_gpus(visibility: GpuVisibility) -> list[PhysicalGpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in the order a program counts them."""
    listed = visibility.physical_gpus
    return [listed[place] for place in visible_places(visibility.visible, [one.uuid for one in listed])]


def visible_places(value: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the places in `uuids` of the visible GPUs, in the order a program counts them.

    Unset shows all and "" none. Numbers or UUIDs (their beginnings, if unique) are read up to the first one
    that names no GPU or changes from one kind to the other; a GPU named twice shows none at all.
    Source: CUDA C++ Programming Guide, "CUDA environment variables".
    """
    if value is None:
        return list(range(len(uuids)))
    words = [word.strip() for word in value.split(",")]
    by_number = _is_number(words[0])
    places: list[int] = []
    for word in words:
        if by_number:
            found = [int(word)] if _is_number(word) and int(word) < len(uuids) else []
        else:
            found = [place for place, uuid in enumerate(uuids) if word[:4] == "GPU-" and uuid.startswith(word)]
        if len(found) != 1:
            break
        places += found
    return places if len(set(places)) == len(places) else []


def doubt(visibility: GpuVisibility) -> str:
    """Return what may be wrong about which GPU is which; empty if nothing."""
    mixed = len({one.name for one in visibility.physical_gpus}) > 1
    first = (visibility.visible or "").partition(",")[0].strip()
    if mixed and _is_number(first) and visibility.order != "PCI_BUS_ID":
        return (
            f"CUDA_VISIBLE_DEVICES={visibility.visible} is read in the driver's order;"
            " CUDA may count the fastest first"
        )
    return ""


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _list_gpus(library: str, examine: Examine | None) -> Listed:
    """List the GPUs through NVML, and shut it down again."""
    import ctypes  # late: a machine without a GPU should start fast

    try:
        ctypes.CDLL(library)
    except OSError:  # spares a machine without a driver the import of pynvml
        return [], NvmlFailure(LIBRARY_NOT_FOUND), ""
    nvml = open_nvml()
    if isinstance(nvml, NvmlFailure):
        return [], nvml, ""
    try:
        gpus, failure = list_physical_gpus(nvml)
        if examine is not None:
            examine(nvml, gpus)
        version = nvml.call("nvmlSystemGetDriverVersion")
        gpus = [replace(gpu, power_limit_w=_power_limit_w(nvml, gpu)) for gpu in gpus]
        return gpus, failure, version if isinstance(version, str) else ""
    finally:
        nvml.call("nvmlShutdown")


def _power_limit_w(nvml: Nvml, gpu: PhysicalGpu) -> float | None:
    """Source: `nvmlDeviceGetEnforcedPowerLimit`, in mW."""
    milliwatts = nvml.call("nvmlDeviceGetEnforcedPowerLimit", gpu.handle)
    return None if isinstance(milliwatts, NvmlFailure) else milliwatts / 1000


def _within(timeout_s: float, work: Callable[[], Listed]) -> Listed | None:
    """Return the result of `work`, or None if it takes longer; its thread is then abandoned."""
    answers: queue.SimpleQueue[Listed] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(work()), name="tfmon-find-gpus", daemon=True).start()
    try:
        return answers.get(timeout=timeout_s)
    except queue.Empty:
        return None


def _is_gpu_on_bus(root: Path) -> bool:
    """Source: vendor (0x10de: NVIDIA) and class (0x03: display) of the devices on the PCI bus."""
    return any(
        read_text(device / "vendor").strip() == "0x10de" and read_text(device / "class").startswith("0x03")
        for device in (root / "sys/bus/pci/devices").glob("*")
    )

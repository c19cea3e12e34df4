"""Which GPUs a lane could train on, and if there is none, why. TensorFlow is not imported for it."""

from __future__ import annotations

import os
import platform
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfmon.probes.base import Gpu
from tfmon.probes.nvidia.nvml import (
    LIBRARY_NOT_FOUND,
    Nvml,
    NvmlFailure,
    PhysicalGpu,
    list_physical_gpus,
    open_nvml,
)
from tfmon.probes.visible import counts_gpus, names_instance, visible_gpus
from tfmon.probes.wheel import Wheel, read_wheel

LIBRARY = "libnvidia-ml.so.1"
_NVIDIA_VENDOR = "0x10de"
_INSTALL_METAL = "pip install 'tensorflow>=2.18,<2.20' tensorflow-metal==1.2.0"


@dataclass(frozen=True, slots=True)
class GpuSearch:
    """What a search for GPUs found."""

    gpus: tuple[Gpu, ...] = ()
    """Those a lane could use, in the order of their `index`."""
    why: str = ""
    """Why there is none, in one line; empty if there is one."""
    hint: str = ""
    """What to do about it; may be empty."""
    note: str = ""
    """What may be wrong about the GPUs found; mostly empty."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps TensorFlow from every GPU."""

    why: str
    """In one line."""
    hint: str = ""
    """What to do about it; may be empty."""


@dataclass(frozen=True, slots=True)
class GpuVisibility:
    """What is seen of the GPUs without TensorFlow; what follows from it, the functions below say."""

    system: str
    machine: str
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES."""
    order: str | None = None
    """CUDA_DEVICE_ORDER."""
    physical_gpus: tuple[PhysicalGpu, ...] = ()
    """What the NVIDIA driver lists; nothing is asked of them afterwards."""
    refusal: NvmlFailure | None = None
    """Why the driver lists nothing, or leaves one out."""
    answered: bool = True
    """False when the driver took too long."""
    driver_runs: bool = False
    """The kernel module is loaded."""
    has_board: bool = False
    """An NVIDIA GPU is on the PCI bus."""


Boards: TypeAlias = tuple[list[PhysicalGpu], NvmlFailure | None]
Examine: TypeAlias = Callable[[Nvml, Sequence[PhysicalGpu]], None]


def find_gpus(
    python: str | Path | None = None,
    *,
    timeout_s: float = 5.0,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    library: str = LIBRARY,
    system: str = "",
    machine: str = "",
) -> GpuSearch:
    """Return the GPUs that a lane run by `python` (this interpreter by default) could use.

    Takes a few milliseconds where there is no NVIDIA driver, and at most `timeout_s` and the time to start
    `python` where the driver is slow: on physical_gpus without persistence mode the first call takes seconds.
    Source: NVML's list of devices, CUDA_VISIBLE_DEVICES, the files of the TensorFlow of `python`.
    Thread: any; the driver is asked in a thread of its own, which is left behind if the driver hangs.
    """
    sight = look(timeout_s=timeout_s, environ=environ, root=root, library=library, system=system, machine=machine)
    return conclude(sight, lambda: read_wheel(python))


def look(
    *,
    timeout_s: float = 5.0,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    library: str = LIBRARY,
    system: str = "",
    machine: str = "",
    examine: Examine | None = None,
) -> GpuVisibility:
    """Return what is seen of the GPUs; `examine` may ask more of them while the driver's library is open.

    Source, Thread: as `find_gpus`; `examine` is called in the thread that asks the driver.
    """
    environ = os.environ if environ is None else environ
    system, machine = system or platform.system(), machine or platform.machine()
    visible, order = environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER")
    if system != "Linux":
        return GpuVisibility(system, machine, visible, order)
    physical_gpus = _within(timeout_s, lambda: _ask_driver(library, examine))
    listed, refusal = physical_gpus if physical_gpus is not None else ([], None)
    return GpuVisibility(
        system,
        machine,
        visible,
        order,
        physical_gpus=tuple(listed),
        refusal=refusal,
        answered=physical_gpus is not None,
        driver_runs=(root / "proc/driver/nvidia/version").exists(),
        has_board=not listed and _has_nvidia_gpu(root),
    )


def conclude(sight: GpuVisibility, wheel: Callable[[], Wheel | None]) -> GpuSearch:
    """Return the GPUs that are in sight and can be used, or the first obstacle; the wheel is asked for last."""
    obstacle = system_obstacle(sight) or driver_obstacle(sight) or hidden_obstacle(sight)
    obstacle = obstacle or wheel_obstacle(sight, wheel())
    if obstacle is not None:
        return GpuSearch(why=obstacle.why, hint=obstacle.hint)
    if sight.system == "Darwin":
        return GpuSearch(gpus=(Gpu(index=0, uuid="apple-gpu-0", name="Apple GPU", physical_gpu=0),))
    gpus = tuple(
        Gpu(index=index, uuid=physical_gpu.uuid, name=physical_gpu.name, physical_gpu=physical_gpu.index)
        for index, physical_gpu in enumerate(visible_of(sight))
    )
    return GpuSearch(gpus=gpus, note=doubt(sight))


def system_obstacle(sight: GpuVisibility) -> Obstacle | None:
    """Return why no TensorFlow has a GPU on such a system, or None."""
    if sight.system == "Darwin" and sight.machine != "arm64":
        return Obstacle(
            why="TensorFlow has no GPU support on Intel Macs, nor in an Intel Python on Apple Silicon",
            hint="on Apple Silicon, install an arm64 Python and make a new environment with it",
        )
    if sight.system not in ("Linux", "Darwin"):
        return Obstacle(why=f"TensorFlow has no GPU support on {sight.system}", hint="on Windows, use WSL2")
    return None


def driver_obstacle(sight: GpuVisibility) -> Obstacle | None:
    """Return why the NVIDIA driver lists no GPU at all, or None."""
    if sight.system != "Linux" or sight.physical_gpus:
        return None
    if not sight.answered:
        return Obstacle(
            why="the NVIDIA driver does not answer",
            hint="`nvidia-smi` would hang too: restart the machine; `dmesg` may say why",
        )
    if sight.refusal is None:
        hint = "in a container, start it with --gpus all; else see `nvidia-smi` and `dmesg`"
        return Obstacle(why="the NVIDIA driver lists no GPU", hint=hint)
    if sight.refusal.code == LIBRARY_NOT_FOUND:
        if sight.driver_runs:
            return Obstacle(
                why=f"the NVIDIA driver runs, but its library {LIBRARY} is not to be found here",
                hint="in a container, start it with --gpus all; else install the driver's libraries",
            )
        if sight.has_board:
            return Obstacle(
                why="there is an NVIDIA GPU, but no driver for it",
                hint="install the NVIDIA driver, restart, and see whether `nvidia-smi` lists the GPU",
            )
    return Obstacle(why=sight.refusal.reason, hint=sight.refusal.hint)


def hidden_obstacle(sight: GpuVisibility) -> Obstacle | None:
    """Return how CUDA_VISIBLE_DEVICES hides every GPU that the driver lists, or None."""
    if not sight.physical_gpus:
        return None
    if names_instance(sight.visible):
        return Obstacle(
            why="CUDA_VISIBLE_DEVICES names a part of a GPU (MIG), which tfmon cannot give to a lane",
            hint="turn MIG off, or name a whole GPU",
        )
    if not visible_of(sight):
        first = sight.physical_gpus[0]
        return Obstacle(
            why=f'hidden by CUDA_VISIBLE_DEVICES="{sight.visible}"',
            hint=f"unset CUDA_VISIBLE_DEVICES to race on GPU {first.index} ({first.name})",
        )
    return None


def wheel_obstacle(sight: GpuVisibility, wheel: Wheel | None) -> Obstacle | None:
    """Return why this TensorFlow cannot use a GPU, or None; that it is not there at all, a lane will say."""
    if sight.system == "Darwin":
        if wheel is None or not wheel.metal:
            return Obstacle(why="tensorflow-metal is not installed", hint=_INSTALL_METAL)
        return None
    if wheel is None or wheel.has_cuda is not False:
        return None
    package = f"{wheel.distribution} {wheel.version}".strip()
    return Obstacle(
        why=f"CPU-only TensorFlow ({package})",
        hint=f"pip uninstall {wheel.distribution} && pip install 'tensorflow[and-cuda]'",
    )


def visible_of(sight: GpuVisibility) -> list[PhysicalGpu]:
    """Return the physical_gpus that CUDA_VISIBLE_DEVICES leaves, in the order a program counts them."""
    return [
        sight.physical_gpus[place]
        for place in visible_gpus(sight.visible, [one.uuid for one in sight.physical_gpus])
    ]


def doubt(sight: GpuVisibility) -> str:
    """Return what may be wrong about which GPU is which; empty if nothing."""
    mixed = len({physical_gpu.name for physical_gpu in sight.physical_gpus}) > 1
    if mixed and counts_gpus(sight.visible) and sight.order != "PCI_BUS_ID":
        return (
            f"CUDA_VISIBLE_DEVICES={sight.visible} is read in the driver's order; CUDA may count the fastest first"
        )
    return ""


def _ask_driver(library: str, examine: Examine | None) -> Boards:
    """List the GPUs through NVML, and shut it down again."""
    import ctypes  # late: most machines that come here have a GPU, the others should start fast

    try:
        ctypes.CDLL(library)
    except OSError:  # spares a machine without a driver the import of pynvml
        return [], NvmlFailure(LIBRARY_NOT_FOUND)
    nvml = open_nvml()
    if isinstance(nvml, NvmlFailure):
        return [], nvml
    try:
        physical_gpus, refusal = list_physical_gpus(nvml)
        if examine is not None:
            examine(nvml, physical_gpus)
        return physical_gpus, refusal
    finally:
        nvml.call("nvmlShutdown")


def _within(timeout_s: float, work: Callable[[], Boards]) -> Boards | None:
    """Return what `work` gives, or None if it takes longer; its thread is then left alone."""
    answers: queue.SimpleQueue[Boards] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(work()), name="tfmon-find-gpus", daemon=True).start()
    try:
        return answers.get(timeout=timeout_s)
    except queue.Empty:
        return None


def _has_nvidia_gpu(root: Path) -> bool:
    """Source: vendor and class (0x03: display) of the devices on the PCI bus."""
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
            kind = (device / "class").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if vendor == _NVIDIA_VENDOR and kind.startswith("0x03"):
            return True
    return False

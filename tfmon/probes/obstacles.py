"""The facts of the GPUs, and the obstacles for TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfmon.model.spec import INSTANCE
from tfmon.probes.base import Gpu
from tfmon.probes.interpreter import Wheel
from tfmon.probes.nvidia.nvml import LIBRARY_NOT_FOUND, NvmlFailure

LIBRARY = "libnvidia-ml.so.1"
AMD_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Each selects from the result of the one before. Source: AMD's "GPU isolation techniques"."""
_INSTALL_METAL = "pip install 'tensorflow>=2.18,<2.20' tensorflow-metal==1.2.0"


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
    failure: NvmlFailure | None = None
    answered: bool = True
    driver_loaded: bool = False
    gpu_on_bus: bool = False
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
        if failure.code == LIBRARY_NOT_FOUND and self.driver_loaded:
            hint = "in a container, start it with --gpus all; else install the driver's libraries"
            return Obstacle(f"the NVIDIA driver is loaded, but its library {LIBRARY} was not found", hint)
        if failure.code == LIBRARY_NOT_FOUND and self.gpu_on_bus:
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
        if mixed and is_number(first) and self.order != "PCI_BUS_ID":
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
    if is_number(value.partition(",")[0].strip()):
        words = itertools.takewhile(is_number, (word.strip() for word in value.split(",")))
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


def is_number(word: str) -> bool:
    """Return whether a word is a number."""
    return word.isascii() and word.isdigit()

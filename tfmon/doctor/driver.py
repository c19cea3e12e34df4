"""What the NVIDIA driver tells of itself and of each GPU, asked once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tfmon.doctor.facts import Device, Driver
from tfmon.probes.nvml import Board, Nvml, Refusal

_EXCLUSIVE = (1, 2, 3)
"""NVML's compute modes: one thread, none, one process."""
_GRAPHICS = 0
T = TypeVar("T")


class DriverReader:
    """Asks the driver while `look` has its library open; what it does not tell stays None.

    Source: the NVML functions named below, https://docs.nvidia.com/deploy/nvml-api/.
    Thread: the one that asks the driver; `driver` is read afterwards.
    """

    def __init__(self, root: Path = Path("/"), *, lists_processes: bool = True) -> None:
        self._lists_processes = lists_processes
        module = module_version(root)
        nodes, denied = device_files(root)
        self.driver = Driver(module_version=module, nodes=nodes, denied=denied)
        """What is known so far; the files alone before the driver was asked."""

    def __call__(self, nvml: Nvml, boards: Sequence[Board]) -> None:
        """Ask the driver about itself and every GPU that it lists."""
        version = _told(nvml.call("nvmlSystemGetDriverVersion"), str)
        newest = _told(nvml.call("nvmlSystemGetCudaDriverVersion_v2"), int)
        self.driver = Driver(
            version=version or "",
            module_version=self.driver.module_version,
            cuda=None if newest is None else (newest // 1000, newest % 1000 // 10),
            devices=tuple(self._describe(nvml, board) for board in boards),
            nodes=self.driver.nodes,
            denied=self.driver.denied,
        )

    def _describe(self, nvml: Nvml, board: Board) -> Device:
        def ask(function: str, kind: Callable[[Any], T], *more: object) -> T | None:
            return _told(nvml.call(function, board.handle, *more), kind)

        memory = nvml.call("nvmlDeviceGetMemoryInfo", board.handle)
        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", int)
        if reasons is None:
            reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", int)
        mode = ask("nvmlDeviceGetComputeMode", int)
        return Device(
            index=board.index,
            uuid=board.uuid,
            name=board.name,
            capability=ask("nvmlDeviceGetCudaComputeCapability", lambda pair: (int(pair[0]), int(pair[1]))),
            persistence=ask("nvmlDeviceGetPersistenceMode", bool),
            exclusive=None if mode is None else mode in _EXCLUSIVE,
            instances=ask("nvmlDeviceGetMigMode", lambda pair: bool(pair[0])),
            power_limit_w=ask("nvmlDeviceGetEnforcedPowerLimit", lambda milliwatts: milliwatts / 1000),
            power_default_w=ask("nvmlDeviceGetPowerManagementDefaultLimit", lambda milliwatts: milliwatts / 1000),
            pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth", int),
            pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth", int),
            pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration", int),
            pcie_generation_max=ask("nvmlDeviceGetMaxPcieLinkGeneration", int),
            busy_pct=ask("nvmlDeviceGetUtilizationRates", lambda rates: float(rates.gpu)),
            used_bytes=_told(memory, lambda info: int(info.used) if info.total else None),
            total_bytes=_told(memory, lambda info: int(info.total) or None),
            processes=self._processes(nvml, board),
            clock_reasons=reasons,
            temperature_c=ask("nvmlDeviceGetTemperature", float, _GRAPHICS),
        )

    def _processes(self, nvml: Nvml, board: Board) -> tuple[int, ...] | None:
        """Source: `nvmlDeviceGetComputeRunningProcesses_v3`, not under WSL, where it has crashed drivers."""
        if not self._lists_processes:
            return None
        answer = nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", board.handle)
        return _told(answer, lambda processes: tuple(sorted(int(one.pid) for one in processes)))


def module_version(root: Path = Path("/")) -> str:
    """Return the version of the driver's kernel module, or "". Source: /proc/driver/nvidia/version."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(r"Kernel Module.*?\b(\d{3,}\.\d+(?:\.\d+)*)\b", text)
    return match[1] if match else ""


def device_files(root: Path = Path("/")) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the driver's files in /dev, and those of them that this user may not open."""
    try:
        names = sorted(
            entry.name
            for entry in (root / "dev").iterdir()
            if re.fullmatch(r"nvidia(\d+|ctl|-uvm)|dxg", entry.name)
        )
    except OSError:
        return (), ()
    denied = [name for name in names if not os.access(root / "dev" / name, os.R_OK | os.W_OK)]
    return tuple(f"/dev/{name}" for name in names), tuple(f"/dev/{name}" for name in denied)


def _told(answer: Any, kind: Callable[[Any], T]) -> T | None:  # noqa: ANN401 - whatever pynvml gives
    """Return an answer of the driver, or None for a refusal and for what cannot be understood."""
    if isinstance(answer, Refusal):
        return None
    try:
        return kind(answer)
    except (TypeError, ValueError, AttributeError, IndexError):
        return None

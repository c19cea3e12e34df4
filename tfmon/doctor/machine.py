"""The machine around the interpreter: platform, processors, memory, load, and the NVIDIA driver with its GPUs."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tfmon.doctor.facts import DriverFacts, GpuFacts, Host, OthersLoad, Platform
from tfmon.probes.load import Load, read_load, read_memory
from tfmon.probes.machine import cpu_folders, in_wsl, quota_cores, read_text, read_throttling
from tfmon.probes.nvidia.nvml import Nvml, NvmlFailure, PhysicalGpu, list_instances

WATCH_S = 0.3
"""Shortest time over which the load of others is measured."""
_EXCLUSIVE = (1, 2, 3)
"""NVML's compute modes: one thread, none, one process."""
_GRAPHICS = 0
T = TypeVar("T")
_GROUPS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "container"}


def read_platform(root: Path, environ: Mapping[str, str]) -> Platform:
    """Return what kind of system this is.

    Source: uname; /etc/os-release; /.dockerenv, /run/.containerenv, /proc/1/cgroup; /proc/version.
    """
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
    """Return the version of the Windows Subsystem for Linux, or 0; version 1 has a kernel of Windows."""
    if not in_wsl(root):
        return 0
    version = read_text(root / "proc/version")
    return 2 if "microsoft-standard" in version or "WSL2" in version or (root / "dev/dxg").exists() else 1


class LoadWatch:
    """Measures what other programs use where no race runs, from its creation to `finish`.

    Source: `read_load`, less the CPU time of this process and its children that ended.
    """

    def __init__(self, load: Callable[[], Load] = read_load) -> None:
        self._load = load
        self._begun_s = time.monotonic()
        self._unknown = ""
        try:
            self._before, self._own_s = load(), _own_cpu_s()
        except OSError as error:
            self._unknown = str(error)

    def finish(self) -> OthersLoad:
        """Return what others used, over `WATCH_S` at least; at once where the system does not say."""
        if self._unknown:
            return OthersLoad(source=self._unknown)
        time.sleep(max(0.0, self._begun_s + WATCH_S - time.monotonic()))
        after, own_s = self._load(), _own_cpu_s() - self._own_s
        elapsed_s = time.monotonic() - self._begun_s
        others = max(0.0, after.busy_s - self._before.busy_s - own_s) / elapsed_s
        source = f"/proc/stat, over {elapsed_s:.1f} s"
        if after.stolen_s is None or self._before.stolen_s is None:
            return OthersLoad(others, None, source)
        stolen = (after.stolen_s - self._before.stolen_s) / elapsed_s / (os.cpu_count() or 1)
        return OthersLoad(others, stolen, source)


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def read_host(root: Path = Path("/"), *, others: OthersLoad = OthersLoad()) -> Host:  # noqa: B008 - immutable
    """Return what is known of processors and memory, with what others use of them.

    Source: /proc/cpuinfo, /proc/meminfo, /sys/devices/system/cpu, /sys/class/power_supply; control groups as in
    `quota_cores`; elsewhere psutil.
    """
    cores = os.cpu_count() or 1
    total, available, swap = _memory(root)
    return Host(
        cores=cores,
        affinity=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores,
        quota_cores=quota_cores(root),
        throttled_share=_throttled_share(root),
        cpu_flags=_flags(root),
        governors=_governors(root),
        turbo=_turbo(root),
        total_bytes=total,
        available_bytes=available,
        swap_used_bytes=swap,
        others=others,
        on_battery=_on_battery(root),
    )


def _memory(root: Path) -> tuple[int, int, int]:
    """Return total, available and used swap in bytes, within the limit of the container."""
    lines = re.findall(r"^(\w+):\s+(\d+) kB", read_text(root / "proc/meminfo"), re.MULTILINE)
    fields = {name: 1024 * int(number) for name, number in lines}
    if "MemAvailable" not in fields:
        try:
            return (*read_memory(), 0)
        except OSError:
            return 0, 0, 0
    total, available = fields["MemTotal"], fields["MemAvailable"]
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most = read_text(root / "sys/fs/cgroup" / limit).strip()
        if most.isdigit() and int(most) < total:
            now = read_text(root / "sys/fs/cgroup" / used).strip()
            total, available = int(most), min(available, int(most) - int(now) if now.isdigit() else available)
    return total, max(0, available), fields.get("SwapTotal", 0) - fields.get("SwapFree", 0)


def _throttled_share(root: Path) -> float | None:
    counts = read_throttling(cpu_folders(root)).values()
    return max((one.throttled / one.periods for one in counts if one.periods), default=None)


def _flags(root: Path) -> frozenset[str] | None:
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", read_text(root / "proc/cpuinfo"), re.MULTILINE)
    return frozenset(match[1].split()) if match else None


def _governors(root: Path) -> tuple[str, ...]:
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({read_text(file).strip() for file in files} - {""}))


def _turbo(root: Path) -> bool | None:
    folder = root / "sys/devices/system/cpu"
    off = read_text(folder / "intel_pstate/no_turbo").strip()
    boost = read_text(folder / "cpufreq/boost").strip()
    return off == "0" if off else boost == "1" if boost else None


def _on_battery(root: Path) -> bool | None:
    supplies = list((root / "sys/class/power_supply").glob("*"))
    mains = [read_text(one / "online").strip() for one in supplies if read_text(one / "type").strip() == "Mains"]
    return all(online == "0" for online in mains) if mains else None


class DriverReader:
    """Reads the driver while `read_visibility` has its library open; what is not supported is None.

    Source: the NVML functions named below, https://docs.nvidia.com/deploy/nvml-api/.
    Thread: the one that calls the driver; `driver` is read afterwards.
    """

    def __init__(self, root: Path = Path("/"), *, lists_processes: bool = True) -> None:
        self._lists_processes = lists_processes
        nodes, denied = device_files(root)
        self.driver = DriverFacts(module_version=module_version(root), nodes=nodes, denied=denied)
        """What is known so far; before the call only the files."""

    def __call__(self, nvml: Nvml, gpus: Sequence[PhysicalGpu]) -> None:
        """Read the driver and every GPU that it lists."""
        version = _value(nvml.call("nvmlSystemGetDriverVersion"), str)
        newest = _value(nvml.call("nvmlSystemGetCudaDriverVersion_v2"), int)
        self.driver = replace(
            self.driver,
            version=version or "",
            cuda=None if newest is None else (newest // 1000, newest % 1000 // 10),
            devices=tuple(self._describe(nvml, gpu) for gpu in gpus),
        )

    def _describe(self, nvml: Nvml, gpu: PhysicalGpu) -> GpuFacts:
        def read(function: str, kind: Callable[[Any], T], *more: object) -> T | None:
            return _value(nvml.call(function, gpu.handle, *more), kind)

        memory = nvml.call("nvmlDeviceGetMemoryInfo", gpu.handle)
        reasons = read("nvmlDeviceGetCurrentClocksEventReasons", int)
        if reasons is None:
            reasons = read("nvmlDeviceGetCurrentClocksThrottleReasons", int)
        mode = read("nvmlDeviceGetComputeMode", int)
        instances = list_instances(nvml, gpu)
        return GpuFacts(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            capability=read("nvmlDeviceGetCudaComputeCapability", lambda pair: (int(pair[0]), int(pair[1]))),
            persistence=read("nvmlDeviceGetPersistenceMode", bool),
            exclusive=None if mode is None else mode in _EXCLUSIVE,
            instances=None if instances is None else tuple(f"{one.uuid} {one.name}" for one in instances),
            power_limit_w=read("nvmlDeviceGetEnforcedPowerLimit", lambda milliwatts: milliwatts / 1000),
            power_default_w=read("nvmlDeviceGetPowerManagementDefaultLimit", lambda milliwatts: milliwatts / 1000),
            pcie_width=read("nvmlDeviceGetCurrPcieLinkWidth", int),
            pcie_width_max=read("nvmlDeviceGetMaxPcieLinkWidth", int),
            pcie_generation=read("nvmlDeviceGetCurrPcieLinkGeneration", int),
            pcie_generation_max=read("nvmlDeviceGetMaxPcieLinkGeneration", int),
            busy_pct=read("nvmlDeviceGetUtilizationRates", lambda rates: float(rates.gpu)),
            used_bytes=_value(memory, lambda info: int(info.used) if info.total else None),
            total_bytes=_value(memory, lambda info: int(info.total) or None),
            processes=self._processes(nvml, gpu),
            clock_reasons=reasons,
            temperature_c=read("nvmlDeviceGetTemperature", float, _GRAPHICS),
        )

    def _processes(self, nvml: Nvml, gpu: PhysicalGpu) -> tuple[int, ...] | None:
        """Source: `nvmlDeviceGetComputeRunningProcesses_v3`, not under WSL, where it has crashed drivers."""
        if not self._lists_processes:
            return None
        answer = nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", gpu.handle)
        return _value(answer, lambda processes: tuple(sorted(int(one.pid) for one in processes)))


def module_version(root: Path = Path("/")) -> str:
    """Return the version of the driver's kernel module, or "". Source: /proc/driver/nvidia/version."""
    text = read_text(root / "proc/driver/nvidia/version")
    match = re.search(r"Kernel Module.*?\b(\d{3,}\.\d+(?:\.\d+)*)\b", text)
    return match[1] if match else ""


def device_files(root: Path = Path("/")) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the driver's files in /dev, and those of them that this user may not open."""
    found = (entry.name for entry in (root / "dev").glob("*"))
    names = sorted(name for name in found if re.fullmatch(r"nvidia(\d+|ctl|-uvm)|dxg", name))
    denied = [name for name in names if not os.access(root / "dev" / name, os.R_OK | os.W_OK)]
    return tuple(f"/dev/{name}" for name in names), tuple(f"/dev/{name}" for name in denied)


def _value(answer: Any, kind: Callable[[Any], T]) -> T | None:  # noqa: ANN401 - from pynvml
    """Return an answer of the driver, or None for a failure and for what cannot be read."""
    if isinstance(answer, NvmlFailure):
        return None
    try:
        return kind(answer)
    except (TypeError, ValueError, AttributeError, IndexError):
        return None

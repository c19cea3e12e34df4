"""GPUs of Apple, by `ioreg`, and of AMD, by the kernel's files (not tried on a real one)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfmon.model.event_base import Event
from tfmon.model.gpu_samples import GpuFault, GpuLoad, GpuProcesses, GpuSample
from tfmon.model.readings import Missing, Reading
from tfmon.probes.base import Gpu, GpuProbe, absent_gpu
from tfmon.probes.machine import memory_bytes
from tfmon.system.limits import read_text
from tfmon.system.programs import run_program

EVERY_S = 2.0
"""The driver updates about once a second."""
TIMEOUT_S = 3.0
IOREG = "ioreg"
NO_PROCESSES = "tfmon does not read the processes of Apple GPUs"
NO_GPU = Missing("ioreg lists no GPU")
_KEPT_FAULTS = 8
_DEVICE = "IOAccelerator"

Node = Mapping[str, Any]


class AppleProbe(GpuProbe):
    """Samples an Apple GPU; `ioreg` may take 3 s."""

    name = "apple"

    def __init__(self, gpu: Gpu, *, program: str = "", clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__((gpu,), clock_ns)
        self._gpu = gpu
        self._program = program or shutil.which(IOREG) or f"/usr/sbin/{IOREG}"
        self._due_ns = 0
        self._resets: Reading = NO_GPU
        self._faults: tuple[GpuFault, ...] = ()

    def sample(self) -> Iterable[Event]:
        """Take a sample every 2 s.

        Units: `busy_pct` is the driver's mean over about a second; memory in bytes, now.
        """
        begun_ns = self._clock_ns()
        if begun_ns < self._due_ns:
            return
        device = self._device()
        # See `HostProbe` for early ticks.
        self._due_ns = begun_ns + int(EVERY_S * 1e9) - 500_000_000
        if isinstance(device, Missing):
            yield replace(absent_gpu(self._gpu, begun_ns, device.reason), every_s=EVERY_S)
            return
        statistics: Node = device["PerformanceStatistics"]
        self._note_resets(_number(statistics, "recoveryCount"), begun_ns)
        busy = _number(statistics, "Device Utilization %", "GPU Activity(%)")
        without = absent_gpu(self._gpu, begun_ns, "macOS reports it to root only", faults=self._faults)
        # "Alloc system memory" is address space, and may exceed the memory.
        used = _number(statistics, "In use system memory")
        yield replace(
            without,
            name=_name(device) or self._gpu.name,
            every_s=EVERY_S,
            load=_load(without, busy if isinstance(busy, Missing) else min(100.0, max(0.0, busy)), "ioreg"),
            memory=replace(without.memory, used_bytes=used, total_bytes=float(memory_bytes()), unified=True),
            processes=GpuProcesses(no_list_reason=NO_PROCESSES, busy_by_pid=Missing(NO_PROCESSES)),
        )

    def _device(self) -> Node | Missing:
        environment = {key: value for key, value in os.environ.items() if key != "DYLD_INSERT_LIBRARIES"}
        try:
            command = [self._program, "-a", "-r", "-d", "1", "-w", "0", "-c", _DEVICE]
            answer = run_program(command, TIMEOUT_S, environ=environment)
        except subprocess.TimeoutExpired:
            return Missing("ioreg does not answer")
        except OSError as error:
            return Missing(f"ioreg could not be run: {error.strerror}")
        try:
            import plistlib

            nodes = plistlib.loads(answer.stdout.encode()) if answer.stdout.strip() else []
        except Exception as error:  # noqa: BLE001 - the XML reader has errors of its own
            return Missing(f"ioreg's answer cannot be read: {type(error).__name__}")
        devices = [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []
        return next((node for node in devices if isinstance(node.get("PerformanceStatistics"), dict)), NO_GPU)

    def _note_resets(self, now: Reading, at_ns: int) -> None:
        before, self._resets = self._resets, now
        if not isinstance(before, Missing) and not isinstance(now, Missing) and now > before:
            fault = GpuFault(at_ns, None, "the GPU hung and was reset by the system")
            self._faults = (*self._faults[-(_KEPT_FAULTS - 1) :], fault)


def _name(device: Node) -> str:
    model = device.get("model", "")
    return model.decode("utf-8", "replace").rstrip("\0") if isinstance(model, bytes) else str(model)


def _number(values: Node, *keys: str) -> Reading:
    for key in keys:
        value = values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return Missing("not reported by this macOS")


NOT_READ = "tfmon does not read it of AMD GPUs"
NO_FILE = Missing("the kernel does not report it for this GPU")
NOT_LISTED = "the kernel no longer lists this GPU"
_NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD = 0x1002


def list_amd_gpus(root: Path = Path("/")) -> list[tuple[Gpu, Path]]:
    """Return the usable AMD GPUs with their folders in /sys, in ROCm's order.

    Source: kfd/topology/nodes, which lists processors, too.
    """
    nodes = sorted((root / _NODES).glob("[0-9]*"), key=lambda node: int(node.name) if node.name.isdecimal() else 0)
    result: list[tuple[Gpu, Path]] = []
    for node in nodes:
        listed = re.findall(r"^(\w+) (\d+)$", read_text(node / "properties"), re.MULTILINE)
        facts = {name: int(value) for name, value in listed}
        if facts.get("simd_count", 0) and facts.get("vendor_id", _AMD) == _AMD:
            folder = root / f"sys/class/drm/renderD{facts.get('drm_render_minor', 0)}/device"
            name = read_text(folder / "product_name").strip() or "AMD GPU"
            unique = facts.get("unique_id", 0)
            uuid = f"AMD-{unique:016x}" if unique else f"AMD-{node.name}"
            result.append((Gpu(len(result), uuid, name, physical_gpu=len(result)), folder))
    return result


class AmdProbe(GpuProbe):
    """Samples AMD GPUs. Reading may wake a sleeping GPU."""

    name = "amd"

    def __init__(
        self, gpus: Sequence[Gpu], *, root: Path = Path("/"), clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        super().__init__(gpus, clock_ns)
        self._root = root

    def sample(self) -> Iterable[Event]:
        """Sample each GPU: the firmware's mean load, and the first temperature."""
        listed = {gpu.uuid: folder for gpu, folder in list_amd_gpus(self._root)}
        for gpu in self._gpus.values():
            folder = listed.get(gpu.uuid)
            yield absent_gpu(gpu, self._clock_ns(), NOT_LISTED) if folder is None else self._sample(gpu, folder)

    def _sample(self, gpu: Gpu, folder: Path) -> GpuSample:
        busy = _number_in(folder / "gpu_busy_percent")
        sensors = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder / "hwmon/none")
        average = sensors / "power1_average"
        power = _number_in(average if average.exists() else sensors / "power1_input", 1e-6)
        limit, source = _number_in(sensors / "power1_cap", 1e-6), "" if isinstance(power, Missing) else "driver"
        used, total = _number_in(folder / "mem_info_vram_used"), _number_in(folder / "mem_info_vram_total")
        without = absent_gpu(gpu, self._clock_ns(), NOT_READ)
        return replace(
            without,
            load=_load(without, busy, "sysfs"),
            memory=replace(without.memory, used_bytes=used, total_bytes=total),
            power=replace(without.power, power_w=power, power_limit_w=limit, source=source),
            temperature_c=_number_in(sensors / "temp1_input", 1e-3),
        )


def _load(without: GpuSample, busy: Reading, source: str) -> GpuLoad:
    return replace(without.load, busy_pct=busy, source="" if isinstance(busy, Missing) else source)


def _number_in(path: Path, scale: float = 1.0) -> Reading:
    """The file of a sleeping GPU may be unreadable."""
    try:
        return float(path.read_text(encoding="utf-8")) * scale
    except FileNotFoundError:
        return NO_FILE
    except (OSError, ValueError) as error:
        return Missing(f"the kernel does not report it now: {error}")

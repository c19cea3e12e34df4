"""Readings of AMD GPUs from the kernel's files, without root and without a library of AMD.

Tested with made trees only: it has never run on a machine with an AMD GPU.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.model.events import Event
from tfmon.model.readings import GpuSample, Missing, Reading
from tfmon.probes.amd_gpus import AmdGpu, list_amd_gpus
from tfmon.probes.base import Gpu, Readings, absent_gpu
from tfmon.probes.machine import in_pid_namespace, read_text
from tfmon.probes.names import ProcessNames

NOT_REPORTED = "AMD's kernel driver does not report it"
NO_FILE = Missing("the kernel does not report it for this GPU")
NOT_LISTED = "the kernel no longer lists this GPU"
NO_PROCESSES = "the kernel does not list the processes of AMD GPUs"
HIDDEN_NAMES = "hidden by the container (run it with --pid=host)"
_ONE_VALUE = Missing("the kernel reports only one value")
_PROCESSES = "sys/class/kfd/kfd/proc"
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe by its gigatransfers per second."""


class AmdProbe:
    """Samples AMD GPUs.

    Thread: the ticker's only. A file is read when its value is asked for, which may wake a sleeping GPU.
    Source: /sys/class/drm/…/device with hwmon, /sys/class/kfd/kfd/proc; see `sample`.
    """

    name = "amd"

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        root: Path = Path("/"),
        clock_ns: Callable[[], int] = time.monotonic_ns,
        names: ProcessNames | None = None,
    ) -> None:
        """Sample these GPUs; `root` is where /sys and /proc are."""
        self._gpus = tuple(gpus)
        self._root = root
        self._clock_ns = clock_ns
        self._names = names or ProcessNames(root)
        self._foreign = in_pid_namespace(root)

    def sample(self) -> Iterable[Event]:
        """Sample each GPU.

        Units: percent of time as the GPU's firmware averages it, bytes, W, °C, MHz.
        Source: `gpu_busy_percent`, `mem_info_vram_used`, `mem_info_vram_total`, `pp_dpm_sclk`, `pp_dpm_mclk`,
        `current_link_…`, `max_link_…`; of hwmon `power1_average` or `power1_input`, `power1_cap`, `temp…_input`,
        `freq1_input`, `freq2_input`; of the processes `vram_…`. `pcie_bw` is not read: it takes a second.
        """
        listed = {one.uuid: one for one in list_amd_gpus(self._root)}
        for gpu in self._gpus:
            one = listed.get(gpu.uuid)
            yield absent_gpu(gpu, self._clock_ns(), NOT_LISTED) if one is None else self._sample(gpu, one)

    def missing(self, reason: str) -> Iterable[Event]:
        """Return every reading of every GPU as missing for that reason."""
        at_ns = self._clock_ns()
        return [absent_gpu(gpu, at_ns, reason) for gpu in self._gpus]

    def close(self) -> None:
        """Release nothing: no driver is open."""

    def _sample(self, gpu: Gpu, one: AmdGpu) -> GpuSample:
        folder = one.folder
        busy = _number(folder / "gpu_busy_percent")
        known = not isinstance(busy, Missing)
        return replace(
            absent_gpu(gpu, self._clock_ns(), NOT_REPORTED),
            busy_pct=busy,
            busy_max_pct=_ONE_VALUE if known else busy,
            busy_source="sysfs" if known else "",
            used_bytes=_number(folder / "mem_info_vram_used"),
            total_bytes=_number(folder / "mem_info_vram_total"),
            sm_clock_max_mhz=_highest_mhz(folder / "pp_dpm_sclk"),
            memory_clock_max_mhz=_highest_mhz(folder / "pp_dpm_mclk"),
            **_sensors(folder),
            **_link(folder),
            **self._processes(one),
        )

    def _processes(self, one: AmdGpu) -> Readings:
        """Return the memory of each process that computes; the share of time by process is not reported."""
        folder = self._root / _PROCESSES
        try:
            pids = [int(one.name) for one in folder.iterdir() if one.name.isdecimal()]
        except OSError:
            return {"no_processes_reason": NO_PROCESSES}
        used: dict[int, int | None] = {}
        for pid in pids:
            amount = _number(folder / str(pid) / f"vram_{one.gpu_id}")
            if not isinstance(amount, Missing) and amount > 0:
                used[pid] = int(amount)
        return {
            "used_by_pid": used,
            "no_processes_reason": "",
            "foreign_pids": self._foreign,
            "processes": {} if self._foreign else self._names.of(used),
            "no_names_reason": HIDDEN_NAMES if self._foreign else "",
        }


def _number(path: Path, scale: float = 1.0) -> Reading:
    """Return the number in a file times `scale`; a file that is there may still fail, as with a sleeping GPU."""
    try:
        return float(path.read_text(encoding="utf-8")) * scale
    except FileNotFoundError:
        return NO_FILE
    except OSError as error:
        return Missing(f"the kernel does not report it now: {error.strerror}")
    except ValueError:
        return Missing("the kernel's answer is not a number")


def _first(*readings: Reading) -> Reading:
    """Return the first number, or why the first of them is missing."""
    return next((one for one in readings if not isinstance(one, Missing)), readings[0])


def _sensors(folder: Path) -> Readings:
    """Return power in W, temperature in °C and clocks in MHz; of several temperatures that of the edge."""
    sensors = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder / "hwmon/none")
    power = _first(_number(sensors / "power1_average", 1e-6), _number(sensors / "power1_input", 1e-6))
    inputs = sorted(
        sensors.glob("temp*_input"),
        key=lambda path: (read_text(_label(path)).strip() != "edge", path.name),
    )
    return {
        "power_w": power,
        "power_source": "" if isinstance(power, Missing) else "driver",
        "power_limit_w": _number(sensors / "power1_cap", 1e-6),
        "temperature_c": _first(*(_number(path, 1e-3) for path in inputs), NO_FILE),
        "sm_clock_mhz": _number(sensors / "freq1_input", 1e-6),
        "memory_clock_mhz": _number(sensors / "freq2_input", 1e-6),
    }


def _label(path: Path) -> Path:
    return path.with_name(path.name.replace("_input", "_label"))


def _highest_mhz(path: Path) -> Reading:
    """Return the highest of the levels in a file with lines such as "2: 1502Mhz *"."""
    levels = re.findall(r"^\d+: (\d+)\s*Mhz", read_text(path), re.MULTILINE | re.IGNORECASE)
    return max(map(float, levels), default=0.0) or NO_FILE


def _link(folder: Path) -> Readings:
    """Return generation and lanes of the link, now and at most."""
    link: Readings = {}
    for field, which in (("", "current"), ("_max", "max")):
        speed = re.match(r"([\d.]+) GT/s", read_text(folder / f"{which}_link_speed"))
        generation = _GENERATIONS.get(float(speed[1])) if speed is not None else None
        link[f"pcie_generation{field}"] = NO_FILE if generation is None else float(generation)
        link[f"pcie_width{field}"] = _number(folder / f"{which}_link_width")
    now, most = link["pcie_width"], link["pcie_width_max"]
    if not isinstance(now, Missing) and not isinstance(most, Missing) and now < most:
        link["pcie_warning"] = f"the PCIe link has {now:.0f} of {most:.0f} lanes"
    return link

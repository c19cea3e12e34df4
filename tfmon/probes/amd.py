"""AMD GPUs and their readings from the kernel's files; not tried on a real one, so it reads little."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.model.events import Event
from tfmon.model.limits import read_text
from tfmon.model.readings import GpuSample, Missing, Reading
from tfmon.probes.base import Gpu, absent_gpu
from tfmon.probes.obstacles import is_number

NOT_READ = "tfmon does not read it of AMD GPUs"
NO_FILE = Missing("the kernel does not report it for this GPU")
NOT_LISTED = "the kernel no longer lists this GPU"
_NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD = 0x1002


def list_amd_gpus(root: Path = Path("/")) -> list[tuple[Gpu, Path]]:
    """Return all AMD GPUs that this user may compute on, each with its folder in /sys, as ROCm counts.

    Source: /sys/class/kfd/kfd/topology/nodes, which lists processors, too; /sys/class/drm.
    """
    nodes = sorted((root / _NODES).glob("[0-9]*"), key=lambda node: int(node.name) if is_number(node.name) else 0)
    found: list[tuple[Gpu, Path]] = []
    for node in nodes:
        listed = re.findall(r"^(\w+) (\d+)$", read_text(node / "properties"), re.MULTILINE)
        facts = {name: int(value) for name, value in listed}
        if facts.get("simd_count", 0) and facts.get("vendor_id", _AMD) == _AMD:
            folder = root / f"sys/class/drm/renderD{facts.get('drm_render_minor', 0)}/device"
            name = read_text(folder / "product_name").strip() or "AMD GPU"
            unique = facts.get("unique_id", 0)
            uuid = f"AMD-{unique:016x}" if unique else f"AMD-{node.name}"
            found.append((Gpu(len(found), uuid, name, physical_gpu=len(found)), folder))
    return found


class AmdProbe:
    """Samples AMD GPUs.

    Thread: the ticker's only. A file is read when its value is asked for, which may wake a sleeping GPU.
    """

    name = "amd"

    def __init__(
        self, gpus: Sequence[Gpu], *, root: Path = Path("/"), clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Sample these GPUs; `root` is where /sys is."""
        self._gpus = tuple(gpus)
        self._root = root
        self._clock_ns = clock_ns

    def sample(self) -> Iterable[Event]:
        """Sample each GPU.

        Units: percent of time as the GPU's firmware averages it, bytes, W, °C.
        Source: `gpu_busy_percent`, `mem_info_vram_used`, `mem_info_vram_total`; of hwmon `power1_average` or
        `power1_input`, `power1_cap`, and `temp1_input`, the first of several temperatures.
        """
        listed = {one.uuid: folder for one, folder in list_amd_gpus(self._root)}
        for gpu in self._gpus:
            folder = listed.get(gpu.uuid)
            yield absent_gpu(gpu, self._clock_ns(), NOT_LISTED) if folder is None else self._sample(gpu, folder)

    def missing(self, reason: str) -> Iterable[Event]:
        """Return every reading of every GPU as missing for that reason."""
        at_ns = self._clock_ns()
        return [absent_gpu(gpu, at_ns, reason) for gpu in self._gpus]

    def close(self) -> None:
        """Release nothing: no driver is open."""

    def _sample(self, gpu: Gpu, folder: Path) -> GpuSample:
        busy = _number(folder / "gpu_busy_percent")
        sensors = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder / "hwmon/none")
        average = sensors / "power1_average"
        power = _number(average if average.exists() else sensors / "power1_input", 1e-6)
        return replace(
            absent_gpu(gpu, self._clock_ns(), NOT_READ),
            busy_pct=busy,
            busy_source="" if isinstance(busy, Missing) else "sysfs",
            used_bytes=_number(folder / "mem_info_vram_used"),
            total_bytes=_number(folder / "mem_info_vram_total"),
            power_w=power,
            power_source="" if isinstance(power, Missing) else "driver",
            power_limit_w=_number(sensors / "power1_cap", 1e-6),
            temperature_c=_number(sensors / "temp1_input", 1e-3),
        )


def _number(path: Path, scale: float = 1.0) -> Reading:
    """Return the number in a file times `scale`; a file that is there may still fail, as with a sleeping GPU."""
    try:
        return float(path.read_text(encoding="utf-8")) * scale
    except FileNotFoundError:
        return NO_FILE
    except (OSError, ValueError) as error:
        return Missing(f"the kernel does not report it now: {error}")

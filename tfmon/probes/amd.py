"""AMD GPUs and their readings from the kernel's files, without root and without a library of AMD.

Tested with made trees only: it has never run on a machine with an AMD GPU.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.model.events import Event
from tfmon.model.readings import GpuSample, Missing, Reading
from tfmon.probes.base import Gpu, Readings, absent_gpu
from tfmon.probes.machine import in_pid_namespace, read_text
from tfmon.probes.names import ProcessNames
from tfmon.probes.obstacles import is_number

NOT_REPORTED = "AMD's kernel driver does not report it"
NO_FILE = Missing("the kernel does not report it for this GPU")
NOT_LISTED = "the kernel no longer lists this GPU"
NO_PROCESSES = "the kernel does not list the processes of AMD GPUs"
HIDDEN_NAMES = "hidden by the container (run it with --pid=host)"
_ONE_VALUE = Missing("the kernel reports only one value")
_NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD = 0x1002
_PROCESSES = "sys/class/kfd/kfd/proc"


def list_amd_gpus(root: Path = Path("/")) -> list[tuple[Gpu, Path]]:
    """Return all AMD GPUs that this user may compute on, each with its node of the compute driver, as ROCm counts.

    Source: /sys/class/kfd/kfd/topology/nodes, which lists processors, too; /sys/class/drm.
    """
    nodes = sorted((root / _NODES).glob("[0-9]*"), key=lambda node: int(node.name) if is_number(node.name) else 0)
    found: list[tuple[Gpu, Path]] = []
    for node in nodes:
        facts = _properties(node / "properties")
        if facts.get("simd_count", 0) and facts.get("vendor_id", _AMD) == _AMD:
            found.append((_describe(root, node, facts, len(found)), node))
    return found


def visible_amd_gpus(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs that the variables leave, in a program's order, and the variable that hides all, or "".

    ROCR_VISIBLE_DEVICES has numbers or UUIDs, and HIP_VISIBLE_DEVICES, or else CUDA_VISIBLE_DEVICES, numbers
    among what that leaves; each is read up to the first word that names no GPU.
    Source: AMD's "GPU isolation techniques" and "HIP environment variables".
    """
    rocr = environ.get("ROCR_VISIBLE_DEVICES")
    left = list(gpus)
    if rocr is not None:
        left = _named(rocr, gpus)
        if gpus and not left:
            return (), f'ROCR_VISIBLE_DEVICES="{rocr}"'
    left = [replace(one, physical_gpu=number) for number, one in enumerate(left)]
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        value = environ.get(name)
        if value:  # an empty one counts as not set
            shown = _named(value, left, uuids=False)
            return _counted(shown), "" if shown or not left else f'{name}="{value}"'
    return _counted(left), ""


def _counted(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    return tuple(replace(one, index=index) for index, one in enumerate(gpus))


def _named(value: str, gpus: Sequence[Gpu], *, uuids: bool = True) -> list[Gpu]:
    found: list[Gpu] = []
    for word in (word.strip() for word in value.split(",")):
        fitting = [gpus[int(word)]] if is_number(word) and int(word) < len(gpus) else []
        if uuids and word.upper().startswith("GPU-"):
            fitting = [one for one in gpus if one.uuid.lower() == f"amd-{word[4:].lower()}"]
        if not fitting:
            break
        found += [one for one in fitting if one not in found]
    return found


def _describe(root: Path, node: Path, facts: Mapping[str, int], number: int) -> Gpu:
    unique, place = facts.get("unique_id", 0), facts.get("location_id", 0)
    slot = f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
    model = read_text(_folder(root, node) / "product_name").strip() or "AMD GPU"
    kind = _architecture(facts.get("gfx_target_version", 0))
    uuid = f"AMD-{unique:016x}" if unique else f"AMD-{slot}"
    return Gpu(number, uuid, f"{model} ({kind})" if kind else model, physical_gpu=number)


def _folder(root: Path, node: Path) -> Path:
    """Return the folder in /sys of the GPU that a node of the compute driver is."""
    return root / f"sys/class/drm/renderD{_properties(node / 'properties').get('drm_render_minor', 0)}/device"


def _architecture(version: int) -> str:
    """Return a target of the compiler such as "gfx90a" of a number such as 90010, or ""."""
    major, minor, step = version // 10_000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if version else ""


def _properties(path: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number on each line; none of one that may not be read."""
    found = re.findall(r"^(\w+) (\d+)$", read_text(path), re.MULTILINE)
    return {name: int(value) for name, value in found}


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
        Source: `gpu_busy_percent`, `mem_info_vram_used`, `mem_info_vram_total`; of hwmon `power1_average` or
        `power1_input`, `power1_cap`, `temp1_input`, `freq1_input`, `freq2_input`; of the processes `vram_…`.
        """
        listed = {one.uuid: node for one, node in list_amd_gpus(self._root)}
        for gpu in self._gpus:
            node = listed.get(gpu.uuid)
            yield absent_gpu(gpu, self._clock_ns(), NOT_LISTED) if node is None else self._sample(gpu, node)

    def missing(self, reason: str) -> Iterable[Event]:
        """Return every reading of every GPU as missing for that reason."""
        at_ns = self._clock_ns()
        return [absent_gpu(gpu, at_ns, reason) for gpu in self._gpus]

    def close(self) -> None:
        """Release nothing: no driver is open."""

    def _sample(self, gpu: Gpu, node: Path) -> GpuSample:
        folder = _folder(self._root, node)
        busy = _number(folder / "gpu_busy_percent")
        known = not isinstance(busy, Missing)
        return replace(
            absent_gpu(gpu, self._clock_ns(), NOT_REPORTED),
            busy_pct=busy,
            busy_max_pct=_ONE_VALUE if known else busy,
            busy_source="sysfs" if known else "",
            used_bytes=_number(folder / "mem_info_vram_used"),
            total_bytes=_number(folder / "mem_info_vram_total"),
            **_sensors(folder),
            **self._processes(read_text(node / "gpu_id").strip()),
        )

    def _processes(self, gpu_id: str) -> Readings:
        """Return the memory of each process that computes; the share of time by process is not reported."""
        folder = self._root / _PROCESSES
        try:
            pids = [int(one.name) for one in folder.iterdir() if one.name.isdecimal()]
        except OSError:
            return {"no_processes_reason": NO_PROCESSES}
        used: dict[int, int | None] = {}
        for pid in pids:
            amount = _number(folder / str(pid) / f"vram_{gpu_id}")
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


def _sensors(folder: Path) -> Readings:
    """Return power in W, temperature in °C and clocks in MHz; of several temperatures the first."""
    sensors = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder / "hwmon/none")
    average = sensors / "power1_average"
    power = _number(average if average.exists() else sensors / "power1_input", 1e-6)
    return {
        "power_w": power,
        "power_source": "" if isinstance(power, Missing) else "driver",
        "power_limit_w": _number(sensors / "power1_cap", 1e-6),
        "temperature_c": _number(sensors / "temp1_input", 1e-3),
        "sm_clock_mhz": _number(sensors / "freq1_input", 1e-6),
        "memory_clock_mhz": _number(sensors / "freq2_input", 1e-6),
    }

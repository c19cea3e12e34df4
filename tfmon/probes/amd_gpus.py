"""The AMD GPUs that the kernel's compute driver (KFD) lists, as ROCm counts them, and what hides them.

Read from made trees in the tests only: it has never run on a machine with an AMD GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfmon.probes.machine import read_text
from tfmon.probes.visible import is_number

_NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD = 0x1002


@dataclass(frozen=True, slots=True)
class AmdGpu:
    """One AMD GPU."""

    number: int
    """What HIP_VISIBLE_DEVICES calls it: counted over those that ROCR_VISIBLE_DEVICES leaves."""
    uuid: str
    """`AMD-` and the number that its maker gave it, or else its place on the bus."""
    name: str
    folder: Path
    """Its folder in /sys."""
    gpu_id: int
    """The kernel's own number of it, which is in the names of files about processes."""


def list_amd_gpus(root: Path = Path("/")) -> list[AmdGpu]:
    """Return all AMD GPUs that this user may compute on, in the order of ROCm.

    Source: /sys/class/kfd/kfd/topology/nodes, which lists processors, too; /sys/class/drm.
    """
    nodes = sorted((root / _NODES).glob("[0-9]*"), key=lambda node: int(node.name) if is_number(node.name) else 0)
    found: list[AmdGpu] = []
    for node in nodes:
        facts = _properties(node / "properties")
        if facts.get("simd_count", 0) and facts.get("vendor_id", _AMD) == _AMD:
            found.append(_describe(root, node, facts, len(found)))
    return found


def visible_amd_gpus(gpus: Sequence[AmdGpu], environ: Mapping[str, str]) -> tuple[list[AmdGpu], str]:
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
            return [], f'ROCR_VISIBLE_DEVICES="{rocr}"'
    left = [AmdGpu(number, one.uuid, one.name, one.folder, one.gpu_id) for number, one in enumerate(left)]
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        value = environ.get(name)
        if value:  # an empty one counts as not set
            shown = _named(value, left, uuids=False)
            return shown, "" if shown or not left else f'{name}="{value}"'
    return left, ""


def _named(value: str, gpus: Sequence[AmdGpu], *, uuids: bool = True) -> list[AmdGpu]:
    found: list[AmdGpu] = []
    for word in (word.strip() for word in value.split(",")):
        fitting = [gpus[int(word)]] if is_number(word) and int(word) < len(gpus) else []
        if uuids and word.upper().startswith("GPU-"):
            fitting = [one for one in gpus if one.uuid.lower() == f"amd-{word[4:].lower()}"]
        if not fitting:
            break
        found += [one for one in fitting if one not in found]
    return found


def _describe(root: Path, node: Path, facts: Mapping[str, int], number: int) -> AmdGpu:
    folder = root / f"sys/class/drm/renderD{facts.get('drm_render_minor', 0)}/device"
    unique, place = facts.get("unique_id", 0), facts.get("location_id", 0)
    slot = f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
    model = read_text(folder / "product_name").strip() or "AMD GPU"
    kind = _architecture(facts.get("gfx_target_version", 0))
    gpu_id = read_text(node / "gpu_id").strip()
    return AmdGpu(
        number,
        f"AMD-{unique:016x}" if unique else f"AMD-{slot}",
        f"{model} ({kind})" if kind else model,
        folder,
        int(gpu_id) if is_number(gpu_id) else 0,
    )


def _architecture(version: int) -> str:
    """Return a target of the compiler such as "gfx90a" of a number such as 90010, or ""."""
    major, minor, step = version // 10_000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if version else ""


def _properties(path: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number on each line; none of one that may not be read."""
    found = re.findall(r"^(\w+) (\d+)$", read_text(path), re.MULTILINE)
    return {name: int(value) for name, value in found}

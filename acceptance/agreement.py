"""Compares tfmon's readings of a GPU with `nvidia-smi`, each within its tolerance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter

from tfmon.model.gpu_samples import GpuSample
from tfmon.model.readings import NOT_READ, Missing
from tfmon.probes.nvidia.explain import explain

from .smi import Told

AGREES, DIFFERS, ONLY_TFMON, ONLY_SMI = "agrees", "differs", "only tfmon has it", "only nvidia-smi has it"
NEITHER, ALONE = "neither has it", "nvidia-smi has no such reading"
BAD = (DIFFERS, ONLY_SMI)
MIB = 2**20

TOLERANCES: dict[str, tuple[float, float]] = {
    "load.busy_pct": (15.0, 0.0),
    "memory.used_bytes": (64 * MIB, 0.0),
    "memory.total_bytes": (MIB, 0.0),
    "memory.reserved_bytes": (MIB, 0.0),
    "power.power_w": (8.0, 0.1),
    "power.power_limit_w": (0.1, 0.0),
    "temperature_c": (2.0, 0.0),
    "clocks.sm_clock_mhz": (60.0, 0.05),
}
"""Tolerance on both sides of the range between the previous and the next sample: a fixed part, and a share
of the value. Other readings must be equal to one of the two samples."""
NO_COUNTERPART = (
    "load.busy_max_pct",
    "power.energy_j",
    "traffic.pcie_sent_bytes_per_s",
    "traffic.pcie_received_bytes_per_s",
)
READINGS = (
    *TOLERANCES, "clocks.sm_clock_max_mhz", "link.pcie_generation", "link.pcie_generation_max",
    "link.pcie_width", "link.pcie_width_max", "ecc_errors",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One reading."""

    reading: str
    ours: str
    theirs: str
    tolerance: str
    verdict: str


def compare(before: GpuSample, told: Told, after: GpuSample) -> list[Row]:
    """Return a row for each reading of a GPU, of which `nvidia-smi` was asked between two samples."""
    rows = [_compared(reading, before, told, after) for reading in READINGS]
    rows.append(_reasons(before, told, after))
    rows += [Row(reading, _written(attrgetter(reading)(after)), "", "", ALONE) for reading in NO_COUNTERPART]
    rows.append(Row("name", after.name, told.name, "equal", AGREES if after.name == told.name else DIFFERS))
    return rows


def agree(
    sample: Callable[[], GpuSample],
    ask: Callable[[], Told],
    *,
    tries: int = 6,
    pause: Callable[[], object] = lambda: time.sleep(1.0),
) -> list[Row]:
    """Return rows of a GPU in which each reading has agreed once, or its last value.

    Load and clocks of a GPU change between two queries, so a reading that differs is queried again.
    """
    best: dict[str, Row] = {}
    for _ in range(tries):
        before = sample()
        told = ask()
        pause()
        for row in compare(before, told, sample()):
            if best.get(row.reading, row).verdict in BAD or row.reading not in best:
                best[row.reading] = row
        if not bad(best.values()):
            break
    return list(best.values())


def bad(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that say that something is wrong."""
    return [row for row in rows if row.verdict in BAD]


def _compared(reading: str, before: GpuSample, told: Told, after: GpuSample) -> Row:
    values = [attrgetter(reading)(one) for one in (before, after)]
    known = [value for value in values if not isinstance(value, Missing)]
    theirs = told.numbers.get(reading)
    fixed, share = TOLERANCES.get(reading, (0.0, 0.0))
    tolerance = " and ".join(filter(None, (f"±{fixed:g}" if fixed else "", f"±{share:.0%}" if share else "")))
    verdict = NEITHER
    if not known:
        verdict = NEITHER if theirs is None else ONLY_SMI
    elif theirs is None:
        verdict = ONLY_TFMON
    else:
        room = fixed + share * theirs
        # Versions of nvidia-smi differ in whether memory that the driver reserves counts as used.
        reserved = told.numbers.get("memory.reserved_bytes", 0.0) if reading == "memory.used_bytes" else 0.0
        inside = any(min(known) - room <= value <= max(known) + room for value in (theirs, theirs - reserved))
        verdict = AGREES if inside else DIFFERS
    scale, unit = (MIB, " MiB") if reading.endswith("_bytes") else (1, "")
    if fixed:
        tolerance = tolerance.replace(f"±{fixed:g}", f"±{fixed / scale:g}{unit}", 1)
    told_text = "" if theirs is None else f"{theirs / scale:.6g}{unit}"
    return Row(reading, _written(values[-1], scale, unit), told_text, tolerance or "equal", verdict)


def _reasons(before: GpuSample, told: Told, after: GpuSample) -> Row:
    """Compare the limits of the clocks by name; tfmon reports a hardware slowdown only after two samples."""
    bits = told.numbers.get("clocks.reasons")
    seen = [one.clocks.reasons for one in (before, after) if not isinstance(one.clocks.reasons, Missing)]
    words = [", ".join(sorted(reason.text for reason in reasons)) for reasons in seen]
    theirs = "" if bits is None else ", ".join(sorted(one.text for one in explain(int(bits) & ~0x8, below=False)))
    if not seen or bits is None:
        verdict = NEITHER if not seen and bits is None else ONLY_TFMON if seen else ONLY_SMI
    else:
        verdict = AGREES if theirs in words else DIFFERS
    return Row("clocks.reasons", words[-1] if words else "", theirs, "equal", verdict)


def _written(value: float | Missing, scale: float = 1, unit: str = "") -> str:
    return f"n/a ({value.reason})" if isinstance(value, Missing) else f"{value / scale:.6g}{unit}"


_UNREAD = GpuSample(at_ns=0, key="", index=0, name="")
assert all(attrgetter(reading)(_UNREAD) is NOT_READ for reading in (*READINGS, *NO_COUNTERPART))

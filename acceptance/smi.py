"""What `nvidia-smi` says of the GPUs, by their UUID."""

from __future__ import annotations

import csv
import subprocess
from dataclasses import dataclass, field

COLUMNS = {
    "name": ("name",),
    "load.busy_pct": ("utilization.gpu",),
    "memory.used_bytes": ("memory.used",),
    "memory.total_bytes": ("memory.total",),
    "memory.reserved_bytes": ("memory.reserved",),
    "power.power_w": ("power.draw",),
    "power.power_limit_w": ("enforced.power.limit",),
    "temperature_c": ("temperature.gpu",),
    "clocks.sm_clock_mhz": ("clocks.current.sm",),
    "clocks.sm_clock_max_mhz": ("clocks.max.sm",),
    "link.pcie_generation": ("pcie.link.gen.current",),
    "link.pcie_generation_max": ("pcie.link.gen.max",),
    "link.pcie_width": ("pcie.link.width.current",),
    "link.pcie_width_max": ("pcie.link.width.max",),
    "ecc_errors": ("ecc.errors.uncorrected.volatile.total",),
    "clocks.reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
}
"""Names of readings in `GpuSample`, and what `nvidia-smi` calls them: newer versions first."""
_MIB = ("memory.used_bytes", "memory.total_bytes", "memory.reserved_bytes")
_TIMEOUT_S = 30


class SmiError(Exception):
    """`nvidia-smi` failed; the text is its output."""


@dataclass
class Told:
    """Readings of one GPU; a reading that nvidia-smi does not have is missing."""

    name: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    """In the units of `GpuSample`; what limits the clocks as bits."""
    used_by_pid: dict[int, float] = field(default_factory=dict)
    """Memory of each process in bytes."""


class Smi:
    """Asks `nvidia-smi`, for the columns that this version of it knows."""

    def __init__(self) -> None:
        self._columns: dict[str, str] | None = None

    def ask(self) -> dict[str, Told]:
        """Return the readings of every GPU.

        Errors: SmiError where it does not run.
        """
        if self._columns is None:
            _rows("gpu", ["uuid"])  # where this fails it is not a column that is unknown
            self._columns = self._known()
        found: dict[str, Told] = {}
        for uuid, *texts in _rows("gpu", ["uuid", *self._columns.values()]):
            told = found.setdefault(uuid, Told())
            for reading, text in zip(self._columns, texts, strict=True):
                if reading == "name":
                    told.name = text
                elif (value := _number(text)) is not None:
                    told.numbers[reading] = value * 2**20 if reading in _MIB else value
        for uuid, pid, memory in _rows("compute-apps", ["gpu_uuid", "pid", "used_gpu_memory"]):
            value = _number(memory)
            if uuid in found and pid.isdecimal() and value is not None:
                found[uuid].used_by_pid[int(pid)] = value * 2**20
        return found

    @staticmethod
    def _known() -> dict[str, str]:
        """Return the known columns; nvidia-smi rejects a query with an unknown column."""
        every = {reading: names[0] for reading, names in COLUMNS.items()}
        try:
            _rows("gpu", list(every.values()))
            return every
        except SmiError:
            known: dict[str, str] = {}
            for reading, names in COLUMNS.items():
                for name in names:
                    try:
                        _rows("gpu", [name])
                    except SmiError:
                        continue
                    known[reading] = name
                    break
            return known


def _rows(what: str, columns: list[str]) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-{what}={','.join(columns)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SmiError(f"nvidia-smi could not be run: {error}") from error
    if done.returncode:
        raise SmiError(" ".join((done.stdout + done.stderr).split()) or f"exit code {done.returncode}")
    rows = csv.reader(done.stdout.splitlines(), skipinitialspace=True)
    return [row for row in rows if len(row) == len(columns)]


def _number(text: str) -> float | None:
    """Return a number, which may be hexadecimal; `None` for [N/A] and similar text."""
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return None

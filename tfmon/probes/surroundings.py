"""Where tfmon runs, as far as it changes what a GPU driver tells: containers, WSL2, Jetson physical_gpus."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of the pid namespace that a Linux kernel starts with. Source: linux/proc_ns.h, PROC_PID_INIT_INO."""
_LOADS = ("sys/devices/platform/gpu.0/load", "sys/devices/gpu.0/load")
REHEARSAL_S = 10.0


def in_pid_namespace(root: Path = Path("/")) -> bool:
    """Return whether this process is numbered otherwise than the host numbers it, as in a container."""
    try:
        return (root / "proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE
    except OSError:
        return False


def in_wsl(root: Path = Path("/")) -> bool:
    """Return whether this is a Linux inside of Windows (WSL2)."""
    try:
        version = (root / "proc/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        version = ""
    return "microsoft" in version.lower() or (root / "dev/dxg").exists()


def survives_sampling(program: tuple[str, ...] = (), timeout_s: float = REHEARSAL_S) -> bool | None:
    """Try in a process of its own whether the driver's library can be read at all; None if it does not answer.

    On WSL2 some versions of the library crash, and would take tfmon with them.
    """
    command = program or (sys.executable, "-c", "from tfmon.probes.nvidia import rehearse; rehearse()")
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError:
        return True  # it could not be tried
    return answer.returncode >= 0


class Jetson:
    """What the system of a Jetson physical_gpu tells of its GPU, whose driver tells nothing.

    Source: `load` of the GPU in /sys (per mille), the thermal zone "gpu-thermal" (thousandths of a °C).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._load = next((root / path for path in _LOADS if (root / path).exists()), None)
        self._zone = _find_zone(root)

    def load_pct(self) -> float | None:
        """Return the load now, or None where it is not told."""
        value = _read(self._load)
        return None if value is None else min(100.0, value / 10)

    def celsius(self) -> float | None:
        """Return the temperature now, or None where it is not told."""
        value = _read(self._zone)
        return None if value is None else value / 1000


def _find_zone(root: Path) -> Path | None:
    for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        try:
            if (zone / "type").read_text(encoding="utf-8").strip().lower() in ("gpu-thermal", "gpu-therm"):
                return zone / "temp"
        except OSError:
            continue
    return None


def _read(path: Path | None) -> float | None:
    if path is None:
        return None
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None

"""Power of the CPU packages, from the counters that Intel and AMD processors keep."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from tfmon.model.readings import Missing, Reading
from tfmon.probes.rates import Rate

NOT_TOLD = Missing("this machine does not tell the power of its CPU")
FORBIDDEN = Missing("only root may read the CPU's energy counter")


@dataclass(slots=True)
class _Zone:
    counter: str
    wraps_at_uj: float
    rate: Rate = field(default_factory=Rate)


class PackagePower:
    """The power of all CPU packages together.

    Source: `energy_uj` and `max_energy_range_uj` of the zones of /sys/class/powercap named "package-…".
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._zones = _find_zones(root / "sys/class/powercap")

    def watts(self, at_ns: int) -> Reading:
        """Return the mean power since the sample before; one package that is not told leaves it unknown."""
        if not self._zones:
            return NOT_TOLD
        total: Reading = 0.0
        for zone in self._zones:
            power = _read(zone, at_ns)
            if isinstance(power, Missing):
                total = power
            elif not isinstance(total, Missing):
                total += power
        return total


def _read(zone: _Zone, at_ns: int) -> Reading:
    try:
        with open(zone.counter, encoding="ascii") as file:  # noqa: PTH123 - a third of the time
            microjoules = int(file.read())
    except PermissionError:
        return FORBIDDEN
    except (OSError, ValueError):
        return NOT_TOLD
    power = zone.rate.per_s(microjoules, at_ns, zone.wraps_at_uj)
    return power if isinstance(power, Missing) else power / 1e6


def _find_zones(folder: Path) -> list[_Zone]:
    """Return the packages; "intel-rapl" is the name of the interface on AMD, too."""
    zones: list[_Zone] = []
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []
    for name in names:
        # Zones with a second number are parts of a package, already counted in it.
        if not re.fullmatch(r"intel-rapl:\d+", name):
            continue
        try:
            kind = (folder / name / "name").read_text(encoding="ascii").strip()
            wraps_at = float((folder / name / "max_energy_range_uj").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if kind.startswith("package"):
            zones.append(_Zone(str(folder / name / "energy_uj"), wraps_at))
    return zones

"""What races of a scenario on this machine told of how much equal processes differ, for the next one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfmon.analysis.statistics import BETWEEN_PROCESSES_SD, MOST_DEGREES, LogRatio
from tfmon.model.race import BetweenProcesses, Machine

FOLDER_VARIABLE = "TFMON_STATE"
"""Environment variable that names another folder for what outlives a run of tfmon."""
NOISY = 2 * BETWEEN_PROCESSES_SD
"""Where the standard error of the speed of one process is larger, a race tells nothing of others."""
MOST = 300
"""Most scenarios that are remembered; those that were raced longest ago are dropped first."""


def state_folder() -> Path:
    """Return the folder for what outlives a run of tfmon; it may not exist."""
    from platformdirs import user_state_path

    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else user_state_path("tfmon", appauthor=False)


def path() -> Path:
    """Return the file; it may not exist."""
    return state_folder() / "between-processes.json"


def recall(machines: Sequence[Machine], scenario: str, devices: Sequence[str]) -> BetweenProcesses | None:
    """Return the between-process variance of a scenario on these machines; None where it is not known.

    Args:
        machines: That of each lane.
        scenario: The scenario's name.
        devices: Kinds of the lanes' devices, such as `cpu` and `gpu`.
    """
    return _read_entry(_read().get(_key(machines, scenario, devices)))


def remember_race(machines: Sequence[Machine], scenario: str, devices: Sequence[str], found: LogRatio) -> None:
    """Remember what the comparison of a race's lanes told, if it had fresh processes and was not too noisy."""
    between = found.between
    if between is None or between.learnt is None or found.center.error * math.sqrt(between.processes) > NOISY:
        return
    remember(machines, scenario, devices, between.learnt)


def remember(machines: Sequence[Machine], scenario: str, devices: Sequence[str], learnt: BetweenProcesses) -> None:
    """Add what a race told; earlier races count less, so that all together count for `MOST_DEGREES` at most.

    Nothing is remembered where the file cannot be written.
    """
    table, key = _read(), _key(machines, scenario, devices)
    before = _read_entry(table.pop(key, None)) or BetweenProcesses(0.0, 0.0)
    squares, degrees = before.squares + learnt.squares, before.degrees + learnt.degrees
    part = min(1.0, MOST_DEGREES / degrees) if degrees > 0 else 0.0
    table[key] = {"squares": squares * part, "degrees": degrees * part, "races": before.races + 1}
    _write({name: table[name] for name in list(table)[-MOST:]})


def _key(machines: Sequence[Machine], scenario: str, devices: Sequence[str]) -> str:
    places = dict.fromkeys(
        ", ".join((one.hostname, one.cpu_name, f"{one.usable_cores:g} cores", *one.gpus)) for one in machines
    )
    return f"{scenario} ({' and '.join(devices)}) on {' and on '.join(places)}"


def _read_entry(value: object) -> BetweenProcesses | None:
    """Return an entry of the file; None for one that is not what `remember` writes."""
    if not isinstance(value, Mapping):
        return None
    numbers = [value.get(name) for name in ("squares", "degrees", "races")]
    if not all(isinstance(one, int | float) and math.isfinite(one) for one in numbers):
        return None
    squares, degrees, races = (float(one) for one in numbers if isinstance(one, int | float))
    return BetweenProcesses(squares, degrees, int(races)) if degrees > 0 else None


# ---------------- the file


def _read() -> dict[str, Any]:
    """Return the table; empty for a file that is missing or broken: no race depends on it."""
    try:
        table = json.loads(path().read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _write(table: Mapping[str, Any]) -> None:
    """Replace the file as a whole, so that no reader sees half of it; where that is not possible, it stays."""
    with contextlib.suppress(OSError):
        path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path().parent, prefix=path().name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(table, file, indent=1)
            Path(name).replace(path())
        except OSError:
            Path(name).unlink(missing_ok=True)

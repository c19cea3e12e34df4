"""Plays `nvidia-smi`: it answers queries from the script of the scripted driver, as the real one would.

FAKE_SMI_OFF: readings that it tells wrongly, such as "temperature.gpu=15".
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

MIB = 2**20


def lines(word: str, index: int | None = None) -> list[list[str]]:
    text = Path(os.environ["FAKE_NVML_SCRIPT"]).read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines()]
    rows = [row[1:] for row in rows if row and row[0] == word]
    return rows if index is None else [row[1:] for row in rows if row and row[0] == str(index)]


def living(index: int) -> list[tuple[int, int]]:
    found = []
    for pid, used in lines("lane", index):
        try:
            os.kill(int(pid), 0)
        except OSError:
            continue
        found.append((int(pid), int(used)))
    return found


def value(column: str, index: int) -> str:
    """Return one column; what the driver's script does not have is not available."""

    def word(name: str, place: int = 0, scale: float = 1.0) -> str:
        rows = lines(name, index)
        return f"{float(rows[0][place]) * scale:g}" if rows else "[N/A]"

    places = {
        "utilization.gpu": ("util", 0, 1), "power.draw": ("power", 0, 1e-3), "temperature.gpu": ("temp", 0, 1),
        "enforced.power.limit": ("limit", 0, 1e-3), "clocks.current.sm": ("clock", 0, 1),
        "clocks.max.sm": ("clock", 2, 1), "pcie.link.gen.current": ("link", 0, 1),
        "pcie.link.gen.max": ("link", 1, 1), "pcie.link.width.current": ("link", 2, 1),
        "pcie.link.width.max": ("link", 3, 1), "ecc.errors.uncorrected.volatile.total": ("ecc", 0, 1),
        "memory.total": ("mem", 0, 1 / MIB), "memory.reserved": ("mem", 1, 1 / MIB),
    }  # fmt: skip
    if column in places:
        return word(*places[column])
    if column in ("uuid", "gpu_uuid"):
        return lines("uuid", index)[0][0]
    if column == "name":
        return lines("name", index)[0][0].replace("_", " ")
    if column == "memory.used":
        used = int(lines("mem", index)[0][3]) + sum(amount for _, amount in living(index))
        return f"{used / MIB:.0f}"
    if column == "clocks_event_reasons.active":
        rows = lines("reasons", index)
        return f"0x{int(rows[0][0], 16):016x}" if rows else "[N/A]"
    sys.exit(f'Field "{column}" is not a valid field to query.')


def main() -> None:
    query = next(word for word in sys.argv[1:] if word.startswith("--query-"))
    what, _, asked = query.removeprefix("--query-").partition("=")
    columns = asked.split(",")
    off = dict(pair.split("=") for pair in os.environ.get("FAKE_SMI_OFF", "").split() if pair)
    for index in range(int(lines("count")[0][0])):
        if what == "compute-apps":
            listed = [(int(pid), int(used)) for pid, used in lines("proc", index)] + living(index)
            for pid, used in listed:
                print(f"{value('gpu_uuid', index)}, {pid}, {used / MIB:.0f}")
        else:
            print(", ".join(off.get(column) or value(column, index) for column in columns))


if __name__ == "__main__":
    main()

"""Hold the comparison of two profiles against pairs of lanes of which one knows why they differ.

    python benchmarks/profile_pairs.py [--profiles 3] [--only batch] [--out pairs.jsonl]

For each pair: the table's sum is compared with the difference that the lanes' clocks measure without the profiler,
and its largest part with what differs by construction.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import keep_row, options_of, result_of

SCENARIO = str(Path(__file__).with_name("one_large_layer.py"))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two lanes, and what must explain most of their difference."""

    scenario: str
    first: str
    second: str
    expected: str
    """A pattern of the name, or of the type, of the largest part."""
    settings: tuple[str, ...] = ()


PAIRS = {
    "batch": Pair(SCENARIO, "batch_size=16", "batch_size=256", r"large", ("variant=dense",)),
    "graph": Pair("eager-graph", "graph=on", "graph=off", r"^dispatch"),
    "prefetch": Pair(
        "slow-preprocess", "prefetch=auto", "prefetch=off", r"^waiting for input", ("cpu_cost_ms=0.2",)
    ),
    "mixed precision": Pair(
        SCENARIO, "mixed_precision=off", "mixed_precision=float16", r"large", ("variant=dense",)
    ),
    "xla": Pair(SCENARIO, "xla=off", "xla=on", r"(?i)conv|XLA", ("variant=conv",)),
}


def compared(pair: Pair, profiles: int) -> dict[str, Any]:
    """Return what `tfmon profile` says of a pair."""
    lanes = [word for lane in (pair.first, pair.second) for word in ("--lane", f"cpu,{lane}")]
    sets = [word for setting in pair.settings for word in ("--set", setting)]
    return result_of("profile", pair.scenario, *lanes, *sets, "--profiles", str(profiles))


def verdict_on(pair: Pair, result: dict[str, Any]) -> dict[str, Any]:
    """Return whether the largest part is right, and whether the sum is the difference that was measured."""
    rows = result["parts"]["operation"]
    largest = max(rows, key=lambda row: abs(row["difference"]["value_ns"]))
    first, second = (side["step_ns_without_profiler"] for side in result["sides"])
    low, high = result["difference"]["ci95_ns"] or (None, None)
    measured = second - first
    return {
        "table_ms": sum(row["difference"]["value_ns"] for row in rows) / 1e6,
        "profiled_ms": result["difference"]["value_ns"] / 1e6,
        "ci95_ms": None if low is None else [low / 1e6, high / 1e6],
        "measured_ms": measured / 1e6,
        "within": low is not None and low <= measured <= high,
        "largest": f"{largest['kind']} {largest['name']}".strip(),
        "largest_ms": largest["difference"]["value_ns"] / 1e6,
        "right": bool(re.search(pair.expected, largest["name"]) or re.search(pair.expected, largest["kind"])),
        "explained": result["explained"],
    }


def main() -> int:
    """Print a line for each pair; exit 1 if any is wrong."""
    options = options_of(__doc__, profiles=3, only=None, out=None)
    wrong = 0
    for name, pair in PAIRS.items():
        if options.only and options.only != name:
            continue
        row = {"pair": name, **verdict_on(pair, compared(pair, options.profiles))}
        wrong += not (row["within"] and row["right"])
        if options.out:
            keep_row(options.out, row)
        ends = "none" if row["ci95_ms"] is None else "{:+.2f} to {:+.2f}".format(*row["ci95_ms"])
        print(
            f"{name:16} table {row['table_ms']:+8.2f} ms ({ends}), measured {row['measured_ms']:+8.2f}: "
            f"{'within' if row['within'] else 'NOT WITHIN'}; largest {row['largest_ms']:+.2f} {row['largest']}: "
            f"{'right' if row['right'] else 'WRONG'}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

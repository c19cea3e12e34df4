"""XProf's answers about the traces in `tests/profile/data/`.

Run as a program, it writes them to `xprof.json` in that folder.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tfmon.model.profile import NAMELESS

DATA = Path(__file__).parents[2] / "tests" / "profile" / "data"
ANSWERS = DATA / "xprof.json"
CONVERT = """
import sys
from xprof.convert import raw_to_tool_data
for tool in sys.argv[2:]:
    data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {})
    print("xprof:" + (data.decode() if isinstance(data, bytes) else data))
"""
KEPT = {
    "slow-input": "",
    "dense-onednn": "mklcpu",
    "dense-bfc": "bfc_cpu_allocator_for_gpu",
    "h100-graphs": "GPU_0_bfc",
    "h100-single": "GPU_0_bfc",
}
"""The traces, each with the allocator whose peak is compared.

Source: the scripts in `benchmarks/traces`."""


def unpacked(name: str, folder: Path) -> Path:
    """Write a kept trace into a separate folder, as XProf requires."""
    path = folder / name / "vm.xplane.pb"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.decompress((DATA / f"{name}.xplane.pb.gz").read_bytes()))
    return path


def converted(path: Path, *tools: str) -> list[Any]:
    """Return what XProf's tools make of a trace."""
    command = [sys.executable, "-c", CONVERT, str(path), *tools]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line.removeprefix("xprof:") for line in done.stdout.splitlines() if line.startswith("xprof:")]
    assert len(lines) == len(tools), done.stderr[-2000:]
    return [json.loads(line) for line in lines]


def tables(analyzer: Any, operations: Any) -> tuple[dict[int, dict[str, Any]], dict[tuple[str, str], Any]]:
    """Return the steps by their number, and the operations on the host or the device by their type and name."""
    (steps,) = (one for one in map(rows, analyzer) if one and "stepTimeMs" in one[0])
    numbered = {int(str(step["stepnum"]).split()[-1]): step for step in steps}
    return numbered, {(row["type"], row["operation"]): row for row in rows(operations[0])}


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["id"] for column in table["cols"]]
    return [dict(zip(names, (cell["v"] for cell in row["c"]), strict=True)) for row in table["rows"]]


def peak_of(memory: Any, allocator: str) -> tuple[int, dict[str, int]]:
    """Return the peak, and what each operation of the step in which it is has allocated then, in bytes."""
    own = memory["memoryProfilePerAllocator"][allocator]
    named: Counter[str] = Counter()
    for one in own["activeAllocations"]:
        if (place := int(one["snapshotIndex"])) >= 0:
            block = own["memoryProfileSnapshots"][place]["activityMetadata"]
            named[block["tfOpName"] or NAMELESS] += int(block["allocationBytes"]) * int(one["numOccurrences"])
    return int(own["profileSummary"]["peakStats"]["heapAllocatedBytes"]), dict(named)


COLUMNS = ("stepTimeMs", "infeedTimeMs", "deviceComputeTimeMs")
MOST_OPERATIONS = 40


def ask(path: Path, allocator: str) -> dict[str, Any]:
    """Return XProf's answers about a trace, as they are kept."""
    tools = ["input_pipeline_analyzer", "framework_op_stats", *(["memory_profile"] if allocator else [])]
    analyzer, stats, *memory = converted(path, *tools)
    steps, operations = tables(analyzer, stats)
    longest = sorted(operations.items(), key=lambda item: -item[1]["total_self_time"])[:MOST_OPERATIONS]
    return {
        "steps": {
            str(number): {name: one[name] for name in COLUMNS if name in one} for number, one in steps.items()
        },
        "self_us": [[*key, one["total_self_time"]] for key, one in longest],
        "peak": peak_of(memory[0], allocator) if memory else None,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asked = {name: ask(unpacked(name, Path(temporary)), allocator) for name, allocator in KEPT.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answers)}" for name, answers in asked.items())
    ANSWERS.write_text(f"{{\n{lines}\n}}\n", "utf-8")

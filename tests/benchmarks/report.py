"""How long the report of a race of 30 minutes takes to write, and how large it is, by the command itself."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from common import met, options_of
from support.recordings import long_race, record

ROOT = Path(__file__).parents[2]
MOST_S, MOST_MIB = 5.0, 3.0


def main() -> None:
    """Write the report several times, and print the median."""
    options = options_of(__doc__, runs=5)
    with tempfile.TemporaryDirectory() as folder:
        recording, report = Path(folder) / "long.jsonl", Path(folder) / "report.html"
        record(recording, long_race)
        took_s = []
        for _ in range(options.runs):
            began_s = time.perf_counter()
            command = (sys.executable, "-m", "tfmon", "export", str(recording), "--html", str(report), "--force")
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            took_s.append(time.perf_counter() - began_s)
        middle_s, size = statistics.median(took_s), report.stat().st_size / 2**20
        print(f"a recording of {recording.stat().st_size / 2**20:.1f} MiB, {options.runs} runs")
        print(f"written in {middle_s:.1f} s (slowest {max(took_s):.1f} s): {met(middle_s <= MOST_S)}")
        print(f"{size:.2f} MiB: {met(size <= MOST_MIB)}")


if __name__ == "__main__":
    main()

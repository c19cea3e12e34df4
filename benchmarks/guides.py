"""Measures what `tfmon watch` costs trainings in the manner of public guides, in CPU time of the script's process.

    python benchmarks/guides.py [--kinds ddpg,gan] [--pairs 10]

Each training of guide_loops.py runs plain and watched in alternation. Printed are the medians of the ratios of CPU
seconds with their range, and what the start takes more. CPU time is compared because it depends less on other
programs than the duration.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import met, options_of
from guide_loops import KINDS

MOST_RATIO, MOST_START_S = 1.02, 0.3
TFMON = [sys.executable, "-m", "tfmon", "watch", "--headless", "--no-record", "--lane", "cpu", "--"]


def run(kind: str, *, watched: bool) -> tuple[float, float]:
    """Train once; return the CPU seconds of the start and of the training."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seconds"
        command = [sys.executable, str(Path(__file__).with_name("guide_loops.py")), kind, str(file)]
        subprocess.run([*(TFMON if watched else ()), *command], check=True, capture_output=True)
        start, training = map(float, file.read_text().split())
    return start, training


def main() -> int:
    """Return 1 if a goal is missed."""
    options = options_of(__doc__, kinds=",".join(KINDS), pairs=10)
    missed = 0
    for kind in options.kinds.split(","):
        ratios, starts, plain_s = [], [], []
        for number in range(options.pairs):
            seconds = {watched: run(kind, watched=watched) for watched in (number % 2 == 0, number % 2 == 1)}
            plain_s.append(seconds[False][1])
            ratios.append(seconds[True][1] / seconds[False][1])
            starts.append(seconds[True][0] - seconds[False][0])
        ratio, start_s = statistics.median(ratios), statistics.median(starts)
        reached = ratio <= MOST_RATIO and start_s <= MOST_START_S
        missed += not reached
        print(
            f"{kind:12} {statistics.median(plain_s):6.2f} s plain; ratio {ratio:.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}); start {start_s:+.2f} s: {met(reached)}",
            flush=True,
        )
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())

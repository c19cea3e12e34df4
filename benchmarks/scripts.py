"""Measures the cost of watching a script: the same work with tfmon's hooks and without, in one process.

    python benchmarks/scripts.py [--what step,eager,batch,call,fit] [--pairs 40] [--starts 3]
        [--units 64]

The work is done in a lane of `tfmon watch`, with its session and sampling in this process as in life. Between
two halves of a pair the hooks are switched on or off; which comes first alternates. `step` is a step of a loop
with a tf.function, `eager` one without, `batch` a `train_on_batch`, `call` the call of a function that trains
nothing, `fit` a step of Keras, on one model with two train functions. Compared are CPU seconds of the process,
which depend less on other programs. A value is the median of a block of pairs,
since neighbours in time are alike; printed is the mean of all blocks of all starts, with a 95 % interval of
Student's t.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from common import mean_and_reach, options_of, program_of

from tfmon.api.options import RaceOptions
from tfmon.catalog import command_scenario

SCRIPT = Path(__file__).with_name("loop_cost.py")
UNITS_OF_WORK = {"step": 400, "eager": 200, "batch": 200, "call": 2_000, "fit": 400}
"""As in loop_cost.py."""
BLOCK = 10
"""Pairs whose median is one value."""
LIMITS = {
    "step": "10 µs", "eager": "at least 99 % of the speed", "batch": "at least 99 % of the speed",
    "call": "0.3 µs", "fit": "at least 99 % of the speed",
}  # fmt: skip
Pairs = list[tuple[float, float]]


def one_start(what: str, pairs: int, units: int) -> Pairs:
    """Run loop_cost.py in a lane; return the CPU seconds of every pair, without tfmon's hooks and with them."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        words = f"exec {sys.executable} {SCRIPT} {what} {pairs} {units} >{output}"
        options = RaceOptions(lanes=("cpu",), python=Path(sys.executable), record=False)
        with program_of(options, command_scenario(("/bin/sh", "-c", words))) as program:
            while not program.lanes.all_over:
                time.sleep(0.2)
            (state,) = program.session.snapshot().lanes
        lines = [line.split() for line in output.read_text().splitlines()]
    said = [(float(words[1]), float(words[2])) for words in lines if words[0] == "pair"]
    if len(said) != pairs or not state.totals.steps:
        raise SystemExit(f"the script was not watched to its end: {state.totals.steps} steps, {len(said)} pairs")
    return said


def blocks(values: list[float]) -> list[float]:
    """Return the medians of the values in blocks."""
    return [statistics.median(values[at : at + BLOCK]) for at in range(0, len(values) - BLOCK + 1, BLOCK)]


def measure(what: str, starts: int, pairs: int, units: int) -> str:
    """Return the result for one kind of work."""
    found = [one_start(what, pairs, units) for _ in range(starts)]
    cost = [1e6 / UNITS_OF_WORK[what] * (on - off) for each in found for off, on in each]
    kept = [off / on for each in found for off, on in each]
    step_us = statistics.median(1e6 / UNITS_OF_WORK[what] * off for each in found for off, _ in each)
    (mean, reach), (share, share_reach) = mean_and_reach(blocks(cost)), mean_and_reach(blocks(kept))
    return (
        f"{mean:.2f} µs more (95 %: ± {reach:.2f}) than {step_us:.1f} µs; "
        f"keeps {share:.2%} (95 %: ± {share_reach:.2%})"
    )


def main() -> None:
    chosen = options_of(__doc__, what=",".join(LIMITS), pairs=40, starts=3, units=64)
    for what in chosen.what.split(","):
        found = measure(what, chosen.starts, max(2 * BLOCK, chosen.pairs), chosen.units)
        print(f"{what}: {found}; wanted: {LIMITS[what]}", flush=True)


if __name__ == "__main__":
    main()

"""Measure what `fit` loses by being watched: the same epochs with tfmon and without, in one process.

    python tests/benchmarks/scripts.py [--pairs 60] [--starts 3] [--units 64] [--json]

A script runs in a lane of `tfmon watch`, with its session and sampling in this process as in life. It has two
models that are the same, and trains an epoch of each in turns, in the order ABBA: one by `fit`, which is
watched; the other by the `fit` that tfmon found when it came, whose train function is traced without tfmon's
operations. The ratio of each pair's times is taken, then their median with a bootstrap interval. Two processes
would differ by more than what is looked for, whatever they do; two models in a process differ less, so there
are several starts.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import LanePlan, RacePlan, lane_environment
from tfmon.model.session import CONCURRENT, Race, Session
from tfmon.model.spec import LaneSpec
from tfmon.probes.host import HostProbe
from tfmon.probes.machine import read_machine
from tfmon.probes.ticker import Ticker

STEPS = 500
SCRIPT = """
import sys, time
import numpy as np, keras
pairs, units, steps = map(int, sys.argv[1:])
x = np.random.default_rng(0).random((32 * steps, 64)).astype("float32")
y = (x.sum(1) > 32).astype("int64")
watched, alone = keras.Model.fit, keras.Model.fit.__wrapped__

def made():
    layers = [keras.Input((64,)), keras.layers.Dense(units, "relu"), keras.layers.Dense(2, "softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model

def epoch(fit, model):
    began = time.perf_counter()
    fit(model, x, y, batch_size=32, epochs=1, verbose=0)
    return time.perf_counter() - began

models = {watched: made(), alone: made()}
for fit in (alone, watched, watched, alone, watched):
    epoch(fit, models[fit])
for pair in range(pairs):
    took = {fit: epoch(fit, models[fit]) for fit in ((watched, alone) if pair % 2 else (alone, watched))}
    print("pair", took[alone], took[watched])
"""


def one_start(pairs: int, units: int) -> list[tuple[float, float]]:
    """Return the seconds of every pair: without tfmon, and with it."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        spec = LaneSpec("cpu", name="cpu")
        command = (sys.executable, str(script), str(pairs), str(units), str(STEPS))
        lane = LanePlan(spec, {}, lane_environment(spec, None))
        plan = RacePlan(Race(mode=CONCURRENT), script, (lane,), Path(sys.executable), command)
        session = Session(read_machine(), time.monotonic_ns)
        lanes = LaneGroup(session, lambda _scenario: plan)
        ticker = Ticker(HostProbe(lanes.pids), session.accept, interval_s=1.0)
        try:
            lanes.begin(plan)
            ticker.start()
            while not lanes.all_over:
                time.sleep(0.2)
        finally:
            ticker.close()
            lanes.stop()
    (state,) = session.snapshot().lanes
    lines = state.ended.output_tail if state.ended is not None else ()
    found = [tuple(map(float, line.split()[1:])) for line in lines if line.startswith("pair ")]
    if len(found) != pairs or state.steps < pairs * STEPS:
        raise SystemExit(f"the script was not watched to its end: {state.steps} steps, {lines[-3:]}")
    return [(one[0], one[1]) for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60, help="pairs of epochs a start, 200 at most")
    parser.add_argument("--starts", type=int, default=3, help="starts of the script")
    parser.add_argument("--units", type=int, default=64, help="width of the model: how long a step takes")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    pairs = [pair for _ in range(chosen.starts) for pair in one_start(min(200, chosen.pairs), chosen.units)]
    ratios = [alone / watched for alone, watched in pairs]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2_000))
    step_us = 1e6 * statistics.median(alone for alone, _ in pairs) / STEPS
    found = {
        "speed_kept": statistics.median(ratios),
        "ci95": [medians[50], medians[1_949]],
        "pairs": len(ratios),
        "step_us": step_us,
    }
    if chosen.json:
        print(json.dumps(found))
    else:
        low, high = (100 * bound for bound in (medians[50], medians[1_949]))
        kept = 100 * statistics.median(ratios)
        print(f"fit keeps {kept:.2f} % of its speed (95 %: {low:.2f} to {high:.2f}), steps of {step_us:.0f} µs")


if __name__ == "__main__":
    main()

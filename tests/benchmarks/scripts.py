"""Measure what `fit` loses by being watched: the same epochs with tfmon and without, in one process.

    python tests/benchmarks/scripts.py [--pairs 30] [--starts 4] [--units 64] [--json]

A script runs in a lane of `tfmon watch`, with its session and sampling in this process as in life. It has couples
of models that are the same, and trains an epoch of each in turns, in the order ABBA: one by `fit`, which is
watched; the other by the `fit` that tfmon found when it came, whose train function is traced without tfmon's
operations. Two models that do the same differ by a percent or two for as long as they live, as two processes do,
so a couple is what is repeated: each start has two, one with the watched model made first and one with it made
last. Of each couple the medians over its pairs of epochs are taken, the ratio of times and the difference a step;
then their mean over all couples, with a 95 % interval of Student's t.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import LanePlan, RacePlan, lane_environment
from tfmon.model.race import CONCURRENT, Race
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec
from tfmon.probes.host import HostProbe
from tfmon.probes.machine import read_machine
from tfmon.probes.ticker import Ticker

STEPS, COUPLES = 500, 2
T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Student's t for 95 %, by degrees of freedom from 1."""
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

couples = [{fit: made() for fit in order} for order in ((watched, alone), (alone, watched))]
for models in couples:
    for fit in (*models, *models):
        epoch(fit, models[fit])
for pair in range(pairs):
    for couple, models in enumerate(couples):
        order = (watched, alone) if (pair + couple) % 2 else (alone, watched)
        took = {fit: epoch(fit, models[fit]) for fit in order}
        print("pair", couple, took[alone], took[watched], flush=True)
"""


def one_start(pairs: int, units: int) -> list[list[tuple[float, float]]]:
    """Return for each couple the seconds of every pair: without tfmon, and with it."""
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
    said = [line.split()[1:] for line in lines if line.startswith("pair ")]
    if len(said) != COUPLES * pairs or state.steps < COUPLES * pairs * STEPS:
        raise SystemExit(f"the script was not watched to its end: {state.steps} steps, {lines[-3:]}")
    return [[(float(one), float(two)) for which, one, two in said if int(which) == n] for n in range(COUPLES)]


def mean_and_ci(values: list[float]) -> tuple[float, float, float]:
    """Return the mean and the bounds of its 95 % interval."""
    mean = statistics.mean(values)
    half = T_975[min(len(values) - 1, len(T_975)) - 1] * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30, help="pairs of epochs of each couple, 100 at most")
    parser.add_argument("--starts", type=int, default=4, help="starts of the script, with two couples each")
    parser.add_argument("--units", type=int, default=64, help="width of the model: how long a step takes")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    starts = range(chosen.starts)
    couples = [couple for _ in starts for couple in one_start(min(100, chosen.pairs), chosen.units)]
    kept = mean_and_ci([statistics.median(alone / watched for alone, watched in couple) for couple in couples])
    cost_us = mean_and_ci(
        [1e6 / STEPS * statistics.median(watched - alone for alone, watched in couple) for couple in couples]
    )
    step_us = 1e6 / STEPS * statistics.median(alone for couple in couples for alone, _ in couple)
    if chosen.json:
        found = {"speed_kept": kept[0], "ci95": kept[1:], "cost_us": cost_us[0], "cost_us_ci95": cost_us[1:]}
        print(json.dumps({**found, "step_us": step_us, "couples": len(couples), "pairs": chosen.pairs}))
        return
    mean, low, high = (100 * value for value in kept)
    print(f"fit keeps {mean:.2f} % of its speed (95 %: {low:.2f} to {high:.2f}), steps of {step_us:.0f} µs")
    mean, low, high = cost_us
    print(f"being watched takes {mean:.1f} µs a step (95 %: {low:.1f} to {high:.1f}), {len(couples)} couples")


if __name__ == "__main__":
    main()

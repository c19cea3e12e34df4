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

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.common import options_of
from tfmon.analysis.intervals import student
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import LanePlan, RacePlan, lane_environment
from tfmon.model.race import CONCURRENT, Race
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec
from tfmon.probes.host import HostProbe
from tfmon.probes.machine import read_machine
from tfmon.probes.ticker import Ticker

STEPS, COUPLES = 500, 2
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
        ticker = Ticker(HostProbe(lanes.processes), session.accept, interval_s=1.0)
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
    half = student(0.05, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def main() -> None:
    chosen = options_of(__doc__, pairs=30, starts=4, units=64, json=False)
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

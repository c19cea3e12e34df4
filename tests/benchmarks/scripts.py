"""Measure what `fit` loses by being watched: the same epochs with tfmon in the process and without.

    python tests/benchmarks/scripts.py [--pairs 20] [--starts 3] [--units 64] [--json]

Two processes of one script stand ready: one is a lane of `tfmon watch`, with its session and sampling in this process
as in life; the other knows nothing of tfmon. They train an epoch each in turns, in the order ABBA, when a line on their
stdin says so, and say themselves how long `fit` took. The ratio of each pair is taken, then their median with a
bootstrap interval. Two processes that do the same differ in speed as long as they live, so there are several starts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
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

SCRIPT = """
import os, sys, time
import numpy as np, keras
ask, tell, units = open(sys.argv[1]), open(sys.argv[2], "w", buffering=1), int(sys.argv[3])
x = np.random.default_rng(0).random((32 * 1_000, 64)).astype("float32")
y = (x.sum(1) > 32).astype("int64")
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(units, "relu"), keras.layers.Dense(2, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(x, y, batch_size=32, epochs=2, verbose=0)
tell.write("ready\\n")
for line in ask:
    began = time.perf_counter()
    model.fit(x, y, batch_size=32, epochs=1, verbose=0)
    tell.write(f"{time.perf_counter() - began}\\n")
"""


class Trainee:
    """A process that trains an epoch when it is asked to."""

    def __init__(self, folder: Path) -> None:
        self._ask, self._tell = folder / "ask", folder / "tell"
        for path in (self._ask, self._tell):
            os.mkfifo(path)

    def words(self, script: Path, units: int) -> tuple[str, ...]:
        return (sys.executable, str(script), str(self._ask), str(self._tell), str(units))

    def connect(self) -> None:
        self._to, self._from = self._ask.open("w", buffering=1), self._tell.open()
        assert self._from.readline() == "ready\n"

    def epoch_s(self) -> float:
        self._to.write("go\n")
        return float(self._from.readline())

    def close(self) -> None:
        self._to.close()
        self._from.close()


def one_start(pairs: int, units: int) -> list[float]:
    """Return the ratio of every pair: time without tfmon over time with it."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        watched, alone = (Trainee(Path(tempfile.mkdtemp(dir=folder))) for _ in range(2))
        spec = LaneSpec("cpu", name="cpu")
        environment = lane_environment(spec, None)
        plan = RacePlan(
            Race(mode=CONCURRENT),
            script,
            (LanePlan(spec, {}, environment),),
            Path(sys.executable),
            watched.words(script, units),
        )
        session = Session(read_machine(), time.monotonic_ns)
        lanes = LaneGroup(session, lambda _scenario: plan)
        ticker = Ticker(HostProbe(lanes.pids), session.accept, interval_s=1.0)
        merged = {**os.environ, **{key: value for key, value in environment.items() if value is not None}}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(alone.words(script, units), env=merged, **quiet) as process:
            try:
                lanes.begin(plan)
                ticker.start()
                watched.connect()
                alone.connect()
                for trainee in (watched, alone):
                    trainee.epoch_s()
                for pair in range(pairs):
                    order = (watched, alone) if pair % 2 else (alone, watched)
                    took = {trainee: trainee.epoch_s() for trainee in order}
                    ratios.append(took[alone] / took[watched])
                assert session.snapshot().lanes[0].steady.steps > pairs * 500, "the lane was watched"
            finally:
                ticker.close()
                lanes.stop()
                process.terminate()
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20, help="pairs of epochs a start")
    parser.add_argument("--starts", type=int, default=3, help="starts of both processes")
    parser.add_argument("--units", type=int, default=64, help="width of the model: how long a step takes")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    ratios = [ratio for _ in range(chosen.starts) for ratio in one_start(chosen.pairs, chosen.units)]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2_000))
    found = {"speed_kept": statistics.median(ratios), "ci95": [medians[50], medians[1_949]], "pairs": len(ratios)}
    if chosen.json:
        print(json.dumps(found))
    else:
        low, high = found["ci95"]
        print(
            f"fit keeps {100 * found['speed_kept']:.2f} % of its speed (95 %: {100 * low:.2f} to {100 * high:.2f})"
        )


if __name__ == "__main__":
    main()

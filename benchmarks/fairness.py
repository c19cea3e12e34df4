"""Measures whether the figures of a race are true: against lanes that run alone, and against an independent count.

    python benchmarks/fairness.py alone [--repetitions 5]   turns and concurrent against each lane alone
    python benchmarks/fairness.py count                     throughput against the scenario's own count

`alone`: in one race of two lanes, each trains alone for a while, one after the other and in both orders, with the
other one paused; then both train in turns, then each alone again, then both at once. So the three ratios are those
of the same two processes, and a machine that slowly gets slower changes neither of the two that are compared. The
pairs of lanes use the cores very differently: small-dense trains on one, the conv net of slow-preprocess on all.
`verdicts.py` measures whether verdicts are right.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import Watch, run_command

from tfmon.analysis.statistics import log_speeds, ratio
from tfmon.api.options import RaceOptions
from tfmon.api.program import Program
from tfmon.catalog import find_scenario
from tfmon.model.lane_events import Window
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.readings import Estimate

PAIRS = {
    "small-dense": ("cpu,batch_size=10", "cpu,batch_size=256"),
    "slow-preprocess": ("cpu,cpu_cost_ms=0", "cpu,cpu_cost_ms=0,parallel_calls=auto,prefetch=auto"),
}
ALONE_S, TURNS_S, TOGETHER_S = 3.0, 15.0, 4.0
SETTLING_S = 1.0
"""Discarded after every change of which lane trains."""
COUNTED = '''"""A net with a count of its own: a line with the time and the examples after every 20th step."""

import time

import numpy as np
import tensorflow as tf

from tfmon.trainer import Scenario

LOG = open({log!r}, "w")


class Counted(Scenario):
    batch_size = 32
    without = ("graph", "xla", "mixed_precision")

    def data(self):
        return np.random.rand(4096, 100).astype("float32"), np.random.randint(2, size=4096)

    def model(self):
        model = tf.keras.Sequential([tf.keras.Input((100,)), tf.keras.layers.Dense(128), tf.keras.layers.Dense(2)])
        model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    def step(self, model):
        train = tf.function(super().step(model), reduce_retracing=True)
        done = [0, 0]

        def counted(x, y):
            loss = train(x, y)
            done[0] += 1
            done[1] += len(y)
            if done[0] % 20 == 0:
                loss.numpy()
                LOG.write(f"{{time.monotonic_ns()}} {{done[1]}}\\n")
                LOG.flush()
            return loss

        counted.runs_in_python = True
        return counted
'''


class Race:
    """A race that this script conducts."""

    def __init__(self, scenario: str, lanes: Sequence[str], **race_options: Any) -> None:
        self.program = Program(RaceOptions(lanes=tuple(lanes), python=Path(sys.executable), **race_options))
        self.watch = Watch(self.program.session)
        self.program.begin(self.program.plan(find_scenario(scenario)))
        self.names = [lane.spec.name for lane in self.program.session.snapshot().lanes]

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *_: object) -> None:
        self.program.close()

    def until_racing(self) -> None:
        for name in self.names:
            self.watch.wait(lambda event, name=name: isinstance(event, Window) and event.lane == name, 0, 120)

    def speed(self, lane: str, seconds: float) -> float:
        """Return a lane's throughput from now on, over its steady windows."""
        time.sleep(SETTLING_S)
        start = self.watch.heard
        time.sleep(seconds)
        events = [one for one in self.watch.since(start) if isinstance(one, Window) and one.lane == lane]
        steady = [one for one in events if not one.marks][1:]
        return sum(one.examples for one in steady) / sum(one.span_ns for one in steady) * 1e9

    def alone(self, lane: str) -> float:
        others = [name for name in self.names if name != lane]
        self.program.lanes.pause(others)
        self.program.lanes.resume([lane])
        return self.speed(lane, ALONE_S)

    def ratio(self) -> Estimate:
        first, second = self.program.session.snapshot().lanes
        found = ratio(log_speeds(first.slices), log_speeds(second.slices))
        assert found is not None, "too few slices"
        return found


def alone(options: argparse.Namespace) -> dict[str, Any]:
    """Compare turns and concurrent with each lane alone."""
    rows = []
    for scenario, lanes in PAIRS.items():
        for number in range(options.repetitions):
            with Race(scenario, lanes, mode=CONCURRENT) as race:
                race.until_racing()
                one, two = race.names
                order = (one, two, two, one) if number % 2 else (two, one, one, two)
                alone = [(lane, race.alone(lane)) for lane in order]
                race.program.lanes.resume(race.names)
                race.program.lanes.set_mode(TURNS)
                time.sleep(TURNS_S)
                found = race.ratio()
                race.program.lanes.set_mode(CONCURRENT)
                alone += [(lane, race.alone(lane)) for lane in order]
                truth = statistics.mean(s for lane, s in alone if lane == one) / statistics.mean(
                    s for lane, s in alone if lane == two
                )
                race.program.lanes.resume(race.names)
                together = race.speed(one, TOGETHER_S), race.speed(two, TOGETHER_S)
            row = {
                "scenario": scenario,
                "alone": truth,
                "turns": found.value,
                "turns_ci95": [found.low, found.high],
                "covered": found.low <= truth <= found.high,
                "turns_off_pct": 100 * (found.value / truth - 1),
                "concurrent_off_pct": 100 * (together[0] / together[1] / truth - 1),
            }
            rows.append(row)
            tell(
                f"{scenario}: alone {truth:.3f}, turns {found.value:.3f} ({found.low:.3f} to {found.high:.3f}, "
                f"{row['turns_off_pct']:+.1f} %), concurrent {row['concurrent_off_pct']:+.1f} %"
            )
    summary = {
        scenario: {
            f"median_{which}": statistics.median(abs(row[which]) for row in rows if row["scenario"] == scenario)
            for which in ("turns_off_pct", "concurrent_off_pct")
        }
        for scenario in PAIRS
    }
    return {"rows": rows, "covered": f"{sum(r['covered'] for r in rows)} of {len(rows)}", "summary": summary}


def count(_: argparse.Namespace) -> dict[str, Any]:
    """Compare the throughput that tfmon reports with the scenario's own count."""
    with tempfile.TemporaryDirectory() as folder:
        log, path = Path(folder, "count.log"), Path(folder, "counted.py")
        path.write_text(COUNTED.format(log=str(log)))
        with Race(str(path), ["cpu"]) as race:
            race.until_racing()
            time.sleep(10)
            lane = race.program.session.snapshot().lanes[0]
            windows = [one for one in race.watch.since(0) if isinstance(one, Window) and not one.marks]
        reported = lane.steady.examples_per_s
        since_ns, until_ns = windows[0].at_ns - windows[0].span_ns, windows[-1].at_ns
        lines = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
        inside = [line for line in lines if since_ns <= line[0] <= until_ns]
    counted = (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]) * 1e9
    assert reported is not None
    off = 100 * (reported / counted - 1)
    tell(f"reported {reported:.0f} examples/s, counted {counted:.0f}: {off:+.2f} %")
    return {"reported": reported, "counted": counted, "off_pct": off}


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


MEASURED = {"alone": (alone, {"repetitions": 5}), "count": (count, {})}


if __name__ == "__main__":
    print(json.dumps(run_command(__doc__, MEASURED), indent=2))

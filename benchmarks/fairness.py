"""Measures whether the figures of a race are true: turns and concurrent against each lane alone.

    python benchmarks/fairness.py [--repetitions 5]

In one race of two lanes, each trains alone for a while, one after the other and in both orders, with the
other one paused; then both train in turns, then each alone again, then both at once. So the three ratios are those
of the same two processes, and a machine that slowly gets slower changes neither of the two that are compared. The
pairs of lanes use the cores very differently: small-dense trains on one, the conv net of slow-preprocess on all.
`verdicts.py` measures whether verdicts are right, `crosscheck.py` whether the throughput is.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import Watch, options_of, program_of

from tfmon.analysis.statistics import compare, pairs_of
from tfmon.api.options import RaceOptions
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


def speed(watch: Watch, lane: str, seconds: float) -> float:
    """Return a lane's throughput from now on, over its steady windows."""
    time.sleep(SETTLING_S)
    start = watch.heard
    time.sleep(seconds)
    events = [one for one in watch.since(start) if isinstance(one, Window) and one.lane == lane]
    steady = [event for event in events if not event.marks][1:]
    return sum(one.examples for one in steady) / sum(one.span_ns for one in steady) * 1e9


def one_race(scenario: str, lanes: Sequence[str], turned: bool) -> tuple[float, Estimate, float]:
    """Return the ratio of the lanes alone, in turns, and at once."""
    options = RaceOptions(lanes=tuple(lanes), python=Path(sys.executable), mode=CONCURRENT)
    with program_of(options, find_scenario(scenario)) as program:
        watch = Watch(program.session)
        one, two = names = [lane.spec.name for lane in watch.snapshot().lanes]
        for name in names:
            watch.wait(lambda event, name=name: isinstance(event, Window) and event.lane == name, 0, 120)
        alone: dict[str, list[float]] = {one: [], two: []}

        def each_alone() -> None:
            for lane in (one, two, two, one) if turned else (two, one, one, two):
                program.lanes.pause([name for name in names if name != lane])
                program.lanes.resume([lane])
                alone[lane].append(speed(watch, lane, ALONE_S))
            program.lanes.resume(names)

        each_alone()
        program.lanes.set_mode(TURNS)
        time.sleep(TURNS_S)
        first, second = watch.snapshot().lanes
        compared = compare(pairs_of(first.slices, second.slices))
        found = compared.estimate() if compared is not None else None
        assert found is not None, "too few slices"
        program.lanes.set_mode(CONCURRENT)
        each_alone()
        together = speed(watch, one, TOGETHER_S) / speed(watch, two, TOGETHER_S)
    return statistics.mean(alone[one]) / statistics.mean(alone[two]), found, together


def alone(repetitions: int) -> dict[str, Any]:
    rows = []
    for scenario, lanes in PAIRS.items():
        for number in range(repetitions):
            truth, found, together = one_race(scenario, lanes, bool(number % 2))
            row = {
                "scenario": scenario,
                "alone": truth,
                "turns": found.value,
                "turns_ci95": [found.low, found.high],
                "covered": found.low <= truth <= found.high,
                "turns_off_pct": 100 * (found.value / truth - 1),
                "concurrent_off_pct": 100 * (together / truth - 1),
            }
            rows.append(row)
            print(
                f"{scenario}: alone {truth:.3f}, turns {found.value:.3f} ({found.low:.3f} to {found.high:.3f}, "
                f"{row['turns_off_pct']:+.1f} %), concurrent {row['concurrent_off_pct']:+.1f} %",
                file=sys.stderr,
                flush=True,
            )
    summary = {
        scenario: {
            f"median_{which}": statistics.median(abs(row[which]) for row in rows if row["scenario"] == scenario)
            for which in ("turns_off_pct", "concurrent_off_pct")
        }
        for scenario in PAIRS
    }
    return {"rows": rows, "covered": f"{sum(r['covered'] for r in rows)} of {len(rows)}", "summary": summary}


if __name__ == "__main__":
    print(json.dumps(alone(options_of(__doc__, repetitions=5).repetitions), indent=2))

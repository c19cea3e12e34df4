"""Measure what `tfmon tune` finds and how long it takes, against every combination of the settings it may choose.

    python tests/benchmarks/tuning.py [--scenario slow-preprocess]

Both run on one CPU lane of the same process, from the worst settings. The sweep sets every combination of `GRID`,
lets the lane settle and reads its throughput for a second; where the cache is on it is filled first, as a sweep by
hand would have to. Then the best of the sweep and what the tuning found train by turns, in slices, so that the
figure at the end is a ratio of neighbours with its interval.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.common import options_of
from tfmon.analysis.statistics import gain
from tfmon.analysis.tuning import best_of, change_text, gain_text, settings_text
from tfmon.catalog import find_scenario
from tfmon.experiments.driver import FailedError, LaneDriver
from tfmon.model.knobs import KnobValue
from tfmon.model.race import TuneState
from tfmon.runner.planner import RaceOptions
from tfmon.runner.program import Program

WORST: dict[str, KnobValue] = {"batch_size": 1, "prefetch": "off", "parallel_calls": "off", "cache": False}
GRID: dict[str, tuple[KnobValue, ...]] = {
    "batch_size": (1, 8, 32, 128, 512),
    "xla": (False, True),
    "mixed_precision": ("off", "bfloat16"),
    "cache": (False, True),
    "parallel_calls": ("off", 4, "auto"),
    "prefetch": ("off", "auto"),
}
"""From the slowest change to the quickest: a sweep in this order changes little at a time."""
MEASURED_NS = 1_000_000_000
ROUNDS, SLICES = 6, 2


class Lane:
    """One lane that trains by itself."""

    def __init__(self, program: Program, name: str) -> None:
        self.driver = LaneDriver(program.session, program.lanes)
        self.name = name

    def bring(self, settings: Mapping[str, KnobValue]) -> None:
        """Set knobs, wait until they are in effect, and fill the cache if it is on."""
        changed = False
        for knob, value in settings.items():
            if self.driver.lane(self.name).settings.get(knob) != value:
                changed = True
                self.driver.set_knob([self.name], knob, value)
        if changed and settings.get("cache"):
            lane = self.driver.lane(self.name)
            full = lane.examples + (lane.data_examples or 0)
            self.driver.wait(lambda: self.driver.lane(self.name).examples >= full, "no epoch")

    def throughput(self) -> float:
        """Return examples/s over the next second of steady training."""
        before = self.driver.lane(self.name).steady

        def measured() -> bool:
            return self.driver.lane(self.name).steady.span_ns - before.span_ns >= MEASURED_NS

        self.driver.wait(measured, "nothing was measured")
        after = self.driver.lane(self.name).steady
        return (after.examples - before.examples) / (after.span_ns - before.span_ns) * 1e9

    def slices(self, count: int) -> list:
        """Return the next slices that the lane trains from beginning to end."""
        since_ns = self.driver.snapshot().at_ns
        ended = self.driver.slices_ended(self.name)
        self.driver.wait(lambda: self.driver.slices_ended(self.name) > ended + count, "no slice ended")
        return [one for one in self.driver.lane(self.name).slices if one.at_ns > since_ns][-count:]


def combinations() -> Iterator[dict[str, KnobValue]]:
    """Return every combination of the grid."""
    for values in itertools.product(*GRID.values()):
        yield dict(zip(GRID, values, strict=True))


def main() -> None:
    """Tune, sweep, compare."""
    info = find_scenario(options_of(__doc__, scenario="slow-preprocess").scenario)
    program = Program(RaceOptions(lanes=("cpu",)))
    program.begin(program.plan(info))
    lane = Lane(program, "cpu")
    try:
        lane.driver.wait_until_racing(["cpu"])
        lane.bring(WORST)
        began = time.monotonic()
        program.experiments.run(TuneState("cpu", everything=True))
        program.experiments.join(600)
        tune_s = time.monotonic() - began
        state = program.session.snapshot().tuned
        assert state is not None
        for attempt in state.attempts:
            found = gain_text(attempt.gain) if attempt.gain else attempt.reason
            print(f"  {change_text(attempt):28} {found:34} {attempt.outcome}", flush=True)
        tuned = {knob: lane.driver.lane("cpu").settings[knob] for knob in GRID}
        total = best_of(state).speed_up
        print(f"tuning: {settings_text(state)}, {gain_text(total) if total else ''} in {tune_s:.0f} s", flush=True)

        began, speeds = time.monotonic(), []
        for settings in combinations():
            lane.bring(settings)
            speeds.append((lane.throughput(), settings))
        sweep_s = time.monotonic() - began
        speeds.sort(key=lambda one: one[0], reverse=True)
        print(f"sweep: {len(speeds)} combinations in {sweep_s:.0f} s; the best:")
        for speed, settings in speeds[:5]:
            print(f"  {speed:9.0f} examples/s  {settings}", flush=True)

        program.lanes.set_exclusive("cpu")
        pairs = []
        for _ in range(ROUNDS):
            lane.bring(speeds[0][1])
            best = lane.slices(SLICES)
            lane.bring(tuned)
            pairs += list(zip(best, lane.slices(SLICES), strict=False))
        share = gain(pairs)
        assert share is not None
        print(
            f"tuned over best: {share.value:.3f} ({share.low:.3f} to {share.high:.3f}), goal 0.9; "
            f"time {tune_s / sweep_s:.3f} of the sweep's, goal 0.1"
        )
    except FailedError as failed:
        raise SystemExit(str(failed)) from failed
    finally:
        lane.driver.close()
        program.close()


if __name__ == "__main__":
    main()

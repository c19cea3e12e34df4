"""Measure what a lane loses by being monitored: its throughput against the same loop run bare.

    python tests/benchmarks/overhead.py [--scenario small-dense] [--lane cpu] [--pairs 30] [--slice 1.0]
        [--starts 3] [--json]

Two children stand ready on the same device with the same scenario, data, batch, pipeline and step. One is a
lane of a race, with its session and the sampling in this process, as in a real race; the other counts its steps
and reports nothing. They train in slices, in the order ABBA, so that a drift of the machine's speed affects both.
The first part of every slice is discarded, for both alike. The lane's figure comes from its own windows, all of
them; the bare loop's from two readings of the clock.

The ratio of each pair's throughputs is taken, then their median, with a bootstrap interval. Two equal
processes differ in speed for their whole lifetime, so the pairs are spread over several starts of both.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.common import ANSWER_S, Watch, bootstrap, met, options_of, plan_one_lane, racing
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.plan import RacePlan
from tfmon.model.lane_events import PhaseEntered, Window
from tfmon.model.lane_state import PAUSED

DISCARDED_S = 0.2
"""How much of the start of every slice is discarded."""
GOAL = 0.98

# ---------------------------------------------------------------- the lane and the bare loop, one slice each


def lane_slice(lanes: LaneGroup, watch: Watch, lane: str, seconds: float) -> float:
    """Let the lane train for a slice; return its steps per second."""
    start = watch.heard
    from_ns = time.monotonic_ns() + int(DISCARDED_S * 1e9)
    lanes.resume([lane])
    time.sleep(seconds)
    lanes.pause([lane])
    watch.wait(lambda event: isinstance(event, PhaseEntered) and event.phase == PAUSED, start, ANSWER_S)
    windows = [event for event in watch.since(start) if isinstance(event, Window)]
    counted = [window for window in windows if window.at_ns - window.span_ns >= from_ns]
    if not counted:
        raise SystemExit("no window lies wholly in the slice; make the slices longer")
    return sum(window.steps for window in counted) / sum(window.span_ns for window in counted) * 1e9


class BareLoop:
    """The other child, and the lines that are spoken with it."""

    def __init__(self, plan: RacePlan) -> None:
        (lane,) = plan.lanes
        environment = {
            **os.environ,
            **{key: value for key, value in lane.environment.items() if value is not None},
        }
        self._child = subprocess.Popen(
            [str(plan.python), __file__, "--bare", str(plan.scenario), lane.spec.kind, json.dumps(lane.settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._hear("ready")

    def slice(self, seconds: float) -> float:
        """Let it train for a slice; return its steps per second."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{seconds}\n")
        self._child.stdin.flush()
        return float(self._hear("speed"))

    def close(self) -> None:
        """End it; TensorFlow's own way out takes its time."""
        self._child.kill()
        self._child.communicate()

    def _hear(self, word: str) -> str:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            said, _, rest = line.strip().partition(" ")
            if said == word:
                return rest
        raise SystemExit(f"the bare loop ended with exit code {self._child.wait()}")


def run_bare(scenario_path: str, device: str, settings: dict[str, Any]) -> None:
    """Be the bare loop: the same scenario, pipeline and step as a lane's, and nothing around the step."""
    import tensorflow as tf

    from tfmon.trainer.scenario import load

    if device == "cpu":
        tf.config.set_visible_devices([], "GPU")
    scenario = load(Path(scenario_path))(settings)
    with tf.device("CPU:0"):
        data = scenario.data()
        if not isinstance(data, tf.data.Dataset):
            data = tf.data.Dataset.from_tensor_slices(data)
        dataset = scenario.batches(data, settings["batch_size"])
        prefetch = settings["prefetch"]
        if prefetch != "off":
            dataset = dataset.prefetch(tf.data.AUTOTUNE if prefetch == "auto" else prefetch)
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        dataset = dataset.with_options(options)
    model = scenario.model()
    signature = [tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) for spec in dataset.element_spec]
    model.optimizer.build(model.trainable_variables)
    step = tf.function(scenario.step(model), input_signature=signature, jit_compile=False)
    batches = iter(dataset)
    _bare_slice(batches, step, DISCARDED_S, 1.0)
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        print("speed", _bare_slice(batches, step, DISCARDED_S, float(line)), flush=True)


def _bare_slice(batches: Iterator[Any], step: Callable[..., Any], left_out_s: float, seconds: float) -> float:
    began = time.monotonic()
    _bare_steps(batches, step, began + left_out_s)
    from_s = time.monotonic()
    steps = _bare_steps(batches, step, began + seconds)
    return steps / (time.monotonic() - from_s)


def _bare_steps(batches: Iterator[Any], step: Callable[..., Any], until_s: float) -> int:
    clock = time.monotonic
    steps = 0
    for batch in batches:
        loss = step(*batch)
        steps += 1
        if clock() >= until_s:
            break
    loss.numpy()  # The device is through with every step that was counted.
    return steps


# ---------------------------------------------------------------- pairs, and what they say


def measure(plan: RacePlan, pairs: int, seconds: float) -> list[tuple[float, float]]:
    """Return each pair's steps per second, of the lane and of the bare loop."""
    lane = plan.lanes[0].spec.name
    measured = []
    with racing(plan) as (lanes, watch, sampling), contextlib.closing(BareLoop(plan)) as bare:
        for number in range(pairs + 1):
            speeds: dict[str, float] = {}
            for who in ("bare", "lane") if number % 2 else ("lane", "bare"):
                sampling.resting = who == "bare"
                speeds[who] = bare.slice(seconds) if sampling.resting else lane_slice(lanes, watch, lane, seconds)
            measured.append((speeds["lane"], speeds["bare"]))
    return measured[1:]  # The first pair only makes both children warm.


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--bare"]:
        run_bare(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
        return
    options = options_of(__doc__, scenario="small-dense", lane="cpu", pairs=30, slice=1.0, starts=3, json=False)
    plan = plan_one_lane(options.scenario, options.lane)
    share = math.ceil(options.pairs / options.starts)
    starts = [measure(plan, share, options.slice) for _ in range(options.starts)]
    measured = [pair for start in starts for pair in start]
    ratios = np.array([lane / bare for lane, bare in measured])
    by_start = [statistics.median(lane / bare for lane, bare in start) for start in starts]
    low, high = bootstrap(ratios)
    median = float(np.median(ratios))
    lane_speed, bare_speed = (float(np.median(speeds)) for speeds in zip(*measured, strict=True))
    if options.json:
        result = {
            "scenario": options.scenario,
            "lane": options.lane,
            "ratio": median,
            "interval_95": [low, high],
            "lane_steps_per_s": lane_speed,
            "bare_steps_per_s": bare_speed,
            "by_start": by_start,
            "pairs": measured,
        }
        print(json.dumps(result))
        return
    print(
        f"{options.scenario} on {options.lane}, {len(measured)} pairs of {options.slice:g} s:"
        f" lane {lane_speed:.1f} steps/s, bare {bare_speed:.1f} steps/s"
    )
    print(f"lane / bare in each start: {', '.join(f'{ratio:.4f}' for ratio in by_start)}")
    print(
        f"lane / bare: median {median:.4f}, 95 % interval {low:.4f} to {high:.4f}"
        f"   (goal {GOAL:g} or more: {met(median >= GOAL)})"
    )


if __name__ == "__main__":
    main()

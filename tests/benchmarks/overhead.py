"""Measure what watching costs a lane: its loop with all that tfmon adds to it, and bare, every other second.

    python tests/benchmarks/overhead.py [--scenario small-dense] [--lane cpu] [--pairs 150] [--slice 1.0] [--json]

One process trains both, with the same weights, batches and pipeline, so that what two equal processes differ by is
no part of the figure. It is a lane of a race: the scheduler grants it slices and suspends it between them, and the
session and the sampling run in this process. In every other slice (in the order ABBA, so that a drift of the
machine's speed affects both alike) its loop takes batches and steps, and does nothing else: no clock but the one
that ends the slice, no windows, samples, histograms or reports, and no sampling here.

Each pair of slices gives a ratio of steps per second. The figure is their trimmed mean, without the lowest and the
highest fifth, with a bootstrap interval.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tfmon.lanes.plan import RacePlan
from tfmon.model.lane_events import SliceEnded

GOAL, WIDTH = 0.99, 0.005
"""What is to be kept at least, and half the interval at most."""
FILE_VARIABLE = "TFMON_OVERHEAD_FILE"
"""Where the child writes a line for each slice."""
FIRST_PAIRS = 2
"""Pairs that only make the process warm."""
TRIM = 0.2
PATIENCE = 20
"""A slice may take so many times as long as planned."""


def is_watched(round_number: int) -> bool:
    """Return whether a slice is trained with all that tfmon adds: A B B A."""
    return round_number % 4 in (0, 1)


# ---------------------------------------------------------------- the child


def run_lane(metric_fd: int, request_fd: int) -> None:
    """Be the lane: a child of the trainer, whose loop is bare in every other slice."""
    from tfmon.model.requests import RunSlice
    from tfmon.trainer import child, loop

    out = Path(os.environ[FILE_VARIABLE])

    class SwitchedLoop(loop.Loop):
        """The loop of a lane, switched off in every other slice."""

        def handle(self, request: Any) -> None:
            """Train a bare slice, or do as usual."""
            if not isinstance(request, RunSlice):
                super().handle(request)
                return
            self.began_ns, self.done_before = time.monotonic_ns(), self.clock.done
            if is_watched(request.round):
                super().handle(request)
            else:
                steps = self.train_bare(request.seconds)
                self.record(request.round, steps)
                self._sink.send(SliceEnded(at_ns=time.monotonic_ns(), round=request.round))

        def slice_ended(self, ended: RunSlice, at_ns: int) -> None:
            """Report the end of a slice, which is the last that a watched slice costs."""
            steps = self.clock.done - self.done_before
            super().slice_ended(ended, at_ns)
            self.record(ended.round, steps)

        def train_bare(self, seconds: float) -> int:
            """Train for a slice with nothing around the step; return how many steps that were."""
            clock, step = time.monotonic, self._stepper.step
            until_s = clock() + seconds
            steps = 0
            for batch in self._stepper.feed.batches:
                loss = step(*batch)
                steps += 1
                if clock() >= until_s:
                    break
            float(np.mean(loss))  # The device is through with every step that was counted.
            return steps

        def record(self, round_number: int, steps: int) -> None:
            """Write down the slice that has just ended."""
            took_ns = time.monotonic_ns() - self.began_ns
            with out.open("a", encoding="utf-8") as file:
                file.write(f"{round_number} {steps / took_ns * 1e9}\n")

    with mock.patch.object(loop, "Loop", SwitchedLoop):
        child.run(metric_fd, request_fd)


# ---------------------------------------------------------------- this process


def measure(plan: RacePlan, pairs: int, seconds: float) -> list[tuple[float, float]]:
    """Return each pair's steps per second, watched and bare."""
    from tests.benchmarks.common import ANSWER_S, racing

    (lane,) = plan.lanes
    with tempfile.TemporaryDirectory(prefix="tfmon-overhead-") as folder:
        out = Path(folder) / "slices"
        environment = {**lane.environment, FILE_VARIABLE: str(out)}
        plan = replace(plan, lanes=(replace(lane, environment=environment),))
        slices = 2 * (pairs + FIRST_PAIRS)
        with racing(plan, script=Path(__file__)) as (lanes, watch, sampling):

            def follow(event: Any) -> None:
                if isinstance(event, SliceEnded):
                    sampling.resting = not is_watched(event.round + 1)

            watch.session.listen(follow)
            start = watch.heard
            lanes.set_exclusive(lane.spec.name, seconds)
            lanes.resume([lane.spec.name])
            for number in range(1, slices + 1):
                watch.wait(
                    lambda event, number=number: isinstance(event, SliceEnded) and event.round >= number,
                    start,
                    PATIENCE * seconds + ANSWER_S,
                )
                start = max(0, watch.heard - 50)
        speeds = dict(line.split() for line in out.read_text("utf-8").splitlines())
    found = []
    for first in range(2 * FIRST_PAIRS + 1, slices, 2):
        both = {is_watched(number): float(speeds[str(number)]) for number in (first, first + 1)}
        found.append((both[True], both[False]))
    return found


def trimmed_mean(logs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the mean of each row without its lowest and its highest fifth."""
    cut = int(TRIM * logs.shape[-1])
    kept = np.sort(logs, axis=-1)[..., cut : logs.shape[-1] - cut]
    return np.asarray(kept.mean(axis=-1))


def kept_share(measured: Sequence[tuple[float, float]], draws: int = 10_000) -> tuple[float, float, float]:
    """Return the share of the bare loop's speed that is kept, and its 95 % bootstrap interval."""
    logs = np.log([watched / bare for watched, bare in measured])
    drawn = np.random.default_rng(0).choice(logs, (draws, len(logs)))
    low, high = np.quantile(trimmed_mean(drawn), (0.025, 0.975))
    return float(np.exp(trimmed_mean(logs))), float(np.exp(low)), float(np.exp(high))


def main() -> None:
    """Measure and print."""
    if len(sys.argv) == 3 and all(word.isdigit() for word in sys.argv[1:]):
        run_lane(int(sys.argv[1]), int(sys.argv[2]))
        return
    from tests.benchmarks.common import met, options_of, plan_one_lane

    options = options_of(__doc__, scenario="small-dense", lane="cpu", pairs=150, slice=1.0, json=False)
    measured = measure(plan_one_lane(options.scenario, options.lane), options.pairs, options.slice)
    share, low, high = kept_share(measured)
    watched, bare = (float(np.median(speeds)) for speeds in zip(*measured, strict=True))
    if options.json:
        result = {
            "scenario": options.scenario,
            "lane": options.lane,
            "ratio": share,
            "interval_95": [low, high],
            "watched_steps_per_s": watched,
            "bare_steps_per_s": bare,
            "pairs": measured,
        }
        print(json.dumps(result))
        return
    print(
        f"{options.scenario} on {options.lane}, {len(measured)} pairs of slices of {options.slice:g} s:"
        f" watched {watched:.1f} steps/s, bare {bare:.1f} steps/s"
    )
    half = (high - low) / 2
    print(f"kept: {100 * share:.2f} %, 95 % interval {100 * low:.2f} to {100 * high:.2f} %")
    print(
        f"goal {100 * GOAL:g} % or more: {met(share >= GOAL)};"
        f" interval of ±{100 * WIDTH:g} % or less: {met(half <= WIDTH)} (±{100 * half:.2f} %)"
    )


if __name__ == "__main__":
    main()

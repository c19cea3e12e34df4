"""Measure what watching costs a lane: its loop with all that tfmon adds to it, and bare, in turns of 50 ms.

    python benchmarks/overhead.py [--scenario small-dense] [--lane cpu] [--slices 300]

One process trains both, with the same weights, batches and pipeline, so that what two equal processes differ by
is not part of the figure. It is a lane of a race: the scheduler grants it slices and suspends it between them.
Half of each slice the loop is watched: windows, histograms, samples, reports, the slice's beginning and end.
The other half it takes batches and steps and does nothing else. The two alternate every 50 ms, in the order
ABBA: the speed of a machine that others use, too, differs by 10 % from one half second to the next, and by
hardly more from one twentieth to the next, so that many short turns are ten times as precise as a few long ones.

Each slice gives a ratio of steps per second. The figure is their trimmed mean, without the lowest and the
highest fifth, with a bootstrap interval. The cost of the monitor beside the lane is a separate figure.
"""

from __future__ import annotations

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

from tfmon.lanes.plan import RacePlan
from tfmon.model.lane_events import SliceEnded

GOAL, WIDTH = 0.99, 0.005
"""Least share of the speed that must be kept, and largest half width of the interval."""
FILE_VARIABLE = "TFMON_OVERHEAD_FILE"
"""Where the child writes a line for each slice."""
FIRST_SLICES = 4
"""Slices that only make the process warm."""
SLICE_S = 0.5
"""Length of the watched part of a slice, as in a race; the bare part has the same length."""
TURN_NS = 50_000_000
TRIM = 0.2
PATIENCE = 40
"""Largest factor by which a slice may exceed its planned length."""


def run_lane(metric_fd: int, request_fd: int) -> None:
    """Be the lane: a child of the trainer, whose loop is bare for half of the time."""
    from tfmon.model.requests import RunSlice
    from tfmon.trainer import child, loop

    out = Path(os.environ[FILE_VARIABLE])

    class AlternatingLoop(loop.Loop):
        """Trains bare turns between the usual ones, and writes down its slices."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.bare_ns = self.bare_steps = 0
            self.bare_first = False
            self._handle, self._slice_ended = self.control.handle, self.control.slice_ended
            self.control.handle, self.control.slice_ended = self.handle, self.slice_ended

        def _train_until(self, deadline_ns: int, limit: int) -> int:
            """Train until the deadline, which moves by the time that was bare."""
            if self.control.slices.current is None or deadline_ns == 0:
                return super()._train_until(deadline_ns, limit)
            clock = self.control.clock
            done = clock.done
            while True:
                if self.bare_first:
                    deadline_ns += self.train_bare()
                turn_ns = min(deadline_ns, time.monotonic_ns() + TURN_NS)
                at_ns = super()._train_until(turn_ns, limit - (clock.done - done))
                if not self.bare_first:
                    deadline_ns += (took_ns := self.train_bare())
                    at_ns += took_ns
                self.bare_first = not self.bare_first
                if at_ns >= deadline_ns or clock.done - done >= limit or self._mailbox.waiting:
                    return at_ns

        def train_bare(self) -> int:
            """Train for a turn with nothing around the step, and move all deadlines; return how long that took."""
            began_ns = time.monotonic_ns()
            clock, step, steps = time.monotonic, self._step, 0
            until_s = clock() + TURN_NS / 1e9
            for batch in self._feed.batches:
                loss = step(*batch)
                steps += 1
                if clock() >= until_s:
                    break
            float(np.mean(loss))  # The device is through with every step that was counted.
            took_ns = time.monotonic_ns() - began_ns
            self.bare_ns += took_ns
            self.bare_steps += steps
            control = self.control
            for keeper, name in (
                (control.slices, "ends_ns"), (control, "stretch_began_ns"),
                (control.clock, "began_ns"), (control.clock, "last_end_ns"),
            ):  # fmt: skip
                setattr(keeper, name, getattr(keeper, name) + took_ns)
            return took_ns

        def handle(self, request: Any) -> None:
            """Call the base class, and note the values at the start of the slice."""
            if isinstance(request, RunSlice):
                self.bare_ns = self.bare_steps = 0
                self.began_ns, self.done_before = time.monotonic_ns(), self.control.clock.done
            self._handle(request)

        def slice_ended(self, ended: RunSlice, at_ns: int) -> None:
            """Report the end of a slice, which is the last that a watched slice costs."""
            self._slice_ended(ended, at_ns)
            watched_ns = time.monotonic_ns() - self.began_ns - self.bare_ns
            watched = (self.control.clock.done - self.done_before) / watched_ns
            with out.open("a", encoding="utf-8") as file:
                file.write(f"{watched * 1e9} {self.bare_steps / self.bare_ns * 1e9}\n")

    with mock.patch.object(loop, "Loop", AlternatingLoop):
        child.run(metric_fd, request_fd)


def measure(plan: RacePlan, slices: int) -> tuple[list[tuple[float, float]], float]:
    """Return each slice's steps per second, watched and bare, and which share of a core this process took."""
    from common import ANSWER_S, racing

    (lane,) = plan.lanes
    with tempfile.TemporaryDirectory(prefix="tfmon-overhead-") as folder:
        out = Path(folder) / "slices"
        environment = {**lane.environment, FILE_VARIABLE: str(out)}
        plan = replace(plan, lanes=(replace(lane, environment=environment),))
        with racing(plan, script=Path(__file__)) as (lanes, watch):
            start = watch.heard
            began_s, cpu_s = time.monotonic(), time.process_time()
            lanes.set_exclusive(lane.spec.name, SLICE_S)
            lanes.resume([lane.spec.name])
            for number in range(1, slices + FIRST_SLICES + 1):
                watch.wait(
                    lambda event, number=number: isinstance(event, SliceEnded) and event.round >= number,
                    start,
                    PATIENCE * SLICE_S + ANSWER_S,
                )
                start = max(0, watch.heard - 50)
            monitor = (time.process_time() - cpu_s) / (time.monotonic() - began_s)
        lines = [line.split() for line in out.read_text("utf-8").splitlines()]
    return [(float(watched), float(bare)) for watched, bare in lines[FIRST_SLICES:]], monitor


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
    from common import met, options_of, plan_one_lane

    options = options_of(__doc__, scenario="small-dense", lane="cpu", slices=300)
    measured, monitor = measure(plan_one_lane(options.scenario, options.lane), options.slices)
    share, low, high = kept_share(measured)
    watched, bare = (float(np.median(speeds)) for speeds in zip(*measured, strict=True))
    print(
        f"{options.scenario} on {options.lane}, {len(measured)} slices of {SLICE_S:g} s watched and as long bare:"
        f" {watched:.1f} and {bare:.1f} steps/s"
    )
    half = (high - low) / 2
    print(f"kept: {100 * share:.2f} %, 95 % interval {100 * low:.2f} to {100 * high:.2f} %")
    print(f"the monitor beside it: {100 * monitor:.2f} % of a core")
    print(
        f"goal {100 * GOAL:g} % or more: {met(share >= GOAL)};"
        f" interval of ±{100 * WIDTH:g} % or less: {met(half <= WIDTH)} (±{100 * half:.2f} %)"
    )


if __name__ == "__main__":
    main()

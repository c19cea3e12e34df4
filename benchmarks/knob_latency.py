"""Measure how fast a knob acts on a lane that trains, and how long the training stops for it.

    python benchmarks/knob_latency.py [--scenario small-dense] [--lane cpu] [--presses 50] [--rest 0.5]

Presses one knob after the other, as the keys do: the batch doubled, prefetch one further, the batch halved,
prefetch one further. Each press waits for the one before to be applied, and then for a random part of the rest,
so that presses fall on every part of a window. With `--rest 0` a key is kept pressed.

Latency is from the press to the end of the first step under the new value; the gap is the longest time
between the ends of two steps around the change, as the lane says it; the window's longest step is the same
as the lane's windows say it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
from common import ANSWER_S, is_steady, met, options_of, plan_one_lane, racing

from tfmon.lanes.plan import RacePlan
from tfmon.model.knobs import BATCH_SIZE, PREFETCH, KnobValue
from tfmon.model.lane_events import KnobApplied, KnobRefused, Window, quantile_ns

GOAL_LATENCY_MS, GOAL_GAP_MS = 60.0, 10.0
GOAL_STEPS = 3
"""At the 95th percentile; the gap may also last so many ordinary steps."""
CHANGED = "knob change"


def presses(settings: dict[str, KnobValue], count: int) -> Iterator[tuple[str, KnobValue]]:
    """Yield knobs and values: the batch doubled and halved, and prefetch once around in between."""
    batch_size, prefetch = settings["batch_size"], settings["prefetch"]
    assert isinstance(batch_size, int)
    for number in range(count):
        if number % 2:
            prefetch = PREFETCH.next(prefetch, +1)
            yield PREFETCH.name, prefetch
        else:
            yield BATCH_SIZE.name, batch_size * (1 if number % 4 else 2)


def measure(plan: RacePlan, count: int, rest_s: float) -> tuple[list[float], list[float], list[float], float]:
    """Press; return latency and gap of each press, the longest step around each change, and an ordinary step.

    Units: ms; the ordinary step is the median of all steps in windows without a mark.
    """
    (lane,) = plan.lanes
    latencies, gaps = [], []
    chance = random.Random(0)
    with racing(plan) as (lanes, watch):
        lanes.resume([lane.spec.name])
        watch.wait(lambda event: isinstance(event, Window), 0, ANSWER_S)
        time.sleep(1.0)
        begin = watch.heard
        for knob, value in presses(lane.settings, count):
            start = watch.heard
            pressed_ns = time.monotonic_ns()
            lanes.set_knob(lane.spec.name, knob, value)
            answer = watch.wait(lambda event: isinstance(event, KnobApplied | KnobRefused), start, ANSWER_S)
            if not isinstance(answer, KnobApplied) or (answer.knob, answer.value) != (knob, value):
                raise SystemExit(f"{knob}={value} was answered by {answer}")
            latencies.append((answer.at_ns - pressed_ns) / 1e6)
            gaps.append(answer.gap_ns / 1e6)
            time.sleep(chance.uniform(0.5, 1.0) * rest_s)
        watch.wait(is_steady, watch.heard, ANSWER_S)
        windows = [event for event in watch.since(begin) if isinstance(event, Window)]
    steps: Counter[int] = Counter()
    for window in windows:
        if not window.marks:
            steps.update(window.histogram)
    ordinary_ms = (quantile_ns(steps, 0.5) or 0.0) / 1e6
    longest = [window.longest_ns / 1e6 for window in windows if CHANGED in window.marks]
    return latencies, gaps, longest, ordinary_ms


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, scenario="small-dense", lane="cpu", presses=50, rest=0.5)
    plan = plan_one_lane(options.scenario, options.lane)
    latencies, gaps, longest, ordinary_ms = measure(plan, options.presses, options.rest)
    print(
        f"{options.scenario} on {options.lane}, {options.presses} neighbouring values, rest {options.rest:g} s,"
        f" ordinary step {ordinary_ms:.2f} ms"
    )
    for title, values, goal in (
        ("press to applied", latencies, GOAL_LATENCY_MS),
        ("gap between steps", gaps, max(GOAL_GAP_MS, GOAL_STEPS * ordinary_ms)),
        ("longest step of its window", longest, None),
    ):
        median, p95 = np.quantile(values, (0.5, 0.95))
        said = "" if goal is None else f"   (p95 at most {goal:g}: {met(p95 <= goal)})"
        print(f"{title:27} median {median:7.2f} ms   p95 {p95:7.2f} ms   max {max(values):7.2f} ms{said}")


if __name__ == "__main__":
    main()

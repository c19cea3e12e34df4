"""Measure what `tfmon.watch` costs the training in its block: with and without it, by turns, in one process.

    python benchmarks/watch_cost.py [fit|loop] [ROUNDS] [UNITS]

A round trains three times for about a second: without it; with its hooks alone, which a lane of `tfmon watch` has,
too; and with the readings of each second and the panel. `fit` is Keras on one model with two train functions, of
which one was traced in a block; `loop` a loop with a tf.function. Printed are medians of the ratios, of time and
of the CPU time of all threads, with a 95 % interval by their order.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import sys
import time

from loop_cost import STEPS, UNITS, data, epoch, model

import tfmon
from tfmon.api import watch as api

WHAT = sys.argv[1] if len(sys.argv) > 1 else "fit"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 30
PART_S, WARM_UP = 1.0, 2
OFF, HOOKS, WATCH = "off", "hooks", "watch"
functions: dict[bool, object] = {}
host_probe = api.HostProbe


class NoProbe:
    """Reads nothing."""

    name = "none"

    def __init__(self, _lanes) -> None: ...

    def sample(self) -> list:
        return []

    def close(self) -> None: ...


def train(on: bool) -> None:
    if WHAT == "fit":
        model.train_function = functions.get(on)
        model.fit(data, epochs=1, verbose=0)
        functions[on] = model.train_function
    else:
        epoch()


def part(kind: str, epochs: int) -> tuple[float, float, float]:
    """Return seconds and CPU seconds of some epochs, and the seconds of leaving the block."""
    api.HostProbe = host_probe if kind == WATCH else NoProbe
    shows = (lambda _line: watched._repr_html_()) if kind == WATCH else False
    watched = contextlib.nullcontext() if kind == OFF else tfmon.watch(progress=shows)
    with watched:
        train(kind != OFF)  # warm-up
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for _ in range(epochs):
            train(kind != OFF)
        ended_s, ended_cpu_s = time.perf_counter(), time.process_time()
    return ended_s - began_s, ended_cpu_s - began_cpu_s, time.perf_counter() - ended_s


def told(ratios: list[float]) -> str:
    """Return the median of ratios with its interval."""
    ratios = sorted(100 * ratio - 100 for ratio in ratios)
    out = max(0, math.floor(len(ratios) / 2 - 0.98 * math.sqrt(len(ratios))))
    return f"{statistics.median(ratios):+.2f} % [{ratios[out]:+.2f}, {ratios[-1 - out]:+.2f}]"


def main() -> None:
    with tfmon.watch(progress=False):
        train(True)
    train(False)
    epochs = max(1, round(PART_S / part(OFF, 1)[0]))
    rounds = []
    for number in range(-WARM_UP, ROUNDS):
        took = {kind: part(kind, epochs) for kind in random.sample((OFF, HOOKS, WATCH), 3)}
        if number >= 0:
            rounds.append(took)
    each_us = [
        1e6 * statistics.median(round_[OFF][place] for round_ in rounds) / epochs / STEPS for place in (0, 1)
    ]
    leave_ms = 1e3 * statistics.median(round_[WATCH][2] for round_ in rounds)
    print(f"{WHAT}, {UNITS} units: a step takes {each_us[0]:.0f} µs, and {each_us[1]:.0f} µs of CPU")
    print(f"leaving the block takes {leave_ms:.0f} ms")
    for kind, other in ((HOOKS, OFF), (WATCH, HOOKS), (WATCH, OFF)):
        texts = [told([round_[kind][place] / round_[other][place] for round_ in rounds]) for place in (0, 1)]
        print(f"{kind} over {other}: time {texts[0]}, CPU {texts[1]}")


main()

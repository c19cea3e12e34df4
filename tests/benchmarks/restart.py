"""Measure how long a lane takes to train again after a restart, with and without a spare child.

    python tests/benchmarks/restart.py [--scenario small-dense] [--times 9]

Two lanes race in turns on the CPU; one is started again and again, by turns in a program with a spare and in one
without, each after the spare has had time to load. It prints the medians from the request to the lane's first
training step, and to its first window that is measured; then how long a lane takes to end.
"""

from __future__ import annotations

import statistics
import time

from common import Watch, is_steady, options_of, program_of

from tfmon.api.options import RaceOptions
from tfmon.catalog import find_scenario
from tfmon.model.events import Event
from tfmon.model.lane_events import PhaseEntered
from tfmon.model.lane_state import WARMING_UP

PATIENCE_S = 120.0


def _trains(event: Event) -> bool:
    return isinstance(event, PhaseEntered) and (event.lane, event.phase) == ("cpu", WARMING_UP)


def _is_measured(event: Event) -> bool:
    return event.lane == "cpu" and is_steady(event)


def restarts(scenario: str, times: int, *, spare: bool) -> tuple[list[float], list[float], float]:
    """Return how long each restart took to train and to be measured, and how long the lane took to end."""
    options = RaceOptions(lanes=("cpu", "cpu,batch_size=256"), spare=spare)
    training, measured = [], []
    with program_of(options, find_scenario(scenario)) as program:
        watch = Watch(program.session)
        for _ in range(times):
            watch.wait(_is_measured, watch.heard, PATIENCE_S)
            deadline = time.monotonic() + PATIENCE_S
            while spare and not program.lanes.running.children.spare.ready and time.monotonic() < deadline:
                time.sleep(0.05)
            start, began_ns = watch.heard, time.monotonic_ns()
            program.lanes.restart(["cpu"])
            for fits, took in ((_trains, training), (_is_measured, measured)):
                took.append((watch.wait(fits, start, PATIENCE_S).at_ns - began_ns) / 1e9)
        began = time.monotonic()
        program.lanes.kill("cpu")
        while program.session.snapshot().lane("cpu").ended is None:
            time.sleep(0.005)
        return training, measured, time.monotonic() - began


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, scenario="small-dense", times=9)
    figures = {}
    for name, spare in (("spare", True), ("none", False)):
        training, measured, ended = restarts(options.scenario, options.times, spare=spare)
        figures[name] = statistics.median(training)
        print(
            f"{name:6} trains after {statistics.median(training):.2f} s (slowest {max(training):.2f}), measured "
            f"after {statistics.median(measured):.2f} s; a lane ends within {ended:.2f} s",
            flush=True,
        )
    print(f"with a spare in {figures['spare'] / figures['none']:.2f} of the time; goal 0.8 s until it trains")


if __name__ == "__main__":
    main()

"""Measure how long a lane takes to train again after a restart, with and without a spare child.

    python tests/benchmarks/restart.py [--scenario small-dense] [--times 9]

Two lanes race in turns on the CPU; one is started again and again, by turns in a program with a spare and in one
without, each after the spare has had time to load. It prints the medians from the request to the lane's first
training step, and to its first window that is measured; then how long a lane takes to end.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tfmon.catalog import find_scenario
from tfmon.model.events import Event, LaneEnded
from tfmon.model.lane_events import PhaseEntered, Window
from tfmon.model.lane_state import WARMING_UP
from tfmon.runner.planner import RaceOptions
from tfmon.runner.program import Program

PATIENCE_S = 120.0


class Watch:
    """When a lane first did something since the clock was set."""

    def __init__(self, program: Program, lane: str) -> None:
        self._lane = lane
        self._news = threading.Condition()
        self.set()
        program.session.listen(self._hear)

    def set(self) -> None:
        """Start the clock."""
        self._began_ns, self.seen = time.monotonic_ns(), {}

    def wait(self, what: str) -> float:
        """Return when it happened, in seconds since the clock was set."""
        with self._news:
            if not self._news.wait_for(lambda: what in self.seen, PATIENCE_S):
                raise SystemExit(f"no {what} within {PATIENCE_S:.0f} s")
        return self.seen[what]

    def _hear(self, event: Event) -> None:
        if event.lane != self._lane:
            return
        with self._news:
            match event:
                case PhaseEntered(phase=phase) if phase == WARMING_UP:
                    self._note("training", event)
                case Window(marks=()):
                    self._note("measured", event)
                case LaneEnded():
                    self._note("ended", event)
            self._news.notify_all()

    def _note(self, what: str, event: Event) -> None:
        self.seen.setdefault(what, (event.at_ns - self._began_ns) / 1e9)


def restarts(scenario: str, times: int, *, spare: bool) -> tuple[list[float], list[float], list[float]]:
    """Return how long each restart took to train and to be measured, and how long lanes took to end."""
    program = Program(RaceOptions(lanes=("cpu", "cpu,batch_size=256"), spare=spare))
    watch = Watch(program, "cpu")
    training, measured, ended = [], [], []
    try:
        program.begin(program.plan(find_scenario(scenario)))
        for _ in range(times):
            watch.wait("measured")
            deadline = time.monotonic() + PATIENCE_S
            while spare and not program.lanes.spare_ready and time.monotonic() < deadline:
                time.sleep(0.05)
            watch.set()
            program.lanes.restart(["cpu"])
            training.append(watch.wait("training"))
            measured.append(watch.wait("measured"))
        watch.set()
        program.lanes.kill("cpu")
        ended.append(watch.wait("ended"))
    finally:
        program.close()
    return training, measured, ended


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="small-dense")
    parser.add_argument("--times", type=int, default=9)
    options = parser.parse_args()
    figures = {}
    for name, spare in (("spare", True), ("none", False)):
        training, measured, ended = restarts(options.scenario, options.times, spare=spare)
        figures[name] = statistics.median(training)
        print(
            f"{name:6} trains after {statistics.median(training):.2f} s (slowest {max(training):.2f}), measured "
            f"after {statistics.median(measured):.2f} s; a lane ends within {max(ended):.2f} s",
            flush=True,
        )
    print(f"with a spare in {figures['spare'] / figures['none']:.2f} of the time; goal 0.8 s until it trains")


if __name__ == "__main__":
    main()

"""Measure what sampling costs: CPU time a tick, and the share of a core at one tick a second.

    python tests/benchmarks/sampling_cost.py [--lanes 4] [--processes 3] [--threads 60] [--ticks 120] [--rest 0.1]

Starts lanes of idle processes, each with as many threads and as much memory as a small training, and samples
them through the real tickers into a session. Rests are shorter than in life, so that it takes seconds; the
process table is still read once in three ticks. With `--driver LIBRARY` two GPUs are sampled too, through
pynvml and that library (a libnvidia-ml.so.1; a fake one has its script in FAKE_NVML_SCRIPT, and shows what
pynvml and tfmon cost, not what a driver does). Rests are in real seconds; 1 is as in life.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import threading
import time

import psutil
from common import options_of

from tfmon.model.session import Session
from tfmon.probes.base import Probe, Ticker
from tfmon.probes.host import HostProbe
from tfmon.probes.machine import read_machine
from tfmon.probes.nvidia.probe import NvidiaProbe

LANE = """
import os, sys, threading, time
processes, threads = int(sys.argv[1]), int(sys.argv[2])
for _ in range(processes - 1):
    if os.fork() == 0: break
ballast = bytearray(os.urandom(1)) * 50_000_000
for _ in range(threads): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


class Leaping:
    """A clock that leaps over most of each rest, so that a second between two ticks is sooner over.

    While a probe works it runs as the real one does, so that what the probe makes of its own cost is right.
    """

    def __init__(self, rest_s: float) -> None:
        self._rest_s = rest_s
        self._ahead_ns = 0

    def __call__(self) -> int:
        return time.monotonic_ns() + self._ahead_ns

    def wait(self, condition: threading.Condition, timeout_s: float) -> None:
        """Wait on a condition for so many seconds of this clock."""
        if not condition.wait(min(timeout_s, self._rest_s)):
            self._ahead_ns += max(0, int((timeout_s - self._rest_s) * 1e9))


def start_lanes(count: int, processes: int, threads: int) -> list[subprocess.Popen[str]]:
    """Start lanes and wait until all their processes are ready."""
    lanes = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", LANE, str(processes), str(threads)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(count)
    ]
    for lane in lanes:
        assert lane.stdout is not None
        for _ in range(processes):
            lane.stdout.readline()
    return lanes


class TimedTicker(Ticker):
    """Notes the CPU time of each tick, in ns."""

    costs: list[int]

    def _tick(self) -> None:
        begun_ns = time.thread_time_ns()
        super()._tick()
        self.costs.append(time.thread_time_ns() - begun_ns)


def measure(probe: Probe, session: Session, clock: Leaping, ticks: int) -> list[int]:
    """Sample a probe into a session, and return the CPU time of each tick and the mean, in ns."""
    ticker = TimedTicker(probe, session.accept, clock_ns=clock, wait=clock.wait)
    ticker.costs = costs = []
    ticker.start()
    while len(costs) < ticks:
        time.sleep(0.001)
    ticker.close()
    return [*costs, sum(costs) // len(costs)]


def report(name: str, costs: list[int]) -> float:
    """Print a probe's cost and return the mean share of a core, in percent."""
    *each, mean = costs
    share = mean / 1e9 * 100
    print(
        f"{name:8} mean {mean / 1e3:7.0f} µs   median {statistics.median(each) / 1e3:7.0f} µs"
        f"   worst {max(each) / 1e3:7.0f} µs   {share:.3f} % of a core at 1 Hz"
    )
    return share


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, lanes=4, processes=3, threads=60, ticks=120, rest=0.1, driver=None)
    lanes = start_lanes(options.lanes, options.processes, options.threads)
    try:
        pids = {f"lane {number}": lane.pid for number, lane in enumerate(lanes)}
        clock = Leaping(options.rest)
        session = Session(read_machine(), clock)
        print(
            f"{options.lanes} lanes of {options.processes} processes with {options.threads} threads each;"
            f" {len(psutil.pids())} processes on the machine; {options.ticks} ticks"
        )
        host = HostProbe(lambda: pids, clock_ns=clock)
        share = report("host", measure(host, session, clock, options.ticks))
        if options.driver is not None:
            import pynvml

            pynvml.nvmlLib = ctypes.CDLL(options.driver)
            share += report("nvidia", measure(NvidiaProbe(clock_ns=clock), session, clock, options.ticks))
        print(f"together {share:.3f} % of a core")
    finally:
        for lane in lanes:
            os.killpg(lane.pid, 9)
            lane.wait()


if __name__ == "__main__":
    main()

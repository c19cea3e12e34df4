"""Measure what two equal processes on two hosts differ by: the between-process part of an interval over hosts.

    python tests/benchmarks/between_hosts.py [--pairs 12] [--rounds 16]

The hosts are two names of this machine, over a loopback sshd, whose lanes take turns. So it is a lower bound: two
machines of one model differ by more than that. It trains small-dense, and needs sshd and a quiet machine.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from scipy.stats import chi2
from support.sshd import PROGRAMS, running_sshd
from support.waiting import wait_for

from tests.benchmarks.common import Watch, options_of
from tests.benchmarks.hosts import PATIENCE_S, linked, raced
from tfmon.analysis.means import trimmed
from tfmon.analysis.statistics import BETWEEN_MACHINES_SD, log_speeds
from tfmon.catalog import find_scenario
from tfmon.lanes.group import LaneGroup
from tfmon.model.race import Machine
from tfmon.model.session import Session
from tfmon.probes.gpus import GpuSearch
from tfmon.runner.planner import RaceOptions, plan_race

HOSTS = ("gpu2", "gpu3")


def measure_pair(rounds: int) -> tuple[float, float]:
    """Return the log ratio of a new pair of processes, and its standard error by the scatter of its rounds."""
    session = Session(Machine(), time.monotonic_ns)
    watch, links = Watch(session), {host: linked(host) for host in HOSTS}
    plan = plan_race(
        find_scenario("small-dense"),
        RaceOptions(lanes=tuple(f"{host}/cpu" for host in HOSTS)),
        lambda _: GpuSearch(),
    )[0]
    group = LaneGroup(session, lambda _: plan, places=links.__getitem__)
    try:
        for link in links.values():
            for event in link.events:  # which machine it is: these lanes take turns
                session.accept(event)
        group.begin(plan)
        wait_for(partial(raced, watch, rounds), PATIENCE_S, "enough slices")
        first, second = (log_speeds(lane.slices) for lane in watch.snapshot().lanes)
    finally:
        group.stop()
        for link in links.values():
            link.close()
    center = trimmed([one.log - second[number].log for number, one in first.items() if number in second])
    assert center is not None, "too few rounds"
    return center.value, center.error


def main() -> None:
    options = options_of(__doc__, pairs=12, rounds=16)
    if None in PROGRAMS:
        raise SystemExit("sshd, ssh or ssh-keygen is not installed")
    logs, errors = [], []
    with tempfile.TemporaryDirectory(prefix="tfmon-sshd-") as folder, running_sshd(Path(folder)) as sshd:
        if sshd is None:
            raise SystemExit("an sshd may not be started here")
        os.environ["PATH"] = os.pathsep.join([sshd.put_client(), os.environ["PATH"]])
        for pair in range(options.pairs):
            log, error = measure_pair(options.rounds)
            logs.append(log)
            errors.append(error)
            print(f"pair {pair + 1}: {math.exp(log):.4f}, ±{100 * error:.2f} % by its rounds", flush=True)
    degrees, spread = len(logs) - 1, statistics.variance(logs)
    low, high = (math.sqrt(degrees * spread / chi2.ppf(share, degrees)) for share in (0.975, 0.025))
    rest = math.sqrt(max(0.0, spread - statistics.mean(error**2 for error in errors)))
    print(f"standard deviation of the log ratio: {math.sqrt(spread):.4f} (95 % CI {low:.4f} to {high:.4f})")
    print(f"without the scatter of the rounds: {rest:.4f}; supposed: {BETWEEN_MACHINES_SD}")


if __name__ == "__main__":
    main()

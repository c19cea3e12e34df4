"""Measure lanes on Ray, on two nodes of this machine: how soon they start and obey, and whether they lie.

    python benchmarks/ray_lanes.py start [--times 10]   a lane on a running cluster, to its first word
    python benchmarks/ray_lanes.py keys [--times 400]   a request to a child and its answer
    python benchmarks/ray_lanes.py fair [--minutes 8]   a lane on Ray against one started here

`fair` trains small-dense; the others use children that train nothing. It needs Ray and a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time

from common import met, run_command
from hosts import FAIR_OPTIONS, begin_child, compare, percentiles
from ray_cluster.clusters import Nodes
from support.waiting import wait_for

from tfmon.lanes.lane_process import LaneProcess
from tfmon.model.lane_events import Hello

START_S, KEY_MS, FAIR = 3.0, 5.0, 0.015
"""The goals."""


def start(nodes: Nodes, options: argparse.Namespace) -> None:
    opened, said = [], []
    for _ in range(options.times):
        began = time.perf_counter()
        link = nodes.connect("ray")
        opened.append(time.perf_counter() - began)
        child = link.start("a_listener")
        wait_for(lambda child=child: any(isinstance(event, Hello) for event in child.events), what="a hello")
        said.append(time.perf_counter() - began)
        nodes.close_links()
    print(f"connected: median {percentiles(opened)[0]:.2f} s, p95 {percentiles(opened)[1]:.2f} s")
    middle, high = percentiles(said)
    print(f"a child's hello: median {middle:.2f} s, p95 {high:.2f} s; at most {START_S} s: {met(high <= START_S)}")


def keys(nodes: Nodes, options: argparse.Namespace) -> None:
    link = nodes.connect(f"ray:{nodes.last}")

    def begin(sink) -> LaneProcess:
        child = link.start("a_beat")
        child._hear = sink
        return child.process

    ask = begin_child(begin)
    middle, high = percentiles([ask() for _ in range(options.times)])
    goal = f"at most {KEY_MS} ms: {met(high <= KEY_MS)}"
    print(f"key to child and back: p50 {middle:.2f} ms, p95 {high:.2f} ms; {goal}")


def fair(nodes: Nodes, options: argparse.Namespace) -> None:
    compare(nodes.connect(f"ray:{nodes.last}"), "on Ray", options, FAIR)


MEASURED = {
    "start": (start, {"times": 10}),
    "keys": (keys, {"times": 400}),
    "fair": (fair, FAIR_OPTIONS),
}


def main() -> None:
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    os.environ.pop("RAY_ADDRESS", None)
    nodes = Nodes()
    nodes.add()
    os.environ.pop("PYTHONBREAKPOINT", None)  # of Ray, which this process has loaded
    try:
        run_command(__doc__, MEASURED, nodes)
    finally:
        nodes.end()


if __name__ == "__main__":
    main()

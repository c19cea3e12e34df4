"""Measures lanes over ssh, on a loopback sshd: their cost, the time of a request, and the truth of their figures.

    python benchmarks/hosts.py start [--times 10]       the command to Python's first word and the agent's
    python benchmarks/hosts.py keys [--times 400]       a request to a child and its answer, here and there
    python benchmarks/hosts.py agent [--seconds 30]     CPU and memory of an agent with four lanes
    python benchmarks/hosts.py fair [--minutes 8]       a lane through an agent against one started here
    python benchmarks/hosts.py between [--pairs 12]     what equal processes on two hosts differ by

`keys` uses children that train nothing; the others train small-dense. It needs sshd and a
quiet machine. The hosts of `between` are two names of this machine, whose lanes take turns: so it is a lower bound
of the between-process part of an interval over hosts; two machines of one model differ by more.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from common import Watch, mean_and_reach, met, run_command
from scipy.stats import chi2
from support.hosts import Linked
from support.lanes import CHILDREN
from support.sshd import PROGRAMS, Sshd, running_sshd
from support.waiting import wait_for

from tfmon.analysis.intervals import trimmed
from tfmon.analysis.statistics import BETWEEN_MACHINES_SD, pairs_of
from tfmon.api.options import RaceOptions
from tfmon.api.planner import plan_race
from tfmon.catalog import find_scenario
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.lane_process import LaneProcess
from tfmon.lanes.launch import BOOTSTRAP, ProcessPlan
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.start_program import Wire
from tfmon.model.event_base import Event
from tfmon.model.lane_events import PhaseEntered
from tfmon.model.race import TURNS, Machine
from tfmon.model.requests import Pause
from tfmon.model.session import Session
from tfmon.probes.find_gpus import GpuSearch

FAIR_OPTIONS = {"minutes": 8.0, "rounds": 24}
LEAST_PAIRS = 3
PATIENCE_S = 120.0
HOST = "gpu2"


class TimedWire(Wire):
    """A wire that notes when the agent's words came."""

    def __init__(self, host: Host) -> None:
        self.began = time.perf_counter()
        self.words_s: list[float] = []
        super().__init__(host)

    def _next_word(self, patience_s: float) -> dict:
        word = super()._next_word(patience_s)
        self.words_s.append(time.perf_counter() - self.began)
        return word


def linked(name: str = HOST) -> Linked:
    link = Linked(Host(name, python=sys.executable))
    link.ensure()
    return link


@contextlib.contextmanager
def racing(*links: Linked, lanes: Sequence[str], script: Path = BOOTSTRAP) -> Iterator[Watch]:
    """Race lanes, of which those with a host run there, until the block ends."""
    session = Session(Machine(), time.monotonic_ns)
    watch, places = Watch(session), {link.host.name: link for link in links}
    for link in links if len(links) > 1 else ():
        for event in link.events:  # which machine it is: lanes of one machine take turns
            session.accept(event)
    options = RaceOptions(lanes=tuple(lane.rpartition("/")[2] for lane in lanes), mode=TURNS)
    plan = plan_race(find_scenario("small-dense"), options, lambda *_: GpuSearch())[0]
    spread = [
        replace(one, spec=replace(one.spec, host=lane.rpartition("/")[0], name=f"{lane} #{place}"))
        for place, (one, lane) in enumerate(zip(plan.lanes, lanes, strict=True))
    ]
    group = LaneGroup(session, lambda _: plan, script, places=places)
    try:
        group.begin(replace(plan, lanes=tuple(spread)))
        yield watch
    finally:
        group.stop()


def begin_child(start: Callable[..., LaneProcess]) -> Callable[[], float]:
    """Start a child that answers every request; return what asks it once, in ms."""
    said = threading.Event()

    def hear(_: LaneProcess, event: Event) -> None:
        if isinstance(event, PhaseEntered):
            said.set()

    process = start(hear)
    said.wait(30)

    def ask() -> float:
        said.clear()
        began = time.perf_counter()
        process.send(Pause())
        assert said.wait(10)
        return (time.perf_counter() - began) * 1e3

    return ask


def raced(watch: Watch, rounds: int) -> bool:
    return all(len(lane.slices) >= rounds for lane in watch.snapshot().lanes)


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]


def start(sshd: Sshd, options: argparse.Namespace) -> None:
    words = []
    for _ in range(options.times):
        wire = TimedWire(Host(HOST, python=sys.executable))
        wire.greet()
        words.append(wire.words_s)
        wire.kill()
    first, ready = zip(*words, strict=True)
    for name, limit_s, found in (("first word", 1.0, first), ("code ready", 2.0, ready)):
        middle, high = percentiles(found)
        print(f"{name}: median {middle:.2f} s, p95 {high:.2f} s; at most {limit_s} s: {met(high <= limit_s)}")


def keys(sshd: Sshd, options: argparse.Namespace) -> None:
    from tfmon.lanes.lane_process import LocalProcess

    script = CHILDREN / "speaker.py"

    started: list[LaneProcess] = []

    def here(sink: Callable[[LaneProcess, Event], None]) -> LaneProcess:
        says = {"SAYS": "a_beat"}
        process = LocalProcess(
            ProcessPlan(lane="cpu", python=sys.executable, environment=says, script=str(script)), sink
        )
        process.start_reading(sys.exit)
        started.append(process)
        return process

    def there(sink: Callable[[LaneProcess, Event], None]) -> LaneProcess:
        child = link.start("a_beat")
        child.process._tell = partial(sink, child.process)
        return child.process

    link = linked()
    for name, begin in (("here", here), ("there", there)):
        ask = begin_child(begin)
        middle, high = percentiles([ask() for _ in range(options.times)])
        goal = f"; at most 2 ms: {met(high <= 2)}" if name == "there" else ""
        print(f"key to child and back, {name}: p50 {middle:.2f} ms, p95 {high:.2f} ms{goal}")
    link.close()
    for process in started:
        process.kill(signal.SIGKILL)


def agent(sshd: Sshd, options: argparse.Namespace) -> None:
    link = linked()
    lanes = [f"{HOST}/cpu,batch_size={size}" for size in (10, 20, 40, 80)]
    with racing(link, lanes=lanes) as watch:
        wait_for(partial(raced, watch, 1), PATIENCE_S, "all lanes train")
        before, began = link.agent.cpu_times(), time.perf_counter()
        time.sleep(options.seconds)
        after, seconds = link.agent.cpu_times(), time.perf_counter() - began
        memory = link.agent.memory_full_info()
    share = 100 * (after.user + after.system - before.user - before.system) / seconds
    mib = memory.uss / 2**20
    print(f"agent with four lanes: {share:.2f} % of a core; at most 1.5 %: {met(share <= 1.5)}")
    resident = memory.rss / 2**20
    print(f"its memory: {mib:.1f} MiB of its own, {resident:.1f} resident; at most 15 MiB: {met(mib <= 15)}")
    link.close()


def fair(sshd: Sshd, options: argparse.Namespace) -> None:
    compare(linked(), "through an agent", options, 0.01)


def compare(link: Linked, what: str, options: argparse.Namespace, most: float) -> None:
    """Compare by new pairs of processes, in turns; the order within a round alternates.

    Rounds differ by more than processes, so each pair has many rounds, and the cost of a start is rarely paid.
    """
    logs: list[float] = []
    nice: dict[str, set[int]] = {HOST: set(), "": set()}
    until_s = time.monotonic() + 60 * options.minutes
    while len(logs) < LEAST_PAIRS or time.monotonic() < until_s:
        lanes = ("cpu", f"{HOST}/cpu") if len(logs) % 2 else (f"{HOST}/cpu", "cpu")
        with racing(link, lanes=lanes) as watch:
            wait_for(partial(raced, watch, options.rounds), PATIENCE_S, "enough slices")
            found = watch.snapshot().lanes
            for one in found:
                nice[one.spec.host].add(os.getpriority(os.PRIO_PROCESS, one.process.pid))
        slices = {one.spec.host: one.slices for one in found}
        center = trimmed([pair.log for pair in pairs_of(slices[HOST], slices[""])])
        assert center is not None, "too few rounds"
        logs.append(center.value)
        print(
            f"pair {len(logs)}: {math.exp(center.value):.4f} ± {100 * center.error:.2f} % by its rounds",
            flush=True,
        )
    link.close()
    there, here = (", ".join(map(str, sorted(nice[host]))) for host in (HOST, ""))
    print(f"nice value of the lanes: {there} {what}, {here} for those started here: {met(there == here)}")
    mean, reach = mean_and_reach(logs)
    low, high = math.exp(mean - reach), math.exp(mean + reach)
    good = low <= 1 <= high and reach <= most
    interval = f"{math.exp(mean):.4f} ({low:.4f} to {high:.4f}) by {len(logs)} pairs"
    print(f"{what} / started here: {interval}; 1 within ±{100 * most:g} %: {met(good)}")


def between(sshd: Sshd, options: argparse.Namespace) -> None:
    """Print the standard deviation of the log ratio of equal processes, each pair of them new."""
    logs, errors = [], []
    for pair in range(options.pairs):
        links = [linked(name) for name in (HOST, "gpu3")]
        with racing(*links, lanes=[f"{link.host.name}/cpu" for link in links]) as watch:
            wait_for(partial(raced, watch, options.rounds), PATIENCE_S, "enough slices")
            first, second = (lane.slices for lane in watch.snapshot().lanes)
        for link in links:
            link.close()
        center = trimmed([pair.log for pair in pairs_of(first, second)])
        assert center is not None, "too few rounds"
        logs.append(center.value)
        errors.append(center.error)
        print(f"pair {pair + 1}: {math.exp(logs[-1]):.4f}, ±{100 * errors[-1]:.2f} % by its rounds", flush=True)
    degrees, spread = len(logs) - 1, statistics.variance(logs)
    low, high = (math.sqrt(degrees * spread / chi2.ppf(share, degrees)) for share in (0.975, 0.025))
    rest = math.sqrt(max(0.0, spread - statistics.mean(error**2 for error in errors)))
    print(f"standard deviation of the log ratio: {math.sqrt(spread):.4f} (95 % CI {low:.4f} to {high:.4f})")
    print(f"without the scatter of the rounds: {rest:.4f}; supposed: {BETWEEN_MACHINES_SD}")


MEASURED = {
    "start": (start, {"times": 10}),
    "keys": (keys, {"times": 400}),
    "agent": (agent, {"seconds": 30.0}),
    "fair": (fair, FAIR_OPTIONS),
    "between": (between, {"pairs": 12, "rounds": 16}),
}


def main() -> None:
    if None in PROGRAMS:
        raise SystemExit("sshd, ssh or ssh-keygen is not installed")
    with tempfile.TemporaryDirectory(prefix="tfmon-sshd-") as folder, running_sshd(Path(folder)) as sshd:
        if sshd is None:
            raise SystemExit("an sshd may not be started here")
        os.environ["PATH"] = os.pathsep.join([sshd.put_client(), os.environ["PATH"]])
        run_command(__doc__, MEASURED, sshd)


if __name__ == "__main__":
    main()

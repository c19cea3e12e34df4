"""Readings of the machine as a whole and of the lanes' process trees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import psutil

from tfmon.model.events import Event, HostSample, TreeSample
from tfmon.model.readings import Missing, Reading
from tfmon.probes.processes import Processes, process_table
from tfmon.probes.trees import FIRST_SAMPLE, SHORTEST_NS, Tree, find_trees

SCAN_EVERY_S = 3.0
"""How often the process table is read to find new children."""
SCAN_SHARE = 300
"""The table is read at most so seldom that reading it takes one part in this many of the time."""
_BUSY = ("user", "nice", "system", "irq", "softirq")


@dataclass(frozen=True, slots=True)
class Load:
    """What the machine has used."""

    busy_s: float
    """CPU time of all cores since the machine was started: no idling, no waiting for disks, nothing stolen."""
    used_bytes: int
    total_bytes: int


def read_load() -> Load:
    """Read the machine's CPU time and memory.

    Source: psutil `cpu_times()`; `virtual_memory()`, where used is total less available.
    """
    times = psutil.cpu_times()
    memory = psutil.virtual_memory()
    busy_s = sum(getattr(times, name, 0.0) for name in _BUSY)
    return Load(busy_s, memory.total - memory.available, memory.total)


class HostProbe:
    """Samples the machine and the process tree of every lane.

    Thread: the ticker's only; `lanes` is called in it.
    """

    name = "host"

    def __init__(
        self,
        lanes: Callable[[], Mapping[str, int]],
        *,
        processes: Processes | None = None,
        load: Callable[[], Load] = read_load,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._lanes = lanes
        self._processes = processes if processes is not None else process_table()
        self._load = load
        self._clock_ns = clock_ns
        self._trees: dict[str, Tree] = {}
        self._scan_at_ns = 0
        self._before: Load | None = None
        self._before_ns = 0

    def start(self) -> None:
        """Nothing to get ready."""

    def sample(self) -> Iterable[Event]:
        """Sample the machine and each lane's tree; a lane whose processes are all gone gives no sample.

        Units: CPU in percent of one core since the sample before; memory in bytes, now.
        """
        yield self._host()
        self._follow(self._lanes())
        for tree in self._trees.values():
            sample = tree.measure(self._processes, self._clock_ns())
            if sample is not None:
                yield sample

    def missing(self, reason: str) -> Iterable[Event]:
        """Give every reading as missing for that reason."""
        at_ns, why = self._clock_ns(), Missing(reason)
        yield HostSample(at_ns=at_ns, cpu_pct=why, memory_used_bytes=why, memory_total_bytes=why)
        for tree in self._trees.values():
            yield TreeSample(lane=tree.lane, at_ns=at_ns, cpu_pct=why, private_bytes=why, processes=tree.processes)

    def close(self) -> None:
        """Nothing to let go of."""

    def _host(self) -> HostSample:
        at_ns = self._clock_ns()
        try:
            load = self._load()
        except (OSError, ValueError, psutil.Error) as error:
            why = Missing(f"the system does not tell: {type(error).__name__}")
            return HostSample(at_ns=at_ns, cpu_pct=why, memory_used_bytes=why, memory_total_bytes=why)
        return HostSample(
            at_ns=at_ns,
            cpu_pct=self._cpu_pct(load, at_ns),
            memory_used_bytes=load.used_bytes,
            memory_total_bytes=load.total_bytes,
        )

    def _cpu_pct(self, load: Load, at_ns: int) -> Reading:
        before, elapsed_ns = self._before, at_ns - self._before_ns
        if before is not None and elapsed_ns < SHORTEST_NS:
            return Missing("sampled again too soon")
        self._before, self._before_ns = load, at_ns
        if before is None:
            return FIRST_SAMPLE
        return max(0.0, load.busy_s - before.busy_s) * 1e11 / elapsed_ns

    def _follow(self, lanes: Mapping[str, int]) -> None:
        """Drop trees of lanes that are over, begin those of new ones, and look for children now and then."""
        kept = {name: tree for name, tree in self._trees.items() if lanes.get(name) == tree.pid}
        fresh = {name: Tree(name, pid) for name, pid in lanes.items() if name not in kept}
        self._trees = {**kept, **fresh}
        begun_ns = self._clock_ns()
        if not self._trees or (not fresh and begun_ns < self._scan_at_ns):
            return
        found = find_trees(self._processes.rows(), [tree.pid for tree in self._trees.values()])
        for tree in self._trees.values():
            tree.adopt(found[tree.pid])
        ended_ns = self._clock_ns()
        pause_ns = max(int(SCAN_EVERY_S * 1e9), SCAN_SHARE * (ended_ns - begun_ns))
        # Half a tick early is on time: a tick that comes a little soon must not put the scan off by a whole one.
        self._scan_at_ns = begun_ns + pause_ns - 500_000_000

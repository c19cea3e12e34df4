"""Readings of the machine as a whole and of the lanes' process trees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import psutil

from tfmon.model.events import Event
from tfmon.model.readings import NOT_READ, Missing, Reading
from tfmon.model.samples import HostSample, TreeSample
from tfmon.probes.base import CounterRate
from tfmon.probes.disturbances import Disturbances
from tfmon.probes.processes import Processes, process_table
from tfmon.probes.trees import Tree, find_trees

SCAN_EVERY_S = 3.0
"""How often the process table is read to find new children."""
SCAN_SHARE = 300
"""The table is read at most so seldom that reading it takes one part in this many of the time."""
NO_PROCESS = Missing("a lane has ended")
NO_STEAL = Missing("this system does not tell what a hypervisor takes")
_BUSY = ("user", "nice", "system", "irq", "softirq")


@dataclass(frozen=True, slots=True)
class Load:
    """What the machine has used."""

    busy_s: float
    """CPU time of all cores since the machine was started: no idling, no waiting for disks, nothing stolen."""
    used_bytes: int
    total_bytes: int
    stolen_s: float | None = None
    """CPU time that the hypervisor gave to others; None where the system does not tell."""


def read_load() -> Load:
    """Read the machine's CPU time and memory.

    Source: psutil `cpu_times()`; `virtual_memory()`, where used is total less available.
    """
    times = psutil.cpu_times()
    memory = psutil.virtual_memory()
    busy_s = sum(getattr(times, name, 0.0) for name in _BUSY)
    return Load(busy_s, memory.total - memory.available, memory.total, getattr(times, "steal", None))


def unknown_host(at_ns: int, why: Missing) -> HostSample:
    """Return a sample of the machine in which every reading is missing for one reason."""
    readings: dict[str, Any] = {one.name: why for one in fields(HostSample) if one.name not in ("lane", "at_ns")}
    return HostSample(at_ns=at_ns, **readings)


def percent(rate: Reading) -> Reading:
    """Return CPU seconds a second in percent of one core."""
    return rate if isinstance(rate, Missing) else 100 * rate


def rest(whole: Reading, parts: Iterable[Reading]) -> Reading:
    """Return what is left of the whole; one part that is not known leaves it unknown."""
    left = whole
    for part in parts:
        if isinstance(left, Missing):
            return left
        if isinstance(part, Missing):
            return part
        left -= part
    return left if isinstance(left, Missing) else max(0.0, left)


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
        disturbances: Disturbances | None = None,
        own_cpu_s: Callable[[], float] = time.process_time,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Sample what is in the trees of `lanes`, by name the pid of a lane's first process.

        The one under "" is no lane yet: it counts with them where the load of others is told, and has no sample.
        """
        self._lanes = lanes
        self._processes = processes if processes is not None else process_table()
        self._load = load
        self._disturbances = disturbances if disturbances is not None else Disturbances()
        self._own_cpu_s = own_cpu_s
        self._clock_ns = clock_ns
        self._trees: dict[str, Tree] = {}
        self._scan_at_ns = 0
        self._busy, self._own, self._stolen = CounterRate(), CounterRate(), CounterRate()

    def start(self) -> None:
        """Nothing to get ready."""

    def sample(self) -> Iterable[Event]:
        """Sample the machine and each lane's tree; a lane whose processes are all gone gives no sample.

        Units: CPU in percent of one core since the sample before; memory in bytes, now.
        """
        self._follow(self._lanes())
        samples = [tree.measure(self._processes, self._clock_ns()) for tree in self._trees.values()]
        yield self._host([NO_PROCESS if sample is None else sample.cpu_pct for sample in samples])
        yield from (sample for sample in samples if sample is not None and sample.lane)

    def missing(self, reason: str) -> Iterable[Event]:
        """Give every reading as missing for that reason."""
        at_ns, why = self._clock_ns(), Missing(reason)
        yield unknown_host(at_ns, why)
        for tree in (tree for tree in self._trees.values() if tree.lane):
            yield TreeSample(lane=tree.lane, at_ns=at_ns, cpu_pct=why, private_bytes=why, processes=tree.processes)

    def close(self) -> None:
        """Nothing to let go of."""

    def _host(self, lanes_pct: Sequence[Reading]) -> HostSample:
        at_ns = self._clock_ns()
        around = self._disturbances.read(at_ns, [tree.pid for tree in self._trees.values()])
        monitor_pct = percent(self._own.per_s(self._own_cpu_s(), at_ns))
        sample = HostSample(
            at_ns=at_ns,
            cpu_pct=NOT_READ,
            memory_used_bytes=NOT_READ,
            memory_total_bytes=NOT_READ,
            monitor_cpu_pct=monitor_pct,
            usable_cores=around.usable_cores,
            swap_in_bytes_per_s=around.swap_in_bytes_per_s,
            swap_out_bytes_per_s=around.swap_out_bytes_per_s,
            cpu_pressure_pct=around.cpu_pressure_pct,
            memory_pressure_pct=around.memory_pressure_pct,
            throttled_pct=around.throttled_pct,
            throttled_ms_per_s=around.throttled_ms_per_s,
            package_power_w=around.package_power_w,
        )
        try:
            load = self._load()
        except (OSError, ValueError, psutil.Error) as error:
            why = Missing(f"the system does not tell: {type(error).__name__}")
            unknown = replace(sample, cpu_pct=why, memory_used_bytes=why, memory_total_bytes=why)
            return replace(unknown, others_cpu_pct=why, steal_pct=why)
        cpu_pct = percent(self._busy.per_s(load.busy_s, at_ns))
        stolen = NO_STEAL if load.stolen_s is None else percent(self._stolen.per_s(load.stolen_s, at_ns))
        return replace(
            sample,
            cpu_pct=cpu_pct,
            memory_used_bytes=load.used_bytes,
            memory_total_bytes=load.total_bytes,
            others_cpu_pct=rest(cpu_pct, [monitor_pct, *lanes_pct]),
            steal_pct=stolen,
        )

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

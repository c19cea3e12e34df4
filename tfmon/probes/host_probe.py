"""Readings of the machine and of the lanes' process trees."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from tfmon.model.event_base import Event
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import unread
from tfmon.model.lane_events import PathsUsed
from tfmon.model.readings import NO_STOLEN, NOT_READ, HostSample, Missing, Reading, TreeSample, scaled, summed
from tfmon.probes.base import FIRST_SAMPLE, SHORTEST_NS, TOO_SOON, CounterRate, Probe
from tfmon.probes.machine import Disturbances, Load, NoReadingError, read_load
from tfmon.probes.processes import Processes, Row, Usage, process_table, uses_of


def find_trees(rows: Mapping[int, Row], roots: Iterable[int]) -> dict[int, dict[int, Row]]:
    """Return the processes of each root: the root, its descendants, its group and session."""
    children: dict[int, list[int]] = defaultdict(list)
    led: dict[int, list[int]] = defaultdict(list)
    for row in rows.values():
        children[row.parent].append(row.pid)
        led[row.group].append(row.pid)
        led[row.session].append(row.pid)
    trees: dict[int, dict[int, Row]] = {}
    for root in roots:
        tree: dict[int, Row] = {}
        waiting = [root, *led.get(root, ())]
        while waiting:
            pid = waiting.pop()
            if pid in rows and pid not in tree:
                tree[pid] = rows[pid]
                waiting.extend(children.get(pid, ()))
        trees[root] = tree
    return trees


def cpu_seconds(before: Mapping[int, Usage], now: Mapping[int, Usage], newborn_s: float) -> float:
    """Return the CPU time of a tree between two samples, including reaped children.

    The uncounted CPU time of an ended child moves to its parent. A process that started after `newborn_s` counts
    fully, an older one from now on.
    """
    known: dict[int, float] = defaultdict(float)
    for pid, usage in before.items():
        if not _same(usage, now.get(pid)):
            heir = _living_ancestor(usage, before, now)
            known[heir] += usage.own_s + usage.reaped_s
    spent = 0.0
    for pid, usage in now.items():
        old = before.get(pid)
        if old is not None and _same(old, usage):
            spent += max(0.0, usage.own_s - old.own_s)
            spent += max(0.0, usage.reaped_s - old.reaped_s - known[pid])
        elif usage.started_s >= newborn_s:
            spent += usage.own_s + usage.reaped_s
    return spent


def _same(usage: Usage, other: Usage | None) -> bool:
    return other is not None and usage.started_s == other.started_s


def _living_ancestor(usage: Usage, before: Mapping[int, Usage], now: Mapping[int, Usage]) -> int:
    pid = usage.parent
    for _ in before:
        ancestor = before.get(pid)
        if ancestor is None or _same(ancestor, now.get(pid)):
            break
        pid = ancestor.parent
    return pid


class Tree:
    """The processes of one lane. Thread: the ticker's."""

    def __init__(self, lane: str, pid: int) -> None:
        self.lane = lane
        self.pid = pid
        self.processes = 0
        self._members: dict[int, Row] = {}
        self._root: Row | None = None
        self._before: dict[int, Usage] = {}
        self._before_s: float | None = None

    def adopt(self, members: Mapping[int, Row]) -> None:
        """Record the members: none if the pid is another process now."""
        root = members.get(self.pid)
        if root is not None and self._root is not None and root.started_s != self._root.started_s:
            members = {}
        self._root = self._root or root
        self._members = dict(members)

    def measure(self, processes: Processes, at_ns: int) -> TreeSample | None:
        """Return the use since the previous sample, or `None` without a process.

        Units: percent of one core, in steps of 1 % per process at one sample a second; memory in bytes, now.
        """
        now = self._read(processes)
        alive = {pid: usage for pid, usage in now.items() if not usage.ended}
        if not alive:
            return None
        self.processes = len(alive)
        cpu_pct, waited_pct = self._cpu_pct(now, processes.now_s())
        return TreeSample(
            lane=self.lane,
            at_ns=at_ns,
            cpu_pct=cpu_pct,
            private_bytes=summed(usage.private_bytes for usage in alive.values()),
            processes=len(alive),
            pids=tuple(sorted(alive)),
            waited_pct=waited_pct,
            killed={pid: usage.signal for pid, usage in now.items() if usage.signal and pid != self.pid},
        )

    def _read(self, processes: Processes) -> dict[int, Usage]:
        usages: dict[int, Usage] = {}
        for pid, row in self._members.items():
            usage = processes.usage(pid)
            if usage is not None and usage.started_s == row.started_s:
                usages[pid] = usage
        return usages

    def _cpu_pct(self, now: dict[int, Usage], now_s: float) -> tuple[Reading, Reading]:
        before, before_s = self._before, self._before_s
        if before_s is None:
            self._before, self._before_s = now, now_s
            return FIRST_SAMPLE, FIRST_SAMPLE
        elapsed_s = now_s - before_s
        if elapsed_s < SHORTEST_NS / 1e9:
            return TOO_SOON, TOO_SOON
        self._before, self._before_s = now, now_s
        waited = [
            max(0.0, usage.waited_s - old.waited_s)
            for pid, usage in now.items()
            if usage.waited_s is not None
            and (old := before.get(pid))
            and old.waited_s is not None
            and _same(old, usage)
        ]
        waited_pct = 100 * sum(waited) / elapsed_s if waited else NOT_READ
        return 100 * cpu_seconds(before, now, before_s) / elapsed_s, waited_pct


SCAN_EVERY_S = 3.0
PORTS_EVERY_NS = 10_000_000_000
"""The kernel reads its table of connections for each process: 33 ms with 126 GiB and six processes."""
SCAN_SHARE = 300
"""Reading the process table takes at most this fraction of the time."""


def unknown_host(at_ns: int, reason: Missing) -> HostSample:
    """Return a sample without readings."""
    sample = HostSample(at_ns=at_ns, cpu_pct=reason, memory_used_bytes=reason, memory_total_bytes=reason)
    return unread(sample, reason)


def rest(whole: Reading, parts: Iterable[Reading]) -> Reading:
    """Return the whole less its parts."""
    if isinstance(whole, Missing):
        return whole
    taken = summed(parts)
    return taken if isinstance(taken, Missing) else max(0.0, whole - taken)


@dataclass(eq=False)
class HostProbe(Probe):
    """Samples the machine and the lanes. Thread: the ticker's, also for `lanes`."""

    name = "host"

    lanes: Callable[[], Mapping[str, int]]
    """Returns pids by lane."""
    processes: Processes | None = None
    load: Callable[[], Load] = read_load
    disturbances: Disturbances = field(default_factory=Disturbances)
    own_cpu_s: Callable[[], float] = time.process_time
    clock_ns: Callable[[], int] = time.monotonic_ns

    def __post_init__(self) -> None:
        self._no_processes = Missing("")
        if self.processes is None:
            try:
                self.processes = process_table()
            except NoReadingError as error:
                self._no_processes = Missing(str(error))
        self._trees: dict[str, Tree] = {}
        self._scan_at_ns = 0
        self._used: dict[str, dict[str, str]] = {}
        self._ports_due_ns = 0
        self._busy, self._monitor, self._stolen = CounterRate(), CounterRate(), CounterRate()

    def sample(self) -> Iterable[Event]:
        """Sample the machine and each lane's tree."""
        looked = self._follow(self.lanes())
        processes = self.processes
        if processes is None:
            yield self.sample_machine([self._no_processes for _ in self._trees])
            yield from self._unknown_trees(self.clock_ns(), self._no_processes)
            return
        samples = [tree.measure(processes, self.clock_ns()) for tree in self._trees.values()]
        yield self.sample_machine(
            [Missing("a lane has ended") if sample is None else sample.cpu_pct for sample in samples]
        )
        lanes = [sample for sample in samples if sample is not None]
        yield from lanes
        if len(lanes) > 1 and looked:
            ports = self.clock_ns() >= self._ports_due_ns
            self._ports_due_ns = self.clock_ns() + PORTS_EVERY_NS if ports else self._ports_due_ns
            yield from (event for sample in lanes if (event := self._new_uses(sample, ports)) is not None)

    def _new_uses(self, sample: TreeSample, ports: bool) -> PathsUsed | None:
        """Python's hooks miss files that libraries open."""
        known = self._used.setdefault(sample.lane, {})
        uses = (use for pid in sample.pids for use in uses_of(pid, ports=ports).items())
        new = {name: use for name, use in uses if name not in known}
        known.update(new)
        return PathsUsed(lane=sample.lane, at_ns=sample.at_ns, uses=new) if new else None

    def missing(self, reason: str) -> Iterable[Event]:
        """Return every reading as missing."""
        at_ns, missing = self.clock_ns(), Missing(reason)
        yield unknown_host(at_ns, missing)
        yield from self._unknown_trees(at_ns, missing)

    def _unknown_trees(self, at_ns: int, missing: Missing) -> Iterable[TreeSample]:
        for tree in self._trees.values():
            yield TreeSample(
                lane=tree.lane, at_ns=at_ns, cpu_pct=missing, private_bytes=missing, processes=tree.processes
            )

    def sample_machine(self, lanes_pct: Sequence[Reading] = ()) -> HostSample:
        """Sample the machine; lanes take `lanes_pct`."""
        at_ns = self.clock_ns()
        readings = self.disturbances.read(at_ns, [tree.pid for tree in self._trees.values()])
        monitor_pct = scaled(self._monitor.per_s(self.own_cpu_s(), at_ns), 100)
        readings["monitor_cpu_pct"] = monitor_pct
        try:
            load = self.load()
        except (OSError, ValueError) as error:
            names = ("cpu_pct", "memory_used_bytes", "memory_total_bytes", "others_cpu_pct", "steal_pct")
            reason = str(error) if isinstance(error, NoReadingError) else type(error).__name__
            readings |= dict.fromkeys(names, Missing(f"the system reports none: {reason}"))
        else:
            cpu_pct = scaled(self._busy.per_s(load.busy_s, at_ns), 100)
            stolen = NO_STOLEN if load.stolen_s is None else scaled(self._stolen.per_s(load.stolen_s, at_ns), 100)
            readings |= {
                "cpu_pct": cpu_pct,
                "memory_used_bytes": load.used_bytes,
                "memory_total_bytes": load.total_bytes,
                "others_cpu_pct": rest(cpu_pct, [monitor_pct, *lanes_pct]),
                "steal_pct": stolen,
            }
        return HostSample(at_ns=at_ns, **readings)

    def _follow(self, lanes: Mapping[str, int]) -> bool:
        kept = {name: tree for name, tree in self._trees.items() if lanes.get(name) == tree.pid}
        fresh = {name: Tree(name, pid) for name, pid in lanes.items() if name not in kept}
        self._trees = {**kept, **fresh}
        begun_ns = self.clock_ns()
        if self.processes is None or not self._trees or (not fresh and begun_ns < self._scan_at_ns):
            return False
        result = find_trees(self.processes.rows(), [tree.pid for tree in self._trees.values()])
        for tree in self._trees.values():
            tree.adopt(result[tree.pid])
        ended_ns = self.clock_ns()
        pause_ns = max(int(SCAN_EVERY_S * 1e9), SCAN_SHARE * (ended_ns - begun_ns))
        # An early tick must not delay the scan by a whole tick.
        self._scan_at_ns = begun_ns + pause_ns - 500_000_000
        return True

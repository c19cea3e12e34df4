"""The process tree of a lane: who belongs to it, and what it used between two samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tfmon.model.readings import Reading, TreeSample, summed
from tfmon.probes.base import FIRST_SAMPLE, SHORTEST_NS, TOO_SOON
from tfmon.probes.processes import Processes, Row, Usage


def find_trees(rows: Mapping[int, Row], roots: Iterable[int]) -> dict[int, dict[int, Row]]:
    """Return the processes of each root's tree.

    A tree has the root, its descendants, and every process of the group or session that the root leads. So a
    grandchild whose parent has ended still counts, unless it left both.
    """
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
    """Return the CPU time a tree used between two samples, its reaped children included.

    The CPU time of a child that ended in between moves to the parent that waited for it; what was already
    counted of it is subtracted. A process seen for the first time counts if it started later than `newborn_s`;
    an older one counts only from now on, because it is unknown when it used its time.
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


def _same(one: Usage, other: Usage | None) -> bool:
    return other is not None and one.started_s == other.started_s


def _living_ancestor(usage: Usage, before: Mapping[int, Usage], now: Mapping[int, Usage]) -> int:
    """Return the nearest ancestor that is still there, or some pid outside the tree."""
    pid = usage.parent
    for _ in before:
        ancestor = before.get(pid)
        if ancestor is None or _same(ancestor, now.get(pid)):
            break
        pid = ancestor.parent
    return pid


class Tree:
    """One lane's processes, sampled again and again.

    Thread: the ticker's only.
    """

    def __init__(self, lane: str, pid: int) -> None:
        self.lane = lane
        self.pid = pid
        self.processes = 0
        """Alive at the last sample."""
        self._members: dict[int, Row] = {}
        self._root: Row | None = None
        self._before: dict[int, Usage] = {}
        self._before_s: float | None = None
        """When that was read, on the clock of the process table."""

    def adopt(self, members: Mapping[int, Row]) -> None:
        """Record the members of the tree: none once the pid of the lane is another process."""
        root = members.get(self.pid)
        if root is not None and self._root is not None and root.started_s != self._root.started_s:
            members = {}
        self._root = self._root or root
        self._members = dict(members)

    def measure(self, processes: Processes, at_ns: int) -> TreeSample | None:
        """Return the use by the tree since the previous sample; None without any process left.

        Units: CPU in percent of one core over the time since the previous sample (steps of 1 % per process at one
        sample a second); memory in bytes, now. The time of a child that was never seen alive counts when
        it is reaped.
        """
        now = self._read(processes)
        alive = {pid: usage for pid, usage in now.items() if not usage.ended}
        if not alive:
            return None
        self.processes = len(alive)
        return TreeSample(
            lane=self.lane,
            at_ns=at_ns,
            cpu_pct=self._cpu_pct(now, processes.now_s()),
            private_bytes=summed(usage.private_bytes for usage in alive.values()),
            processes=len(alive),
            pids=tuple(sorted(alive)),
        )

    def _read(self, processes: Processes) -> dict[int, Usage]:
        usages: dict[int, Usage] = {}
        for pid, row in self._members.items():
            usage = processes.usage(pid)
            if usage is not None and usage.started_s == row.started_s:
                usages[pid] = usage
        return usages

    def _cpu_pct(self, now: dict[int, Usage], now_s: float) -> Reading:
        if self._before_s is None:
            self._before, self._before_s = now, now_s
            return FIRST_SAMPLE
        elapsed_s = now_s - self._before_s
        if elapsed_s < SHORTEST_NS / 1e9:
            return TOO_SOON
        spent_s = cpu_seconds(self._before, now, self._before_s)
        self._before, self._before_s = now, now_s
        return 100 * spent_s / elapsed_s

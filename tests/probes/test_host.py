"""The host probe: a /proc of our own, arithmetic, real children, and the memory of a process on macOS."""

import itertools
import os
import socket
import subprocess
import sys

import psutil
import pytest

from tfmon.model.readings import Missing, TreeSample
from tfmon.probes import processes
from tfmon.probes.host_probe import HostProbe, cpu_seconds, find_trees
from tfmon.probes.machine import Disturbances, Load
from tfmon.probes.processes import WHOLE_EVERY_S, LinuxProcesses, PsutilProcesses, Row, Usage, uses_of

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TICK = os.sysconf("SC_CLK_TCK")


class ProcFolder:
    """A /proc of our own, in which the test writes what each process has used."""

    def __init__(self, root) -> None:
        self.root = root
        (root / "self").mkdir(parents=True)
        (root / "stat").write_text("cpu 1 2 3\n")

    def put(self, pid, parent=1, *, own_s=0.0, started_s=1.0, pages=(9000, 300, 100)):
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        own, start = round(own_s * TICK), round(started_s * TICK)
        before = f"{pid} (python3) S {parent} 1 1 0 -1 0 11 12 13 14"
        after = f"{own - own // 3} {own // 3} 0 0 20 0 5 0 {start} 999 300 0"
        (folder / "stat").write_text(f"{before} {after}{27 * ' 0'}\n")
        (folder / "statm").write_text(" ".join(str(count) for count in pages) + " 1 0 100 0\n")

    def waits(self, pid, *seconds):
        for thread, waited_s in enumerate(seconds):
            folder = self.root / str(pid) / "task" / str(thread)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "schedstat").write_text(f"1 {round(waited_s * 1e9)} 3\n")


@pytest.fixture
def proc(tmp_path):
    return ProcFolder(tmp_path / "proc")


@pytest.fixture
def probe(proc, clock, tmp_path):
    return HostProbe(
        lambda: {"cpu": 100},
        processes=LinuxProcesses(proc.root, now_s=clock.now_s, page_bytes=4096),
        load=itertools.chain([Load(100.0, 7, 9, 5.0)], itertools.repeat(Load(103.0, 8, 9, 5.25))).__next__,
        disturbances=Disturbances(tmp_path / "nothing"),
        own_cpu_s=itertools.count(10.0, 0.05).__next__,
        clock_ns=clock,
    )


def trees(probe) -> dict[str, TreeSample]:
    return {event.lane: event for event in probe.sample() if isinstance(event, TreeSample)}


def test_what_others_use_is_what_neither_tfmon_nor_a_lane_used(probe, proc, clock):
    proc.put(100, own_s=40)
    proc.put(101, parent=100, own_s=7)
    first = next(iter(probe.sample()))
    assert first.others_cpu_pct == first.monitor_cpu_pct == first.steal_pct == Missing("first sample")
    assert (first.at_ns, first.cpu_pct) == (clock.now_ns, Missing("first sample"))
    assert (first.memory_used_bytes, first.memory_total_bytes) == (7, 9)
    clock.ahead(1)
    proc.put(100, own_s=41)
    proc.put(101, parent=100, own_s=7.5)
    second = next(iter(probe.sample()))
    assert (second.cpu_pct, second.memory_used_bytes) == (pytest.approx(300), 8)
    assert second.monitor_cpu_pct == pytest.approx(5)
    assert second.others_cpu_pct == pytest.approx(300 - 5 - 150)
    assert second.steal_pct == pytest.approx(25)


class TestFixtureTrees:
    def test_the_time_in_which_its_threads_waited_for_a_core_is_summed_over_them(self, probe, proc, clock):
        proc.put(100)
        assert isinstance(trees(probe)["cpu"].waited_pct, Missing)
        proc.waits(100, 5.0, 1.0)
        clock.ahead(1)
        trees(probe)
        proc.waits(100, 5.5, 1.25)
        clock.ahead(1)
        assert trees(probe)["cpu"].waited_pct == pytest.approx(75)

    def test_private_memory_is_summed_over_the_tree_without_what_is_shared(self, probe, proc):
        proc.put(100, pages=(9000, 1000, 400))
        proc.put(101, 100, pages=(9000, 500, 450))
        proc.put(102, 101, pages=(9000, 70, 30))
        proc.put(200, 1, pages=(9000, 5000, 0))
        sample = trees(probe)["cpu"]
        assert sample.private_bytes == (600 + 50 + 40) * 4096
        assert sample.processes == 3

    def test_a_pid_that_is_now_someone_else_is_not_the_lane(self, probe, proc, clock):
        proc.put(100, started_s=1)
        trees(probe)
        proc.put(100, started_s=40, own_s=500)
        clock.ahead(1)
        assert trees(probe) == {}
        clock.ahead(5)  # past the next look at the table
        assert trees(probe) == {}

    def test_samples_too_close_together_are_refused_and_cost_nothing(self, probe, proc, clock):
        proc.put(100, own_s=1)
        trees(probe)
        clock.ahead(0.01)
        proc.put(100, own_s=1.01)
        assert trees(probe)["cpu"].cpu_pct == Missing("sampled again too soon")
        clock.ahead(0.99)
        proc.put(100, own_s=1.5)
        assert trees(probe)["cpu"].cpu_pct == pytest.approx(50)


def test_to_a_lane_belong_its_descendants_its_group_and_its_session():
    def found(*lines: tuple[int, int, int, int]) -> list[list[int]]:
        rows = {pid: Row(pid, parent, group, session, 1.0) for pid, parent, group, session in lines}
        return [sorted(tree) for tree in find_trees(rows, [10, 20]).values()]

    assert found(
        (1, 0, 1, 1),
        (10, 1, 10, 10),  # the lane, leading a session
        (12, 10, 12, 10),  # in another group
        (13, 12, 13, 13),  # in another session, but a descendant
        (14, 1, 10, 10),  # its parent has ended
        (15, 14, 15, 15),  # a child of that one
        (16, 1, 16, 10),  # parent ended and another group, still in the session
        (20, 1, 20, 20),
        (21, 20, 20, 20),
    ) == [[10, 12, 13, 14, 15, 16], [20, 21]]
    assert found((14, 1, 10, 10)) == [[14], []], "a member outlives the lane"
    in_our_group = (5, 1, 5, 5), (10, 5, 5, 5), (11, 10, 5, 5)
    assert found(*in_our_group) == [[10, 11], []], "the monitor is not in it"


@pytest.mark.parametrize(
    ("before", "now", "spent"),
    [
        pytest.param(
            {1: (5, 2), 2: (3, 0, 1), 3: (4, 0, 2)}, {1: (5.5, 2 + 3.25 + 4.25)}, 1.0, id="reaped in turn"
        ),
        pytest.param({1: (5, 0), 2: (300, 0, 1)}, {1: (6, 0)}, 1.0, id="child without a wait"),
        pytest.param({1: (5, 1), 2: (300, 0, 999)}, {1: (5.5, 2)}, 1.5, id="orphan adopted by init"),
        pytest.param(
            {1: (5, 0)}, {1: (5, 0), 2: (0.5, 0.1, 1, 100.2), 3: (90, 0, 1, 99.0)}, 0.6, id="newborn and older"
        ),
        pytest.param(
            {1: (5, 0), 2: (50, 0, 1)}, {1: (5, 50.25), 2: (0.5, 0, 1, 100.5)}, 0.75, id="pid given to another"
        ),
        pytest.param({1: (5, 3)}, {1: (4, 2)}, 0, id="never negative"),
    ],
)
def test_cpu_seconds_between_two_samples_of_a_tree(before, now, spent):
    def usages(table) -> dict[int, Usage]:
        def usage(own, reaped, parent=0, started=1.0) -> Usage:
            return Usage(parent, started, own, reaped, 0.0, ended=False)

        return {pid: usage(*row) for pid, row in table.items()}

    assert cpu_seconds(usages(before), usages(now), newborn_s=100) == pytest.approx(spent)


def test_the_process_table_reads_each_process_once_in_half_a_minute(proc, clock):
    """A server has thousands of processes, and the table is read on each sample."""
    proc.put(100, parent=1)
    table = LinuxProcesses(proc.root, now_s=clock.now_s, page_bytes=4096)
    assert table.rows()[100].parent == 1
    proc.put(100, parent=7)
    proc.put(101, parent=100)
    assert {pid: row.parent for pid, row in table.rows().items()} == {100: 1, 101: 100}
    clock.ahead(WHOLE_EVERY_S)
    assert table.rows()[100].parent == 7


@pytest.mark.process
class TestRealChildren:
    @LINUX
    def test_both_tables_agree_about_this_process(self):
        code = "import time\nwhile time.process_time() < 0.2: pass"
        subprocess.run([sys.executable, "-S", "-c", code], check=True)  # a child that is reaped
        mine, theirs = LinuxProcesses(), PsutilProcesses()
        pid = os.getpid()
        one, other, later = mine.usage(pid), theirs.usage(pid), mine.usage(pid)
        assert one.own_s - 0.05 <= other.own_s <= later.own_s + 0.05
        assert 0.15 < one.reaped_s == pytest.approx(other.reaped_s, abs=0.05)
        assert one.parent == other.parent == os.getppid()
        # psutil also counts pages of libraries that no other process has mapped at the moment.
        assert 5e6 < one.private_bytes < 1.2 * other.private_bytes
        age = mine.now_s() - one.started_s, theirs.now_s() - other.started_s
        assert age[0] == pytest.approx(age[1], abs=1.5)
        row, their_row = mine.rows()[pid], theirs.rows()[pid]
        assert (row.parent, row.group, row.session) == (their_row.parent, os.getpgrp(), os.getsid(0))
        assert (row.group, row.session) == (their_row.group, their_row.session)

    def test_psutil_without_permission(self, monkeypatch):
        def deny(_process):
            raise psutil.AccessDenied

        monkeypatch.setattr(psutil.Process, "memory_full_info", deny)
        usage = PsutilProcesses().usage(os.getpid())
        assert usage.private_bytes == Missing("the system does not permit tfmon to read it")
        assert usage.own_s > 0


@pytest.mark.parametrize("footprint", [5_000_000_000, None])
def test_the_private_memory_of_macos_is_the_footprint_that_its_library_reports(monkeypatch, footprint):
    calls = []

    class Library:
        def proc_pid_rusage(self, pid, flavor, buffer):
            calls.append((pid.value, flavor.value))
            if footprint is None:
                return -1
            numbers = [*range(7), footprint, 99]  # after the uuid; the footprint is the eighth of 64 bits
            buffer[16:88] = b"".join(number.to_bytes(8, "little") for number in numbers)
            return 0

    monkeypatch.setattr(processes, "_library", Library)
    monkeypatch.setattr(processes, "MACOS", True)
    private = PsutilProcesses().usage(os.getpid()).private_bytes
    assert private == footprint if footprint else private > 1_000_000, "psutil reads it instead"
    assert calls[0] == (os.getpid(), 4)


def test_files_and_ports_that_libraries_use_are_seen_by_the_descriptors(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server, (tmp_path / "log").open("w"), socket.socket() as client:
        client.connect(server.getsockname())
        uses = uses_of(os.getpid())
        assert uses[str(tmp_path / "log")] == "w"
        assert [name for name, use in uses.items() if use == "b"] == [f"port {server.getsockname()[1]}"]
        assert "b" not in uses_of(os.getpid(), ports=False).values()

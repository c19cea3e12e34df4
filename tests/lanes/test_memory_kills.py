"""What the kernel tells of processes that it killed for lack of memory."""

from __future__ import annotations

import pytest

from tfmon.lanes.watchdog import GROUP_KILLS, MACHINE_KILLS, MemoryKills


def write(root, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def machine(root, count: int) -> None:
    write(root, "proc/vmstat", f"nr_free_pages 5\noom_kill {count}\nswap_ra 1\n")


def test_one_that_came_since_the_count_before_is_told(tmp_path):
    machine(tmp_path, 3)
    kills = MemoryKills(tmp_path)
    assert kills.recent() == ""
    machine(tmp_path, 4)
    assert kills.recent() == MACHINE_KILLS.format("a process")
    kills.count()
    assert kills.recent() == MACHINE_KILLS.format("a process"), (
        "it may have been counted just before the lane's end is seen"
    )
    kills.count()
    assert kills.recent() == ""


@pytest.mark.parametrize(
    ("group", "file"),
    [
        ("0::/lanes", "sys/fs/cgroup/lanes/memory.events"),
        ("0::/host/path", "sys/fs/cgroup/memory.events"),
        ("4:memory:/lanes\n0::/", "sys/fs/cgroup/memory/lanes/memory.oom_control"),
    ],
    ids=["version 2", "version 2 in a container", "version 1"],
)
def test_the_own_control_group_tells_more_than_the_machine(group, file, tmp_path):
    write(tmp_path, "proc/self/cgroup", group + "\n")
    write(tmp_path, file, "oom 0\noom_kill 1\n")
    machine(tmp_path, 10)
    kills = MemoryKills(tmp_path)
    write(tmp_path, file, "oom 2\noom_kill 3\n")
    machine(tmp_path, 12)
    assert kills.recent() == GROUP_KILLS.format("2 processes")


def test_where_nothing_is_told_nothing_is_said(tmp_path):
    kills = MemoryKills(tmp_path)
    kills.count()
    assert kills.recent() == ""
    machine(tmp_path, 5)
    assert kills.recent() == "", "nobody knows how many there were before"

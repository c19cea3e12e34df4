"""Memory of a process on macOS, against a library that answers as the real one does."""

from __future__ import annotations

import os

import pytest

from tfmon.model.readings import Missing
from tfmon.probes import processes
from tfmon.probes.processes import PsutilProcesses


class Library:
    def __init__(self, told: int | None) -> None:
        self.told = told
        self.asked: list[tuple[int, int]] = []

    def proc_pid_rusage(self, pid, flavor, buffer):
        self.asked.append((pid.value, flavor.value))
        if self.told is None:
            return -1
        # uuid, then nine numbers of 64 bits; the footprint is the eighth
        numbers = [*range(7), self.told, 99]
        buffer[16:88] = b"".join(number.to_bytes(8, "little") for number in numbers)
        return 0


@pytest.fixture
def load(monkeypatch):
    def load(library: Library) -> Library:
        monkeypatch.setattr(processes, "_library", lambda: library)
        monkeypatch.setattr(processes, "MACOS", True)
        return library

    return load


def test_the_footprint_is_the_private_memory(load):
    library = load(Library(5_000_000_000))
    assert PsutilProcesses().usage(os.getpid()).private_bytes == 5_000_000_000
    assert library.asked == [(os.getpid(), 4)]


def test_where_it_is_not_told_psutil_is_asked(load, monkeypatch):
    load(Library(None))
    assert processes.read_footprint(os.getpid()) is None
    private = PsutilProcesses().usage(os.getpid()).private_bytes
    assert not isinstance(private, Missing)
    assert private > 1_000_000


def test_without_the_library_nothing_is_told(monkeypatch):
    monkeypatch.setattr(processes, "_LIBRARY", "/no/such/library")
    processes._library.cache_clear()
    assert processes.read_footprint(os.getpid()) is None

"""Who uses the CPU while a lane has its slice: the lane, other programs, other virtual machines."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from tfmon.model.readings import SliceLoad

TICK_NS = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
"""Unit of /proc/stat; it also counts in steps of this length."""
HAS_RUN_NS = 1_000_000
"""A process that has used more CPU time than this since the last slice was not suspended all the while."""


class CpuMeter:
    """Reads the counters of this process and of the machine at the beginning and at the end of a slice.

    Both readings lie in no window. Those of the threads take 0.3 ms with 40 of them. So a slice begins with those
    of the last end if the process has not run since, as one that was suspended.

    Thread: the one that trains.
    Source: `schedstat` of each thread (time on a core, time in the run queue; the kernel's sched-stats.rst), the
    first line of /proc/stat, `time.process_time_ns`.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Read below `root`; elsewhere than on Linux only this process's own CPU time is known."""
        self._tasks = f"{root}/proc/self/task"
        self._stat = f"{root}/proc/stat"
        self._at_ns = self._cpu_ns = self._ended_cpu_ns = 0
        self._delays: dict[str, int] | None = None
        self._machine: tuple[int, int] | None = None

    def begin(self) -> None:
        """Read the counters: a slice begins."""
        if self._delays is None or time.process_time_ns() - self._ended_cpu_ns > HAS_RUN_NS:
            self._delays = self._read_delays()
        self._machine = self._read_machine()
        self._cpu_ns, self._at_ns = time.process_time_ns(), time.monotonic_ns()

    def end(self, examples: int) -> SliceLoad | None:
        """Return who used the CPU since `begin`, in which the lane trained `examples`; None without a `begin`."""
        if not self._at_ns:
            return None
        span_ns, cpu_ns = time.monotonic_ns() - self._at_ns, time.process_time_ns() - self._cpu_ns
        delays, machine = self._read_delays(), self._read_machine()
        delay_ns = others_ns = stolen_ns = None
        if delays is not None and self._delays is not None:
            delay_ns = sum(max(0, now - self._delays.get(thread, 0)) for thread, now in delays.items())
        if machine is not None and self._machine is not None:
            busy_ns, stolen_ns = (max(0, now - then) for now, then in zip(machine, self._machine, strict=True))
            others_ns = max(0, busy_ns - cpu_ns)
        self._at_ns, self._delays, self._ended_cpu_ns = 0, delays, time.process_time_ns()
        return SliceLoad(
            span_ns=max(1, span_ns),
            examples=max(0, examples),
            cpu_ns=max(0, cpu_ns),
            delay_ns=delay_ns,
            others_ns=others_ns,
            stolen_ns=stolen_ns,
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        )

    def _read_delays(self) -> dict[str, int] | None:
        """Return how long each thread has waited for a core since it began; None where that is not reported."""
        try:
            delays = dict(self._delays_of(os.listdir(self._tasks)))  # noqa: PTH208 - quicker
        except OSError:
            return None
        return delays or None

    def _delays_of(self, threads: list[str]) -> Iterator[tuple[str, int]]:
        for thread in threads:
            try:
                file = os.open(f"{self._tasks}/{thread}/schedstat", os.O_RDONLY)
            except OSError:  # it has ended, or the kernel keeps no such figures
                continue
            try:
                yield thread, int(os.read(file, 100).split()[1])
            except (OSError, IndexError, ValueError):
                continue
            finally:
                os.close(file)

    def _read_machine(self) -> tuple[int, int] | None:
        """Return for how long all cores were busy, and for how long they were stolen."""
        try:
            file = os.open(self._stat, os.O_RDONLY)
        except OSError:
            return None
        try:
            name, user, nice, system, _idle, _wait, irq, soft_irq, stolen = os.read(file, 400).split()[:9]
            busy = int(user) + int(nice) + int(system) + int(irq) + int(soft_irq)
        except (OSError, ValueError):
            return None
        finally:
            os.close(file)
        return (busy * TICK_NS, int(stolen) * TICK_NS) if name == b"cpu" else None

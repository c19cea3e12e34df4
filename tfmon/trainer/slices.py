"""When a lane may train, the ends of windows and slices, and the use of the CPU."""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path

from tfmon.model.readings import SliceLoad
from tfmon.model.requests import RunSlice
from tfmon.system.lane_clock import lane_clock

WINDOW_NS = 200_000_000
"""Minimum length. The last window of a slice gets a remainder of less than half a window."""
YOUNG_NS, LONG_WINDOW_NS = 60_000_000_000, 1_000_000_000
"""After a minute of training, windows are longer, to keep recordings small."""
STRETCH_NS, GPU_STRETCH_NS = 10_000_000, 25_000_000
STILL_RISING = 1.1
"""The start of a slice is discarded, because caches and clocks have just served another lane. The start lasts for
at least two stretches of `STRETCH_NS` or one step (`GPU_STRETCH_NS` on a GPU), until a stretch is not faster by
this factor, but at most half of the slice. Compared stretches are discarded, so that speed does not select the
measured stretches."""
LONG_STEP_NS = 20_000_000
"""On a CPU, one such step is the whole start: the switch costs this step 3 ms."""
KEPT_NS, GPU_KEPT_NS = 100_000_000, 500_000_000
"""Such a first step is measured, because a second step would double the slice. Source: `benchmarks/slow_steps.py
switch`."""
WITH_END_NS = 500_000_000
"""A slice's last windows are sent with the slice's end, so that the monitor wakes up once."""


class Slices:
    """When a lane may train. Thread: the training thread."""

    def __init__(self, device: str = "cpu") -> None:
        self.paused = True
        self.current: RunSlice | None = None
        """`None` while the lanes train concurrently."""
        self.start_done = False
        self.ends_ns = 0
        gpu = device == "gpu"
        self.stretch_ns = GPU_STRETCH_NS if gpu else STRETCH_NS
        self._long_step_ns = math.inf if gpu else LONG_STEP_NS
        self._kept_ns = GPU_KEPT_NS if gpu else KEPT_NS
        self._speed: float | None = None
        self._first_ns: int | None = None
        self._steps = self._examples = 0

    @property
    def round(self) -> int | None:
        """Round of the slice, or `None`."""
        return None if self.current is None else self.current.round

    @property
    def starting(self) -> bool:
        """Whether the slice's discarded start runs."""
        return self.current is not None and not self.start_done

    def begin(self, granted: RunSlice, now_ns: int, steps: int, examples: int) -> None:
        """Begin a slice. `steps` and `examples` are of the current window."""
        self.current, self.start_done = granted, False
        self.ends_ns = now_ns + int(granted.seconds * 1e9)
        self._speed, self._steps, self._examples = None, steps, examples

    def pause(self) -> bool:
        """Pause. Return False if already paused."""
        if self.paused:
            return False
        self.current, self.paused = None, True
        return True

    def due_ns(self, since_ns: int) -> int:
        """Return when a stretch should end."""
        if self._first_ns is None:
            self._first_ns = since_ns
        window_ns = WINDOW_NS if since_ns - self._first_ns < YOUNG_NS else LONG_WINDOW_NS
        if self.current is None:
            return since_ns + window_ns
        if not self.start_done:
            return since_ns + self.stretch_ns
        return since_ns + window_ns if self.ends_ns - since_ns >= 1.5 * window_ns else self.ends_ns

    def keeps(self, span_ns: int, steps: int) -> bool:
        """Keep the first stretch if it is one long step. Return whether it was kept."""
        long = self.starting and self._speed is None and span_ns >= self._kept_ns and steps == self._steps + 1
        self.start_done = self.start_done or long
        return long

    def still_rising(self, now_ns: int, since_ns: int, steps: int, examples: int) -> bool:
        """Return whether the start continues, because this stretch was the first, or faster."""
        if self.current is None or self.start_done:
            return False
        single = steps - self._steps == 1 and now_ns - since_ns >= self._long_step_ns
        done = examples - self._examples if examples else steps - self._steps
        before, self._speed = self._speed, done / (now_ns - since_ns)
        self._steps, self._examples = steps, examples
        if single or now_ns >= self.ends_ns - int(self.current.seconds * 0.5e9):
            return False
        return before is None or self._speed > before * STILL_RISING

    def window_closed(self, now_ns: int) -> RunSlice | None:
        """Record the end of a window. If the slice ends, pause and return it."""
        if self.current is None:
            return None
        if not self.start_done:
            self.start_done = True
            return None
        if now_ns < self.ends_ns:
            return None
        ended, self.current, self.paused = self.current, None, True
        return ended


TICK_NS = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
"""Unit of /proc/stat."""
HAS_RUN_NS = 1_000_000
"""More CPU time shows that the process has run."""


class CpuMeter:
    """Reads the counters of this process and of the machine around a slice.

    Reading 40 threads takes 0.3 ms, so a slice begins with the readings of the previous end.

    Thread: the training thread. Source: `schedstat` of each thread (time on a core, time in the run queue; the
    kernel's sched-stats.rst), the first line of /proc/stat, `time.process_time_ns`.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Without Linux, only this process's CPU time is known."""
        self._tasks = f"{root}/proc/self/task"
        self._stat = f"{root}/proc/stat"
        self._at_ns = self._cpu_ns = self._ended_cpu_ns = self._stopped_ns = 0
        self._delays: dict[str, int] | None = None
        self._machine: tuple[int, int] | None = None

    def begin(self) -> None:
        """Read the counters at the start."""
        if self._delays is None or time.process_time_ns() - self._ended_cpu_ns > HAS_RUN_NS:
            self._delays = self._read_delays()
        self._machine = read_machine(self._stat)
        self._stopped_ns = lane_clock.suspended_ns
        self._cpu_ns, self._at_ns = time.process_time_ns(), time.monotonic_ns()

    def end(self, examples: int) -> SliceLoad | None:
        """Return the CPU use since `begin`. `None` if the lane was suspended."""
        if not self._at_ns or self._stopped_ns != lane_clock.suspended_ns:
            return None
        span_ns, cpu_ns = time.monotonic_ns() - self._at_ns, time.process_time_ns() - self._cpu_ns
        delays, machine = self._read_delays(), read_machine(self._stat)
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
        delays: dict[str, int] = {}
        with contextlib.suppress(OSError):
            for thread in os.listdir(self._tasks):  # noqa: PTH208 - quicker
                with contextlib.suppress(OSError, IndexError, ValueError):
                    delays[thread] = int(_read(f"{self._tasks}/{thread}/schedstat").split()[1])
        return delays or None


def read_machine(path: str = "/proc/stat") -> tuple[int, int] | None:
    """Return the time of all cores that programs used, and the time that the hypervisor took, in ns."""
    try:
        name, user, nice, system, _idle, _wait, irq, soft_irq, stolen = _read(path).split()[:9]
        busy = int(user) + int(nice) + int(system) + int(irq) + int(soft_irq)
    except (OSError, ValueError):
        return None
    return (busy * TICK_NS, int(stolen) * TICK_NS) if name == b"cpu" else None


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 400)
    finally:
        os.close(file)

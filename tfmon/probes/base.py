"""The interface, threads and shared parts of probes."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from tfmon.model.event_base import Event
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuFault, GpuProcesses, GpuSample, SlowReading, unread
from tfmon.model.readings import Missing, Reading
from tfmon.system.threads import start_thread

T = TypeVar("T")

FIRST_SAMPLE = Missing("first sample")
TOO_SOON = Missing("sampled again too soon")
SHORTEST_NS = 100_000_000
"""CPU time is counted in steps of 10 ms."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or an instance of a split GPU (MIG)."""

    index: int
    """Counts the visible GPUs, as TensorFlow does; in a driver's list, all GPUs."""
    uuid: str
    name: str
    physical_gpu: int
    """Counts hidden GPUs, too."""
    power_limit_w: float | None = None
    part_of: str = ""
    """UUID of an instance's GPU."""
    instances: tuple[Gpu, ...] | None = None
    """`None` for a whole GPU; a split GPU is only used through them."""
    power_default_w: float | None = None
    capability: tuple[int, int] | None = None
    exclusive: bool | None = None

    @property
    def split(self) -> bool:
        """Whether instances exist (MIG)."""
        return self.instances is not None


class Probe(ABC):
    """A source of readings. Thread: the probe's ticker, which may block."""

    name: str

    @abstractmethod
    def sample(self) -> Iterable[Event]:
        """Read everything. A value that cannot be read is `Missing`."""

    @abstractmethod
    def missing(self, reason: str) -> Iterable[Event]:
        """Return every reading as `Missing(reason)`."""

    def close(self) -> None:
        """Release the driver."""


def within(timeout_s: float, work: Callable[[], T]) -> T | None:
    """Return the result of `work`, or `None` if it fails or hangs."""
    answers: queue.SimpleQueue[T | None] = queue.SimpleQueue()

    start_thread("tfmon-driver", lambda: answers.put(work()), lambda _reason: answers.put(None))
    try:
        return answers.get(timeout=timeout_s)
    except queue.Empty:
        return None


def absent_gpu(gpu: Gpu, at_ns: int, reason: str, faults: Sequence[GpuFault] = ()) -> GpuSample:
    """Return a sample without readings."""
    sample = GpuSample(
        at_ns=at_ns,
        key=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        part_of=gpu.part_of,
        processes=GpuProcesses(no_list_reason=reason),
        faults=tuple(faults),
    )
    return unread(sample, Missing(reason))


class GpuProbe(Probe):
    """A source of readings of GPUs."""

    def __init__(self, gpus: Sequence[Gpu], clock_ns: Callable[[], int]) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._clock_ns = clock_ns

    def missing(self, reason: str) -> Iterable[Event]:
        """Return a sample of each GPU without readings."""
        at_ns = self._clock_ns()
        return [absent_gpu(gpu, at_ns, reason) for gpu in self._gpus.values()]


class CounterRate:
    """The rate of a counter that only grows."""

    def __init__(self) -> None:
        self._before: tuple[float, int] | None = None

    def per_s(self, count: float, at_ns: int) -> Reading:
        """Return the growth per second."""
        before = self._before
        if before is not None and at_ns - before[1] < SHORTEST_NS:
            return TOO_SOON
        self._before = count, at_ns
        if before is None:
            return FIRST_SAMPLE
        grown = count - before[0]
        return Missing("the system's counter was reset") if grown < 0 else grown * 1e9 / (at_ns - before[1])


SLOW_NS = 50_000_000
"""The two slowest intended calls take 40 ms."""
LEAST_S, MOST_S = 5.0, 60.0
_SHARE = 0.01
_AGAIN_NS = 15_000_000_000
"""A single slow read may have waited for a core."""


class Backoff:
    """Reads values that are due and repeats the others. Thread: the ticker's."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._kept: dict[str, tuple[Any, SlowReading]] = {}
        self._slow_at_ns: dict[str, int] = {}

    def read(self, name: str, read: Callable[[], T]) -> T:
        """Return a new value, or the last one of a slow read that is not due."""
        begun_ns = self._clock_ns()
        before, slow = self._kept.get(name, (None, None))
        if slow is not None and begun_ns - slow.at_ns < slow.every_s * 1e9:
            return cast(T, before)
        value = read()
        took_ns = self._clock_ns() - begun_ns
        if took_ns <= SLOW_NS:
            self._kept.pop(name, None)
            return value
        before_ns, self._slow_at_ns[name] = self._slow_at_ns.get(name), begun_ns
        if slow is not None or (before_ns is not None and begun_ns - before_ns <= _AGAIN_NS):
            every_s = min(MOST_S, max(LEAST_S, took_ns / 1e9 / _SHARE))
            self._kept[name] = value, SlowReading(name, took_ns / 1e6, every_s, begun_ns)
        return value

    @property
    def slow(self) -> tuple[SlowReading, ...]:
        """Values that are read less often."""
        return tuple(reading for _, reading in self._kept.values())


@dataclass(eq=False)
class Ticker:
    """Runs a probe in a daemon thread, at fixed times.

    Missed ticks are skipped. The thread survives errors of the probe and the sink. Thread: any; only `close`
    waits briefly.
    """

    probe: Probe
    sink: Callable[[Event], object]
    interval_s: float = 1.0
    clock_ns: Callable[[], int] = time.monotonic_ns
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait

    def __post_init__(self) -> None:
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; the first tick is due at once."""
        self._thread = start_thread(f"tfmon-{self.probe.name}", self._run, self._tell_missing)

    def close(self, timeout_s: float = 0.25) -> bool:
        """End the thread. Return False if it hangs in the driver."""
        self._closed.set()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due_ns, interval_ns = self.clock_ns(), max(1, int(self.interval_s * 1e9))
        while not self.wait(self._closed, max(0, due_ns - self.clock_ns()) / 1e9):
            if error := self._pass_on(self.probe.sample):
                self._tell_missing(f"the {self.probe.name} readings failed: {error}")
            due_ns += (max(0, self.clock_ns() - due_ns) // interval_ns + 1) * interval_ns
        with contextlib.suppress(Exception):
            self.probe.close()

    def _tell_missing(self, reason: str) -> None:
        self._pass_on(lambda: self.probe.missing(reason))

    def _pass_on(self, read: Callable[[], Iterable[Event]]) -> str:
        try:
            for event in read():
                if self._closed.is_set():
                    break
                self.sink(event)
        except Exception as error:  # noqa: BLE001 - top of a thread; the error is passed on as a reading
            return " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return ""

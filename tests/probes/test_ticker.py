"""The sampling thread, on a clock that moves only while the thread waits."""

import threading

from support.waiting import PATIENCE_S, wait_for

from tfmon.model.readings import HostSample, Missing
from tfmon.probes.base import Ticker

SECOND = 1_000_000_000


class FakeProbe:
    """Takes the given time for a sample, and fails in some of them."""

    name = "fake"

    def __init__(self, clock, takes_s: float = 0.0, fails_in: int | None = None) -> None:
        self.clock, self.takes_s, self.fails_in = clock, takes_s, fails_in
        self.samples = 0
        self.closed_in: list[str] = []

    def sample(self):
        self.samples += 1
        at_ns = self.clock()
        self.clock.ahead(self.takes_s)
        yield HostSample(at_ns=at_ns, cpu_pct=1.0, memory_used_bytes=1, memory_total_bytes=2)
        if self.samples == self.fails_in:
            raise RuntimeError("two\nlines")

    def missing(self, reason):
        gone = Missing(reason)
        yield HostSample(at_ns=self.clock(), cpu_pct=gone, memory_used_bytes=gone, memory_total_bytes=gone)

    def close(self):
        self.closed_in.append(threading.current_thread().name)


def ticked(probe: FakeProbe) -> list[HostSample]:
    """Return the events of three ticks, after which the clock stands still until the ticker is closed."""
    events = []

    def wait(closed: threading.Event, timeout_s: float) -> bool:
        if probe.samples < 3:
            probe.clock.ahead(timeout_s)
            return False
        waits.set()
        return closed.wait(PATIENCE_S)

    waits = threading.Event()
    ticker = Ticker(probe, events.append, clock_ns=probe.clock, wait=wait)
    ticker.start()
    wait_for(waits.is_set, what="three ticks")
    assert ticker.close(PATIENCE_S) is True
    assert probe.closed_in == ["tfmon-fake"]
    return events


def test_a_slow_probe_skips_ticks(clock):
    began_ns = clock()
    events = ticked(FakeProbe(clock, takes_s=2.5))
    assert [(event.at_ns - began_ns) / SECOND for event in events] == [0, 3, 6]


def test_failing_probe_gives_missing_readings_and_goes_on(clock):
    why = Missing("the fake readings failed: RuntimeError: two lines")
    assert [event.cpu_pct for event in ticked(FakeProbe(clock, fails_in=2))] == [1.0, 1.0, why, 1.0]

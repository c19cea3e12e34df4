"""The sampling thread, on a clock that moves only when the test moves it."""

import threading

import pytest
from support.waiting import PATIENCE_S

from tfmon.model.readings import HostSample, Missing
from tfmon.probes.base import Ticker

SECOND = 1_000_000_000


class FakeClock:
    """Time stands still until `advance`; a thread that waits sleeps until then."""

    def __init__(self) -> None:
        self.now_ns = 5 * SECOND
        self._waiting = threading.Condition()
        self._ticker: threading.Condition | None = None
        self.waits: list[float] = []

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, condition: threading.Condition, timeout_s: float) -> None:
        with self._waiting:
            self._ticker = condition
            self.waits.append(timeout_s)
            self._waiting.notify_all()
        condition.wait(PATIENCE_S)
        with self._waiting:
            self._ticker = None

    def until_waiting(self, again: int = 0) -> None:
        """Return when the thread waits for the next tick."""
        with self._waiting:
            assert self._waiting.wait_for(
                lambda: self._ticker is not None and len(self.waits) >= again, PATIENCE_S
            ), "the ticker does not wait"

    def advance(self, seconds: float) -> None:
        """Let time pass, and return when the thread waits again."""
        self.until_waiting()
        count = len(self.waits)
        condition = self._ticker
        assert condition is not None
        with condition:
            self.now_ns += int(seconds * SECOND)
            condition.notify_all()
        self.until_waiting(again=count + 1)


class FakeProbe:
    name = "fake"

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.calls: list[str] = []
        self.takes_s = 0.0
        self.error: Exception | None = None

    def sample(self):
        self.calls.append("sample")
        at_ns = self.clock.now_ns
        self.clock.now_ns += int(self.takes_s * SECOND)
        yield HostSample(at_ns=at_ns, cpu_pct=1.0, memory_used_bytes=1, memory_total_bytes=2)
        if self.error is not None:
            raise self.error

    def missing(self, reason):
        missing = dict.fromkeys(("cpu_pct", "memory_used_bytes", "memory_total_bytes"), Missing(reason))
        yield HostSample(at_ns=self.clock.now_ns, **missing)

    def close(self):
        self.calls.append("close")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def probe(clock):
    return FakeProbe(clock)


@pytest.fixture
def events():
    return []


@pytest.fixture
def ticker(probe, events, clock):
    ticker = Ticker(probe, events.append, clock_ns=clock, wait=clock.wait)
    yield ticker
    assert ticker.close(PATIENCE_S)


def test_a_slow_probe_skips_ticks(ticker, clock, events, probe):
    probe.takes_s = 2.5
    ticker.start()
    clock.advance(0.5)
    clock.advance(0.5)
    assert [event.at_ns / SECOND for event in events] == [5, 8, 11]


def test_failing_probe_gives_missing_readings_and_goes_on(ticker, clock, events, probe):
    ticker.start()
    probe.error = RuntimeError("two\nlines")
    clock.advance(1)
    assert events[-1].cpu_pct == Missing("the fake readings failed: RuntimeError: two lines")
    probe.error = None
    clock.advance(1)
    assert events[-1].cpu_pct == 1.0
    assert probe.calls == ["sample"] * 3


def test_close_ends_the_thread_and_closes_the_probe_in_it(ticker, clock, probe, events):
    assert Ticker(probe, events.append).close() is True
    assert probe.calls == [], "it never started"
    threads = []
    probe.close = lambda: threads.append(threading.current_thread().name)
    ticker.start()
    clock.until_waiting()
    assert ticker.close(PATIENCE_S) is True
    assert threads == ["tfmon-fake"]

"""A reading that takes the driver long is requested less often; others, and other GPUs, as before."""

import pynvml
import pytest
from support.nvml import BUSY, IDLE, TWO_GPUS, Clock, take

from tfmon.probes.base import Backoff
from tfmon.probes.nvidia.probe import NvidiaProbe


class SlowCall:
    """A function of the driver that takes 80 ms of a clock that nothing else moves, for one GPU or for all."""

    def __init__(self, monkeypatch, clock: Clock, function: str, uuid: str = "") -> None:
        self.took_s, self.calls = 0.08, 0
        real = getattr(pynvml, function)

        def call(handle, *more):
            if not uuid or pynvml.nvmlDeviceGetUUID(handle) == uuid:
                self.calls += 1
                clock.pass_s(self.took_s)
            return real(handle, *more)

        monkeypatch.setattr(pynvml, function, call)


@pytest.mark.process
def test_a_slow_call_is_repeated_seldom_and_only_for_its_gpu(driver, monkeypatch, clock):
    slow = SlowCall(monkeypatch, clock, "nvmlDeviceGetUtilizationRates", BUSY.uuid)
    probe = NvidiaProbe([BUSY, IDLE], clock_ns=clock)
    assert take(probe)[0].slow == (), "one slow call may have waited for a core"
    clock.pass_s(1)
    busy, idle = take(probe)
    (one,) = busy.slow
    assert (one.name, one.took_ms, one.every_s, idle.slow) == ("load", 80, pytest.approx(8), ())
    driver.play(TWO_GPUS.replace("util 0 87", "util 0 12"))
    clock.pass_s(3)
    asked = slow.calls
    busy, _ = take(probe)
    assert slow.calls == asked
    assert (busy.load.busy_pct, round(busy.age_s("load")), busy.age_s("memory")) == (87, 3, 0)
    clock.pass_s(one.every_s)
    busy, _ = take(probe)
    assert (busy.load.busy_pct, round(busy.age_s("load"))) == (12, 0)
    slow.took_s = 0
    clock.pass_s(61)
    assert take(probe)[0].slow == (), "a driver that is fast again is asked as before"
    probe.close()


def test_one_that_is_slow_every_other_time_counts_too(clock):
    backoff = Backoff(clock)
    for took_s, slow in ((0.06, 0), (0.001, 0), (0.06, 1)):
        clock.pass_s(1)

        def read(took_s=took_s):
            clock.pass_s(took_s)
            return {"busy_pct": 1}

        backoff.read("load", read)
        assert len(backoff.slow) == slow

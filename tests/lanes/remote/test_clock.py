"""The clock of a host by pings of which most are late on one of their ways."""

from __future__ import annotations

import random

import pytest

from tfmon.lanes.remote.link import HostClock, Ping

HOUR_NS = 3_600_000_000_000


def ping(at_ns: int, ahead_ns: int, out_ns: int, back_ns: int) -> Ping:
    """A ping to a clock that is so far ahead, with these times on its ways."""
    return Ping(at_ns, at_ns + out_ns + ahead_ns, at_ns + out_ns + back_ns)


@pytest.mark.parametrize("ahead_ns", [-HOUR_NS, 0, HOUR_NS])
def test_the_quickest_pings_count_and_the_error_bounds_the_truth(ahead_ns):
    chance = random.Random(3)
    clock = HostClock()
    for number in range(100):
        late_ns = int(chance.expovariate(1 / 2e6))  # all on one way: the plain mean would be 1 ms off
        clock.take(ping(2 * HOUR_NS + number * 10**9, ahead_ns, 100_000 + late_ns, 100_000))
    assert clock.offset_ns == 0, "nothing changes between two settlements"
    assert clock.settle()
    assert abs(clock.offset_ns + ahead_ns) <= clock.error_ns < 400_000
    assert abs(clock.here(3 * HOUR_NS + ahead_ns) - 3 * HOUR_NS) <= clock.error_ns


def test_an_asymmetric_link_is_wrong_by_no_more_than_the_error_it_tells():
    clock = HostClock()
    clock.take(ping(10**9, 0, 9_000_000, 1_000_000))
    clock.settle()
    assert clock.error_ns == 5_000_000 and abs(clock.offset_ns) == 4_000_000


def test_a_clock_that_drifts_is_followed():
    clock = HostClock()
    for second in range(600):
        drift_ns = second * 50_000  # 50 millionths
        clock.take(ping(second * 10**9, drift_ns, 100_000, 100_000))
    clock.settle()
    assert abs(clock.offset_ns + 599 * 50_000) <= clock.error_ns < 1_000_000


def test_without_a_ping_nothing_is_settled_and_no_stamp_is_below_zero():
    clock = HostClock()
    assert not clock.settle()
    clock.take(ping(10**9, HOUR_NS, 10, 10))
    assert clock.settle() and clock.here(0) == 0

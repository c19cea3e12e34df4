"""The time of a lane, which both the stopping and the stopped process know."""

import tempfile
from types import SimpleNamespace

import pytest

from tfmon.system import lane_clock
from tfmon.system.lane_clock import SIZE, LaneClock, SuspendedTime


@pytest.fixture
def machine(monkeypatch) -> SimpleNamespace:
    machine = SimpleNamespace(now_ns=1_000)
    monkeypatch.setattr(lane_clock, "time", SimpleNamespace(monotonic_ns=lambda: machine.now_ns))
    return machine


@pytest.fixture
def both() -> tuple[SuspendedTime, LaneClock]:
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        clock = LaneClock()
        clock.follow(file.fileno())
        return SuspendedTime(file.fileno()), clock


def test_it_stands_still_while_the_lane_is_suspended_and_from_the_moment_that_it_was(machine, both):
    suspended, clock = both
    machine.now_ns = 1_500
    assert clock.now_ns() == 1_500
    suspended.begins()
    machine.now_ns = 1_700
    suspended.begins()  # somebody else saw the same stop
    machine.now_ns = 6_500
    assert (clock.now_ns(), clock.suspended_ns) == (1_500, 5_000), "it goes on before that is written"
    suspended.ends()
    suspended.ends()
    machine.now_ns = 6_600
    assert (clock.now_ns(), clock.suspended_ns, clock.stamp(1_550)) == (1_600, 5_000, 6_550)


def test_a_pause_in_which_the_lane_is_suspended_counts_once(machine, both):
    suspended, clock = both

    def wait() -> None:
        machine.now_ns += 10
        suspended.begins()
        machine.now_ns += 100
        suspended.ends()
        machine.now_ns += 5

    clock.pause(wait)
    assert (clock.now_ns(), clock.stopped_ns, clock.suspended_ns) == (1_000, 115, 100)

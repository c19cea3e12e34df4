"""What a link is made of: frames that arrive whole and in order, and the clock of a host by pings."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmon.lanes.remote.frames import HEADER, MOST_BYTES, Frame, FrameError, FrameReader, Kind, Outbox
from tfmon.lanes.remote.link import HostClock, Ping

FRAMES = st.lists(
    st.tuples(st.sampled_from(list(Kind)), st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=20
)


def sent(outbox: Outbox) -> bytes:
    reading, writing = os.pipe()
    try:
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        found = b""
        outbox.collect()
        while not outbox.empty:
            outbox.write(writing)
            found += os.read(reading, 1 << 20)
        return found
    finally:
        os.close(reading)
        os.close(writing)


@given(FRAMES, st.lists(st.integers(1, 400), min_size=1))
def test_frames_come_out_as_they_were_put_however_they_are_torn(frames, sizes):
    outbox, reader = Outbox(), FrameReader()
    tickets = [outbox.put(*frame) for frame in frames]
    data, found, place = sent(outbox), [], 0
    while data:
        size = sizes[place % len(sizes)]
        found += reader.take(data[:size])
        data, place = data[size:], place + 1
    assert found == [Frame(int(kind), number, payload) for kind, number, payload in frames]
    assert outbox.waiting_bytes == 0 and outbox.sent == (tickets[-1] if tickets else 0)
    outbox.close()


def test_an_urgent_frame_overtakes_those_that_wait_but_tears_none():
    outbox, reader = Outbox(), FrameReader()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    first = outbox.put(Kind.METRICS, 1, b"x" * 200_000)
    outbox.put(Kind.METRICS, 2, b"y" * 200_000)
    outbox.collect()
    outbox.write(writing)  # a part of the first
    assert not outbox.empty and outbox.sent < first
    outbox.put(Kind.PONGED, 3, urgent=True)
    outbox.collect()
    found = []
    while len(found) < 3:
        found += reader.take(os.read(reading, 65_536))
        outbox.write(writing)
    assert [frame.number for frame in found] == [1, 3, 2]
    for fd in (reading, writing):
        os.close(fd)
    outbox.close()


def test_noise_is_refused_before_it_is_collected():
    with pytest.raises(FrameError):
        FrameReader().take(HEADER.pack(1, 1, MOST_BYTES + 1))


def test_nothing_is_written_to_whoever_got_the_descriptors_of_a_closed_outbox():
    outbox = Outbox()
    outbox.close()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    outbox.put(Kind.PING)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)
    os.close(reading)
    os.close(writing)


# ---------------------------------------------------------------- the clock of a host


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

"""The traffic of a link: frames that arrive whole and in order, and the clock of a host by pings."""

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import PATIENCE_S, wait_for

from tfmon.lanes.remote.clock import HostClock, Ping
from tfmon.lanes.remote.frames import HEADER, MESSAGES, MOST_BYTES, FrameError, FrameReader, Sender

FRAMES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=20)


@given(FRAMES, st.lists(st.integers(1, 400), min_size=1))
def test_frames_come_out_as_they_were_sent_however_they_are_torn(frames, sizes):
    reading, writing = os.pipe()
    sender, reader, found, number = Sender(writing), FrameReader(), [], 0
    for stream, payload in frames:
        sender.send(stream, payload)
    sender.close()
    while chunk := os.read(reading, sizes[number % len(sizes)]):
        found += reader.take(chunk)
        number += 1
    os.close(reading)
    assert found == frames


def test_a_slow_link_delays_no_caller_and_says_that_it_is_full():
    reading, writing = os.pipe()
    sender, reader, found = Sender(writing), FrameReader(), []
    for number in range(20):
        sender.send(number, b"x" * 200_000)
    assert sender.full
    sender.flush(0.01)  # it gives up
    sender.send_message(last="word")
    sender.close()
    while chunk := os.read(reading, 1 << 20):
        found += reader.take(chunk)
    os.close(reading)
    assert [stream for stream, _ in found] == [*range(20), MESSAGES]
    assert json.loads(found[-1][1]) == {"last": "word"} and not sender.full


def test_nobody_who_reads_is_no_error_and_a_flush_ends():
    reading, writing = os.pipe()
    os.close(reading)
    sender = Sender(writing)
    sender.send(1, b"x")
    sender.flush(PATIENCE_S)
    sender.close()
    wait_for(lambda: not Path(f"/proc/self/fd/{writing}").exists(), what="the sender has closed it")


def test_noise_is_refused_before_it_is_collected():
    with pytest.raises(FrameError):
        FrameReader().take(HEADER.pack(1, MOST_BYTES + 1))


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


def test_without_a_ping_nothing_is_settled_and_no_stamp_is_below_zero():
    clock = HostClock()
    assert not clock.settle()
    clock.take(ping(10**9, HOUR_NS, 10, 10))
    assert clock.settle() and clock.here(0) == 0

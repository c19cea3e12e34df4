"""The traffic of a link: lines that arrive whole and in order, and the clock of a host by pings."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import PATIENCE_S, wait_for

from tfmon.lanes.remote.link_lines import LONGEST_BYTES, LineError, LineReader, Sender
from tfmon.lanes.remote.remote_process import HostClock

MESSAGES = st.lists(st.fixed_dictionaries({"text": st.text(max_size=100)}), max_size=20)


def received(reading: int, size: int = 1 << 20) -> list[object]:
    reader, found = LineReader(), []
    while chunk := os.read(reading, size):
        found += reader.take(chunk)
    os.close(reading)
    return found


@given(MESSAGES, st.integers(1, 400))
def test_messages_come_out_as_they_were_sent_however_they_are_torn(messages, size):
    reading, writing = os.pipe()
    sender = Sender(writing)
    for message in messages:
        sender.send(**message)
    sender.close()
    assert received(reading, size) == messages


def test_a_slow_link_delays_no_caller_and_says_that_it_is_full():
    reading, writing = os.pipe()
    sender = Sender(writing)
    for number in range(20):
        sender.send(number=number, text="x" * 200_000)
    assert sender.full
    sender.flush(0.01)  # it gives up
    sender.close()
    assert [message["number"] for message in received(reading)] == [*range(20)] and not sender.full


def test_nobody_who_reads_is_no_error_and_a_flush_ends():
    reading, writing = os.pipe()
    os.close(reading)
    sender = Sender(writing)
    sender.send(text="x")
    sender.flush(PATIENCE_S)
    sender.close()
    wait_for(lambda: not Path(f"/proc/self/fd/{writing}").exists(), what="the sender has closed it")


@pytest.mark.parametrize(
    "noise", [b"x" * (LONGEST_BYTES + 1), b"\xff\n", b"no JSON\n", b"3\n", b"[" * 10**5 + b"\n"]
)
def test_noise_is_refused(noise):
    with pytest.raises(LineError):
        LineReader().take(noise)


HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize("ahead_ns", [-HOUR_NS, 0, HOUR_NS])
def test_the_quickest_pings_count_and_the_error_bounds_the_truth(ahead_ns):
    chance = random.Random(3)
    clock = HostClock()
    assert not clock.settle(), "nothing is known"
    for number in range(100):
        late_ns = int(chance.expovariate(1 / 2e6))  # all on one way: the plain mean would be 1 ms off
        sent_ns = 2 * HOUR_NS + number * 10**9
        clock.take(sent_ns, sent_ns + 100_000 + late_ns + ahead_ns, sent_ns + 200_000 + late_ns)
    assert clock.offset_ns == 0, "nothing changes between two settlements"
    assert clock.settle()
    assert abs(clock.offset_ns + ahead_ns) <= clock.error_ns < 400_000
    assert abs(clock.to_monitor(3 * HOUR_NS + ahead_ns) - 3 * HOUR_NS) <= clock.error_ns
    assert clock.to_monitor(0) >= 0

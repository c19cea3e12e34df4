"""Frames arrive whole and in order however their bytes are torn, and memory is bounded."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmon.lanes.remote.frames import HEADER, MOST_BYTES, Frame, FrameError, FrameReader, Kind, Outbox

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

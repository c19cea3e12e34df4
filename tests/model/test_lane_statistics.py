"""The measured windows: steady windows, slices by their settings, histograms, and discarded windows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import MS
from support.events import window as any_window

from tfmon.model.lane_events import Window
from tfmon.model.windows import MOST_SLICES, RARE, SETTLED_WINDOWS, Measurements


def window(number: int, round: int | None = 1, **changes) -> Window:
    """Make the window that ends after `number` times 200 ms."""
    return any_window(number * 200 * MS, round=round, histogram={1600: 8, 1700 + number: 2}, **changes)


def after(*windows: Window) -> Measurements:
    measured = Measurements()
    for one in windows:
        measured.add(one)
    return measured


def test_the_oldest_slices_are_dropped():
    found = after(*(window(1, number) for number in range(MOST_SLICES + 3))).slices
    assert (len(found), found[0].round, found[-1].round) == (MOST_SLICES, 3, MOST_SLICES + 2)


class TestDisturbances:
    @pytest.mark.parametrize("every", [1, 5])
    def test_a_disturbance_that_is_there_most_of_the_time_is_how_the_machine_is(self, every):
        measured = Measurements()
        for number in range(1, 101):
            measured.add(window(number))
            if number % every == 0:
                measured.discard((number - 1) * 200 * MS, number * 200 * MS, "swapping")
        if every == 1:
            assert measured.constant == ("swapping",)
            assert measured.discarded == {"swapping": SETTLED_WINDOWS - 1}, "it is known after so many windows"
        else:
            assert 1 / every < RARE
            assert (measured.constant, measured.discarded) == ((), {"swapping": 20})

    @given(st.lists(st.booleans(), min_size=1, max_size=24), st.booleans())
    def test_discarding_is_the_same_as_never_having_counted(self, hits, copies):
        copied_ns = 5 if copies else None
        windows = [
            window(number, number // 3, examples=50 + number, sampled_copy_ns=copied_ns, traced_ns=number)
            for number in range(1, len(hits) + 1)
        ]
        measured = after(*windows)
        for one, hit in zip(windows, hits, strict=True):
            if hit:
                measured.windows = 10_000
                measured.discard(one.at_ns - one.span_ns, one.at_ns, "swapping")
        kept = after(*(one for one, hit in zip(windows, hits, strict=True) if not hit))
        expected = replace(kept.steady, sampled_copy_ns=kept.steady.sampled_copy_ns or (0 if copies else None))
        assert measured.steady == expected
        assert [replace(part, at_ns=0) for part in measured.slices] == [
            replace(part, at_ns=0) for part in kept.slices
        ]

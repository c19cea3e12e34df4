"""What counts as measured: steady windows, slices by their settings, histograms, and what is discarded."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import MS
from support.events import window as any_window

from tfmon.model.lane_events import Window
from tfmon.model.lane_statistics import (
    LATEST,
    MOST_EARLIER,
    MOST_SLICES,
    RARE,
    SETTLED_WINDOWS,
    EarlierSlices,
    Measurements,
    SliceSpeed,
)
from tfmon.model.window_sums import WindowSums, add, bin_of, count, middle_ns, quantile_ns

SMALL, LARGE = {"batch_size": 32}, {"batch_size": 64}
DURATIONS = st.lists(st.integers(1, 10**13), min_size=1, max_size=200)


def window(number: int, round: int | None = 1, **changes) -> Window:
    """Make the window that ends after `number` times 200 ms."""
    return any_window(number * 200 * MS, round=round, histogram={1600: 8, 1700 + number: 2}, **changes)


def after(*windows: Window) -> Measurements:
    measured = Measurements()
    for one in windows:
        measured = measured.plus(one)
    return measured


class TestSlices:
    def test_the_windows_of_one_round_add_up(self):
        windows = [window(5), window(10, examples=100, span_ns=100 * MS), window(15, 2), window(20, None)]
        first, second = after(*windows).slices
        assert first == SliceSpeed(round=1, at_ns=2_000 * MS, examples=420, span_ns=300 * MS)
        assert first.examples_per_s == pytest.approx(1400)
        assert (second.round, second.examples) == (2, 320)

    def test_the_oldest_slices_are_dropped(self):
        found = after(*(window(1, number) for number in range(MOST_SLICES + 3))).slices
        assert (len(found), found[0].round, found[-1].round) == (MOST_SLICES, 3, MOST_SLICES + 2)


class TestDisturbances:
    def test_only_a_window_that_overlaps_is_discarded_and_counted_once(self):
        measured = after(window(1), window(2), window(3)).disturbed(200 * MS, 400 * MS, "swapping")
        assert measured.steady == after(window(1), window(3)).steady
        assert (measured.discarded, measured.windows) == ({"swapping": 1}, 3)
        assert [(one.examples, one.span_ns) for one in measured.slices] == [(640, 400 * MS)]
        assert measured.disturbed(200 * MS, 400 * MS, "steal") is measured

    def test_a_slice_with_nothing_steady_left_is_dropped(self):
        measured = after(window(1, 1), window(2, 2)).disturbed(0, 200 * MS, "swapping")
        assert [one.round for one in measured.slices] == [2]

    @pytest.mark.parametrize("every", [1, 5])
    def test_a_disturbance_that_is_there_most_of_the_time_is_how_the_machine_is(self, every):
        measured = Measurements()
        for number in range(1, 101):
            measured = measured.plus(window(number))
            if number % every == 0:
                measured = measured.disturbed((number - 1) * 200 * MS, number * 200 * MS, "swapping")
        if every == 1:
            assert measured.constant == ("swapping",)
            assert measured.discarded == {"swapping": SETTLED_WINDOWS - 1}, "it is known after so many windows"
        else:
            assert 1 / every < RARE
            assert (measured.constant, measured.discarded) == ((), {"swapping": 20})

    @given(st.lists(st.booleans(), min_size=1, max_size=LATEST), st.booleans())
    def test_discarding_is_the_same_as_never_having_counted(self, hits, copies):
        copied_ns = 5 if copies else None
        windows = [
            window(number, number // 3, examples=50 + number, sampled_copy_ns=copied_ns, traced_ns=number)
            for number in range(1, len(hits) + 1)
        ]
        measured = after(*windows)
        for one, hit in zip(windows, hits, strict=True):
            if hit:
                rare = replace(measured, windows=10_000)
                measured = rare.disturbed(one.at_ns - one.span_ns, one.at_ns, "swapping")
        kept = after(*(one for one, hit in zip(windows, hits, strict=True) if not hit))
        expected = replace(kept.steady, sampled_copy_ns=kept.steady.sampled_copy_ns or (0 if copies else None))
        assert measured.steady == expected
        assert [replace(one, at_ns=0) for one in measured.slices] == [replace(one, at_ns=0) for one in kept.slices]


class TestEarlierSettings:
    def test_slices_are_found_by_the_settings_they_ran_under(self):
        measured = after(window(1, 1)).restarted(SMALL).plus(window(2, 2)).restarted(LARGE).plus(window(3, 3))
        assert [one.round for one in measured.slices] == [3]
        assert [one.round for one in measured.slices_under(SMALL, SMALL)] == [1, 3]
        assert [one.round for one in measured.slices_under(LARGE, SMALL)] == [2]
        assert measured.slices_under({"batch_size": 1}, SMALL) == ()

    def test_going_back_and_forth_keeps_one_entry_for_each(self):
        measured = Measurements()
        for number in range(1, 9):
            measured = measured.plus(window(number, number)).restarted(SMALL if number % 2 else LARGE)
        assert [(one.settings, len(one.slices)) for one in measured.earlier] == [(SMALL, 4), (LARGE, 4)]
        assert (measured.steady, measured.slices, measured.latest) == (WindowSums(), (), ())

    def test_a_change_before_the_first_slice_makes_no_entry(self):
        assert after(window(1, marks=("after a switch",))).restarted(SMALL).earlier == ()

    def test_the_oldest_settings_are_dropped(self):
        slices = after(window(1)).slices
        measured = Measurements(
            earlier=tuple(EarlierSlices({"batch_size": n}, slices) for n in range(MOST_EARLIER))
        )
        found = measured.plus(window(2)).restarted({"batch_size": -1}).earlier
        assert (len(found), found[0].settings, found[-1].settings) == (
            MOST_EARLIER, {"batch_size": 1}, {"batch_size": -1},
        )  # fmt: skip


class TestHistogram:
    @given(DURATIONS, st.sampled_from(["0", "0.05", "0.5", "0.95", "0.99", "1"]))
    def test_a_quantile_is_within_0_55_percent_of_the_nearest_rank(self, durations, fraction):
        rank = max(1, math.ceil(Fraction(fraction) * len(durations)))
        expected = pytest.approx(sorted(durations)[rank - 1], rel=0.0055)
        assert quantile_ns(count(durations), float(fraction)) == expected

    @given(DURATIONS, DURATIONS)
    def test_adding_counts_both_and_taking_away_undoes_it(self, left, right):
        first, second = count(left), count(right)
        both = add(first, second)
        assert both == count(left + right)
        assert add(both, second, -1) == first == count(left)

    def test_bins_grow_geometrically_from_one_nanosecond(self):
        assert [bin_of(2**power) for power in (0, 1, 10, 20)] == [0, 64, 640, 1280]
        assert bin_of(0) == bin_of(-5) == 0
        assert all(bin_of(middle_ns(index)) == index for index in range(0, 3_000, 7))

    @pytest.mark.parametrize("bins", [{}, {5: 0}])
    def test_an_empty_histogram_has_no_quantile(self, bins):
        assert quantile_ns(bins, 0.5) is None
        assert WindowSums(histogram=bins).step_ms(0.5) is None

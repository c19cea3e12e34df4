"""What counts as measured: steady windows, slices by their settings, and what a late reading takes out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tfmon.model.lane_events import Window
from tfmon.model.lane_statistics import LATEST, MOST_EARLIER, EarlierSlices, Measurements, WindowSums

MS = 1_000_000
SMALL, LARGE = {"batch_size": 32}, {"batch_size": 64}


def window(number: int, turn: int | None = 1, marks: tuple[str, ...] = (), examples: int = 100) -> Window:
    """Make the window that ends after `number` times 200 ms."""
    return Window(
        at_ns=number * 200 * MS,
        span_ns=200 * MS,
        steps=10,
        examples=examples,
        step=10 * number,
        input_ns=20 * MS,
        call_ns=150 * MS,
        sync_ns=10 * MS,
        report_ns=1 * MS,
        longest_ns=30 * MS,
        histogram={1600: 8, 1700 + number: 2},
        loss=1.0,
        settings=SMALL,
        marks=marks,
        round=turn,
    )


def after(*windows: Window) -> Measurements:
    measured = Measurements()
    for one in windows:
        measured = measured.plus(one)
    return measured


class TestDisturbances:
    def test_a_window_that_one_fell_into_is_left_out_and_counted(self):
        calm = after(window(1), window(3))
        measured = after(window(1), window(2), window(3)).disturbed(250 * MS, 300 * MS, "swapping")
        assert measured.steady == calm.steady
        assert measured.discarded == {"swapping": 1}
        assert [(turn.examples, turn.span_ns) for turn in measured.slices] == [(200, 400 * MS)]

    def test_a_slice_with_nothing_steady_left_is_gone(self):
        measured = after(window(1, round=1), window(2, round=2)).disturbed(0, 200 * MS, "swapping")
        assert [one.round for one in measured.slices] == [2]

    def test_a_window_that_only_touches_it_stays(self):
        measured = after(window(1), window(3))
        assert measured.disturbed(200 * MS, 400 * MS, "swapping") is measured

    def test_a_window_is_left_out_once(self):
        once = after(window(1), window(2)).disturbed(0, 100 * MS, "swapping")
        assert once.disturbed(0, 100 * MS, "steal") is once

    def test_what_is_there_all_the_time_is_the_machine(self):
        measured = Measurements()
        for number in range(1, 61):
            measured = measured.plus(window(number))
            measured = measured.disturbed((number - 1) * 200 * MS, number * 200 * MS, "cgroup throttled")
        assert measured.constant == ("cgroup throttled",)
        assert measured.steady.windows > 30

    def test_what_is_rare_is_never_the_machine(self):
        measured = Measurements()
        for number in range(1, 101):
            measured = measured.plus(window(number))
            if number % 5 == 0:
                measured = measured.disturbed((number - 1) * 200 * MS, number * 200 * MS, "swapping")
        assert (measured.constant, measured.discarded) == ((), {"swapping": 20})

    @given(st.lists(st.booleans(), min_size=1, max_size=LATEST))
    def test_taking_out_is_as_never_having_counted(self, hits):
        windows = [window(number, round=number // 3, examples=50 + number) for number in range(1, len(hits) + 1)]
        measured = after(*windows)
        for one, hit in zip(windows, hits, strict=True):
            if hit:
                measured = replace(measured, windows=10_000).disturbed(
                    one.at_ns - one.span_ns, one.at_ns, "swapping"
                )
        kept = after(*(one for one, hit in zip(windows, hits, strict=True) if not hit))
        assert measured.steady == kept.steady
        assert [(t.turn, t.examples, t.span_ns) for t in measured.slices] == [
            (t.turn, t.examples, t.span_ns) for t in kept.slices
        ]


class TestEarlierSettings:
    def test_slices_are_found_by_the_settings_they_ran_under(self):
        measured = after(window(1, round=1)).afresh(SMALL).plus(window(2, round=2)).afresh(LARGE)
        measured = measured.plus(window(3, round=3))
        assert [one.round for one in measured.slices] == [3]
        assert [one.round for one in measured.slices_under(SMALL, SMALL)] == [1, 3]
        assert [one.round for one in measured.slices_under(LARGE, SMALL)] == [2]
        assert measured.slices_under({"batch_size": 1}, SMALL) == ()

    def test_going_back_and_forth_keeps_one_entry_for_each(self):
        measured = Measurements()
        for number in range(1, 9):
            measured = measured.plus(window(number, round=number)).afresh(SMALL if number % 2 else LARGE)
        assert [(one.settings, len(one.slices)) for one in measured.earlier] == [(SMALL, 4), (LARGE, 4)]

    def test_a_change_before_the_first_slice_leaves_no_entry(self):
        assert Measurements().afresh(SMALL).earlier == ()
        assert after(window(1, marks=("slice start",))).afresh(SMALL).earlier == ()

    def test_the_number_of_settings_is_bounded_and_the_oldest_goes_first(self):
        measured = Measurements(
            earlier=tuple(EarlierSlices({"batch_size": n}, after(window(1)).slices) for n in range(MOST_EARLIER))
        )
        measured = measured.plus(window(2)).afresh({"batch_size": -1})
        assert len(measured.earlier) == MOST_EARLIER
        assert measured.earlier[0].settings == {"batch_size": 1}

    def test_steady_state_begins_anew(self):
        measured = after(window(1)).afresh(SMALL)
        assert (measured.steady, measured.slices, measured.latest) == (WindowSums(), (), ())

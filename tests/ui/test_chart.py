from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmon.model.lane_statistics import KnobMark, Point
from tfmon.ui.render import chart, series
from tfmon.ui.render.series import throughput_parts

SECOND = 1_000_000_000


def points(speed: float, begin_s: float, end_s: float, span_s: float = 0.25) -> list[Point]:
    count = round((end_s - begin_s) / span_s)
    return [
        Point(
            round((begin_s + (place + 1) * span_s) * SECOND),
            round(span_s * SECOND),
            round(speed * span_s),
            1,
        )
        for place in range(count)
    ]


def throughput(points: list[Point], axis: series.TimeAxis, per_cell: int) -> list[float | None]:
    return series.columns(throughput_parts(points, axis.start_ns), axis, per_cell)


@given(st.floats(1e-6, 1e12))
def test_the_top_is_round_and_holds_the_peak(peak: float):
    top = series.nice_top(peak)
    assert top >= peak
    mantissa = top / 10 ** math.floor(math.log10(top) + 1e-9)
    assert round(mantissa, 6) in (1, 2, 5, 10)


def test_the_top_stays_while_the_peak_wanders_near_its_edge_and_without_one():
    for peak, before, top in (
        (990, 0, 1000),
        (1010, 1000, 2000),
        (990, 2000, 2000),
        (860, 2000, 1000),
        (90, 2000, 100),
        (0, 0, 0),
        (0, 500, 500),
    ):
        assert series.nice_top(peak, before) == top  # fmt: skip
    assert chart.scale_label("").strip() == "┤"
    assert chart.scale_label("5k") == "  5k ┤"


def test_a_steady_speed_is_shown_as_it_is_and_nothing_is_a_gap():
    axis = series.time_axis(100 * SECOND, 40)
    values = throughput(points(1_000, 70, 90), axis, 2)
    known = [value for value in values if value is not None]
    assert len(values) == 80
    assert known and all(value == pytest.approx(1_000) for value in known)
    assert values[0] is None and values[-1] is None
    assert len(known) == pytest.approx(20 / 60 * 80, abs=2)
    assert None not in throughput(points(1_000, 30, 110), axis, 2)
    paused = throughput([*points(500, 50, 60), *points(500, 80, 90)], axis, 2)
    shape = [known for known, _ in itertools.groupby(value is not None for value in paused)]
    assert shape == [False, True, False, True, False]


def test_a_window_longer_than_a_cell_is_spread_over_all_its_cells():
    axis = series.time_axis(100 * SECOND, 60)
    values = throughput([Point(95 * SECOND, 5 * SECOND, 1_000, 1)], axis, 1)
    assert [round(value) for value in values if value is not None] == [200] * 5


def test_finished_cells_stay_as_they_are_while_time_goes_on():
    history = points(1_000, 60, 100)
    width = 60
    before = throughput(history, series.time_axis(round(99.2 * SECOND), width), 2)
    later = throughput([*history, *points(2_000, 100, 101)], series.time_axis(round(99.9 * SECOND), width), 2)
    assert before[:-2] == later[:-2]
    moved = throughput(history, series.time_axis(round(100.1 * SECOND), width), 2)
    assert moved[:-4] == before[2:-2]


@pytest.mark.parametrize("charset", ["braille", "block", "ascii"])
def test_every_row_is_as_wide_as_the_chart_and_gaps_are_blank(charset):
    per_cell = chart.parts_per_cell(charset)
    values = [None] * (5 * per_cell) + [10.0] * (5 * per_cell) + [0.0] * (5 * per_cell)
    rows = chart.plot(values, 10, 4, charset)
    assert [len(row) for row in rows] == [15] * 4
    assert all(row[:5] == " " * 5 for row in rows)
    assert all(" " not in row[5:10] for row in rows)
    assert [row[10:] for row in rows[:3]] == [" " * 5] * 3
    assert rows[3][10:].strip(), "a zero is seen, unlike a gap"
    if charset == "ascii":
        assert "".join(rows).isascii()


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=2, max_size=80), st.integers(1, 9))
def test_more_is_never_drawn_lower(values, height):
    values = values[: len(values) // 2 * 2]
    for charset in ("block", "ascii"):
        rows = chart.plot(values, 1e6, height, charset)
        heights = [sum(row[place] != " " for row in rows) for place in range(len(values))]
        for (a, high), (b, low) in itertools.pairwise(zip(values, heights, strict=True)):
            if a is not None and b is not None and a >= b:
                assert high >= low
    assert all(len(row) == len(values) // 2 for row in chart.plot(values, 1e6, height, "braille"))


def test_braille_dots_fill_from_the_bottom():
    assert chart.plot([1, 2, 3, 4], 4, 1, "braille") == ["⣠⣾"]
    assert chart.plot([None, 4, 4, None], 4, 1, "braille") == ["⢸⡇"]
    assert chart.plot([99.0, 99.0], 10, 2, "braille") == ["⣿", "⣿"], "values above the top stay in the chart"


def test_only_the_top_of_each_column_is_an_edge():
    assert chart.edge_runs("⣿⣿⣀", "⣀  ") == [("⣿", False), ("⣿⣀", True)]
    assert "".join(text for text, _ in chart.edge_runs(" ⣿ ⣿", "    ")) == " ⣿ ⣿"


def mark(at_s: float, text: str) -> KnobMark:
    return KnobMark(round(at_s * SECOND), text, 0)


def test_a_knob_change_is_a_tick_with_its_words_at_its_time():
    axis = series.time_axis(60 * SECOND - 1, 60)
    row = chart.axis_row((mark(20, "prefetch auto"),), axis)
    assert len(row) == 60
    assert row.index("┬") == 20
    assert row[21:36] == " prefetch auto "
    assert row.startswith("60 s ago") and row.endswith(" now")


def test_words_stand_left_of_a_tick_without_room_at_its_right_and_are_never_cut():
    axis = series.time_axis(60 * SECOND - 1, 60)
    row = chart.axis_row((mark(50, "batch_size 20"),), axis)
    assert row.index("┬") == 50
    assert row[:50].endswith(" batch 20 ")
    assert "┬" not in chart.axis_row((mark(20, "batch_size 1"),), series.time_axis(200 * SECOND, 40))


def test_the_newest_change_keeps_its_words_where_ticks_crowd():
    axis = series.time_axis(60 * SECOND - 1, 40)
    row = chart.axis_row(tuple(mark(30 + place, f"batch_size {2**place}") for place in range(4)), axis)
    assert row.count("┬") >= 3
    assert "batch 8" in row
    assert "batch 4" not in row


def test_marks_leave_the_ends_of_the_axis_readable():
    axis = series.time_axis(60 * SECOND - 1, 40)
    for at in range(50, 60):
        row = chart.axis_row((mark(at, "batch_size 20"),), axis)
        assert row.endswith(" now") and "batch 20 ┬" in row

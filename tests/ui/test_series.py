"""The charts: the metrics, how far they reach back, their scales, and how they are drawn."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import MS, SECOND, advance, lane, phase, window
from support.ui import racing_demo

from tfmon.model.lane_state import KnobMark, LaneState
from tfmon.model.windows import LaneWindow
from tfmon.ui.render import chart, chart_data
from tfmon.ui.render.rows import plain
from tfmon.ui.render.style import to_ascii, to_blocks
from tfmon.ui.source import OWN, SHARED, Display, Scale


def trained(seconds: int) -> LaneState:
    """Return a lane that after the middle has twice the speed, and takes twice as long for a step."""
    state = lane("cpu", phase("racing"))
    span_ns = 200 * MS if seconds < 300 else SECOND
    for place in range(seconds * SECOND // span_ns):
        later = place >= seconds * SECOND // span_ns // 2
        one = window(
            5_000 * SECOND + (place + 1) * span_ns, span_ns, examples=span_ns // MS * (1 + later),
            histogram={1_500 + 64 * later: 10}, input_ns=span_ns // 10 * (1 + later), loss=2.0 - later,
        )  # fmt: skip
        state = advance(state, one)
    return state


def columns(state: LaneState, metric: str, seconds: int, span_s: int, width: int = 30) -> list[float | None]:
    until_ns = (5_000 + seconds) * SECOND
    axis = chart_data.time_axis(until_ns, width, span_s)
    return list(chart_data.values(state, chart_data.BY_ID[metric], until_ns, axis, 1))


@pytest.mark.parametrize("span_s", [60, 300, 1_800])
@pytest.mark.parametrize(
    ("metric", "before", "after"),
    [("throughput", 1_000, 2_000), ("input", 10, 20), ("loss", 2.0, 1.0), ("p50", None, None)],
)
def test_every_span_shows_the_same_values(span_s, metric, before, after):
    """The 1, 5 and 30 minutes come from windows, seconds and five seconds. All must show the same values."""
    seconds = span_s
    values = columns(trained(seconds), metric, seconds, span_s)
    known = [value for value in values if value is not None]
    assert len(known) >= 28, "no gap but where the axis begins before the lane, and the second under way"
    first, last = known[2], known[-2]
    if before is None:
        assert last == pytest.approx(2 * first, rel=0.02), "an octave of bins"
    else:
        assert (first, last) == (pytest.approx(before), pytest.approx(after))


def test_half_an_hour_is_there_and_scrolled_back_to():
    state = trained(1_700)
    values = columns(state, "throughput", 1_700, 1_800)
    assert sum(value is not None for value in values) >= 28
    until_ns = (5_000 + 700) * SECOND
    minute = chart_data.values(state, chart_data.THROUGHPUT, until_ns, chart_data.time_axis(until_ns, 30, 60), 2)
    assert minute[2:-3] == (1_000.0,) * 55, "a minute of long ago comes from five seconds"


def test_a_slice_reaches_back_over_the_rest_before_it_in_every_span():
    state = lane("cpu", phase("racing"))
    for round_number in range(60):
        for place in range(2):
            at_ns = 5_000 * SECOND + round_number * 4 * SECOND + (place + 1) * 200 * MS
            state = advance(state, window(at_ns, round=round_number, examples=200))
    for span_s, width in ((60, 120), (300, 100)):
        values = columns(state, "throughput", 236, span_s, width)
        known = [place for place, value in enumerate(values) if value is not None]
        assert None not in values[known[0] : known[-1] + 1], f"gaps between slices in {span_s} s"
        assert {round(value) for value in values if value is not None} == {1_000}


def test_what_a_lane_does_not_have_is_said_and_never_a_line_at_zero():
    demo = racing_demo()
    snapshot = demo.session.snapshot()
    cpu, gpu = snapshot.lanes
    assert chart_data.absent(cpu, chart_data.BY_ID["gpu"]) == "no GPU in this lane"
    assert chart_data.absent(gpu, chart_data.BY_ID["gpu"]) == ""
    assert chart_data.absent(lane("cpu", window(examples=0)), chart_data.THROUGHPUT) == "it reports no examples"
    assert chart_data.absent(lane("cpu", window(loss=None)), chart_data.BY_ID["loss"]) == "it reports no loss"
    view = Display(metric="gpu", scales={SHARED: Scale(0, 100)})
    rows = plain(chart.chart_rows(cpu, snapshot, view, 60, 9, "lane0"))
    assert "n/a (no GPU in this lane)" in "\n".join(rows) and not set("".join(rows)) & set("⣿⣀⣤⣶")
    assert set("".join(plain(chart.chart_rows(gpu, snapshot, view, 60, 9, "lane0")))) & set("⣿⣀⣤⣶⢀⡀⢠⡄")


def scales(view: Display) -> dict[str, Scale]:
    return chart_data.scales(racing_demo(mode="concurrent").session.snapshot(), view, 50, 2)


def test_a_shared_scale_holds_all_lanes_and_an_own_one_each():
    shared, own = (scales(Display(scale=kind)) for kind in (SHARED, OWN))
    assert shared["cpu"] == shared["gpu:0"] == Scale(0.0, 10_000.0)
    assert own["cpu"] == Scale(0.0, 10_000.0) and own["gpu:0"] == Scale(0.0, 5_000.0)


def test_percent_have_their_full_scale_bytes_powers_of_two_and_losses_may_be_negative():
    assert chart_data._scale(chart_data.BY_ID["input"], [[3.0, 12.0]], None, SHARED) == Scale(0.0, 100.0)
    assert chart_data._scale(chart_data.BY_ID["input"], [[3.0, 12.0]], None, OWN) == Scale(0.0, 20.0)
    assert chart_data._scale(chart_data.BY_ID["memory"], [[300 * 2.0**20]], None, SHARED) == Scale(
        0.0, 512 * 2.0**20
    )
    loss = chart_data._scale(chart_data.BY_ID["loss"], [[-3.0, 1.0, float("nan")]], None, SHARED)
    assert loss == Scale(-5.0, 1.0)
    assert chart.share(loss, -5.0) == 0 and chart.share(loss, 1.0) == 1
    assert chart.share(loss, float("nan")) is None and chart.share(loss, None) is None


def test_the_chart_says_what_it_shows_and_on_which_scale():
    demo = racing_demo()

    def drawn(**view) -> str:
        return "\n".join(
            plain(chart.chart_rows(lanes[0], demo.session.snapshot(), Display(**view), 60, 9, "lane0"))
        )

    lanes = demo.session.snapshot().lanes
    assert "examples/s" in drawn() and "own" not in drawn(scales={SHARED: Scale(0.0, 1.0)})
    assert "step p95, ms · own scale" in drawn(metric="p95", scale=OWN)
    assert "5 min ago" in drawn(span_s=300) and "30 min ago" in drawn(span_s=1_800)


def test_a_chart_is_not_computed_again_until_a_second_has_passed():
    demo = racing_demo()
    before = demo.session.snapshot()
    demo.clock.ahead(0.2)
    demo.train("cpu", 7_000, 2.0, demo.clock())
    after = demo.session.snapshot()
    assert after.lanes[0].points != before.lanes[0].points
    for metric in (one for one in chart_data.METRICS if one.id != "gpu"):
        view = Display(metric=metric.id, scales={SHARED: Scale(0.0, 10_000.0)})
        first, second = (chart.chart_rows(one.lanes[0], one, view, 60, 9, "lane0") for one in (before, after))
        assert all(one is other for one, other in zip(first[:-1], second[:-1], strict=True)), metric.id


def test_a_spike_does_not_set_the_scale_and_is_marked_where_it_is_cut():
    demo = racing_demo()
    demo.clock.ahead(0.2)
    demo.train("cpu", 500_000, 0.04, demo.clock(), turn=demo.round)
    demo.race(1)
    snapshot, view = demo.session.snapshot(), Display()
    scale = chart_data.scales(snapshot, view, 50, 2)[SHARED]
    assert scale.high == 10_000
    rows = plain(chart.chart_rows(snapshot.lanes[0], snapshot, Display(scales={SHARED: scale}), 56, 8, "a"))
    assert "▲" in rows[0] and "▲" not in "".join(rows[1:])
    few = chart_data._scale(chart_data.THROUGHPUT, [[5.0] * 50 + [50.0] * 10, [1.0]], None, SHARED)
    assert few.high == 50, "what lasts sets the scale"


def window_at(at_s: float, span_s: float, examples: float) -> LaneWindow:
    return LaneWindow(
        at_ns=round(at_s * SECOND),
        since_ns=round((at_s - span_s) * SECOND),
        span_ns=round(span_s * SECOND),
        examples=round(examples),
        steps=1,
    )


def points(speed: float, begin_s: float, end_s: float, span_s: float = 0.25) -> list[LaneWindow]:
    count = round((end_s - begin_s) / span_s)
    return [window_at(begin_s + (place + 1) * span_s, span_s, speed * span_s) for place in range(count)]


def throughput(points: list[LaneWindow], axis: chart_data.TimeAxis, per_cell: int) -> list[float | None]:
    return chart_data.columns(chart_data.parts(points, chart_data.THROUGHPUT), axis, per_cell)


def test_a_steady_speed_is_shown_as_it_is_and_nothing_is_a_gap():
    axis = chart_data.time_axis(100 * SECOND, 40)
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


def test_every_row_is_as_wide_as_the_chart_and_gaps_are_blank():
    per_cell = chart.PER_CELL
    values = [None] * (5 * per_cell) + [10.0] * (5 * per_cell) + [0.0] * (5 * per_cell)
    rows = chart.plot(values, 10, 4)
    assert [len(row) for row in rows] == [15] * 4
    assert all(row[:5] == " " * 5 for row in rows)
    assert all(" " not in row[5:10] for row in rows)
    assert [row[10:] for row in rows[:3]] == [" " * 5] * 3
    assert rows[3][10:].strip(), "a zero is seen, unlike a gap"
    for translate in (to_ascii, to_blocks):
        assert [[one == " " for one in translate(row)] for row in rows] == [
            [one == " " for one in row] for row in rows
        ]
    assert to_ascii("".join(rows)).isascii() and set(to_blocks("⠀⣀⣤⣶⣿")) == set(" ▂▄▆█")


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=2, max_size=80), st.integers(1, 9))
def test_more_is_never_drawn_lower(values, height):
    pairs = [value for value in values for _ in range(2)]
    rows = chart.plot(pairs, 1e6, height)
    assert {len(row) for row in rows} == {len(values)}
    heights = [sum(row[place] != " " for row in rows) for place in range(len(values))]
    for (a, high), (b, low) in itertools.pairwise(zip(values, heights, strict=True)):
        if a is not None and b is not None and a >= b:
            assert high >= low


def mark(at_s: float, text: str) -> KnobMark:
    return KnobMark(round(at_s * SECOND), text, 0)


def test_a_knob_change_is_a_tick_with_its_words_at_its_time():
    axis = chart_data.time_axis(60 * SECOND - 1, 60)
    row = chart.axis_row((mark(20, "prefetch auto"),), axis)
    assert len(row) == 60
    assert row.index("┬") == 20
    assert row[21:36] == " prefetch auto "
    assert row.startswith("60 s ago") and row.endswith(" now")

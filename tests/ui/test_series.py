"""The charts: the metrics, how far they reach back, their scales, and how they are drawn."""

import functools
import itertools

import pytest
from support.events import MS, SECOND, advance, lane, phase, window
from support.ui import Demo, racing_demo

from tfmon.model.lane_state import LaneState
from tfmon.ui.render import chart
from tfmon.ui.render.rows import plain
from tfmon.ui.render.style import to_ascii, to_blocks
from tfmon.ui.source import OWN, SHARED, Display, Scale


@functools.cache
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
    axis = chart.TimeAxis.until(until_ns, width, span_s)
    return list(chart.values_of(state, chart.BY_ID[metric], until_ns, axis))


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
    assert len(known) >= 56, "no gap but where the axis begins before the lane, and the second under way"
    first, last = known[4], known[-4]
    if before is None:
        assert last == pytest.approx(2 * first, rel=0.02), "an octave of bins"
    else:
        assert (first, last) == (pytest.approx(before), pytest.approx(after))


def test_a_minute_of_long_ago_comes_from_five_seconds():
    minute = columns(trained(1_800), "throughput", 700, 60)
    assert minute[2:-3] == [1_000.0] * 55


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
    assert chart.absent(cpu, chart.BY_ID["gpu"]) == "no GPU in this lane"
    assert chart.absent(gpu, chart.BY_ID["gpu"]) == ""
    assert chart.absent(lane("cpu", window(examples=0)), chart.THROUGHPUT) == "it reports no examples"
    assert chart.absent(lane("cpu", window(loss=None)), chart.BY_ID["loss"]) == "it reports no loss"
    rows = drawn(demo, metric="gpu")
    assert "n/a (no GPU in this lane)" in "\n".join(rows) and not set("".join(rows)) & set("⣿⣀⣤⣶")
    assert set("".join(drawn(demo, 1, metric="gpu"))) & set("⣿⣀⣤⣶⢀⡀⢠⡄")


def drawn(demo: Demo, lane: int = 0, height: int = 9, **view) -> list[str]:
    snapshot = demo.session.snapshot()
    charts = chart.charts_of(snapshot, Display(**view), 54)
    return plain(chart.chart_rows(snapshot.lanes[lane], charts, height, "lane0"))


def test_a_shared_scale_holds_all_lanes_and_an_own_one_each():
    known = racing_demo(mode="concurrent").session.snapshot()
    shared, own = (chart.charts_of(known, Display(scale=kind), 50).scales for kind in (SHARED, OWN))
    assert shared["cpu"] == shared["gpu:0"] == Scale(0.0, 10_000.0)
    assert own["cpu"] == Scale(0.0, 10_000.0) and own["gpu:0"] == Scale(0.0, 5_000.0)


def test_percent_have_their_full_scale_bytes_powers_of_two_and_losses_may_be_negative():
    def scale_of(metric: str, values: list[float], kind: str = SHARED) -> Scale:
        return chart.scale_of(chart.BY_ID[metric], [values], None, kind)

    assert scale_of("input", [3.0, 12.0]) == Scale(0.0, 100.0)
    assert scale_of("input", [3.0, 12.0], OWN) == Scale(0.0, 20.0)
    assert scale_of("memory", [300 * 2.0**20]) == Scale(0.0, 512 * 2.0**20)
    loss = scale_of("loss", [-3.0, 1.0, float("nan")])
    assert loss == Scale(-5.0, 1.0)
    assert chart.share_of(loss, -5.0) == 0 and chart.share_of(loss, 1.0) == 1
    assert chart.share_of(loss, float("nan")) is None and chart.share_of(loss, None) is None


def test_a_spike_does_not_set_the_scale_and_is_marked_where_it_is_cut():
    demo = racing_demo()
    demo.clock.ahead(0.2)
    demo.train("cpu", 500_000, 0.04, demo.clock(), turn=demo.round)
    demo.race(1)
    rows = drawn(demo)
    assert rows[0].startswith(" 10k ┤") and "▲" in rows[0] and "▲" not in "".join(rows[1:])
    few = chart.scale_of(chart.THROUGHPUT, [[5.0] * 50 + [50.0] * 10, [1.0]], None, SHARED)
    assert few.high == 50, "what lasts sets the scale"


def test_nothing_is_shown_before_a_lane_trains_after_it_and_while_it_rests():
    state = lane("cpu", phase("racing"))
    for second in (*range(10, 20), *range(30, 40)):
        state = advance(state, window((5_001 + second) * SECOND, SECOND, examples=1_000))
    values = columns(state, "throughput", 50, 60, width=40)
    assert len(values) == 80 and {value for value in values if value is not None} == {1_000}
    shape = [known for known, _ in itertools.groupby(value is not None for value in values)]
    assert shape == [False, True, False, True, False]


def test_every_row_is_as_wide_as_the_chart_and_gaps_are_blank():
    per_cell = chart.VALUES_PER_CELL
    values = [None] * (5 * per_cell) + [1.0] * (5 * per_cell) + [0.0] * (5 * per_cell)
    rows = chart.plot(values, 4)
    assert [len(row) for row in rows] == [15] * 4
    assert all(row[:5] == " " * 5 for row in rows)
    assert all(" " not in row[5:10] for row in rows)
    assert [row[10:] for row in rows[:3]] == [" " * 5] * 3
    assert rows[3][10:].strip(), "a zero is seen, unlike a gap"
    for translate in (to_ascii, to_blocks):
        for row in rows:
            assert [one == " " for one in translate(row)] == [one == " " for one in row]
    assert to_ascii("".join(rows)).isascii() and set(to_blocks("⠀⣀⣤⣶⣿")) == set(" ▂▄▆█")

"""The page of the crossover: choosing a knob, starting and stopping, and what it shows."""

from __future__ import annotations

import pytest
from support.ui import Demo, crossover_demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.crossover import curve_of
from tfmon.model.race import CrossoverState
from tfmon.ui.render.experiments import LABEL_CELLS, chart_rows, crossover_rows
from tfmon.ui.render.rows import plain
from tfmon.ui.screens.experiments import candidates

from .test_app import app_of, press, shown

LETTERS, STYLES = ("C", "G"), ("lane0", "lane1")


def lines(demo: Demo, width: int = 100, height: int = 40) -> list[str]:
    snapshot = demo.session.snapshot()
    return plain(crossover_rows(analyse(snapshot), width, height))


class TestChoice:
    def test_the_knobs_are_those_that_are_numbers(self):
        assert [knob.name for knob in candidates(racing_demo().session.snapshot())] == ["batch_size", "width"]

    async def test_enter_starts_the_chosen_one(self):
        demo = racing_demo()
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "c", "down", "enter")
            assert demo.experiments.calls == [("start_crossover", "width")]

    async def test_a_refusal_is_shown_on_the_page(self):
        demo = racing_demo()
        demo.experiments.refusal = "a crossover compares two lanes that train; this race has fewer"
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "c", "enter")
            assert demo.experiments.refusal in shown(pilot)

    async def test_enter_stops_one_that_runs(self):
        demo = crossover_demo(at=64)
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "c", "enter")
            assert demo.experiments.calls == [("stop",)]

    @pytest.mark.parametrize("key", ["b", "p", "space", "t", "r"])
    async def test_while_one_runs_keys_leave_the_lanes_alone_and_say_why(self, key):
        demo = crossover_demo(at=64)
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, key)
            assert "a crossover over batch is running; c, Enter stops it" in shown(pilot)
        assert not demo.controls.calls or demo.controls.calls == [("stop",)]

    async def test_another_race_stops_it_first(self):
        demo = crossover_demo(at=64)
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "s", "enter")
            await pilot.pause()
            assert demo.experiments.calls == [("stop",)]


class TestPage:
    def test_says_the_answer_first(self):
        (first, *_) = lines(crossover_demo())
        assert first.strip().startswith("gpu:0 overtakes cpu at a batch size of about 40 (between ")

    def test_says_how_far_it_is(self):
        assert "measuring batch 64 · about 0:42 left" in "\n".join(lines(crossover_demo(at=64)))
        assert "all is measured" in "\n".join(lines(crossover_demo()))

    def test_has_a_line_for_every_value_with_who_is_ahead_or_why_it_is_not_known(self):
        table = lines(crossover_demo())[-6:]
        assert [line.split()[0] for line in table] == ["8", "16", "32", "64", "128", "256"]
        assert all(f" {id} " in line for id, line in zip("CCCGG", table, strict=False))
        assert table[-1].endswith("not possible here")

    @pytest.mark.parametrize("height", [0, 1, 5, 12, 20, 60])
    @pytest.mark.parametrize("width", [10, 40, 80, 200])
    def test_no_line_is_wider_than_the_page(self, width, height):
        assert all(len(line) <= width for line in lines(crossover_demo(), width, height))


class TestChart:
    def chart(self, width: int = 80, height: int = 14) -> list[str]:
        snapshot = crossover_demo().session.snapshot()
        return plain(chart_rows(curve_of(snapshot, snapshot.experiment), LETTERS, STYLES, width, height))

    def test_each_lane_stands_at_each_measured_value(self):
        drawn = "\n".join(self.chart()[:-2])
        assert drawn.count("C") + drawn.count("*") == 5 and drawn.count("G") + drawn.count("*") == 5

    def test_the_crossing_is_marked_on_the_axis_between_its_neighbours(self):
        *_, axis, ticks = self.chart()
        assert ticks.index("32") < axis.index("▲") < ticks.index("64") + 1

    def test_the_values_stand_below_their_columns(self):
        rows = self.chart()
        place = next(at for row in rows for at, cell in enumerate(row) if cell == "G" and at > LABEL_CELLS + 1)
        assert any(place - 2 <= rows[-1].index(word) <= place + 1 for word in ("8", "16", "32", "64", "128"))

    @pytest.mark.parametrize(("width", "height"), [(0, 0), (12, 14), (80, 4)])
    def test_without_room_there_is_none(self, width, height):
        assert self.chart(width, height) == []

    def test_before_anything_is_measured_there_is_none(self):
        demo = racing_demo()
        state = CrossoverState("width", ("cpu", "gpu:0"), (16, 32))
        assert chart_rows(curve_of(demo.session.snapshot(), state), LETTERS, STYLES, 80, 14) == []


@pytest.mark.parametrize("at", [None, 64], ids=["done", "under-way"])
def test_the_page_looks_as_it_did(snap_compare, at):
    assert snap_compare(app_of(crossover_demo(at)), terminal_size=(120, 36), press=["c"])

"""The pages of experiments: how a crossover and tuning are started and stopped, and what the pages show."""

from __future__ import annotations

import itertools
from dataclasses import replace

from support.ui import Demo, crossover_demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.crossover import curve_of
from tfmon.model.race import KEPT, REFUSED, WITHDRAWN, Attempt, CrossoverState, TuneState
from tfmon.model.readings import Estimate
from tfmon.ui.render.experiments import LABEL_CELLS, chart_rows, crossover_rows, tune_rows
from tfmon.ui.render.rows import plain
from tfmon.ui.screens.experiments import candidates

from .pilot import app_of, press, shown

IDS, STYLES = ("C", "G"), ("lane0", "lane1")


def lines(demo: Demo, width: int = 100, height: int = 40) -> list[str]:
    snapshot = demo.session.snapshot()
    return plain(crossover_rows(analyse(snapshot), width, height))


class TestCrossover:
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

    async def test_while_one_runs_keys_change_nothing_and_say_why(self):
        demo = crossover_demo(at=64)
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "p")
            assert "a crossover over batch is running; c, Enter stops it" in shown(pilot)
        assert demo.controls.calls == []


class TestCrossoverPage:
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

    def test_no_line_is_wider_than_the_page(self):
        demo = crossover_demo()
        for width, height in itertools.product((10, 40, 200), (0, 5, 20, 60)):
            assert all(len(line) <= width for line in lines(demo, width, height))


class TestChart:
    def chart(self, width: int = 80, height: int = 14) -> list[str]:
        snapshot = crossover_demo().session.snapshot()
        return plain(chart_rows(curve_of(snapshot, snapshot.experiment), IDS, STYLES, width, height))

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

    def test_without_room_there_is_none(self):
        assert self.chart(0, 0) == self.chart(12, 14) == self.chart(80, 4) == []

    def test_before_anything_is_measured_there_is_none(self):
        demo = racing_demo()
        state = CrossoverState("width", ("cpu", "gpu:0"), (16, 32))
        assert chart_rows(curve_of(demo.session.snapshot(), state), IDS, STYLES, 80, 14) == []


# ---------------------------------------------------------------- advice that is tried


def attempt(outcome: str, gain: Estimate | None = None, **change) -> Attempt:
    return Attempt(
        "gpu:0", dict.fromkeys(change, "off"), change, bottleneck="input", outcome=outcome, gain=gain,
        reason="out of memory" if outcome == REFUSED else "",
    )  # fmt: skip


def tuned_demo(*, over: bool = True) -> Demo:
    """Return a race whose GPU lane was tuned: two changes helped, one did not, one was not possible."""
    demo = racing_demo()
    attempts = (
        attempt(KEPT, Estimate(1.38, 1.31, 1.44, 6), prefetch="auto"),
        attempt(WITHDRAWN, Estimate(0.83, 0.8, 0.86, 6), cache=True),
        attempt(REFUSED, xla=True),
        attempt(KEPT, Estimate(5.1, 4.9, 5.3, 12), batch_size=256),
    )
    total = attempt(KEPT, Estimate(7.0, 6.8, 7.2, 6), prefetch="auto", batch_size=256)
    demo.session.set_experiment(TuneState("gpu:0", everything=True, attempts=attempts, total=total, over=over))
    return demo


def tried(demo: Demo, width: int = 110) -> list[str]:
    snapshot = demo.session.snapshot()
    return plain(tune_rows(analyse(snapshot), snapshot.lane("gpu:0"), width))


class TestTune:
    async def test_e_tries_on_the_gpu_and_on_a_focused_lane(self):
        demo = racing_demo()
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "e", "tab", "e")
        assert demo.experiments.calls == [("start_tuning", "gpu:0", False), ("start_tuning", "cpu", False)]

    async def test_u_takes_back_and_says_what(self):
        demo = racing_demo()
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "u")
            assert "undone: prefetch auto" in shown(pilot)

    async def test_why_it_cannot_be_done_is_shown(self):
        demo = racing_demo()
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            for key in ("e", "u"):
                demo.experiments.refusal = f"{key}: no knob of this scenario helps cpu"
                await press(pilot, key)
                assert demo.experiments.refusal in shown(pilot)

    async def test_while_one_runs_keys_change_nothing_and_say_why(self):
        demo = tuned_demo(over=False)
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            for key in ("b", "p", "space", "t", "r", "e"):
                pilot.app.say("")
                await press(pilot, key)
                assert "G is trying prefetch auto, batch 256; E, Enter stops it" in shown(pilot), key
            assert demo.controls.calls == [] and demo.experiments.calls == []

    async def test_the_page_starts_and_stops_a_series_on_the_chosen_lane(self):
        demo = racing_demo()
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "E", "enter", "tab", "enter")
            assert demo.experiments.calls == [("start_tuning", "gpu:0", True), ("start_tuning", "cpu", True)]
            demo.session.set_experiment(TuneState("cpu", everything=True))
            pilot.app.pull()
            await press(pilot, "enter")
            assert demo.experiments.calls[2:] == [("stop",)]

    async def test_the_page_says_a_refusal_and_undoes(self):
        demo = racing_demo()
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "E", "u")
            assert "undone: prefetch auto" in shown(pilot)
            demo.experiments.refusal = "gpu:0 does not train any more: start it again first"
            await press(pilot, "enter")
            assert demo.experiments.refusal in shown(pilot)

    async def test_the_race_says_what_came_of_it_and_how_to_undo_it(self):
        demo = racing_demo()
        kept = attempt(KEPT, Estimate(1.38, 1.31, 1.44, 6), prefetch="auto")
        demo.apply("gpu:0", "prefetch", "auto")
        demo.session.set_experiment(TuneState("gpu:0", attempts=(kept,), over=True))
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot)
            assert "G: prefetch auto: +38 % (CI +31 to +44), kept · u to undo" in shown(pilot)


class TestTunePage:
    def test_has_a_line_for_everything_that_was_tried_with_its_gain_and_outcome(self):
        text = tried(tuned_demo())
        table = text[text.index(next(line for line in text if "outcome" in line)) + 1 :][:4]
        assert [line.split("  ")[0].strip() for line in table] == [
            "prefetch auto",
            "cache on",
            "xla on",
            "batch 256",
        ]
        assert "+38 % (CI +31 to +44)" in table[0] and table[0].endswith("6   kept")
        assert "-17 % (CI -20 to -14)" in table[1] and table[1].endswith("6   withdrawn")
        assert table[2].endswith("not possible: out of memory")
        assert "5.1×" in table[3]

    def test_says_the_best_settings_what_they_gain_and_their_code(self):
        text = "\n".join(tried(tuned_demo()))
        assert "best: prefetch=auto batch_size=256: 7.0× (CI 6.8 to 7.2) in all" in text
        assert "prefetch(tf.data.AUTOTUNE)" in text and "dataset.batch(256)" in text

    def test_where_nothing_helped_the_best_is_what_it_began_with(self):
        demo = tuned_demo()
        state = demo.session.snapshot().tuned
        demo.session.set_experiment(replace(state, attempts=state.attempts[1:2], total=None))
        assert " best: the settings it began with" in tried(demo)

    def test_no_line_is_wider_than_the_page(self):
        for width in (10, 40, 80, 200):
            assert all(len(line) <= width for line in tried(tuned_demo(), width))

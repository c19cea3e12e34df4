"""The keys that try advice, and the page of what was tried."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.race import KEPT, REFUSED, WITHDRAWN, Attempt, TuneState
from tfmon.model.readings import Estimate
from tfmon.ui.render.experiments import tune_rows
from tfmon.ui.render.rows import plain

from .test_app import app_of, press, shown


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


def lines(demo: Demo, width: int = 110) -> list[str]:
    snapshot = demo.session.snapshot()
    return plain(tune_rows(analyse(snapshot), snapshot.lane("gpu:0"), width))


class TestKeys:
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

    @pytest.mark.parametrize("key", ["e", "u"])
    async def test_a_refusal_is_said(self, key):
        demo = racing_demo()
        demo.experiments.refusal = "no knob of this scenario helps cpu"
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, key)
            assert demo.experiments.refusal in shown(pilot)

    @pytest.mark.parametrize("key", ["b", "p", "space", "t", "r", "e"])
    async def test_while_one_runs_keys_leave_the_lanes_alone_and_say_why(self, key):
        demo = tuned_demo(over=False)
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, key)
            assert "; E, Enter stops it" in shown(pilot)
        assert not demo.controls.calls or demo.controls.calls == [("stop",)]

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


class TestRace:
    async def test_the_race_says_what_came_of_it_and_how_to_undo_it(self):
        demo = racing_demo()
        kept = attempt(KEPT, Estimate(1.38, 1.31, 1.44, 6), prefetch="auto")
        demo.apply("gpu:0", "prefetch", "auto")
        demo.session.set_experiment(TuneState("gpu:0", attempts=(kept,), over=True))
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot)
            assert "G: prefetch auto: +38 % (CI +31 to +44), kept · u to undo" in shown(pilot)


class TestPage:
    def test_has_a_line_for_everything_that_was_tried_with_its_gain_and_outcome(self):
        text = lines(tuned_demo())
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
        text = "\n".join(lines(tuned_demo()))
        assert "best: prefetch=auto batch_size=256: 7.0× (CI 6.8 to 7.2) in all" in text
        assert "prefetch(tf.data.AUTOTUNE)" in text and "dataset.batch(256)" in text

    def test_where_nothing_helped_the_best_is_what_it_began_with(self):
        demo = tuned_demo()
        state = demo.session.snapshot().tuned
        demo.session.set_experiment(replace(state, attempts=state.attempts[1:2], total=None))
        assert " best: the settings it began with" in lines(demo)

    @pytest.mark.parametrize("width", [10, 40, 80, 200])
    def test_no_line_is_wider_than_the_page(self, width):
        assert all(len(line) <= width for line in lines(tuned_demo(), width))

    def test_looks_as_it_did(self, snap_compare):
        assert snap_compare(app_of(tuned_demo()), terminal_size=(120, 36), press=["E"])

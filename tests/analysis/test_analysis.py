"""What follows from a snapshot, computed once; and the history of a race with what each change did."""

import re

import pytest
from support.ui import Demo, racing_demo

from tfmon.analysis.analysis import analyse, change_row
from tfmon.analysis.summarise import summarise
from tfmon.model.knobs import show
from tfmon.model.lane_events import StepDescribed
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.readings import Estimate
from tfmon.model.spec import LaneSpec
from tfmon.ui.render.race_frame import verdict_lines
from tfmon.ui.source import Display

SPEEDS = (7_663, 2_420)


def of(demo: Demo):
    return analyse(demo.session.snapshot())


def trains(demo: Demo, lane: str, line: int) -> None:
    """Report that a lane's script makes its steps in this line from now on."""
    text = f"train.py:{line} `step(x)`: an update by Adam"
    demo.session.accept(StepDescribed(lane=lane, at_ns=demo.clock(), text=text))


class TestChanges:
    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    @pytest.mark.parametrize("wobble", [0.02, 0.1, 0.3])
    @pytest.mark.parametrize("slowdown", [20, 1 / 20, 1.1])
    def test_a_large_effect_is_told_with_its_interval_from_two_slices(self, mode, wobble, slowdown):
        demo = Demo([LaneSpec("cpu")], mode=mode).go().race(10, (8_000,), wobble=wobble)
        demo.apply("cpu", "batch_size", 20)
        demo.race(1, (8_000 / slowdown,), wobble=wobble)
        demo.apply("cpu", "batch_size", 10)
        row = next(one for one in of(demo).history if one.lane_id)
        if slowdown == 1.1:
            assert row.effect_text == "measured too briefly"
        else:
            assert row.effect.clear_of(1) and row.effect.low < 1 / slowdown < row.effect.high
            assert re.fullmatch(r"\d+(\.\d+)?×( slower)? \(CI .* to .*\)", row.effect_text)

    def test_one_that_scatters_was_not_measured_too_briefly(self):
        wide = Estimate(0.9, 0.3, 2.7, 40)
        assert change_row(0.0, "batch 10", effect=wide).effect_text == "scatters too much to say"

    def test_what_one_key_did_to_two_lanes_is_told_together(self):
        assert re.sub(r" \(.*?\)", "", of(racing_demo()).news) == "C batch 10 → 20: +24 %; G: +28 %"

    def test_one_key_on_two_lanes_is_one_change_also_where_the_next_press_overtakes_it(self):
        demo = Demo(mode=TURNS).go().race(4)
        for batch in (16, 32):
            for name in demo.names:
                demo.ask(name, "batch_size", batch)
            demo.clock.ahead(0.1)
        for name in demo.names:
            demo.clock.ahead(1)
            for number, batch in enumerate((16, 32)):
                demo.apply(name, "batch_size", batch, request=1 + 2 * number + demo.names.index(name))
        periods = demo.session.snapshot().periods
        assert [[(change.lane, show(change.after)) for change in period.changes] for period in periods] == [
            [("cpu", "16"), ("gpu:0", "16")], [("cpu", "32"), ("gpu:0", "32")],
        ]  # fmt: skip
        assert [lane.title for lane in periods[0].lanes] == ["cpu", "gpu:0"], "as they were called before"

    @pytest.mark.parametrize(("specs", "mode"), [([LaneSpec("cpu")], TURNS), (None, CONCURRENT)])
    def test_a_lane_that_does_not_train_in_slices_has_effects_too(self, specs, mode):
        demo = Demo(*([specs] if specs else []), mode=mode).go().race(20, (1_000,))
        demo.apply("cpu", "batch_size", 20)
        demo.race(20, (1_340,))
        effect = of(demo).history[-1].effect
        assert effect.low < 1.34 < effect.high < 1.5
        told = [change.cells(len(demo.names))[-1] for change in summarise(of(demo)).history]
        assert any(told) == (mode == CONCURRENT), "one lane has no verdict"


def test_lanes_of_a_script_are_compared_in_the_same_phase_of_it_alone():
    demo = Demo(mode=TURNS).go()
    for name in demo.names:
        trains(demo, name, 7)
    demo.race(9, SPEEDS)
    trains(demo, "cpu", 9)
    demo.race(9, (90_000, SPEEDS[1]))
    apart = of(demo)
    where = "(C at train.py:9, G at train.py:7)"
    assert apart.verdict.answer == f"no verdict yet: the lanes are in different phases of the script {where}"
    assert apart.earlier.startswith("until C went on to train.py:9 at 0:09: cpu is 3.2× faster than gpu:0")
    assert re.fullmatch(r"7 \d{3} → (89|90) \d{3}", summarise(apart).history[-1].cells(2)[2])
    assert verdict_lines(apart, Display(), 120, 1)[0][-1][0].strip() == apart.verdict.answer
    trains(demo, "gpu:0", 9)
    demo.race(9, (90_000, 80_000))
    assert of(demo).verdict.interval.low < 9 / 8 < of(demo).verdict.interval.high < 1.5
    trains(demo, "cpu", 7)
    assert of(demo).verdict.interval is not None, "phases that come by turns are compared as one"

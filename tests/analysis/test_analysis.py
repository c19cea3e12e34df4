"""What follows from a snapshot, computed once; and the history of a race with what each change did."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.ui import Demo, changed_ten_times, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.crossover import curve_of
from tfmon.analysis.history import HEADS, HistoryRow
from tfmon.analysis.statistics import Throughput
from tfmon.analysis.verdict import find_verdict
from tfmon.model.knobs import show
from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.readings import Estimate
from tfmon.model.script_events import StepDescribed
from tfmon.model.series import REVERTED, Attempt, CrossoverState, TuneState
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.reports.race import to_text
from tfmon.reports.race_json import to_json
from tfmon.ui.render.verdict import verdict_lines
from tfmon.ui.source import Display

SNAPSHOT = racing_demo().session.snapshot()


def with_one_more_slice(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot after another slice of its first lane."""
    lane = snapshot.lanes[0]
    last = lane.slices[-1]
    slices = (*lane.slices, SliceSpeed(last.round + 1, last.at_ns + 1, 1, 1_000_000_000))
    changed = replace(lane, measurements=replace(lane.measurements, slices=slices))
    return replace(snapshot, lanes=(changed, *snapshot.lanes[1:]))


def test_it_holds_what_its_parts_find():
    found = analyse(SNAPSHOT)
    assert found.verdict == find_verdict(SNAPSHOT) and found.verdict.winner
    for lane, one in zip(SNAPSHOT.lanes, found.lanes, strict=True):
        assert one is found.lane(lane.spec.name) and one.lane is lane
        assert one.bottleneck == find_bottleneck(SNAPSHOT, lane) is not None
        assert one.speed == Throughput.of(lane.slices).speed(found.verdict.looks) is not None
        assert one.windows == lane.measurements.windows
    assert (found.news[:16], found.curve) == ("C batch 10 → 20:", None)
    with pytest.raises(KeyError):
        found.lane("nobody")


def test_the_analysis_before_changes_nothing_but_the_time_it_takes():
    before, after = analyse(SNAPSHOT), with_one_more_slice(SNAPSHOT)
    found = analyse(after, before)
    assert found == analyse(after) != before
    assert found.lanes[1].throughput is before.lanes[1].throughput
    assert found.lanes[0].throughput is not before.lanes[0].throughput
    fewer = replace(after, lanes=after.lanes[:1], periods=())
    assert analyse(fewer, found) == analyse(fewer), "another race"


def test_what_was_tried_is_not_supposed_again_and_experiments_are_in_it():
    lane = SNAPSHOT.lanes[0]
    cause = find_bottleneck(SNAPSHOT, lane).causes[0]
    vain = Attempt(lane.spec.name, {cause.knob: 0}, {cause.knob: cause.value}, outcome=REVERTED)
    tuned = TuneState(lane.spec.name, attempts=(vain,))
    found = analyse(replace(SNAPSHOT, tuned=tuned, experiment=tuned, periods=()))
    assert cause not in found.lanes[0].causes and found.news != ""
    state = CrossoverState("batch_size", tuple(one.spec.name for one in SNAPSHOT.lanes), (1, 2))
    crossed = replace(SNAPSHOT, experiment=state)
    assert analyse(crossed).curve == curve_of(crossed, state)


# ---------------- the history of a race


SPEEDS = (7_663, 2_420)


def of(demo: Demo):
    return analyse(demo.session.snapshot())


def trains(demo: Demo, lane: str, line: int) -> None:
    """Have a lane say that its script makes its steps in a line from now on."""
    text = f"train.py:{line} `step(x)`: an update by Adam"
    demo.session.accept(StepDescribed(lane=lane, at_ns=demo.clock(), text=text))


def script_at(*lines: int) -> Demo:
    """Return a race whose lanes train in these lines of a script."""
    demo = Demo(mode=TURNS).go()
    for name, line in zip(demo.names, lines, strict=True):
        trains(demo, name, line)
    return demo


class TestChanges:
    def test_ten_changes_are_ten_rows_with_their_effects_and_verdicts_in_every_report(self):
        found = of(changed_ten_times())
        start, *rows = found.history
        assert [row.what for row in rows] == [f"batch {batch} → {batch + 1}" for batch in range(10, 20)]
        for number, row in enumerate(rows, 1):
            assert row.effect.low < 1.05 < row.effect.high
            ratio = row.verdict.interval
            assert ratio.low < SPEEDS[0] * 1.05**number / SPEEDS[1] < ratio.high
        assert start.verdict.winner == "cpu"
        lines = to_text(found).splitlines()
        place = next(place for place, line in enumerate(lines) if all(head in line for head in HEADS))
        assert [line.split()[:3] for line in lines[place + 2 : place + 12]] == [
            [f"0:{10 * n:02}" if n < 6 else f"1:{10 * n - 60:02}", "C", "batch"] for n in range(1, 11)
        ]
        told = to_json(found)["history"]
        assert len(told) == 11
        assert [one["effect"] for one in told[1:]] == [row.effect.value for row in rows]

    def test_the_last_one_is_told_until_something_else_comes(self):
        demo = changed_ten_times()
        assert of(demo).news.startswith("C batch 19 → 20: +5 % (CI ")
        demo.apply("cpu", "prefetch", 2)
        assert of(demo).news == "C prefetch off → 2: too early to say"
        demo.session.set_mode(CONCURRENT)
        assert of(demo).news == ""
        assert of(demo).history[-1].what == "mode concurrent"

    def test_a_change_of_a_lane_that_was_not_measured_before_says_so(self):
        demo = Demo(mode=TURNS).go()
        demo.apply("cpu", "prefetch", 2)
        assert of(demo).news == "C prefetch off → 2: measured too briefly"
        demo.race(5)
        assert of(demo).news == "C prefetch off → 2: not measured before"

    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    @pytest.mark.parametrize("wobble", [0.02, 0.1, 0.3])
    @pytest.mark.parametrize("slowdown", [20, 1 / 20, 1.1])
    def test_a_large_effect_is_told_with_its_interval_from_two_slices(self, mode, wobble, slowdown):
        demo = Demo([LaneSpec("cpu")], mode=mode).go().race(10, (8_000,), wobble=wobble)
        demo.apply("cpu", "batch_size", 20)
        demo.race(1, (8_000 / slowdown,), wobble=wobble)
        demo.apply("cpu", "batch_size", 10)
        row = next(one for one in of(demo).history if one.lane)
        if slowdown == 1.1:
            assert row.effect_text == "measured too briefly"
        else:
            assert row.effect.clear_of(1) and row.effect.low < 1 / slowdown < row.effect.high
            assert re.fullmatch(r"\d+(\.\d+)?×( slower)? \(CI .* to .*\)", row.effect_text)

    def test_one_that_scatters_was_not_measured_too_briefly(self):
        wide = HistoryRow(0.0, "batch 10 → 20", "C", 1_000.0, 900.0, Estimate(0.9, 0.3, 2.7, 40))
        assert wide.effect_text == "scatters too much to say"

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
        assert [[(one.lane, show(one.after)) for one in period.changes] for period in periods] == [
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
        told = [row.cells(demo.session.snapshot())[-1] for row in of(demo).history]
        assert any(told) == (mode == CONCURRENT), "one lane has no verdict"

    def test_what_an_experiment_tries_is_one_row(self):
        demo = racing_demo()
        before = len(of(demo).history)
        demo.session.set_experiment(TuneState("cpu"))
        for value in (2, "off", 2, "off"):
            demo.apply("cpu", "prefetch", value)
            demo.race(2)
        demo.session.set_experiment(TuneState("cpu", over=True))
        demo.race(5)
        row, *none = of(demo).history[before:]
        assert (row.what, none) == ("C tuned, nothing was tried", [])
        assert row.verdict.winner == "cpu"


class TestEarlier:
    """The last verdict stands until another one replaces it."""

    def test_a_key_before_the_end_does_not_take_the_verdict_away(self):
        demo = racing_demo()
        verdict = of(demo).verdict.text
        demo.apply("cpu", "batch_size", 40)
        demo.enter_all("done")
        assert of(demo).earlier == f"until C batch 20 → 40 at 0:42: {verdict}"
        assert of(demo).earlier in to_text(of(demo))
        assert of(demo).outcome == of(demo).earlier
        assert to_json(of(demo))["verdict"]["earlier"] == of(demo).earlier

    def test_nor_does_a_lane_that_fails(self):
        demo = racing_demo()
        verdict = of(demo).verdict.text
        demo.fail("gpu:0")
        assert of(demo).verdict.text == of(demo).outcome == f"{verdict}; until 0:42, when gpu:0 failed"
        assert of(demo).earlier == ""

    def test_lanes_of_a_script_are_compared_in_the_same_phase_of_it_alone(self):
        demo = script_at(7, 7)
        demo.race(9, SPEEDS)
        trains(demo, "cpu", 9)
        demo.race(9, (90_000, SPEEDS[1]))
        apart = of(demo)
        where = "(C at train.py:9, G at train.py:7)"
        assert apart.verdict.text == f"no verdict yet: the lanes are in different phases of the script {where}"
        assert apart.earlier.startswith("until C went on to train.py:9 at 0:09: cpu is 3.2× faster than gpu:0")
        assert re.fullmatch(r"7 \d{3} → (89|90) \d{3}", apart.history[-1].cells(apart.snapshot)[2])
        assert verdict_lines(apart, Display(), 120, 1)[0][-1][0] == apart.verdict.text
        trains(demo, "gpu:0", 9)
        demo.race(9, (90_000, 80_000))
        assert of(demo).verdict.interval.low < 9 / 8 < of(demo).verdict.interval.high < 1.5
        trains(demo, "cpu", 7)
        assert of(demo).verdict.interval is not None, "phases that come by turns are compared as one"

    def test_the_next_analysis_computes_no_earlier_period_again(self):
        demo = changed_ten_times()
        first = of(demo)
        demo.race(2)
        second = analyse(demo.session.snapshot(), first)
        assert all(one is two for one, two in zip(first.measured[:-1], second.measured[:-1], strict=True))


class TestOutcome:
    def test_a_crossover_is_listed_by_its_answer(self):
        demo = racing_demo()
        demo.session.set_experiment(CrossoverState("batch_size", ("cpu", "gpu:0"), (10, 20)))
        demo.session.set_experiment(CrossoverState("batch_size", ("cpu", "gpu:0"), (10, 20), over=True))
        assert of(demo).outcome == f"crossover: {of(demo).curve.text}"
        assert "cpu is faster than gpu:0 throughout" in of(demo).outcome

    def test_one_lane_is_listed_by_what_it_did(self):
        demo = Demo([LaneSpec("cpu")]).go().race(5)
        assert of(demo).outcome == "cpu: 3 837 steps, 38 370 examples, 7 675 examples/s"

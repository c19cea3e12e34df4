"""The verdict: who is ahead, by how much, and when that is unknown."""

import re
from dataclasses import replace

import pytest
from support.ui import Demo
from support.verdicts import ended, lane, noisy, snapshot

from tfmon import units
from tfmon.analysis.analysis import analyse
from tfmon.analysis.verdict import FASTER, SAME, TOO_CLOSE, find_verdict
from tfmon.model.events import LaneEnded, LaneStalled
from tfmon.model.lane_state import ABSENT, DONE, FAILED, LaneState, ScriptFacts, Totals
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.readings import FIXED, SPENDING
from tfmon.model.spec import LaneSpec


class TestNothingToSay:
    @pytest.mark.parametrize(
        ("lanes", "text"),
        [
            ([lane("cpu"), lane("gpu:0")], "no verdict yet: the lanes are getting ready"),
            ([lane("cpu", noisy(100)), lane("gpu:0")], "no verdict yet: the lanes are getting ready"),
            ([lane("cpu", noisy(100)), lane("gpu:0", phase=ABSENT)], "no verdict: 1 of 2 lanes can train"),
            ([lane("cpu", phase=FAILED), lane("gpu:0", phase=ABSENT)], "no verdict: 0 of 2 lanes can train"),
            ([lane("cpu", phase=DONE), lane("gpu:0", phase=DONE)], "no verdict: nothing was measured"),
        ],
    )
    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    def test_says_why(self, lanes, text, mode):
        verdict = find_verdict(snapshot(*lanes, mode=mode))
        assert verdict.answer == text
        assert (verdict.winner, verdict.ratio, verdict.interval, verdict.ranking) == (None, None, None, ())

    def test_lanes_of_a_script_at_other_places_of_it_may_be_in_other_phases(self):
        def script(name: str, speeds: list[float], steps: int) -> LaneState:
            return replace(lane(name, speeds), totals=Totals(steps), script=ScriptFacts("python train.py"))

        changing = [100.0] * 9 + [300.0] * 9 + [500.0] * 9
        apart = find_verdict(snapshot(script("C", changing, 50), script("G", [900.0] * 27, 400)))
        assert "the script's phases may not be alike: G after step 400, C after step 50" in apart.note
        alike = find_verdict(snapshot(script("C", changing, 50), script("G", changing, 50)))
        assert "phases" not in alike.note


class TestInterleaved:
    def test_a_difference_within_the_interval_is_not_known_yet(self):
        scattered = lane("cpu", noisy(100, 4, scatter=0.9)), lane("gpu:0", noisy(100, 4, seed=2))
        assert find_verdict(snapshot(*scattered)).answer.startswith("not known yet (")
        assert find_verdict(snapshot(lane("cpu", [100.0] * 9), lane("gpu:0", [100.0] * 9))).winner is None

    def test_the_two_fastest_must_be_told_apart_for_a_winner(self):
        lanes = lane("cpu", noisy(100)), lane("gpu:1", noisy(400, seed=2)), lane("gpu:0", noisy(400, seed=3))
        verdict = find_verdict(snapshot(*lanes))
        assert verdict.winner is None and verdict.interval.low > 1, "over the slowest"
        assert "too close so far: gpu:" in verdict.answer and "over gpu:" in verdict.answer

    def test_a_lane_that_finished_still_counts_and_one_that_failed_does_not(self):
        done = lane("cpu", noisy(100), DONE), lane("gpu:0", noisy(300, seed=2), DONE)
        assert find_verdict(snapshot(*done, lane("gpu:1", noisy(900), FAILED))).winner == "gpu:0"

    def test_a_lane_that_became_slower_is_noted(self):
        hot = [*noisy(300), *noisy(150, seed=2)]
        verdict = find_verdict(snapshot(lane("cpu", noisy(100, 24, seed=3)), lane("gpu:0", hot)))
        assert verdict.note.startswith("gpu:0 slowed by ") and verdict.note.endswith(" % during this measurement")


class TestAnswers:
    @pytest.mark.parametrize(
        ("factor", "scatter", "kind", "said"),
        [
            (1.2, 0.005, FASTER, "cpu is 1.20× faster than gpu:0 (95 % CI 1."),
            (1.0, 0.005, SAME, " are the same within ±3 % (1.0"),
            (1.0, 0.15, TOO_CLOSE, "too close to call: "),
        ],
    )
    def test_each_answer_is_said_with_its_interval(self, factor, scatter, kind, said):
        lanes = lane("cpu", noisy(100 * factor, 60, scatter)), lane("gpu:0", noisy(100, 60, scatter, seed=2))
        verdict = find_verdict(ended(*lanes, interval=FIXED))
        assert (verdict.kind, verdict.interval_kind) == (kind, FIXED)
        assert said in verdict.answer
        assert (verdict.winner == "cpu") is (kind == FASTER)

    def test_the_margin_is_the_users(self):
        lanes = lane("cpu", noisy(105, 60, 0.005)), lane("gpu:0", noisy(100, 60, 0.005, seed=2))
        assert find_verdict(ended(*lanes, interval=FIXED, margin=0.03)).kind == FASTER
        wide = find_verdict(ended(*lanes, interval=FIXED, margin=0.1))
        assert (wide.kind, wide.winner) == (FASTER, "cpu")
        assert "faster than gpu:0, by less than the margin of ±10 % (" in wide.answer

    def test_a_known_length_spends_its_error_towards_the_end(self):
        lanes = lane("cpu", noisy(100, 28, 0.1)), lane("gpu:0", noisy(100, 28, 0.1, seed=2))
        widths = [
            find_verdict(ended(*lanes, interval=SPENDING, seconds=seconds)).interval.half_width
            for seconds in (58.0, 80.0, 300.0)
        ]
        fixed = find_verdict(ended(*lanes, interval=FIXED)).interval.half_width
        assert fixed < widths[0] < 1.25 * fixed
        assert 1.1 * widths[0] < widths[1] and 1.2 * widths[1] < widths[2]

    def test_a_pair_of_many_lanes_has_one_interval_in_verdict_ranks_and_knobs(self):
        specs = [LaneSpec("cpu", {"batch_size": 10 * 2**place}) for place in range(5)]
        demo = Demo(specs, mode=TURNS).go()
        for _ in range(12):
            demo.race(3, (1_000, 1_020, 1_300, 1_310, 2_000), 0.03)
        found = analyse(demo.session.snapshot())
        verdict = found.verdict
        ranks, *pairs = verdict.ranked
        over_slowest = re.fullmatch(r"E (\S+ \([^)]*\)), .* over A", ranks)[1]
        factor, interval = over_slowest.rstrip(")").split(" (")
        assert [pair.partition(": ")[2] for pair in pairs if "160 over 10:" in pair] == [f"E/A {over_slowest}"]
        assert verdict.answer.startswith(f"E batch 160 is {factor} faster than A batch 10 (95 % CI {interval}, ")
        assert {one.speed.kind for one in found.lanes} == {verdict.interval_kind}
        plain = found.lanes[0].throughput.speed(replace(verdict.looks, choices=1))
        assert found.lanes[0].speed.half_width > 1.2 * plain.half_width, "as wide as for ten pairs"


class TestConcurrent:
    def test_a_lane_that_trained_for_a_second_is_compared_with_nothing(self):
        demo = Demo(mode=CONCURRENT).go()
        demo.enter("gpu:0", "paused")
        demo.race(20, (7_000, 2_000))
        demo.enter("gpu:0", "racing")
        demo.race(1, (7_000, 12))
        verdict = find_verdict(demo.session.snapshot())
        assert (verdict.winner, verdict.ratio) == (None, None)
        assert verdict.answer in {
            f"no verdict yet: all trained at the same time for {seconds} of 3 s" for seconds in (1, 2)
        }
        demo.enter_all("done")
        assert find_verdict(demo.session.snapshot()).answer.endswith(" s before a verdict")

    def test_what_a_lane_did_while_the_other_stood_does_not_count(self):
        demo = Demo(mode=CONCURRENT).go().race(10, (7_000, 2_000))
        demo.enter("gpu:0", "paused")
        demo.race(30, (70_000, 2_000))
        assert find_verdict(demo.session.snapshot()).ratio == pytest.approx(3.5, rel=0.05)

    def test_a_lane_that_trained_nothing_gives_no_factor(self):
        verdict = find_verdict(snapshot(lane("cpu", [0.0]), lane("gpu:0", [500.0]), mode=CONCURRENT))
        assert verdict.winner is None
        assert verdict.answer.startswith("no verdict")


class TestALaneIsLost:
    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    @pytest.mark.parametrize("how", ["failed", "hung"])
    def test_the_verdict_so_far_is_kept_with_until_when_it_holds(self, mode, how):
        demo = Demo(mode=mode).go().race(20, (7_000, 2_000))
        before, lost_ns = find_verdict(demo.session.snapshot()), demo.clock()
        killed = LaneEnded(lane="cpu", at_ns=lost_ns, exit_code=None, signal="SIGKILL", requested=False)
        stalled = LaneStalled(lane="cpu", at_ns=lost_ns, since_ns=lost_ns)
        demo.session.accept(killed if how == "failed" else stalled)
        demo.clock.ahead(30)
        verdict = find_verdict(demo.session.snapshot())
        clock = units.clock((lost_ns - demo.session.snapshot().race.started_ns) / 1e9)
        assert verdict.answer.endswith(f"; until {clock}, when cpu {how}")
        assert (verdict.winner, verdict.ratio) == ("cpu", pytest.approx(before.ratio, rel=0.02))

    def test_what_was_not_known_by_then_stays_unknown(self):
        demo = Demo(mode=TURNS).go().race(2.4)
        demo.session.accept(LaneEnded(lane="cpu", at_ns=demo.clock(), exit_code=1, signal=None, requested=False))
        assert find_verdict(demo.session.snapshot()).answer == "no verdict: 1 of 2 lanes can train"

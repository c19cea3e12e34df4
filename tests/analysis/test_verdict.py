"""The verdict: who is ahead, by how much, and when that cannot be said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.events import SECOND, window
from support.ui import Demo
from support.verdicts import ended, lane, noisy, snapshot

from tfmon import units
from tfmon.analysis.analysis import analyse
from tfmon.analysis.verdict import CONTENDED, FASTER, NOT_YET, SAME, TOO_CLOSE, find_verdict
from tfmon.model.events import LaneEnded, LaneStalled
from tfmon.model.lane_state import ABSENT, DONE, FAILED, RACING, ScriptFacts, Totals
from tfmon.model.race import CONCURRENT, TURNS, BetweenProcesses
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING
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
        assert verdict.text == text
        assert (verdict.winner, verdict.ratio, verdict.interval, verdict.ranking) == (None, None, None, ())

    def test_a_race_that_was_too_short_says_how_much_longer_would_do(self):
        demo = Demo(mode=TURNS).go().race(2.4)
        demo.enter_all("done")
        text = "no verdict: measured 2 of 3 rounds; stopped 2 s before a verdict"
        assert find_verdict(demo.session.snapshot()).text == text

    def test_a_race_for_one_look_at_its_end_needs_as_many_rounds_as_others_where_it_was_interrupted(self):
        lanes = lane("cpu", [100.0] * 2), lane("gpu:0", [300.0] * 2)
        assert find_verdict(ended(*lanes, interval=FIXED)).winner == "gpu:0"
        interrupted = ended(*lanes, interval=FIXED, interrupted="interrupted by SIGINT")
        assert find_verdict(interrupted).text == "no verdict: measured 2 of 3 rounds; stopped 2 s before a verdict"
        scripts = tuple(replace(one, script=ScriptFacts("python train.py")) for one in interrupted.lanes)
        text = find_verdict(replace(interrupted, lanes=scripts)).text
        assert text == "no verdict: measured 2 of 3 rounds", "scripts that ended have no more to tell"

    def test_lanes_of_a_script_at_other_places_of_it_may_be_in_other_phases(self):
        places = ("C", [100.0] * 9 + [300.0] * 9 + [500.0] * 9, 50), ("G", [900.0] * 27, 400)

        def note(*places: tuple[str, list[float], int]) -> str:
            lanes = [(lane(id, speeds), id, steps) for id, speeds, steps in places]
            scripts = [
                replace(
                    one, spec=replace(one.spec, id=id), totals=Totals(steps), script=ScriptFacts("python train.py")
                )
                for one, id, steps in lanes
            ]
            return find_verdict(snapshot(*scripts)).note

        assert "the script's phases may not be alike: G after step 400, C after step 50" in note(*places)
        assert "phases" not in note(places[0], ("G", places[0][1], 50))

    @pytest.mark.parametrize(
        ("pairs", "text"), [(1, "no verdict: measured 2 of 3 rounds"), (9, "too close to call")]
    )
    def test_no_more_is_awaited_once_one_of_two_lanes_has_ended(self, pairs, text):
        one, other = lane("cpu", [100.0, 300.0] * pairs), lane("gpu:0", [300.0, 100.0] * pairs)
        one, other = (replace(each, script=ScriptFacts("python train.py")) for each in (one, other))
        assert " yet" in (live := find_verdict(snapshot(one, other)).text) or "so far" in live
        assert find_verdict(snapshot(replace(one, phase=DONE), other)).text.startswith(text)


class TestInterleaved:
    def test_the_winner_is_named_with_the_factor_and_its_interval(self):
        verdict = find_verdict(snapshot(lane("cpu", noisy(100)), lane("gpu:0", noisy(300, seed=2))))
        assert (verdict.winner, verdict.note) == ("gpu:0", "")
        assert verdict.interval.low < 3 < verdict.interval.high
        assert verdict.ratio == verdict.interval.value == pytest.approx(3, rel=0.03)
        assert verdict.text == "gpu:0 is 3.0× faster than cpu (95 % CI 2.9 to 3.1, 12 pairs)"

    def test_the_title_is_that_in_effect_and_the_winner_is_a_name(self):
        spec = LaneSpec("cpu", {"prefetch": "off"}, name="cpu prefetch=off", apart=("prefetch",))
        fast = replace(lane("cpu", [300.0] * 9), spec=spec, settings={"prefetch": 2})
        verdict = find_verdict(snapshot(fast, lane("cpu", [100.0] * 9)))
        assert verdict.text.startswith("cpu prefetch=2 is ")
        assert verdict.winner == "cpu prefetch=off"

    def test_a_difference_within_the_interval_is_too_close_to_call(self):
        lanes = lane("cpu", noisy(100, scatter=0.1)), lane("gpu:0", noisy(100, scatter=0.1, seed=2))
        verdict = find_verdict(snapshot(*lanes))
        assert verdict.winner is None
        assert verdict.text.startswith("too close so far (")
        assert verdict.interval.low < 1 < verdict.interval.high
        assert find_verdict(snapshot(lane("cpu", [100.0] * 9), lane("gpu:0", [100.0] * 9))).winner is None

    def test_of_several_lanes_each_is_ranked_and_each_knob_that_two_differ_in_is_answered(self):
        settings = [(10, "off"), (10, "auto"), (256, "auto")]
        specs = [LaneSpec("cpu", {"batch_size": batch, "prefetch": prefetch}) for batch, prefetch in settings]
        demo = Demo(specs, mode=TURNS).go().race(40, (1_280, 2_560, 10_240))
        verdict = find_verdict(demo.session.snapshot())
        assert verdict.text.startswith("C batch 256, prefetch auto is 8.0× faster than A batch 10, prefetch off (")
        shown = [re.sub(r" \([^)]*\)", "", line) for line in verdict.ranked]
        assert shown == [
            "C 8.0×, B 2.0× over A",
            "batch 256 over auto: C/B 4.0×".replace("auto", "10"),
            "prefetch auto over off: B/A 2.0×",
        ]
        assert all("to" in line for line in verdict.ranked), "with intervals"

    def test_the_two_fastest_must_be_told_apart_for_a_winner(self):
        lanes = lane("cpu", noisy(100)), lane("gpu:1", noisy(400, seed=2)), lane("gpu:0", noisy(400, seed=3))
        verdict = find_verdict(snapshot(*lanes))
        assert verdict.winner is None
        assert "too close so far: gpu:" in verdict.text and "over gpu:" in verdict.text

    def test_a_lane_that_finished_still_counts_and_one_that_failed_does_not(self):
        done = lane("cpu", noisy(100), DONE), lane("gpu:0", noisy(300, seed=2), DONE)
        assert find_verdict(snapshot(*done, lane("gpu:1", noisy(900), FAILED))).winner == "gpu:0"

    def test_a_lane_that_became_slower_is_noted(self):
        hot = [*noisy(300), *noisy(150, seed=2)]
        verdict = find_verdict(snapshot(lane("cpu", noisy(100, 24, seed=3)), lane("gpu:0", hot)))
        assert verdict.note.startswith("gpu:0 slowed by ") and verdict.note.endswith(" % during this measurement")

    @pytest.mark.parametrize(
        ("pairs", "disturbed", "noted"),
        [(20, 0, False), (20, 2, False), (20, 3, True), (8, 1, False), (8, 2, True)],
    )
    def test_more_outlying_pairs_than_one_and_a_tenth_are_noted(self, pairs, disturbed, noted):
        odd = [
            speed / 9 if number % 4 == 1 and number < 4 * disturbed else speed
            for number, speed in enumerate(noisy(300, pairs))
        ]
        verdict = find_verdict(snapshot(lane("cpu", noisy(100, pairs, seed=3)), lane("gpu:0", odd)))
        assert verdict.note == (f"{disturbed} outlying pairs: something else disturbs the lanes" if noted else "")


class TestAnswers:
    """Faster, the same, or not known: by the interval, the margin and what the interval is made for."""

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
        assert said in verdict.text
        assert (verdict.winner == "cpu") is (kind == FASTER)

    def test_the_margin_is_the_users(self):
        lanes = lane("cpu", noisy(105, 60, 0.005)), lane("gpu:0", noisy(100, 60, 0.005, seed=2))
        assert find_verdict(ended(*lanes, interval=FIXED, margin=0.03)).kind == FASTER
        wide = find_verdict(ended(*lanes, interval=FIXED, margin=0.1))
        assert (wide.kind, wide.winner) == (FASTER, "cpu")
        assert "faster than gpu:0, by less than the margin of ±10 % (" in wide.text

    def test_an_interval_for_the_end_holds_only_there(self):
        lanes = lane("cpu", noisy(100, 60)), lane("gpu:0", noisy(100, 60, seed=2))
        race = ended(*lanes, interval=FIXED)
        going_on = replace(race, lanes=tuple(replace(one, phase=RACING) for one in race.lanes))
        interrupted = replace(race, race=replace(race.race, interrupted="interrupted by SIGINT"))
        for other in (going_on, interrupted):
            assert find_verdict(other).interval_kind == ALWAYS_VALID
            assert find_verdict(other).interval.half_width > find_verdict(race).interval.half_width

    def test_a_known_length_spends_its_error_towards_the_end(self):
        lanes = lane("cpu", noisy(100, 28, 0.1)), lane("gpu:0", noisy(100, 28, 0.1, seed=2))
        widths = [
            find_verdict(ended(*lanes, interval=SPENDING, seconds=seconds)).interval.half_width
            for seconds in (58.0, 80.0, 300.0)
        ]
        fixed = find_verdict(ended(*lanes, interval=FIXED)).interval.half_width
        assert fixed < widths[0] < 1.25 * fixed
        assert 1.1 * widths[0] < widths[1] and 1.2 * widths[1] < widths[2]

    def test_a_known_length_is_counted_from_where_the_measurement_began_anew(self):
        def half_width(first: int, seconds: float) -> float:
            lanes = lane("cpu", noisy(100, 28), first=first), lane("gpu:0", noisy(100, 28, seed=2), first=first)
            return find_verdict(ended(*lanes, interval=SPENDING, seconds=seconds)).interval.half_width

        assert half_width(20, 119.0) == pytest.approx(half_width(1, 81.0))

    def test_what_earlier_races_told_is_a_part_of_the_interval(self):
        lanes = lane("cpu", noisy(100, 60, 0.005)), lane("gpu:0", noisy(100, 60, 0.005, seed=2))
        unequal = BetweenProcesses(10 * 0.05**2, 10, 3)
        known, unknown = (find_verdict(ended(*lanes, between=one)).interval for one in (unequal, None))
        assert known.half_width > 3 * unknown.half_width

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
        assert [one.partition(": ")[2] for one in pairs if "160 over 10:" in one] == [f"E/A {over_slowest}"]
        assert verdict.text.startswith(f"E batch 160 is {factor} faster than A batch 10 (95 % CI {interval}, ")
        assert {one.speed.kind for one in found.lanes} == {verdict.interval_kind}
        plain = found.lanes[0].throughput.speed(replace(verdict.looks, choices=1))
        assert found.lanes[0].speed.half_width > 1.2 * plain.half_width, "as wide as for ten pairs"

    def test_one_of_many_lanes_is_named_only_where_it_is_surer(self):
        lanes = [lane(f"gpu:{at}", noisy(100, 30, seed=at)) for at in range(5)]
        two, five = (find_verdict(ended(*some, interval=FIXED)).interval for some in (lanes[:2], lanes))
        assert five.half_width > 1.3 * two.half_width


class TestConcurrent:
    def raced(self, seconds: float, speeds=(7_000, 2_000), wobble: float = 0.02) -> Demo:
        demo = Demo(mode=CONCURRENT).go().race(seconds, speeds, wobble)
        return demo

    def test_the_winner_is_named_with_an_interval_over_the_seconds_of_both(self):
        known = self.raced(20).session.snapshot()
        verdict = find_verdict(known)
        assert (verdict.winner, verdict.note, verdict.ranking) == ("cpu", f"{CONTENDED} (t: take turns)", ())
        over = replace(known, lanes=tuple(replace(lane, phase=DONE) for lane in known.lanes))
        assert find_verdict(over).note == CONTENDED, "a key that does nothing any more is not named"
        assert verdict.interval.low < 3.5 < verdict.interval.high
        assert 18 <= verdict.interval.pairs <= 21
        assert verdict.text.startswith("cpu is 3.5× faster than gpu:0 (95 % CI 3.")

    def test_a_lane_that_trained_for_a_second_is_compared_with_nothing(self):
        demo = Demo(mode=CONCURRENT).go()
        demo.enter("gpu:0", "paused")
        demo.race(20, (7_000, 2_000))
        demo.enter("gpu:0", "racing")
        demo.race(1, (7_000, 12))
        verdict = find_verdict(demo.session.snapshot())
        assert (verdict.winner, verdict.ratio) == (None, None)
        assert verdict.text in {
            f"no verdict yet: all trained at the same time for {seconds} of 3 s" for seconds in (1, 2)
        }
        demo.enter_all("done")
        assert find_verdict(demo.session.snapshot()).text.endswith(" s before a verdict")

    def test_what_a_lane_did_while_the_other_stood_does_not_count(self):
        demo = self.raced(10)
        demo.enter("gpu:0", "paused")
        demo.race(30, (70_000, 2_000))
        assert find_verdict(demo.session.snapshot()).ratio == pytest.approx(3.5, rel=0.05)

    def test_equal_lanes_have_no_winner(self):
        verdict = find_verdict(self.raced(20, (5_000, 5_000), 0.2).session.snapshot())
        assert (verdict.winner, verdict.kind) == (None, NOT_YET)

    def test_steps_of_seconds_are_compared_over_longer_stretches(self):
        demo = Demo(mode=CONCURRENT).go()
        for number in range(40):
            demo.clock.ahead(3)
            for name, examples in zip(demo.names, (40, 10), strict=True):
                one = {"lane": name, "span_ns": 3 * SECOND, "examples": examples, "settings": demo.settings[name]}
                demo.session.accept(window(demo.clock(), **one, step=number))
        verdict = find_verdict(demo.session.snapshot())
        assert (verdict.winner, verdict.ratio) == ("cpu", pytest.approx(4))

    def test_a_lane_that_trained_nothing_gives_no_factor(self):
        verdict = find_verdict(snapshot(lane("cpu", [0.0]), lane("gpu:0", [500.0]), mode=CONCURRENT))
        assert verdict.winner is None
        assert verdict.text.startswith("no verdict")


class TestALaneIsLost:
    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    @pytest.mark.parametrize("how", ["failed", "hung"])
    def test_the_verdict_so_far_is_kept_with_until_when_it_holds(self, mode, how):
        demo = Demo(mode=mode).go().race(20, (7_000, 2_000))
        before, lost_ns = find_verdict(demo.session.snapshot()), demo.clock()
        if how == "failed":
            demo.session.accept(
                LaneEnded(lane="cpu", at_ns=lost_ns, exit_code=None, signal="SIGKILL", requested=False)
            )
        else:
            demo.session.accept(LaneStalled(lane="cpu", at_ns=lost_ns, since_ns=lost_ns))
        demo.clock.ahead(30)
        verdict = find_verdict(demo.session.snapshot())
        clock = units.clock((lost_ns - demo.session.snapshot().race.started_ns) / 1e9)
        assert verdict.text.endswith(f"; until {clock}, when cpu {how}")
        assert (verdict.winner, verdict.ratio) == ("cpu", pytest.approx(before.ratio, rel=0.02))

    @pytest.mark.parametrize(("how", "said"), [("failed", TOO_CLOSE), ("hung", "too close so far")])
    def test_it_does_not_say_how_much_longer_the_race_takes(self, how, said):
        demo = Demo(mode=TURNS).go().race(20, (1_000, 1_050), wobble=0.1)
        assert "; about " in find_verdict(demo.session.snapshot()).text
        end = LaneEnded(lane="cpu", at_ns=demo.clock(), exit_code=None, signal="SIGKILL", requested=False)
        hang = LaneStalled(lane="cpu", at_ns=demo.clock(), since_ns=demo.clock())
        demo.session.accept(end if how == "failed" else hang)
        verdict = find_verdict(demo.session.snapshot()).text
        assert re.fullmatch(rf"{said}[^;]*; until \d+:\d\d, when cpu {how}", verdict)

    def test_what_was_not_known_by_then_stays_unknown(self):
        demo = Demo(mode=TURNS).go().race(2.4)
        demo.session.accept(LaneEnded(lane="cpu", at_ns=demo.clock(), exit_code=1, signal=None, requested=False))
        assert find_verdict(demo.session.snapshot()).text == "no verdict: 1 of 2 lanes can train"


class TestMoreThanTheContrast:
    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    def test_it_is_said_and_named(self, mode):
        demo = Demo((LaneSpec("cpu", {"batch_size": 10}), LaneSpec("cpu", {"batch_size": 20})), mode=mode).go()
        demo.race(20)
        assert find_verdict(demo.session.snapshot()).also == ()
        demo.apply(demo.names[0], "prefetch", 1)
        demo.race(20)
        verdict = find_verdict(demo.session.snapshot())
        assert verdict.also == ("prefetch",)
        assert verdict.text.endswith("; also differs: prefetch") and verdict.short.endswith(
            "; also differs: prefetch"
        )
        assert verdict.text.startswith("cpu batch_size=10 prefetch=1 is ")
        assert " faster than cpu batch_size=20 prefetch=off (" in verdict.text

    def test_on_two_devices_every_knob_is_more_than_the_contrast(self):
        demo = Demo(mode=TURNS).go()
        demo.apply("gpu:0", "batch_size", 64)
        demo.race(20)
        verdict = find_verdict(demo.session.snapshot())
        assert verdict.text.endswith("; also differs: batch")
        assert " than gpu:0 batch_size=64 (" in verdict.text

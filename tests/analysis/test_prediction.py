"""Before the verdict: a bound by a step that still runs, and the predicted time until the verdict."""

import math
from dataclasses import replace

import pytest
from support.events import SECOND, window
from support.ui import Demo
from support.verdicts import ended, lane, noisy, with_slices

from tfmon.analysis.verdict import FASTER, SAME, TOO_CLOSE, find_verdict
from tfmon.model.lane_events import RACING
from tfmon.model.lane_state import DONE, Heartbeat
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec

EQUAL = {"batch_size": 10, "prefetch": "off"}


class TestLongSteps:
    """Verdicts about steps of seconds: while the first step runs, after it, and of a lane that hangs."""

    def racing(self, *slow_s: float, runs_s: float = 0.0) -> Snapshot:
        """Return a race of a lane with steps of 50 ms, and one of long steps, the last of which runs on."""
        demo = Demo([LaneSpec(device, EQUAL) for device in ("cpu", "gpu:0")], mode=TURNS).go()
        for number in range(1, max(1, len(slow_s)) + 1):
            trained = {"round": number, "settings": EQUAL}
            demo.session.grant_slice("gpu:0")
            demo.clock.ahead(0.5)
            steps = {"steps": 10, "examples": 100, "step": 10 * number}
            demo.session.accept(window(demo.clock(), SECOND // 2, lane="gpu:0", **steps, **trained))
            for seconds in slow_s[number - 1 : number]:
                demo.session.grant_slice("cpu")
                demo.clock.ahead(seconds)
                steps = {"steps": 1, "examples": 10, "step": number}
                demo.session.accept(window(demo.clock(), round(seconds * SECOND), lane="cpu", **steps, **trained))
        demo.session.grant_slice("cpu")
        demo.clock.ahead(runs_s)
        return demo.session.snapshot()

    def test_a_step_that_still_runs_is_a_bound(self):
        verdict = find_verdict(self.racing(runs_s=12.0))
        assert verdict.answer == "gpu:0 at least 240× faster (cpu's first step is still running, 12 s)"
        assert (verdict.at_least, verdict.winner, verdict.kind) == (pytest.approx(240), None, None)

    def test_where_all_train_at_once_a_step_runs_since_the_lane_was_heard(self):
        demo = Demo(mode=CONCURRENT).go().race(2)
        known = demo.session.snapshot()
        assert known.lanes[0].step_runs_s(known.lanes[0].heartbeat.heard_ns + 3 * SECOND) == 3.0

    def test_one_that_ended_no_step_keeps_the_bound_at_the_end_of_the_race(self):
        known = self.racing(runs_s=85.0)
        lanes = tuple(replace(lane, phase=DONE, phase_since_ns=known.at_ns) for lane in known.lanes)
        verdict = find_verdict(replace(known, lanes=lanes, at_ns=known.at_ns + 99 * SECOND))
        assert verdict.answer == "gpu:0 at least 1700× faster (cpu did not end its first step in 85 s)"

    def test_after_the_first_steps_the_ratio_is_told_without_an_interval_and_from_three_on_with_one(self):
        one = find_verdict(self.racing(6.0))
        assert (one.answer, one.at_least) == ("gpu:0 about 120× faster (1 step of cpu so far)", None)
        three = find_verdict(self.racing(6.0, 6.06, 5.94))
        assert (three.winner, three.interval.pairs) == ("gpu:0", 3)
        assert three.interval.low < 120 < three.interval.high

    def test_equal_lanes_are_told_how_many_rounds_it_takes(self):
        lanes = lane("cpu", [100.0, 101.0, 99.0]), lane("gpu:0", [100.0] * 3)
        assert " rounds) more would settle it" in find_verdict(ended(*lanes, round_s=10)).answer

    def test_a_lane_that_hangs_before_anything_is_compared_is_out_of_the_race(self):
        known = self.racing(runs_s=80.0)
        hung = replace(known.lane("cpu"), heartbeat=Heartbeat(stalled_since_ns=known.at_ns - 80 * SECOND))
        verdict = find_verdict(replace(known, lanes=(hung, known.lane("gpu:0"))))
        assert verdict.answer == "no verdict: cpu hangs, has sent nothing for 80.0 s, and is out of the race"
        assert verdict.winner is None


class TestHowLongStill:
    """The prediction comes true if the scatter and the ratio do not change."""

    @pytest.mark.parametrize(("factor", "answer"), [(1.035, FASTER), (1.01, SAME), (1.0, SAME)])
    @pytest.mark.parametrize("interval", [ALWAYS_VALID, SPENDING, FIXED])
    def test_an_answer_comes_after_about_that_time(self, factor, answer, interval):
        def after(pairs: int):
            """Race in fresh processes every 12 rounds."""
            spread = [0.12 * math.sin(2.4 * at) for at in range(pairs)]
            scattered = lane("cpu", [100 * factor * math.exp(one) for one in spread])
            race = ended(scattered, lane("gpu:0", [100.0] * pairs), interval=interval, seconds=120.0, fresh=True)
            renewed = [
                with_slices(one, lambda part: replace(part, process=part.round // 12)) for one in race.lanes
            ]
            return find_verdict(replace(race, lanes=tuple(renewed)))

        early = after(24)
        assert early.kind == TOO_CLOSE
        assert early.answer.endswith(" more would settle it")
        pairs = 24 + early.left_s / 2
        assert after(round(1.4 * pairs)).kind == answer
        assert after(round(0.7 * pairs)).kind == TOO_CLOSE

    def test_a_race_until_a_width_says_how_long_that_takes_for_every_lane(self):
        """The two fastest are known well; the slowest scatters, and the race goes on for it."""
        even = [lane("gpu:1", noisy(400, 40, 0.002)), lane("gpu:0", noisy(200, 40, 0.002, seed=2))]
        racing = ended(*even, lane("cpu", noisy(100, 40, 0.2, seed=3)), until_ci=0.05)
        racing = replace(racing, lanes=tuple(replace(one, phase=RACING) for one in racing.lanes))
        verdict = find_verdict(racing)
        assert verdict.kind == FASTER and verdict.left_s > 80
        assert find_verdict(replace(racing, race=replace(racing.race, until_ci=0.5))).left_s is None
        assert find_verdict(replace(racing, lanes=racing.lanes[:2])).left_s is None

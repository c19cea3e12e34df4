"""Advice tried on real children that train nothing, with gains that are known."""

from dataclasses import replace

import pytest
from support.waiting import wait_for

from tfmon.analysis.tuning_trials import answer_text, best_of, news
from tfmon.errors import ExperimentError
from tfmon.model.lane_events import PAUSED, RACING
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.series import KEPT, REFUSED, REVERTED, STOPPED, UNDONE
from tfmon.series import tuning

from .conftest import ended

pytestmark = pytest.mark.process

START = ("prefetch=off", "parallel_calls=off")
"""The advice against waiting is then, with an epoch as long: parallel_calls auto, prefetch auto, cache on."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """These children take no time to settle."""
    monkeypatch.setattr(tuning, "SHORTEST_S", 0.05)
    monkeypatch.setattr(tuning, "STEADY_NS", 100_000_000)


def begin(group, *lanes: str, mode: str = TURNS, fresh: bool = False, **environment: str) -> None:
    specs = [",".join((lane, *START)) for lane in lanes or ("cpu",)]
    names = [spec.partition(",")[0].replace("gpu", "gpu:0") for spec in specs]
    environment = {"WAITS": "0.8", "EXAMPLES": "1000000000", **environment}
    plan = group.plan(*specs, mode=mode, environment=dict.fromkeys(names, environment))
    group.begin(replace(plan, race=replace(plan.race, fresh=fresh)))
    group.wait_for(RACING, *names)


def test_each_attempt_of_a_series_with_fresh_processes_has_one_of_its_own(group, bench):
    begin(group, fresh=True, FASTER="parallel_calls=auto:1.5", EXAMPLES="1000")
    state = tune(group, bench, everything=True)
    assert ({"parallel_calls": "auto"}, KEPT) in outcomes(state)
    assert group.lane("cpu").process.number == len(state.changes) > 1
    assert group.lane("cpu").settings["parallel_calls"] == "auto", "the fresh ones begin with what was kept"


def tune(group, bench, lane="cpu", *, everything=False):
    bench.start_tuning(lane, everything=everything)
    assert ended(bench)
    return group.session.snapshot().tuned


def outcomes(state) -> list[tuple[dict, str]]:
    return [(attempt.settings, attempt.outcome) for attempt in state.changes]


class TestOne:
    def test_what_helps_is_kept_with_its_gain_and_undo_takes_back_the_last_change_first(self, group, bench):
        begin(group, FASTER="parallel_calls=auto:1.5")
        group.pause(["cpu"])
        group.wait_for(PAUSED, "cpu")
        state = tune(group, bench)
        (attempt,) = state.attempts
        assert (attempt.settings, attempt.outcome) == ({"parallel_calls": "auto"}, KEPT)
        assert attempt.gain.value == pytest.approx(1.5, rel=0.02) and attempt.gain.low > 1.4
        assert group.lane("cpu").settings["parallel_calls"] == "auto"
        assert (state.over, state.ended) == (True, "")
        assert news(group.session.snapshot()).startswith("parallel calls auto: +50")
        group.set_knob("cpu", "parallel_calls", 4)
        wait_for(lambda: group.lane("cpu").settings["parallel_calls"] == 4)
        for undone in ("A parallel calls auto → 4", "A parallel calls off → auto"):
            assert bench.undo() == undone
            wait_for(lambda: not group.lane("cpu").changes.requested)
        assert group.lane("cpu").settings["parallel_calls"] == "off"
        assert outcomes(group.session.snapshot().tuned) == [({"parallel_calls": "auto"}, UNDONE)]
        with pytest.raises(ExperimentError, match="nothing to undo"):
            bench.undo()

    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    def test_other_lanes_hold_meanwhile_and_go_on_afterwards(self, group, bench, mode):
        begin(group, "cpu", "gpu", mode=mode, FASTER="parallel_calls=auto:1.5")
        bench.start_tuning("gpu:0", everything=False)
        seen = []

        def tried() -> bool:
            seen.append(group.session.snapshot())
            return bool(seen[-1].tuned.attempts and seen[-1].race.exclusive == "gpu:0")

        wait_for(tried, what="the first attempt, with the other lane on hold")
        steps = seen[-1].lane("cpu").totals.steps
        assert ended(bench)
        assert group.lane("cpu").settings["parallel_calls"] == "off"
        group.wait_for_steps("cpu", steps + 1 - group.lane("cpu").totals.steps)
        group.wait_for_steps("gpu:0")
        assert group.session.snapshot().race.exclusive == ""


class TestAll:
    def test_goes_on_until_nothing_helps_judges_a_full_cache_and_measures_the_whole(
        self, group, bench, monkeypatch
    ):
        measure, began_ns = tuning.Tuning._wait_for_slices, []

        def watched(self, slices, since_ns):
            if self._attempt.settings == {"cache": True} and group.lane("cpu").settings["cache"]:
                began_ns.append(since_ns)
            measure(self, slices, since_ns)

        monkeypatch.setattr(tuning.Tuning, "_wait_for_slices", watched)
        begin(group, FASTER="parallel_calls=auto:1.5 prefetch=auto:0.8 cache=True:1.4", EXAMPLES="1000")
        state = tune(group, bench, everything=True)
        assert outcomes(state) == [
            ({"cache": True}, KEPT), ({"parallel_calls": "auto"}, KEPT), ({"prefetch": "auto"}, REVERTED),
        ]  # fmt: skip
        best, speed_up = best_of(state)
        assert best == {"parallel_calls": "auto", "cache": True}
        assert speed_up.value == pytest.approx(2.1, rel=0.03)
        lane = group.lane("cpu")
        settings = [lane.settings[knob] for knob in ("parallel_calls", "prefetch", "cache")]
        assert settings == ["auto", "off", True]
        applied = next(mark.at_ns for mark in lane.changes.marks if mark.text == "cache on")
        examples = sum(point.examples for point in lane.points if applied < point.at_ns <= began_ns[0])
        assert examples >= lane.process.data_examples == 1_000

    def test_stopping_gives_the_lane_its_settings_back(self, group, bench):
        begin(group)
        bench.start_tuning("cpu", everything=True)
        wait_for(lambda: group.lane("cpu").settings["parallel_calls"] == "auto", what="the change")
        bench.stop()
        wait_for(lambda: group.lane("cpu").settings["parallel_calls"] == "off", what="the setting before")
        wait_for(lambda: group.session.snapshot().tuned.over, what="the end")
        state = group.session.snapshot().tuned
        assert (state.over, state.ended, state.attempts[-1].outcome) == (True, "stopped", STOPPED)
        assert answer_text(state) == "no change was measured to the end"

    def test_a_lane_that_dies_of_it_is_started_again_as_it_was(self, group, bench):
        begin(group, FASTER="parallel_calls=auto:0.8 prefetch=auto:0.8")
        bench.start_tuning("cpu", everything=True)

        def caching() -> bool:
            lane = group.lane("cpu")
            return lane.settings["cache"] is True and bool(lane.steady.windows)

        wait_for(caching, what="the cache")
        group._processes["cpu"].kill(9)
        assert ended(bench)
        attempt = group.session.snapshot().tuned.attempts[2]
        assert attempt.outcome == REFUSED and "SIGKILL" in attempt.refused
        group.wait_for(RACING, "cpu")
        assert group.lane("cpu").settings["cache"] is False

"""Advice that is tried: what is proposed, when it is decided, what is said; on lanes whose speeds are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.ui import Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.causes import Cause
from tfmon.analysis.shares import shares_of
from tfmon.analysis.statistics import gain
from tfmon.analysis.tuning import (
    LOOKS,
    advised,
    answer_text,
    attempt_text,
    best_of,
    changed_work,
    decide,
    find_change,
    gain_of,
    gain_text,
    news,
    outcome_text,
    pairs_of,
    plan_attempt,
    plan_tuning,
)
from tfmon.model.knobs import COMMON, VARIANT
from tfmon.model.lane_state import LaneState, ScriptFacts
from tfmon.model.lane_statistics import EarlierSlices, Measurements, SliceSpeed
from tfmon.model.periods import KnobChange
from tfmon.model.ports import ExperimentError
from tfmon.model.readings import SPENDING, Estimate, known
from tfmon.model.script_events import FIT, SEES_BATCHES
from tfmon.model.series import KEPT, REFUSED, REVERTED, STOPPED, UNDONE, Attempt, Block, TuneState
from tfmon.model.spec import LaneSpec

OFF, AUTO = {"prefetch": "off"}, {"prefetch": "auto"}
SECOND = 1_000_000_000


def tried(
    pairs: int, factor: float, scatter: float = 0.0, *, restarts: bool = False, seed: int = 1
) -> tuple[LaneState, Attempt]:
    """Return a lane that trained two slices with prefetch off, two with auto, and so on."""
    random = np.random.default_rng(seed)
    slices: dict[bool, list[SliceSpeed]] = {False: [], True: []}
    blocks = []
    clock = 0
    for block in range(-(-pairs // 2) * 2):
        changed, since = bool(block % 2), clock
        for _ in range(min(2, pairs - block // 2 * 2)):
            clock += SECOND
            speed = 1_000 * (factor if changed else 1) * np.exp(random.normal(0, scatter))
            slices[changed].append(SliceSpeed(clock, clock, round(1_000 * speed), 1_000 * SECOND))
        blocks.append(Block(changed, since, clock))
    measured = Measurements(
        earlier=(EarlierSlices(OFF, tuple(slices[False])), EarlierSlices(AUTO, tuple(slices[True])))
    )
    lane = LaneState(
        LaneSpec("cpu", name="cpu"), settings={"prefetch": "off", "batch_size": 1}, measurements=measured
    )
    return lane, Attempt("cpu", OFF, AUTO, restarts=restarts, blocks=tuple(blocks))


class TestPairs:
    def test_the_slices_of_neighbouring_blocks_are_paired_in_their_order(self):
        lane, attempt = tried(6, 1.5)
        pairs = pairs_of(lane, attempt)
        assert [new.round - old.round for old, new in pairs] == [2 * SECOND] * 6
        assert gain_of(lane, attempt).value == pytest.approx(1.5)

    def test_slices_of_other_times_do_not_count(self):
        lane, attempt = tried(6, 1.5)
        late = Attempt("cpu", OFF, AUTO, blocks=attempt.blocks[2:])
        assert len(pairs_of(lane, late)) == 4

    def test_slices_of_a_block_that_is_under_way_count(self):
        lane, attempt = tried(2, 1.5)
        open_block = Block(changed=True, since_ns=attempt.blocks[1].since_ns)
        assert len(pairs_of(lane, Attempt("cpu", OFF, AUTO, blocks=(attempt.blocks[0], open_block)))) == 2

    def test_two_processes_give_a_wider_interval(self):
        assert gain_of(*tried(6, 1.5, restarts=True)).half_width > gain_of(*tried(6, 1.5)).half_width + 0.01


class TestDecision:
    @pytest.mark.parametrize(
        ("pairs", "factor", "scatter", "outcome"),
        [
            (4, 2.0, 0.01, ""),
            (6, 1.2, 0.01, KEPT),
            (6, 0.8, 0.01, REVERTED),
            (12, 1.0, 0.001, REVERTED),
            (6, 1.05, 0.02, ""),
            (6, 1.03, 0.001, ""),
            (6, 1.03, 0.1, ""),
            (18, 1.03, 0.001, KEPT),
            (18, 1.005, 0.0001, REVERTED),
            (18, 1.0, 0.1, REVERTED),
            (18, 1.02, 0.1, REVERTED),
        ],
    )
    def test_early_for_what_is_clear_and_at_the_last_look_for_the_rest(self, pairs, factor, scatter, outcome):
        assert decide(*tried(pairs, factor, scatter)) == outcome

    def test_one_change_of_many_must_be_surer(self):
        lane, attempt = tried(18, 1.02, 0.015)
        assert decide(lane, attempt) == KEPT
        assert decide(lane, replace(attempt, choices=20)) == REVERTED

    def test_early_looks_must_be_surer_because_there_are_more(self):
        gains = [gain_of(*tried(pairs, 1.2, 0.02)) for pairs in LOOKS]
        assert all(one.kind == SPENDING for one in gains)
        fixed = [gain(pairs_of(*tried(pairs, 1.2, 0.02))).half_width for pairs in LOOKS]
        wider = [one.half_width / plain for one, plain in zip(gains, fixed, strict=True)]
        assert wider[0] > 2 and wider[0] > wider[1] > wider[2] > 1

    def test_with_restarts_there_are_fewer_looks(self):
        assert decide(*tried(12, 1.02, 0.02, restarts=True)) == REVERTED
        assert decide(*tried(12, 1.04, 0.05)) == ""

    def test_a_change_of_the_scripts_work_is_listed_with_what_it_changes_and_never_kept(self):
        lane, attempt = tried(18, 4.6, 0.01)
        assert (decide(lane, attempt), changed_work(lane, "batch_size")) == (KEPT, "")
        script = replace(lane, script=ScriptFacts("python train.py", step_traits=(FIT,)))
        assert changed_work(script, "batch_size") == "an epoch has fewer updates"
        assert changed_work(script, "prefetch") == changed_work(script, "steps_per_execution") == ""
        sees = replace(script, script=replace(script.script, step_traits=(FIT, SEES_BATCHES)))
        attempt = replace(attempt, changes=changed_work(sees, "steps_per_execution"))
        assert decide(sees, attempt) == REVERTED
        ended = replace(attempt, outcome=REVERTED, gain=gain_of(sees, attempt))
        reason = "not kept: callbacks of batches are called once for all steps of a call"
        assert outcome_text(ended) == reason and attempt_text(sees, ended).endswith(reason)
        answer = answer_text(TuneState("cpu", True, (ended,), over=True))
        assert answer.startswith("best: the settings it began with; prefetch auto: 4.6") and answer.endswith(
            reason
        )

    def test_a_gain_that_is_small_and_not_sure_is_not_waited_for(self):
        assert decide(*tried(12, 1.01, 0.05)) == REVERTED
        assert decide(*tried(12, 1.02, 0.001)) == "", "it is sure, and known better after more pairs"


def waiting_demo(waits: float = 0.8) -> Demo:
    """Return a race of one lane that is input-bound, with prefetch and parallel calls off."""
    demo = Demo([LaneSpec("cpu")], knobs=COMMON)
    demo.waits = waits
    demo.go()
    demo.build("cpu", prefetch="off", parallel_calls="off", cache=False, graph=True)
    demo.race(8)
    return demo


def supposed(knob: str, value: object) -> Cause:
    return Cause("some", "", (), knob, value)


class TestAdvised:
    """What is proposed after some attempts; each attempt sets the knob of a cause, unless it says."""

    @pytest.fixture(autouse=True)
    def _race(self):
        self.demo = waiting_demo()
        self.first, self.second, *_ = self.proposed()

    def proposed(self, *attempts: Attempt, everything: bool = False, **state) -> tuple[Cause, ...]:
        if attempts:
            self.demo.session.set_experiment(TuneState("cpu", attempts=attempts, **state))
        snapshot = self.demo.session.snapshot()
        return advised(snapshot, snapshot.lanes[0], everything=everything).causes

    def attempt(self, cause: Cause, outcome: str, lane: str = "cpu", **more) -> Attempt:
        return Attempt(lane, {cause.knob: "before"}, {cause.knob: cause.value}, outcome=outcome, **more)

    OTHER = Attempt("cpu", {"hue": 1}, {"hue": 2}, outcome=KEPT)

    def test_what_was_tried_is_not_proposed_again_until_something_else_was_kept(self):
        for outcome in (REVERTED, REFUSED, UNDONE, STOPPED):
            vain = self.attempt(self.first, outcome)
            assert self.proposed(vain)[0] == self.second
        assert self.proposed(vain, self.OTHER)[0] == self.first
        assert self.proposed(self.OTHER, vain)[0] == self.second
        assert self.proposed(self.attempt(self.first, REVERTED, lane="gpu:0"))[0] == self.first, "another lane"

    def test_what_was_kept_and_is_no_longer_in_effect_is_proposed_again_but_not_in_the_same_series(self):
        kept = [self.attempt(one, KEPT) for one in (self.first, self.second)]
        assert self.first not in self.proposed(*kept)
        assert self.proposed(kept[0], over=True)[0] == self.first
        assert self.first in self.proposed(*kept, first=2), "another series"

    def test_what_clearly_costs_is_not_tried_again_in_the_same_series(self):
        unsure, costs = (
            self.attempt(self.first, REVERTED, gain=gain)
            for gain in (Estimate(0.9, 0.85, 0.951, 6), Estimate(0.9, 0.85, 0.949, 6))
        )
        assert self.first in self.proposed(unsure, self.OTHER)
        assert self.first not in self.proposed(costs, self.OTHER)
        assert self.first in self.proposed(costs, self.OTHER, first=2), "another series"

    def test_a_series_goes_on_with_what_else_takes_time(self):
        self.demo = waiting_demo(0.6)
        shares = shares_of(self.demo.session.snapshot().lanes[0])
        assert shares is not None and shares.input_pct == 60 and known(shares.dispatch_pct) > 10
        against, further = self.proposed(), self.proposed(everything=True)
        assert further[: len(against)] == against
        assert "batch_size" in {one.knob for one in further[len(against) :]}
        assert self.proposed(*(self.attempt(one, REVERTED) for one in further), everything=True) == ()

    def test_an_attempt_knows_whether_it_restarts_the_lane(self):
        assert not plan_attempt(
            self.demo.session.snapshot(), "cpu", supposed("prefetch", "auto"), "input"
        ).restarts
        snapshot = Demo([LaneSpec("cpu")], knobs=(VARIANT,)).go().session.snapshot()
        assert plan_attempt(snapshot, "cpu", supposed("variant", "b"), "input").restarts


class TestSeries:
    def test_begins_after_what_was_tried_before(self):
        demo = waiting_demo()
        demo.session.set_experiment(TuneState("cpu", attempts=(Attempt("cpu", OFF, AUTO),), over=True))
        assert plan_tuning(demo.session.snapshot(), "cpu", everything=True).first == 1

    def test_undo_finds_the_last_change_that_is_in_effect(self):
        demo = waiting_demo()
        kept = Attempt("cpu", {"cache": True}, {"cache": False}, outcome=KEPT)
        demo.session.set_experiment(TuneState("cpu"))
        demo.session.set_experiment(TuneState("cpu", attempts=(kept,), over=True))
        changes, state = find_change(demo.session.snapshot())
        assert changes == (KnobChange("cpu", "cache", True, False),)
        assert [one.outcome for one in state.attempts] == [UNDONE]

    def test_undo_takes_back_the_changes_of_keys_one_after_the_other(self):
        demo = racing_demo()
        demo.clock.ahead(1)
        demo.apply("cpu", "batch_size", 40)
        snapshot = demo.session.snapshot
        assert find_change(snapshot()) == ((KnobChange("cpu", "batch_size", 20, 40),), None)
        demo.clock.ahead(1)
        demo.apply("cpu", "batch_size", 20)
        both = (KnobChange("cpu", "batch_size", 10, 20), KnobChange("gpu:0", "batch_size", 10, 20))
        assert find_change(snapshot()) == (both, None), "of a key that acted on both lanes"
        demo.ask("gpu:0", "prefetch", 2)
        with pytest.raises(ExperimentError, match="not in effect yet"):
            find_change(snapshot())

    def test_without_any_there_is_nothing_to_undo(self):
        with pytest.raises(ExperimentError, match="nothing to undo"):
            find_change(Demo().session.snapshot())

    def test_the_best_are_the_settings_that_were_kept_with_their_code(self):
        cache = Attempt("cpu", {"cache": False}, {"cache": True}, outcome=KEPT, gain=Estimate(2, 1.9, 2.1, 6))
        vain = Attempt("cpu", OFF, AUTO, outcome=REVERTED)
        best = best_of(TuneState("cpu", attempts=(cache, vain)))
        assert (best.settings, best.speed_up) == ({"cache": True}, cache.gain)
        assert ".cache()" in best.code[0]

    def test_several_changes_have_the_gain_that_was_measured_of_all_together(self):
        kept = tuple(
            Attempt("cpu", {knob: False}, {knob: True}, outcome=KEPT, gain=Estimate(2, 1.9, 2.1, 6))
            for knob in ("cache", "xla", "graph")
        )
        before, after = (dict.fromkeys(("cache", "xla", "graph"), value) for value in (False, True))
        total = Attempt("cpu", before, after, outcome=KEPT, gain=Estimate(3, 2.9, 3.1, 6))
        assert best_of(TuneState("cpu", attempts=kept, total=total)).speed_up.value == 3
        assert best_of(TuneState("cpu", attempts=kept)).speed_up is None
        undone = (replace(kept[0], outcome=UNDONE), *kept[1:])
        assert best_of(TuneState("cpu", attempts=undone, total=total)).speed_up is None, "it was measured with it"
        stopped = replace(total, outcome=STOPPED)
        assert best_of(TuneState("cpu", attempts=kept, total=stopped)).speed_up is None, "it is not decided"


class TestWords:
    @pytest.mark.parametrize(
        ("estimate", "text"),
        [
            (Estimate(1.38, 1.31, 1.44, 6), "+38 % (CI +31 to +44)"),
            (Estimate(1.004, 0.998, 1.01, 6), "+0.4 % (CI -0.2 to +1.0)"),
            (Estimate(0.5, 0.4, 0.6, 6), "-50 % (CI -60 to -40)"),
            (Estimate(5.11, 4.9, 5.32, 6), "5.1× (CI 4.9 to 5.3)"),
            (Estimate(0.055, 0.05, 0.0625, 6), "18× slower (CI 16 to 20)"),
        ],
    )
    def test_a_gain(self, estimate, text):
        assert gain_text(estimate) == text

    def test_news_tells_what_is_tried_and_then_what_came_of_it_while_that_is_in_effect(self):
        demo = waiting_demo()
        attempt = plan_attempt(demo.session.snapshot(), "cpu", supposed("cache", True), "input")
        assert news(demo.session.snapshot()) == ""
        demo.session.set_experiment(TuneState("cpu"))
        assert news(demo.session.snapshot()) == "measuring what limits it"
        demo.session.set_experiment(TuneState("cpu", attempts=(attempt,)))
        assert news(demo.session.snapshot()) == "trying cache on: 0 of 6 pairs"
        kept = Attempt("cpu", attempt.before, attempt.after, outcome=KEPT, gain=Estimate(1.38, 1.31, 1.44, 6))
        demo.session.set_experiment(TuneState("cpu", attempts=(kept,), over=True))
        assert news(demo.session.snapshot()) == ""
        demo.apply("cpu", "cache", True)
        assert news(demo.session.snapshot()) == "cache on: +38 % (CI +31 to +44), kept"
        demo.apply("cpu", "cache", False)
        assert news(demo.session.snapshot()) == ""


def test_a_change_without_a_clear_gain_is_said_to_be_reverted():
    lane = racing_demo().session.snapshot().lanes[0]
    vain = Attempt("cpu", OFF, AUTO, outcome=REVERTED, gain=Estimate(1.0, 0.98, 1.02, 18))
    slower = replace(vain, gain=Estimate(0.8, 0.78, 0.82, 6))
    assert attempt_text(lane, vain).endswith("no clear gain, reverted")
    assert attempt_text(lane, slower).endswith("-20 % (CI -22 to -18), reverted"), "a clear loss"


GAIN = Estimate(1.38, 1.31, 1.44, 6)
GAINED = "+38 % (CI +31 to +44) in all"
UNKNOWN = "no change was measured to the end"


@pytest.mark.parametrize(
    ("outcomes", "ended", "answer"),
    [
        ((), "", "nothing was tried"),
        ((), "stopped", "nothing was tried"),
        (((STOPPED, None),), "stopped", UNKNOWN),
        (((STOPPED, GAIN),), "stopped", UNKNOWN),
        (((REFUSED, None),), "", UNKNOWN),
        (((REVERTED, None),), "", UNKNOWN),
        (((REVERTED, GAIN),), "", "best: the settings it began with"),
        (((REVERTED, GAIN), (STOPPED, None)), "stopped", "best of what was tried: the settings it began with"),
        (((KEPT, GAIN), (STOPPED, None)), "stopped", f"best of what was tried: knob0=auto: {GAINED}"),
        (((UNDONE, GAIN),), "", "the settings it began with; knob0 auto was undone"),
        (((KEPT, GAIN), (UNDONE, GAIN)), "", f"best: knob0=auto: {GAINED}; knob1 auto was undone"),
        (((STOPPED, None),), None, "no change is measured yet"),
        (((REVERTED, GAIN), ("", None)), None, "best so far: the settings it began with"),
    ],
)
def test_an_answer_is_of_this_series_and_only_of_what_was_measured_to_the_end(outcomes, ended, answer):
    earlier = Attempt("gpu:0", OFF, AUTO, outcome=KEPT, gain=GAIN)
    attempts = [
        Attempt("cpu", {f"knob{place}": "off"}, {f"knob{place}": "auto"}, outcome=outcome, gain=gain)
        for place, (outcome, gain) in enumerate(outcomes)
    ]
    over = ended is not None
    for before in ((), (earlier,)):
        state = TuneState("cpu", True, (*before, *attempts), len(before), over=over, ended=ended or "")
        assert answer_text(state) == answer
        demo = waiting_demo()
        demo.session.set_experiment(state)
        known = bool(outcomes) and answer != UNKNOWN and not answer.startswith("no change")
        assert analyse(demo.session.snapshot()).answered is (known or (over and not outcomes and not ended))

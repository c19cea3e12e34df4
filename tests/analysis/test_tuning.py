"""Tuning: proposals, decisions and their texts, on lanes whose speeds are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.tunings import tried as attempt_of
from support.tunings import tuning
from support.ui import Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.causes import Cause
from tfmon.analysis.tuning_trials import (
    advised,
    answer_text,
    attempt_text,
    best_of,
    changed_work,
    decide,
    find_change,
    gain_of,
    news,
    outcome_text,
    plan_attempt,
    plan_tuning,
)
from tfmon.errors import ExperimentError
from tfmon.model.knobs import COMMON
from tfmon.model.lane_events import FIT, SEES_BATCHES
from tfmon.model.lane_state import LaneState, ScriptFacts
from tfmon.model.periods import KnobChange
from tfmon.model.readings import Estimate
from tfmon.model.series import KEPT, REFUSED, REVERTED, STOPPED, UNDONE, Attempt, Pair
from tfmon.model.spec import LaneSpec

OFF, AUTO = {"prefetch": "off"}, {"prefetch": "auto"}


def tried(pairs: int, factor: float, scatter: float = 0.0, *, restarts: bool = False, seed: int = 1) -> Attempt:
    """Return an attempt whose lane trained two slices with prefetch off, two with auto, and so on."""
    random = np.random.default_rng(seed)
    logs: dict[bool, list[float]] = {False: [], True: []}
    for block in range(-(-pairs // 2) * 2):
        changed = bool(block % 2)
        for _ in range(min(2, pairs - block // 2 * 2)):
            logs[changed].append(changed * math.log(factor) + random.normal(0, scatter))
    measured = (Pair(new - old, False, 1) for old, new in zip(*logs.values(), strict=True))
    return attempt_of("cpu", OFF, AUTO, change={"restarts": restarts}, pairs=tuple(measured))


def test_two_processes_give_a_wider_interval():
    assert gain_of(tried(6, 1.5)).value == pytest.approx(1.5)
    assert gain_of(tried(6, 1.5, restarts=True)).half_width > gain_of(tried(6, 1.5)).half_width + 0.01


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
        assert decide(tried(pairs, factor, scatter)) == outcome

    def test_a_change_of_the_scripts_work_is_listed_with_what_it_changes_and_never_kept(self):
        lane, attempt = LaneState(LaneSpec("cpu", name="cpu")), tried(18, 4.6, 0.01)
        assert (decide(attempt), changed_work(lane, "batch_size")) == (KEPT, "")
        script = replace(lane, script=ScriptFacts("python train.py", step_traits=(FIT,)))
        assert changed_work(script, "batch_size") == "an epoch has fewer updates"
        assert changed_work(script, "prefetch") == changed_work(script, "steps_per_execution") == ""
        sees = replace(script, script=replace(script.script, step_traits=(FIT, SEES_BATCHES)))
        attempt = replace(attempt, change=replace(attempt.change, work=changed_work(sees, "steps_per_execution")))
        assert decide(attempt) == REVERTED
        ended = replace(attempt, outcome=REVERTED, gain=gain_of(attempt))
        reason = "not kept: callbacks of batches are called once for all steps of a call"
        assert outcome_text(ended) == reason and attempt_text(ended).endswith(reason)
        answer = answer_text(tuning("cpu", True, (ended,), over=True))
        assert answer.startswith("best: the settings it began with; prefetch auto: 4.6") and answer.endswith(
            reason
        )


def waiting_demo(waits: float = 0.8) -> Demo:
    """Return a race of one lane that is input-bound, with prefetch and parallel calls off."""
    demo = Demo([LaneSpec("cpu")], knobs=COMMON)
    demo.waits = waits
    demo.go()
    demo.build("cpu", prefetch="off", parallel_calls="off", cache=False, graph=True)
    demo.race(8)
    return demo


def test_what_was_kept_and_is_no_longer_in_effect_is_proposed_again_but_not_in_the_same_series():
    demo = waiting_demo()

    def proposed(*attempts: Attempt, **state) -> tuple[Cause, ...]:
        if attempts:
            demo.session.advance_series(tuning("cpu", attempts=attempts, **state))
        snapshot = demo.session.snapshot()
        return advised(snapshot, snapshot.lanes[0]).causes

    first, second, *_ = proposed()
    kept = [
        attempt_of("cpu", {one.knob: "before"}, {one.knob: one.value}, outcome=KEPT) for one in (first, second)
    ]
    assert first not in proposed(*kept)
    assert proposed(kept[0], over=True)[0] == first
    assert first in proposed(*kept, first=2), "another series"


class TestSeries:
    def test_begins_after_what_was_tried_before(self):
        demo = waiting_demo()
        demo.session.advance_series(tuning("cpu", attempts=(attempt_of("cpu", OFF, AUTO),), over=True))
        assert plan_tuning(demo.session.snapshot(), "cpu", everything=True).first == 1

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

    def test_several_changes_have_the_gain_that_was_measured_of_all_together(self):
        kept = tuple(
            attempt_of("cpu", {knob: False}, {knob: True}, outcome=KEPT, gain=Estimate(2, 1.9, 2.1, 6))
            for knob in ("cache", "xla", "graph")
        )
        before, after = (dict.fromkeys(("cache", "xla", "graph"), value) for value in (False, True))
        total = attempt_of("cpu", before, after, outcome=KEPT, gain=Estimate(3, 2.9, 3.1, 6))
        assert best_of(tuning("cpu", attempts=kept, total=total))[1].value == 3
        assert best_of(tuning("cpu", attempts=kept))[1] is None
        undone = (replace(kept[0], outcome=UNDONE), *kept[1:])
        assert best_of(tuning("cpu", attempts=undone, total=total))[1] is None, "it was measured with it"
        stopped = replace(total, outcome=STOPPED)
        assert best_of(tuning("cpu", attempts=kept, total=stopped))[1] is None, "it is not decided"


def test_news_tells_what_is_tried_and_then_what_came_of_it_while_that_is_in_effect():
    demo = waiting_demo()
    attempt = plan_attempt(demo.session.snapshot(), "cpu", Cause("some", "", (), "cache", True), "input")
    assert news(demo.session.snapshot()) == ""
    demo.session.advance_series(tuning("cpu"))
    assert news(demo.session.snapshot()) == "measuring what limits it"
    demo.session.advance_series(tuning("cpu", attempts=(attempt,)))
    assert news(demo.session.snapshot()) == "trying cache on: 0 of 6 pairs"
    kept = attempt_of(
        "cpu", attempt.change.before, attempt.settings_after, outcome=KEPT, gain=Estimate(1.38, 1.31, 1.44, 6)
    )
    demo.session.advance_series(tuning("cpu", attempts=(kept,), over=True))
    assert news(demo.session.snapshot()) == ""
    demo.apply("cpu", "cache", True)
    assert news(demo.session.snapshot()) == "cache on: +38 % (CI +31 to +44), kept"
    demo.apply("cpu", "cache", False)
    assert news(demo.session.snapshot()) == ""


def test_a_change_without_a_clear_gain_is_said_to_be_reverted():
    vain = attempt_of("cpu", OFF, AUTO, outcome=REVERTED, gain=Estimate(1.0, 0.98, 1.02, 18))
    slower = replace(vain, gain=Estimate(0.8, 0.78, 0.82, 6))
    assert attempt_text(vain).endswith("no clear gain, reverted")
    assert attempt_text(slower).endswith("-20 % (CI -22 to -18), reverted"), "a clear loss"


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
    earlier = attempt_of("gpu:0", OFF, AUTO, outcome=KEPT, gain=GAIN)
    attempts = [
        attempt_of("cpu", {f"knob{place}": "off"}, {f"knob{place}": "auto"}, outcome=outcome, gain=gain)
        for place, (outcome, gain) in enumerate(outcomes)
    ]
    over = ended is not None
    for before in ((), (earlier,)):
        state = tuning("cpu", True, (*before, *attempts), len(before), over=over, ended=ended or "")
        assert answer_text(state) == answer
        demo = waiting_demo()
        demo.session.advance_series(state)
        known = bool(outcomes) and answer != UNKNOWN and not answer.startswith("no change")
        assert analyse(demo.session.snapshot()).answered is (known or (over and not outcomes and not ended))

"""The answers about a change, from lanes with known figures."""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.verdicts import ended, lane, noisy

from tfmon.analysis.analysis import analyse
from tfmon.analysis.trial_answer import (
    KEEP,
    NO_TRIAL,
    NOT_YET,
    REFUSE,
    compare_training,
    judge_trial,
    loss_difference,
)
from tfmon.model.account import BEFORE, STEPS, TimePart
from tfmon.model.lane_events import Accounted
from tfmon.model.lane_state import DONE, FAILED, LaneState, LossCurve, Totals, Trouble
from tfmon.model.spec import LaneSpec

SEEDED, UNSEEDED = {"seed": "7"}, {"seed": "none"}


def losses(seed: int, *, slower: float = 1.0, offset: float = 0.0, every: int = 1) -> LossCurve:
    draw, curve = random.Random(seed), LossCurve()
    for step in range(1, 201, every):
        curve = curve.with_loss(step, 2 * math.exp(-step / 60 / slower) + 0.3 + offset + draw.gauss(0, 0.03))
    return curve


def trained(
    name: str, speed: float, curve: LossCurve | None = None, *, steps=200, examples=6_400, seed=SEEDED
) -> LaneState:
    one = lane(name, noisy(speed, number=30, seed=len(name)))
    curve = losses(1) if curve is None else curve
    return replace(
        one,
        spec=LaneSpec("cpu", id=name, name=name, label=name),
        script=replace(one.script, command="python train.py", resolved=seed),
        totals=Totals(steps=steps, examples=examples, losses=curve),
    )


def judged(first: LaneState, second: LaneState, lengths=None, again=((), ())):
    return judge_trial(analyse(ended(first, second)), lengths or {}, "fix.patch", again=again)


def took(seconds: float, curve: LossCurve | None = None, *, seed=SEEDED, name="a") -> LaneState:
    """A lane that ended by itself after a time, of which half is before the first step."""
    one = trained(name, 100, curve, seed=seed)
    parts = tuple(TimePart(group, "", time_ns=round(seconds / 2 * 1e9)) for group in (BEFORE, STEPS))
    account = Accounted(lane=name, at_ns=round(seconds * 1e9), parts=parts, last=True)
    return replace(one, phase=DONE, account=account, process=replace(one.process, started_ns=0))


def runs(first: Sequence[float], second: Sequence[float]):
    return [took(one) for one in first], [took(one) for one in second]


A = trained("a", 100)


@pytest.mark.parametrize(("speed", "why"), [(100, "it changes nothing: the same speed"), (60, "slower: ")])
def test_a_change_that_is_not_faster_is_refused(speed, why):
    trial = judged(A, trained("bb", speed, losses(2)))
    assert (trial.answer, trial.exit_code) == (REFUSE, 4)
    assert why in trial.text


@pytest.mark.parametrize(
    ("changed", "lengths", "why"),
    [
        ({"steps": 150, "examples": 4_800}, {}, "150 instead of 200 steps"),
        ({"steps": 198, "examples": 6_336}, {}, ""),
        ({"steps": 400}, {}, "16 instead of 32 examples per step"),
        ({"examples": 3_200}, {}, "16 instead of 32 examples per step"),
        ({}, {"a": (2, 100), "bb": (2, 90)}, "90 instead of 100 steps per epoch"),
        ({}, {"a": (2, 100), "bb": (2, 99)}, ""),
        ({}, {"a": (2, 100), "bb": (1, 100)}, "1 instead of 2 epochs"),
        ({"curve": losses(2, slower=1.5)}, {}, "losses at the same step differ by"),
        ({"curve": losses(2, offset=0.3)}, {}, "losses at the same step differ by"),
        ({"curve": losses(2).with_loss(201, math.nan)}, {}, "its loss is no longer a number"),
        ({"curve": losses(2, every=9)}, {}, ""),
    ],
)
def test_a_faster_change_is_kept_if_it_trains_the_same(changed, lengths, why):
    trial = judged(A, trained("bb", 200, **{"curve": losses(2), **changed}), lengths)
    assert (trial.answer, trial.same_training, trial.unclear) == (REFUSE if why else KEEP, not why, False), (
        trial.text
    )
    said = f"refuse: it trains something else: {why}" if why else "keep: its steps are 2.0× as fast (95 % CI "
    assert (
        trial.text.startswith(said)
        and "its steps are 2.0× as fast" in trial.text
        and trial.steps_factor.low < 2 < trial.steps_factor.high
    )


@pytest.mark.parametrize(("every", "half", "same"), [(66, 2, False), (75, 2, False), (75, 1, True)])
def test_half_the_updates_are_seen_in_few_losses_of_a_fast_run(every, half, same):
    def course(every: int, half: int = 1) -> LossCurve:
        curve = LossCurve()
        for step in range(every, 301, every):
            curve = curve.with_loss(step, 2 * math.exp(-step / half / 80) + 0.02 * math.sin(7 * step / half))
        return curve

    first, second = trained("a", 100, course(20)), trained("bb", 200, course(every, half))
    assert judged(first, second).same_training is same
    for steps in (20, every):  # each run as it is reports losses of the same steps, so they differ by 0
        first = trained("a", 100, course(steps))
        assert judged(first, second, again=([first], [])).same_training is same


def test_without_a_seed_further_runs_tell_what_seeds_explain():
    first, second = (trained(name, speed, seed=UNSEEDED) for name, speed in (("a", 100), ("bb", 200)))
    second = replace(second, totals=replace(second.totals, losses=losses(2, offset=0.1)))
    trial = judged(first, second)
    assert (trial.answer, trial.unclear) == (NOT_YET, True)
    assert "may train something else" in trial.text
    for apart, answer in ((0.08, KEEP), (0.002, REFUSE)):
        trial = judged(first, second, again=([took(9, losses(3, offset=apart), seed=UNSEEDED)], []))
        assert trial.answer == answer, trial.text
        assert "2 runs of the script as it is differ by" in trial.text


@pytest.mark.parametrize(("offset", "answer"), [(0.0, KEEP), (0.2, REFUSE)])
def test_one_loss_of_each_run_is_compared_with_what_runs_differ_by(offset, answer):
    def one(name: str, speed: float, loss: float) -> LaneState:
        return trained(name, speed, LossCurve().with_loss(200, loss), seed=UNSEEDED)

    first, second = one("a", 100, 0.50), one("bb", 200, 0.52 + offset)
    assert judged(first, second).answer == NOT_YET
    again = [one("a", 100, loss) for loss in (0.53, 0.49, 0.51)], [one("bb", 200, 0.51 + offset)]
    assert judged(first, second, again=again).answer == answer


def test_small_differences_with_equal_seeds_are_not_refused():
    training = compare_training(A, trained("bb", 200, losses(2, offset=0.06)), {})
    assert (training.same, training.differs) == (None, True)


def test_the_mean_of_an_epoch_that_is_reset_is_no_difference():
    curve, sparse = LossCurve(), LossCurve()
    for step in range(1, 241):
        loss = 3 / (step // 60 + 1) + (step % 60) / 20
        curve = curve.with_loss(step, loss)
        sparse = sparse.with_loss(step, loss) if step % 7 == 0 else sparse
    difference = loss_difference(trained("a", 1, curve), trained("bb", 1, sparse))
    assert difference is not None
    assert difference.size == 0


@pytest.mark.parametrize(
    ("before", "after", "answer", "why"),
    [
        (losses(1), LossCurve().with_loss(900, 2.0), NOT_YET, "no losses at the same steps to compare"),
        (LossCurve(), LossCurve(), KEEP, "reports no loss, so only steps and examples are compared"),
    ],
)
def test_a_change_whose_losses_cannot_be_compared_is_kept_only_if_there_are_none(before, after, answer, why):
    trial = judged(trained("a", 100, before), trained("bb", 200, after))
    assert (trial.answer, trial.same_training) == (answer, None), trial.text
    assert why in trial.text


@pytest.mark.parametrize("which", [0, 1])
def test_a_run_that_fails_is_one_line(which):
    snapshot = ended(A, trained("bb", 200))
    lanes, trouble = [*snapshot.lanes], Trouble("ValueError: no (train.py:3)")
    totals = replace(lanes[which].totals, steps=20)
    lanes[which] = replace(lanes[which], phase=FAILED, trouble=trouble, totals=totals)
    trial = judge_trial(analyse(replace(snapshot, lanes=tuple(lanes))), {}, "fix.patch")
    assert trial.answer == (REFUSE if which else NO_TRIAL)
    assert trial.exit_code == (4 if which else 1)
    assert "fails after 20 steps" in trial.text
    assert "ValueError: no (train.py:3)" in trial.text


@pytest.mark.parametrize(
    ("first", "second", "answer", "why"),
    [
        ((10, 10.4, 9.8), (5, 5.1, 5.1), KEEP, "its whole run is "),
        ((10, 10.4, 9.8), (10, 10.1, 10.2), REFUSE, "it changes nothing: "),
        ((10, 14, 9), (10, 8, 11), NOT_YET, "would settle it"),
        ((5, 5.1, 5.1), (10, 10.4, 9.8), REFUSE, "slower: "),
    ],
)
def test_whole_runs_are_compared_in_pairs(first, second, answer, why):
    trial = judged(took(10), took(10, name="bb"), again=runs(first, second))
    assert trial.answer == answer, trial.text
    assert why in trial.text
    factor, logs = trial.run_factor, [math.log(a / b) for a, b in zip(first, second, strict=True)]
    assert factor is not None
    half = 4.3027 * statistics.stdev(logs) / math.sqrt(3)  # Student's t with 2 degrees of freedom
    wanted = [math.exp(statistics.fmean(logs) + side * half) for side in (-1, 0, 1)]
    assert [factor.low, factor.value, factor.high] == pytest.approx(wanted, rel=1e-4)
    assert trial.run_s == pytest.approx((statistics.fmean(first), statistics.fmean(second)))


@pytest.mark.parametrize(("speed", "seconds"), [(60, 5), (200, 20)])
def test_steps_do_not_decide_against_a_whole_run(speed, seconds):
    second = replace(took(seconds, name="bb"), measurements=trained("bb", speed).measurements)
    trial = judged(took(10), second)
    assert (trial.answer, trial.run_factor) == (NOT_YET, None)
    assert f"its whole run, once, took {seconds}.0 s instead of 10.0 s; more runs of each side would" in trial.text
    disturbed = runs((10, 30), (seconds, seconds * 1.5))
    assert judged(took(10), second, again=disturbed).answer == NOT_YET
    assert judged(took(10), second, again=runs((10, 10.1, 9.9), (seconds, seconds, seconds))).answer != NOT_YET

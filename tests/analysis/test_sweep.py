"""The combinations of a sweep, and their results."""

import math
import random
from dataclasses import replace

import pytest
from support.sweeps import planned

from tfmon.analysis.series_tables import answer, curves_of, scaling_of
from tfmon.analysis.sweep_ranking import FAILED, MEASURED, OPEN, PAIRS_OF_A_VISIT, combine, parse_over, rank
from tfmon.model.knobs import BATCH_SIZE, MIXED_PRECISION, PREFETCH, Knob, KnobError
from tfmon.model.series import (
    MOST_DEATHS,
    Pair,
    PairMeasured,
    VisitBegan,
    VisitEnded,
    kind_of,
    learns_differently,
    state_after,
)
from tfmon.model.spec import LaneSpec
from tfmon.reports.series_report import sweep_to_json
from tfmon.series.sweep import SweepPolicy


def test_the_knobs_of_a_script_are_guessed():
    assert parse_over(None, ["lr=1e-3,1e-4", "depth=2..8", "warm=on,off", "cpus=2,1"]) == {
        "lr": (1e-3, 1e-4), "depth": (2, 4, 8), "warm": (True, False), "cpus": (2, 1)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no knob is swept"),
        (["batch_size"], "is not KNOB=VALUE,VALUE"),
        (["hue=1,2"], "there is no knob 'hue'"),
        (["batch_size=32"], "one value; a sweep needs two"),
        (["batch_size=32,32"], "one value; a sweep needs two"),
        (["batch_size=32,,64"], "an empty value"),
        (["batch_size=32,many"], "batch_size=many is not possible"),
        (["batch_size=low..high"], "not a range of numbers"),
        (["batch_size=64..16"], "a range goes up"),
        (["batch_size=5..7"], "fewer than two powers of two"),
        (["mixed_precision=1..8"], "takes off, bfloat16 or float16"),
        (["rate=0.001..0.1"], "from 1 on; or list values"),
        (["batch_size=8,16", "batch_size=32,64"], "given twice"),
        (["gpus=0,1"], "gpus takes a whole number from 1 to 64"),
        (["cpus=1,1.5"], "cpus=1.5 is not possible"),
        (["gpus=1,2", "cpus=1,2"], "gpus and cpus are on different devices"),
    ],
)
def test_what_cannot_be_swept_is_told(words, said):
    rate = Knob("rate", default=0.1, help="", low=0.0, high=1.0)
    with pytest.raises(KnobError) as caught:
        parse_over((BATCH_SIZE, MIXED_PRECISION, PREFETCH, rate), words)
    assert said in str(caught.value)


def test_too_many_are_refused_before_they_are_made():
    values = tuple(range(1, 101))
    plan = replace(planned().plan, over={"a": values, "b": values, "c": values})
    with pytest.raises(KnobError, match="1 000 000 combinations are too many; 2000 is the most"):
        combine(plan, {})


def measured(state, number, ratio, pairs=16, *, noise=0.01, visits=1):
    rng = random.Random(number)
    for _ in range(visits):
        visit = state.attempts[number].visits + 1
        state = state_after(state, VisitBegan(number, "cpu"))
        for place in range(pairs):
            log = math.log(ratio) + rng.gauss(0, noise)
            state = state_after(state, PairMeasured(number, Pair(log, bool(place % 2), visit), 1.0))
    return replace(state, running={})


BATCHES = {"batch_size": (16, 32, 64, 128, 256)}


def test_one_that_is_not_settled_is_the_best_if_it_certainly_is():
    state = measured(planned(BATCHES, until_ci=0.2), 3, 1.5)
    state = replace(state, plan=replace(state.plan, until_ci=0.05))
    assert rank(state).rows[3].outcome == MEASURED
    for ratio, best in ((1.52, 128), (3.0, 256)):
        found = rank(measured(state, 4, ratio, noise=0.1))
        assert found.rows[4].outcome == OPEN and found.ranked[0].attempt.settings == {"batch_size": best}
        assert answer(found)[0].startswith(f"best so far: batch_size={best}, ")


def test_what_cannot_be_used_is_neither_the_best_nor_stops_others_early():
    state = measured(measured(planned(BATCHES, until_ci=0.001), 3, 1.2), 4, 3.0)
    for _ in range(MOST_DEATHS):
        state = state_after(state, VisitEnded(4, died="SIGKILL"))
    found = rank(state)
    assert (found.rows[4].outcome, found.rows[3].outcome) == (FAILED, OPEN)
    assert answer(found)[0].startswith("best so far: batch_size=128, ")
    assert "better" not in answer(rank(replace(state, over=True)))[0].replace(
        "2 without a ratio may be better", ""
    )


def test_no_best_is_none_in_json():
    for ratio in (0.8, 1.01):
        found = rank(measured(planned({"batch_size": (16, 64)}), 1, ratio))
        assert sweep_to_json(found)["best"] == {"cpu": None}
    assert sweep_to_json(rank(planned(BATCHES)))["best"] == {"cpu": None}
    found = rank(measured(planned({"batch_size": (16, 32)}), 0, 0.8))
    assert sweep_to_json(found)["best"] == {"cpu": {"batch_size": 32}}
    assert answer(found) == ["best: the baseline batch_size=32"]


def test_what_has_no_ratio_at_the_end_says_why_and_that_it_may_be_better():
    state = measured(planned({"batch_size": (16, 64)}, each_s=2), 0, 1.5)
    state = replace(measured(state, 1, 9.0, pairs=2), over=True)
    found = rank(state)
    assert (found.rows[1].reason, found.rows[0].reason) == ("2 pairs are too few for a ratio", "")
    assert "; 1 without a ratio may be better; it trains" in answer(found)[0]
    none = rank(replace(planned({"batch_size": (16, 64)}), over=True))
    assert (answer(none), none.answered, found.answered) == (["no combination has a ratio"], False, True)


@pytest.mark.parametrize("seed", range(3))
def test_the_time_left_is_never_less_than_it_takes(seed):
    """Visits start for 6 s and have a pair each second; the pairs of some combinations scatter ten times more."""
    rng, passed_s, told = random.Random(seed), 0.0, []
    state = planned({"batch_size": (16, 32, 64, 128)})
    found = rank(state)
    while (attempt := SweepPolicy().next(state, "cpu")) is not None:
        number, began_s, passed_s = attempt.number, passed_s, passed_s + 6
        state = state_after(state, VisitBegan(number, "cpu"))
        for place in range(PAIRS_OF_A_VISIT):
            log = 0.1 * number + rng.gauss(0, 0.01 if number == 2 else 0.1)
            passed_s += 1
            state = state_after(
                state, PairMeasured(number, Pair(log, bool(place % 2), state.attempts[number].visits), 1.0)
            )
            found = rank(state)
            told.append((passed_s, found.left_s))
            if found.rows[number].settled:
                break
        state = state_after(state, VisitEnded(number))
        state = replace(state, visits_s=(*state.visits_s, passed_s - began_s))
        found = rank(state)
    known = [(at_s, left_s) for at_s, left_s in told if left_s is not None]
    assert len(known) > 50 and all(left_s >= passed_s - at_s - 1 for at_s, left_s in known), known


@pytest.mark.parametrize(
    ("device", "kind"),
    [("cpu", "cpu"), ("gpu:0", "gpu"), ("gpu:11", "gpu"), ("gpu:0+3", "gpu:0+3"), ("2xcpu", "2xcpu")],
)
def test_places_of_one_kind_share_the_combinations(device, kind):
    assert kind_of(LaneSpec(device)) == kind


@pytest.mark.parametrize(
    ("settings", "scope", "learns"),
    [
        ({"batch_size": 64, "prefetch": "off"}, "global", ("batch_size",)),
        ({"batch_size": 32, "mixed_precision": "off"}, "global", ()),
        ({"gpus": 4}, "global", ()),
        ({"gpus": 4, "batch_size": 64}, "global", ("batch_size",)),
        ({"gpus": 4}, "per-replica", ("batch_size",)),
        ({"gpus": 4, "batch_size": 8}, "per-replica", ()),
    ],
)
def test_what_changes_learning_is_told_and_more_devices_do_only_with_a_batch_of_their_own(settings, scope, learns):
    before = {"batch_size": 32, "mixed_precision": "off", "batch_scope": scope, "gpus": 1}
    assert learns_differently(settings, before) == learns


def test_a_sweep_over_devices_says_how_far_it_is_from_linear_and_measures_every_point():
    state = planned({"gpus": (1, 2, 4)}, ("gpu",), baseline={"gpus": 1, "batch_size": 32})
    state = measured(measured(state, 1, 1.71), 2, 2.6)
    found = rank(state)
    assert [(one.devices, one.over, one.kind) for one in scaling_of(found)] == [(2, 1, "gpu"), (4, 1, "gpu")]
    assert [one.of_linear for one in scaling_of(found)] == pytest.approx([0.855, 0.65], abs=0.01)
    best, two, four = answer(found)
    assert best.startswith("best so far: gpus=4, 2.6")
    assert two.startswith("2 GPUs are 1.7") and "% of linear; 95 % CI 1." in two
    assert four.startswith("4 GPUs are 2.6")
    (curve,) = curves_of(found)
    assert (curve.knob, curve.values) == ("gpus", (1, 2, 4))
    both = planned({"gpus": (1, 2), "batch_size": (32, 64)}, ("gpu",), baseline={"gpus": 1, "batch_size": 32})
    assert scaling_of(rank(measured(both, 3, 2.0))) == []

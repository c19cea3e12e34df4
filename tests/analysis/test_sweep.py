"""Which combinations there are, and what the pairs of one come to."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from support.sweeps import planned

from tfmon.analysis.series_tables import answer, curves_of, scaling_of
from tfmon.analysis.sweep import (
    BEATEN,
    FAILED,
    LIMIT,
    MEASURED,
    OPEN,
    PAIRS_OF_A_VISIT,
    choices_of,
    combine,
    judge,
    next_due,
    parse_over,
    rank,
)
from tfmon.model.knobs import BATCH_SIZE, MIXED_PRECISION, PREFETCH, Knob, KnobError
from tfmon.model.series import (
    MOST_DEATHS,
    Figures,
    Pair,
    PairMeasured,
    VisitBegan,
    VisitEnded,
    after,
    kind_of,
    learns_differently,
)
from tfmon.model.spec import LaneSpec
from tfmon.reports.series_json import sweep_to_json

KNOBS = (BATCH_SIZE, MIXED_PRECISION, PREFETCH, Knob("rate", default=0.1, help="", low=0.0, high=1.0))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["batch_size=32,128"], {"batch_size": (32, 128)}),
        (["batch_size=16..100"], {"batch_size": (16, 32, 64)}),
        (["batch_size=8,8,16"], {"batch_size": (8, 16)}),
        (["gpus=1..8"], {"gpus": (1, 2, 4, 8)}),
        (["prefetch=off,2,auto", "rate=0.1,1e-3"], {"prefetch": ("off", 2, "auto"), "rate": (0.1, 0.001)}),
    ],
)
def test_values_are_read_by_the_knobs(words, values):
    assert parse_over(KNOBS, words) == values


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
    with pytest.raises(KnobError) as caught:
        parse_over(KNOBS, words)
    assert said in str(caught.value)


def test_too_many_are_refused_before_they_are_made():
    values = tuple(range(1, 101))
    plan = replace(planned().plan, over={"a": values, "b": values, "c": values})
    with pytest.raises(KnobError, match="1 000 000 combinations are too many; 2000 is the most"):
        combine(plan, {})


def measured(state, number, ratio, pairs=16, *, noise=0.01, visits=1):
    rng = random.Random(number)
    for _ in range(visits):
        visit = state.combinations[number].visits + 1
        state = after(state, VisitBegan(number, "cpu"))
        for place in range(pairs):
            log = math.log(ratio) + rng.gauss(0, noise)
            state = after(state, PairMeasured(number, Pair(log, bool(place % 2), visit, 1.0)))
    return replace(state, running={})


def test_an_interval_is_wider_the_more_combinations_one_is_chosen_from_and_narrower_by_fresh_processes():
    state = measured(planned(), 0, 1.5)
    one = state.combinations[0]
    alone, of_many = (judge(one, state.plan, choices, 1.0).ratio for choices in (1, 200))
    assert of_many.high - of_many.low > 1.5 * (alone.high - alone.low)
    often = measured(planned(), 0, 1.5, visits=4).combinations[0]
    assert judge(often, state.plan, 200, 1.0).ratio.half_width < of_many.half_width / 1.5


def test_what_others_tell_of_equal_processes_makes_intervals_narrower():
    state = planned(everything=True)
    for number in (0, 2, 4, 5, 6):
        state = measured(state, number, 1.2, visits=4)
    before = rank(state)
    state = measured(state, 7, 1.2, visits=1)
    alone = judge(state.combinations[7], state.plan, choices_of(state.combinations, "cpu"), 1.0)
    for found in (rank(state, before), rank(state)):
        assert found.rows[7].ratio.half_width < 0.8 * alone.ratio.half_width


def test_what_is_below_the_best_is_stopped_unless_all_are_wanted_and_time_limits_the_rest():
    state = measured(measured(planned(until_ci=0.001), 0, 1.1), 4, 1.8)
    rows = rank(state).rows
    assert (rows[0].outcome, rows[4].outcome, rows[5].outcome) == (BEATEN, OPEN, OPEN)
    assert next_due(rows, "cpu", ()) == 1 and next_due(rows, "cpu", (1,)) == 3
    state = replace(state, plan=replace(state.plan, everything=True))
    assert rank(state).rows[0].outcome == OPEN
    state = replace(state, plan=replace(state.plan, each_s=10.0))
    assert [rank(state).rows[number].outcome for number in (0, 4)] == [LIMIT, LIMIT]
    had_its_time = replace(state, plan=replace(state.plan, everything=False))
    assert rank(had_its_time).rows[0].outcome == LIMIT, "it was not stopped early, whatever is known later"
    state = replace(state, plan=replace(state.plan, until_ci=0.2))
    assert rank(state).rows[4].outcome == MEASURED


def test_below_the_baseline_nothing_can_win():
    state = planned({"batch_size": (16, 64)}, until_ci=0.001)
    state = measured(measured(state, 0, 0.7), 1, 0.8)
    found = rank(state)
    assert [row.outcome for row in found.rows] == [BEATEN, BEATEN]
    assert answer(found)[0].startswith(
        "nothing measured is faster than the baseline batch_size=32; the nearest is "
    )


def test_a_best_one_that_may_be_no_faster_than_the_baseline_says_so():
    state = measured(planned({"batch_size": (16, 64)}), 1, 1.01)
    said = answer(rank(state))[0]
    assert said.startswith("no best known yet: the nearest is batch_size=64, 1.0"), said
    assert said.endswith("; it trains differently (other batch size)")
    assert answer(rank(replace(state, over=True)))[0].startswith("no best found: ")
    assert answer(rank(measured(state, 0, 1.5)))[0].startswith("best: batch_size=16, ")


BATCHES = {"batch_size": (16, 32, 64, 128, 256)}


@pytest.mark.parametrize("each_s", [16.0, 60.0])
def test_one_that_is_not_settled_hides_no_other_while_it_is_measured_and_at_the_end(each_s):
    state = measured(measured(planned(BATCHES, each_s=each_s), 0, 0.5), 3, 6.4, noise=0.35)
    state = after(state, VisitBegan(4, "cpu"))
    for place, log in enumerate((*(3 * (3.8, 1.5, 1.3, 3.6)), 3.8, 1.5, 1.3)):
        state = after(state, PairMeasured(4, Pair(log, bool(place % 2), 1, 1.0)))
        found = rank(state)
        assert answer(found)[0].startswith("best so far: batch_size=128, "), answer(found)
    open_one = found.rows[4]
    assert open_one.ratio.value > 6.4 and open_one.ratio.low < 1, "it looks better, and may be worse than all"
    assert [settings["batch_size"] for settings in best_first(found)] == [128, 32, 16, 256, 64]
    found = rank(replace(state, running={}, over=True, ended="interrupted by SIGINT"))
    said = answer(found)[0]
    assert said.startswith("best: batch_size=128, "), said
    assert "; batch_size=256 is not settled and may be better; 1 without a ratio may be better; it trains" in said
    assert [row.state for row in found.rows if row.outcome == OPEN][-1] == "not settled", "nothing is waited for"


def best_first(found):
    return [row.combination.settings for row in found.ranked]


def test_one_that_is_not_settled_is_the_best_if_it_certainly_is():
    state = measured(planned(BATCHES, until_ci=0.2), 3, 1.5)
    state = replace(state, plan=replace(state.plan, until_ci=0.05))
    assert rank(state).rows[3].outcome == MEASURED
    for ratio, best in ((1.52, 128), (3.0, 256)):
        found = rank(measured(state, 4, ratio, noise=0.1))
        assert found.rows[4].outcome == OPEN and best_first(found)[0] == {"batch_size": best}
        assert answer(found)[0].startswith(f"best so far: batch_size={best}, ")


def test_what_cannot_be_used_is_neither_the_best_nor_stops_others_early():
    state = measured(measured(planned(BATCHES, until_ci=0.001), 3, 1.2), 4, 3.0)
    for _ in range(MOST_DEATHS):
        state = after(state, VisitEnded(4, died="SIGKILL"))
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


def test_the_baseline_of_a_script_is_named_once_it_was_measured():
    state = planned({"batch_size": (16, 64)}, baseline={})
    assert "baseline" not in answer(rank(state))[0]
    state = after(measured(state, 0, 1.5), VisitEnded(0, Figures("cpu", baseline={"batch_size": 10})))
    assert " the throughput of the baseline batch_size=10 (" in answer(rank(state))[0]
    assert sweep_to_json(rank(state))["baseline"] == {"batch_size": 10}


def test_what_has_no_ratio_at_the_end_says_why_and_that_it_may_be_better():
    state = measured(planned({"batch_size": (16, 64)}, each_s=2), 0, 1.5)
    state = replace(measured(state, 1, 9.0, pairs=2), over=True)
    found = rank(state)
    assert (found.rows[1].reason, found.rows[0].reason) == ("2 pairs are too few for a ratio", "")
    assert "; 1 without a ratio may be better; it trains" in answer(found)[0]
    none = rank(replace(planned({"batch_size": (16, 64)}), over=True))
    assert (answer(none), none.answered, found.answered) == (["no combination has a ratio"], False, True)


def test_the_time_left_falls_with_every_pair_and_ends_at_the_limit():
    state = measured(planned({"batch_size": (16, 64)}, until_ci=0.001, each_s=60), 0, 0.7, pairs=10)
    state = after(replace(measured(state, 1, 1.5, pairs=2), visits_s=(20.0,)), VisitBegan(1, "cpu"))
    left_s = [rank(state).left_s]
    for _ in range(6):
        state = after(state, PairMeasured(1, Pair(0.4, leads=False, visit=1, took_s=1.0)))
        left_s.append(rank(state).left_s)
    assert left_s == [98 - pair for pair in range(7)], "58 of its 60 s, and 4 starts of 10 s each"
    late = replace(state.combinations[1], measured_s=57.0)
    assert rank(replace(state, combinations=(state.combinations[0], late))).left_s <= 13


@pytest.mark.parametrize("seed", range(3))
def test_the_time_left_is_never_less_than_it_takes(seed):
    """Visits start for 6 s and have a pair each second; the pairs of some combinations scatter ten times more."""
    rng, passed_s, told = random.Random(seed), 0.0, []
    state = planned({"batch_size": (16, 32, 64, 128)})
    found = rank(state)
    while (number := next_due(found.rows, "cpu", ())) is not None:
        began_s, passed_s = passed_s, passed_s + 6
        state = after(state, VisitBegan(number, "cpu"))
        for place in range(PAIRS_OF_A_VISIT):
            log = 0.1 * number + rng.gauss(0, 0.01 if number == 2 else 0.1)
            passed_s += 1
            state = after(
                state, PairMeasured(number, Pair(log, bool(place % 2), state.combinations[number].visits, 1.0))
            )
            found = rank(state, found)
            told.append((passed_s, found.left_s))
            if found.rows[number].settled:
                break
        state = after(state, VisitEnded(number))
        state = replace(state, visits_s=(*state.visits_s, passed_s - began_s))
        found = rank(state)
    known = [(at_s, left_s) for at_s, left_s in told if left_s is not None]
    assert len(known) > 50 and all(left_s >= passed_s - at_s - 1 for at_s, left_s in known), known


def test_figures_are_made_again_only_for_what_has_changed():
    state = measured(planned(), 0, 1.1)
    first = rank(state)
    second = rank(measured(state, 4, 1.3), first)
    assert second.rows[0].ratio is first.rows[0].ratio
    assert second.rows[4].ratio is not None


def test_a_choice_among_refused_ones_is_none():
    state = planned({"batch_size": (16, 32, 64, 4_096)})
    assert choices_of(state.combinations, "cpu") == 2


@pytest.mark.parametrize(
    ("device", "kind"),
    [("cpu", "cpu"), ("gpu:0", "gpu"), ("gpu:11", "gpu"), ("gpu:0+3", "gpu:0+3"), ("2xcpu", "2xcpu")],
)
def test_places_of_one_kind_share_the_combinations(device, kind):
    assert kind_of(LaneSpec(device)) == kind


def test_what_changes_learning_is_told():
    baseline = {"batch_size": 32, "mixed_precision": "off"}
    assert learns_differently({"batch_size": 64, "prefetch": "off"}, baseline) == ("batch_size",)
    assert learns_differently({"batch_size": 32, "mixed_precision": "off"}, baseline) == ()


def test_more_devices_learn_the_same_unless_each_has_a_batch_of_its_own():
    one = {"batch_size": 32, "batch_scope": "global", "gpus": 1}
    assert learns_differently({"gpus": 4}, one) == ()
    assert learns_differently({"gpus": 4, "batch_size": 64}, one) == ("batch_size",)
    each = {**one, "batch_scope": "per-replica"}
    assert learns_differently({"gpus": 4}, each) == ("batch_size",)
    assert learns_differently({"gpus": 4, "batch_size": 8}, each) == ()


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

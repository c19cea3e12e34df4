"""The crossover: values, what to measure next, and the answer, on lanes whose speeds are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmon.analysis.crossover_curve import (
    FIRST_PAIRS,
    LONG_PAIR_S,
    MOST_PAIRS,
    Curve,
    CurvePoint,
    ahead_text,
    crossover_of,
    curve_of,
    next_value,
    pairs_left,
    range_around,
)
from tfmon.model.knobs import BATCH_SIZE
from tfmon.model.lane_state import LaneState
from tfmon.model.race import Race
from tfmon.model.readings import Estimate
from tfmon.model.series import Pair, PairMeasured, SeriesState, state_after
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec

VALUES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def state_of(first, second, pairs: dict[int, int], scatter: float, values) -> SeriesState:
    """Return a crossover with this number of pairs at each value, at paces that are functions of the value."""
    noises = np.random.default_rng(1), np.random.default_rng(2)
    state = crossover_of("batch_size", ("cpu", "gpu:0"), values)
    for number, value in enumerate(values):
        logs = [
            math.log(pace(value)) + noise.normal(0, scatter, pairs.get(value, 0))
            for pace, noise in zip((first, second), noises, strict=True)
        ]
        for one, base in zip(*logs, strict=True):
            state = state_after(state, PairMeasured(number, Pair(float(one - base), False, 1, float(base)), 1.0))
    return state


LANES = tuple(LaneState(LaneSpec(name, name=name), settings={"batch_size": 0}) for name in ("cpu", "gpu:0"))
RACE = Snapshot(0, Race(), LANES)


def curve(first, second, pairs=FIRST_PAIRS, scatter=0.01, over=True, ended="") -> Curve:
    counts = pairs if isinstance(pairs, dict) else dict.fromkeys(VALUES, pairs)
    state = state_of(first, second, counts, scatter, VALUES)
    return curve_of(RACE, replace(state, over=over, ended=ended))


def constant(_value: int) -> float:
    return 1_000.0


def rising(crossing: float):
    return lambda value: 1_000.0 * value / crossing


@settings(max_examples=25)
@given(st.floats(0.5, 600), st.floats(0.001, 0.3))
def test_a_crossover_ends_whatever_is_measured_within_the_pairs_expected(crossing, scatter):
    pairs, told, first, sure = dict.fromkeys(VALUES, 0), [], None, set()
    for _ in range(len(VALUES) * MOST_PAIRS):
        now = curve(constant, rising(crossing), pairs, scatter)
        before, sure = sure, {point.value for point in now.points if point.sure}
        if not before <= sure:
            told.clear()  # the numbers of pairs assume that a lead stays sure
        wanted, total = next_value(now.points), sum(pairs.values())
        told.append(total + pairs_left(now.points))
        first = first or told[0]
        if wanted is None:
            assert all(total <= most for most in told), told
            assert first == len(VALUES) * MOST_PAIRS
            return
        value, count = wanted
        assert count > pairs[value]
        pairs[value] = count
    raise AssertionError("it went on for ever")


class TestAnswer:
    @pytest.mark.parametrize(
        ("ratio", "text"),
        [
            (Estimate(2.0, 1.6, 2.5, 6), "A 2.0× (1.6 to 2.5, 6 pairs)"),
            (Estimate(0.5, 0.4, 0.625, 6), "B 2.0× (1.6 to 2.5, 6 pairs)"),
            (Estimate(0.98, 0.8, 1.25, 6), "A/B 0.98× (0.80 to 1.25, 6 pairs), too close"),
            (None, "3 pairs so far"),
        ],
    )
    def test_one_value_says_who_is_ahead_there_and_by_how_much(self, ratio, text):
        assert ahead_text(CurvePoint(8, None, None, ratio, pairs=3), ("A", "B")) == text

    def test_the_range_that_is_proposed_lies_around_what_the_lanes_have(self):
        assert range_around(BATCH_SIZE, [10, 256], None) == (2, 4096)
        assert range_around(BATCH_SIZE, [10, 10], 100) == (2, 64), "no batch is larger than the data"
        assert range_around(BATCH_SIZE, [1, 1], None) == (1, 16)

    def test_before_the_first_interval_nothing_is_said(self):
        texts = [curve(constant, constant, pairs, over=over).text for pairs in (0, 1) for over in (True, False)]
        assert texts == [
            "nothing was measured", "nothing is measured yet", "too few pairs for an answer", "too few pairs yet",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("second", "measured", "ended", "answer"),
        [
            (constant, (1, 2, 4), "stopped", "; stopped before 8 to 256 were measured"),
            (lambda _: 2_000.0, (1, 2, 4), "stopped", "no crossing seen from 1 to 4: gpu:0 is faster than cpu "),
            (lambda _: 2_000.0, VALUES[:-1], "stopped", "by 2.0×; stopped before 256 was measured"),
            (lambda _: 2_000.0, (1, 2, 16), "", "; 4, 8, 32, 64, 128, 256 were not measured"),
            (rising(3), (1, 2, 4, 8), "stopped", "; stopped before 16 to 256 were measured"),
            (rising(6), VALUES, "stopped", "; stopped before it was certain"),
            (lambda _: 2_000.0, VALUES, "", "no crossing from 1 to 256: gpu:0 is faster than cpu throughout, by "),
        ],
    )
    def test_one_that_ends_early_says_what_it_has_not_measured(self, second, measured, ended, answer):
        pairs = {value: FIRST_PAIRS for value in measured}
        known = curve(constant, second, pairs=pairs, scatter=0.001, ended=ended)
        assert answer in known.text
        assert all(bool(point.missing) is (point.ratio is None) for point in known.points)

    def test_above_a_value_whose_pairs_take_long_nothing_is_measured(self):
        state = crossover_of("batch_size", ("cpu", "gpu:0"), (1, 2, 4))
        for _ in range(FIRST_PAIRS):
            state = state_after(state, PairMeasured(1, Pair(0.5, True, 1, 3.0), LONG_PAIR_S + 1))
        low, slow, high = curve_of(RACE, state).points
        assert (low.refused, slow.refused) == ("", "")
        assert high.refused == "not measured: a pair takes 21 s at 2 already"

    def test_the_time_left_follows_from_the_visits(self):
        state = state_of(constant, rising(6), {1: 6, 2: 6}, 0.01, (1, 2, 4))
        assert curve_of(RACE, state).left_s is None
        assert curve_of(RACE, replace(state, visits_s=(12.0,))).left_s >= 2.0 * 6

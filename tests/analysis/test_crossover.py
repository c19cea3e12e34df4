"""The crossover: values, what to measure next, and the answer, on lanes whose speeds are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmon.analysis.crossover import (
    FIRST_PAIRS,
    MOST_PAIRS,
    SURE_PAIRS,
    Curve,
    CurvePoint,
    ahead_text,
    curve_of,
    expected_pairs,
    next_value,
    pairs_left,
    range_around,
    values_of,
)
from tfmon.model.knobs import BATCH_SIZE, GRAPH, Knob, KnobError
from tfmon.model.lane_state import LaneState
from tfmon.model.lane_statistics import EarlierSlices, Measurements, SliceSpeed
from tfmon.model.race import Race
from tfmon.model.readings import Estimate, SliceLoad
from tfmon.model.series import CrossoverState
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec

VALUES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LONG_NS = 1_000_000_000_000
LOAD = SliceLoad(span_ns=LONG_NS, examples=1, cpu_ns=1)


def lane(name: str, pace, pairs: dict[int, int], scatter: float, seed: int) -> LaneState:
    """Make a lane that had so many slices at each value, at the pace that a function of the value gives."""
    random = np.random.default_rng(seed)
    earlier = []
    for value, count in pairs.items():
        slices = tuple(
            SliceSpeed(1_000 * value + n, n, round(1_000 * pace(value) * noise), LONG_NS, load=LOAD)
            for n, noise in enumerate(np.exp(random.normal(0, scatter, count)))
        )
        earlier.append(EarlierSlices({"batch_size": value}, slices))
    return LaneState(
        spec=LaneSpec(name, name=name),
        settings={"batch_size": 0},
        measurements=Measurements(earlier=tuple(earlier)),
    )


def curve(
    first, second, pairs=FIRST_PAIRS, scatter=0.01, values=VALUES, refused=None, over=True, ended=""
) -> Curve:
    counts = pairs if isinstance(pairs, dict) else dict.fromkeys(values, pairs)
    lanes = (lane("cpu", first, counts, scatter, 1), lane("gpu:0", second, counts, scatter, 2))
    state = CrossoverState("batch_size", ("cpu", "gpu:0"), values, refused or {}, over=over, ended=ended)
    return curve_of(Snapshot(0, Race(), lanes), state)


def constant(_value: int) -> float:
    return 1_000.0


def rising(crossing: float):
    return lambda value: 1_000.0 * value / crossing


class TestValues:
    def test_are_the_powers_of_two_in_the_range(self):
        assert values_of(BATCH_SIZE, None, 100) == (1, 2, 4, 8, 16, 32, 64)
        assert values_of(Knob("size", 10, "", low=10, high=100), None, None) == (16, 32, 64)
        assert values_of(BATCH_SIZE, 3, 17) == (4, 8, 16)

    def test_without_an_upper_bound_they_end_at_4096(self):
        assert values_of(BATCH_SIZE, None, None)[-1] == 4_096

    def test_a_fractional_knob_gets_fractions(self):
        assert values_of(Knob("cost", 1.0, "", low=0, high=4), None, None) == (1.0, 2.0, 4.0)

    @pytest.mark.parametrize("knob", [GRAPH, Knob("variant", "a", "", choices=("a", "b"))])
    def test_a_knob_that_is_no_number_is_refused(self, knob):
        with pytest.raises(KnobError, match="a crossover needs a knob that is a number"):
            values_of(knob, None, None)

    def test_a_range_without_two_values_is_refused(self):
        with pytest.raises(KnobError, match="fewer than two powers of two from 33 to 64"):
            values_of(BATCH_SIZE, 33, 64)


class TestNext:
    def test_every_value_is_measured_in_order_first(self):
        assert next_value(curve(constant, rising(6), pairs=0)) == (1, 6)
        assert next_value(curve(constant, rising(6), pairs={1: FIRST_PAIRS, 2: 3})) == (2, FIRST_PAIRS)

    def test_both_sides_of_a_change_of_the_lead_get_more(self):
        first = curve(constant, rising(6))
        assert next_value(first) == (4, 2 * FIRST_PAIRS)
        more = {**dict.fromkeys(VALUES, FIRST_PAIRS), 4: SURE_PAIRS}
        assert next_value(curve(constant, rising(6), more)) == (8, 2 * FIRST_PAIRS)

    def test_then_nothing_is_left(self):
        done = {**dict.fromkeys(VALUES, FIRST_PAIRS), 4: SURE_PAIRS, 8: SURE_PAIRS}
        known = curve(constant, rising(6), done)
        assert (next_value(known), pairs_left(known)) == (None, (0, 0))

    @settings(max_examples=40)
    @given(st.floats(0.5, 600), st.floats(0.001, 0.3))
    def test_it_ends_whatever_is_measured_and_takes_the_least_pairs_expected(self, crossing, scatter):
        pairs, told = dict.fromkeys(VALUES, 0), []
        for _ in range(len(VALUES) * MOST_PAIRS):
            now = curve(constant, rising(crossing), pairs, scatter)
            wanted, total = next_value(now), sum(pairs.values())
            told.append((total, *pairs_left(now)))
            if wanted is None:
                assert all(before + least <= total <= before + most for before, least, most in told), told
                assert told[0][1:] == expected_pairs(len(VALUES))
                return
            value, count = wanted
            assert count > pairs[value]
            pairs[value] = count
        raise AssertionError("it went on for ever")


class TestAnswer:
    @settings(max_examples=60)
    @given(st.floats(1.2, 200))
    def test_wherever_it_is(self, where):
        (crossing,) = curve(constant, rising(where), pairs=12, scatter=0.002).crossings
        assert crossing.low <= crossing.about <= crossing.high
        assert crossing.about == pytest.approx(where, rel=0.03)

    def test_two_changes_of_the_lead_are_both_told(self):
        known = curve(constant, lambda value: 2_000.0 if 8 <= value <= 64 else 500.0)
        assert [one.ahead for one in known.crossings] == ["gpu:0", "cpu"]
        assert "; then cpu overtakes gpu:0" in known.text

    def test_none_says_who_is_ahead_throughout(self):
        known = curve(constant, lambda value: 2_000.0 + value)
        assert known.crossings == ()
        assert known.text.startswith("no crossing from 1 to 256: gpu:0 is faster than cpu throughout, by ")
        even = curve(constant, lambda _: 2_000.0, scatter=0.001).text
        assert even.endswith("gpu:0 is faster than cpu throughout, by 2.0×"), even

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

    def test_lanes_are_named_without_the_knob_that_is_swept(self):
        apart = {"differs": ("batch_size", "prefetch"), "measurements": Measurements()}
        lanes = tuple(
            replace(lane(name, constant, {}, 0.01, 1), settings={"batch_size": 8, "prefetch": place}, **apart)
            for place, name in enumerate(("cpu", "gpu:0"))
        )
        known = curve_of(Snapshot(0, Race(), lanes), CrossoverState("batch_size", ("cpu", "gpu:0"), (1,)))
        assert known.titles == ("cpu prefetch=0", "gpu:0 prefetch=1")

    def test_values_that_are_too_close_are_told(self):
        known = curve(constant, lambda value: 1_000.0 if value < 8 else 3_000.0, scatter=0.02)
        assert known.text.startswith(
            "no crossing seen from 1 to 256: gpu:0 is faster than cpu at 6 of 9 values, by "
        )
        assert known.text.endswith("; too close to call at the others")

    def test_equal_lanes_are_too_close_to_call(self):
        known = curve(constant, constant, pairs=MOST_PAIRS, scatter=0.05, values=(1, 2, 4))
        assert known.text == "too close to call from 1 to 4: neither lane is clearly faster"

    def test_the_range_that_is_proposed_lies_around_what_the_lanes_have(self):
        assert range_around(BATCH_SIZE, [10, 256], None) == (2, 4096)
        assert range_around(BATCH_SIZE, [10, 10], 100) == (2, 64), "no batch is larger than the data"
        assert range_around(BATCH_SIZE, [1, 1], None) == (1, 16)

    def test_before_the_first_interval_nothing_is_said(self):
        for pairs, over, text in (
            (0, True, "nothing was measured"),
            (0, False, "nothing is measured yet"),
            (1, True, "too few pairs for an answer"),
            (1, False, "too few pairs yet"),
        ):
            assert curve(constant, constant, pairs=pairs, over=over).text == text

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
        assert all(bool(place.missing) is (place.ratio is None) for place in known.places)

    def test_it_keeps_the_settings_under_which_it_was_measured(self):
        lanes = [
            lane(name, pace, {1: 6, 2: 6}, 0.01, 1) for name, pace in (("cpu", constant), ("gpu:0", rising(9)))
        ]
        changed = replace(lanes[0], settings={"batch_size": 0, "prefetch": "auto"}, differs=("prefetch",))
        state = CrossoverState("batch_size", ("cpu", "gpu:0"), (1, 2), over=True, under=({"batch_size": 0},) * 2)
        before, after = (curve_of(Snapshot(0, Race(), (one, lanes[1])), state) for one in (lanes[0], changed))
        assert before == after and before.places[0].pairs == 6

    def test_slices_that_run_or_have_no_pair_change_nothing(self):
        whole, more = lane("cpu", constant, {8: 6}, 0.01, 1), lane("cpu", constant, {8: 9}, 0.01, 1)
        (slices,) = (one.slices for one in more.measurements.earlier)
        running = EarlierSlices({"batch_size": 8}, (*slices[:6], replace(slices[6], load=None)))
        cut_off = replace(more, measurements=Measurements(earlier=(running,)))
        state = CrossoverState("batch_size", ("cpu", "gpu:0"), (8, 16), over=True)

        def known(first: LaneState, second: LaneState):
            second = replace(second, spec=LaneSpec("gpu", name="gpu:0"))
            return curve_of(Snapshot(0, Race(), (first, second)), state)

        assert known(whole, whole) == known(more, whole) == known(more, cut_off) != known(more, more)

    def test_rounds_are_paired_under_the_same_value_only(self):
        lanes = (lane("cpu", constant, {1: 9}, 0.01, 1), lane("gpu:0", constant, {2: 9}, 0.01, 2))
        state = CrossoverState("batch_size", ("cpu", "gpu:0"), (1, 2))
        known = curve_of(Snapshot(0, Race(), lanes), state)
        assert [(place.pairs, place.ratio) for place in known.places] == [(0, None), (0, None)]

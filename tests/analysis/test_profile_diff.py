"""Two sides of profiles compared: the differences add up, and the intervals hold."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import INPUT, profile
from tfmon.analysis.profile_diff import GROUPINGS, ProfileDiff, compare, layer, sentences
from tfmon.model.profile import Profile

MATMUL, RELU, CAST = ("net/dense/MatMul", "MatMul"), ("net/dense/Relu", "Relu"), ("net/dense/Cast", "Cast")
TIMES = st.dictionaries(
    st.sampled_from([MATMUL, RELU, CAST, ("gradient_tape/net/dense/MatMul/MatMul_1", "MatMul"), INPUT, ("x", "")]),
    st.floats(1, 1e9),
    min_size=1,
)


def row(diff: ProfileDiff, name: str):
    (found,) = (one for one in diff.rows if one.name == name)
    return found


def noisy(times: dict, sd: float, source: random.Random) -> Profile:
    return profile({key: max(1.0, source.gauss(time, sd)) for key, time in times.items()})


@given(st.lists(TIMES, min_size=1, max_size=4), st.lists(TIMES, min_size=1, max_size=4))
def test_the_differences_of_the_parts_add_up_to_that_of_the_step_time(first, second):
    sides = [[profile(times) for times in side] for side in (first, second)]
    for by in GROUPINGS:
        diff = compare(*sides, by)
        total = sum(one.difference.value_ns for one in diff.rows)
        assert total == pytest.approx(diff.second_ns - diff.first_ns, abs=1e-3)
        assert diff.difference.value_ns == pytest.approx(total, abs=1e-3)
        for side, name in ((diff.first_ns, "first"), (diff.second_ns, "second")):
            times = [getattr(one, name).step_ns for one in diff.rows if getattr(one, name) is not None]
            assert sum(times) == pytest.approx(side)


@given(st.lists(TIMES, min_size=2, max_size=4), st.lists(TIMES, min_size=2, max_size=4))
def test_the_other_way_round_everything_has_the_other_sign(first, second):
    sides = [[profile(times) for times in side] for side in (first, second)]
    there, back = compare(*sides), compare(*reversed(sides))
    assert there.difference.value_ns == pytest.approx(-back.difference.value_ns)
    assert there.difference.certain == back.difference.certain
    for one in there.rows:
        (other,) = (two for two in back.rows if (two.name, two.kind) == (one.name, one.kind))
        assert one.difference.value_ns == pytest.approx(-other.difference.value_ns)


def test_what_explains_most_stands_first_and_what_one_side_lacks_is_told():
    slow = [profile({MATMUL: 9_000.0 + n, CAST: 2_000.0, INPUT: 500.0}) for n in range(3)]
    fast = [profile({MATMUL: 1_000.0 + n, RELU: 100.0, INPUT: 500.0}) for n in range(3)]
    diff = compare(fast, slow)
    assert [one.name for one in diff.rows] == ["net/dense/MatMul", "net/dense/Cast", "net/dense/Relu", INPUT[0]]
    assert row(diff, "net/dense/Cast").first is None and row(diff, "net/dense/Relu").second is None
    assert row(diff, "net/dense/MatMul").share == pytest.approx(8_000 / 9_900)
    assert diff.explained.names == ("net/dense/MatMul",)
    assert diff.explained.share_ci95[0] < 8_000 / 9_900 < diff.explained.share_ci95[1]


def test_an_operation_is_the_same_in_a_function_that_the_step_calls():
    inside = profile({("StatefulPartitionedCall/net/dense/MatMul", "MatMul"): 5.0, INPUT: 1.0})
    assert [one.name for one in compare([profile({MATMUL: 5.0, INPUT: 1.0})], [inside]).rows] == [
        "net/dense/MatMul",
        INPUT[0],
    ]


def test_groups():
    one = profile({MATMUL: 5.0, ("gradient_tape/net/dense/MatMul/MatMul_1", "MatMul"): 7.0, RELU: 1.0, INPUT: 2.0})
    kinds = compare([one], [one], "kind")
    assert {part.name: part.first.step_ns for part in kinds.rows} == {"MatMul": 12, "Relu": 1, INPUT[0]: 2}
    layers = compare([one], [one], "layer")
    assert {part.name: part.first.step_ns for part in layers.rows} == {"net/dense": 13, INPUT[0]: 2}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gradient_tape/sequential_1/conv2d_1/convolution/Conv2DBackpropFilter", "sequential_1/conv2d_1"),
        ("sequential_1/dense_1/BiasAdd/ReadVariableOp", "sequential_1/dense_1"),
        ("functional/block_1/attention/query/MatMul", "functional/block_1"),
        ("StatefulPartitionedCall/gradient_tape/net/dense/MatMul", "net/dense"),
        ("adam/Sqrt_5", "adam"),
        ("MatMul", "MatMul"),
        ("jit(train)/jvp(conv_1)/conv_general_dilated", "conv_1"),
        ("jit(train)/transpose(jvp(conv_1))/jit(relu)/select_n", "conv_1"),
        ("jit(train)/transpose(jvp(Net))/Conv_0/conv_general_dilated", "Net/Conv_0"),
        ("jit(train)/jvp(jit(relu))/max", "max"),
        ("jit(train)/sub", "sub"),
    ],
)
def test_the_layer_of_an_operation(name, expected):
    assert layer(name) == expected


def test_words():
    fast = [profile({MATMUL: 1e6 + n, INPUT: 1e6}) for n in range(3)]
    slow = [profile({MATMUL: 4e6 + n, INPUT: 1e6}) for n in range(3)]
    assert sentences(compare(fast, slow), "A", "B") == [
        "A takes 2.00 ms a step, B 5.00 ms: 3.00 ms more (3.00 ms to 3.00 ms)",
        "this explains 100 % of it (100 to 100): net/dense/MatMul",
    ]
    assert sentences(compare(slow[:1], fast), "A", "B")[0] == "A takes 5.00 ms a step, B 2.00 ms: 3.00 ms less"
    assert "no difference is certain" in sentences(compare(fast, fast), "A", "B")[0]


def coverage(first: dict, second: dict, inside, runs: int = 400) -> float:
    source = random.Random(3)
    hits = 0
    for _ in range(runs):
        diff = compare(*([noisy(times, 40.0, source) for _ in range(3)] for times in (first, second)))
        hits += inside(diff)
    return hits / runs


class TestIntervalsFromThreeProfilesHold:
    FIRST: Sequence = {MATMUL: 2_000.0, RELU: 1_000.0, CAST: 500.0, INPUT: 900.0}
    SECOND: Sequence = {MATMUL: 3_000.0, RELU: 1_300.0, CAST: 500.0, INPUT: 700.0}

    def test_that_of_the_step_time_and_of_a_part(self):
        def step(diff):
            return diff.difference.ci95_ns[0] <= 1_100 <= diff.difference.ci95_ns[1]

        def part(diff):
            change = row(diff, "net/dense/MatMul").difference.ci95_ns
            return change[0] <= 1_000 <= change[1]

        assert coverage(self.FIRST, self.SECOND, step) >= 0.93
        assert coverage(self.FIRST, self.SECOND, part) >= 0.93

    def test_that_of_what_is_explained(self):
        true = {"net/dense/MatMul": 1_000, "net/dense/Relu": 300, "net/dense/Cast": 0, INPUT[0]: -200}

        def explained(diff):
            share = sum(true[name] for name in diff.explained.names) / 1_100
            return diff.explained.share_ci95[0] <= share <= diff.explained.share_ci95[1]

        assert coverage(self.FIRST, self.SECOND, explained) >= 0.93

    def test_equal_sides_seldom_differ(self):
        assert coverage(self.FIRST, self.FIRST, lambda diff: diff.difference.certain) <= 0.07

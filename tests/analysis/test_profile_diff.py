"""Two sides of profiles compared: the differences add up, and the intervals hold."""

import pytest

from tests.support.profiles import INPUT, profile
from tfmon.analysis.compare_profiles import compare, layer, sentences

MATMUL, RELU, CAST = ("net/dense/MatMul", "MatMul"), ("net/dense/Relu", "Relu"), ("net/dense/Cast", "Cast")


def test_what_explains_most_stands_first_and_what_one_side_lacks_is_told():
    slow = [profile({MATMUL: 9_000.0 + n, CAST: 2_000.0, INPUT: 500.0}) for n in range(3)]
    fast = [profile({MATMUL: 1_000.0 + n, RELU: 100.0, INPUT: 500.0}) for n in range(3)]
    diff = compare(fast, slow)
    assert [one.name for one in diff.rows] == ["net/dense/MatMul", "net/dense/Cast", "net/dense/Relu", INPUT[0]]
    matmul, cast, relu, _ = diff.rows
    assert cast.first is None and relu.second is None
    assert matmul.share == pytest.approx(8_000 / 9_900)
    assert diff.explained.names == ("net/dense/MatMul",)
    assert diff.explained.share_ci95[0] < 8_000 / 9_900 < diff.explained.share_ci95[1]


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
        ("functional/block_1/attention/query/MatMul", "functional/block_1"),
        ("StatefulPartitionedCall/gradient_tape/net/dense/MatMul", "net/dense"),
        ("MatMul", "MatMul"),
        ("jit(train)/transpose(jvp(conv_1))/jit(relu)/select_n", "conv_1"),
        ("jit(train)/transpose(jvp(Net))/Conv_0/conv_general_dilated", "Net/Conv_0"),
        ("jit(train)/jvp(jit(relu))/max", "max"),
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

"""The input pipeline: what it gives, what it refuses, and that off is off."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

from tfmon.model.knobs import KnobError
from tfmon.trainer import Scenario
from tfmon.trainer.pipeline import BatchFeed, Pipelines
from tfmon.trainer.scenario import ScenarioError

pytestmark = pytest.mark.trainer

DEADLINE_S = 20.0


def settings(batch_size: int = 4, prefetch: int | str = "off") -> dict[str, Any]:
    return {"batch_size": batch_size, "prefetch": prefetch}


def scenario(data: Any, batches: Any = None) -> Scenario:
    """Make a scenario of these data, and of its own way to batch them."""
    members = {"data": lambda _self: data, **({"batches": batches} if batches else {})}
    return type("SetupReady", (Scenario,), members)(settings())


def take(feed: BatchFeed, count: int) -> list[Any]:
    return [[part.numpy().tolist() for part in batch] for batch in itertools.islice(feed.batches, count)]


class KnobRequest:
    """Endless examples that notice when more than some are asked for."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.beyond = threading.Event()

    def __call__(self) -> Any:
        for number in itertools.count():
            if number >= self._expected:
                self.beyond.set()
            yield np.float32(number)

    def dataset(self, tf: Any) -> Any:
        return tf.data.Dataset.from_generator(self, output_signature=tf.TensorSpec([], tf.float32))


def test_prefetch_off_makes_no_batch_before_it_is_asked_for(tf: Any) -> None:
    asked = KnobRequest(expected=4)
    feed = Pipelines(scenario(asked.dataset(tf))).open(settings(prefetch="off"))
    assert not asked.beyond.wait(0.5)
    take(feed, 2)
    assert asked.beyond.is_set()


def test_tf_data_would_prefetch_the_same_pipeline_by_itself(tf: Any) -> None:
    asked = KnobRequest(expected=4)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = True
    batches = iter(asked.dataset(tf).repeat().batch(4, drop_remainder=True).with_options(options))
    next(batches)
    assert asked.beyond.wait(DEADLINE_S)


@pytest.mark.parametrize("prefetch", [1, "auto"])
def test_prefetch_makes_batches_ahead(tf: Any, prefetch: int | str) -> None:
    asked = KnobRequest(expected=4)
    feed = Pipelines(scenario(asked.dataset(tf))).open(settings(prefetch=prefetch))
    assert asked.beyond.wait(DEADLINE_S)
    del feed


def test_arrays_are_trained_on_in_their_order_and_over_again(tf: Any) -> None:
    x, y = np.arange(6, dtype=np.float32), np.arange(6) * 10
    pipelines = Pipelines(scenario((x, y)))
    assert pipelines.examples == 6
    assert take(pipelines.open(settings(4)), 3) == [
        [[0, 1, 2, 3], [0, 10, 20, 30]],
        [[4, 5, 0, 1], [40, 50, 0, 10]],
        [[2, 3, 4, 5], [20, 30, 40, 50]],
    ]


def test_a_list_of_arrays_is_a_pair_as_a_tuple_is(tf: Any) -> None:
    feed = Pipelines(scenario([np.arange(4.0), np.arange(4)])).open(settings(2))
    assert take(feed, 1) == [[[0, 1], [0, 1]]]


def test_one_array_gives_batches_of_one_part(tf: Any) -> None:
    feed = Pipelines(scenario(np.arange(4.0))).open(settings(2))
    assert take(feed, 2) == [[[0, 1]], [[2, 3]]]


@pytest.mark.parametrize("prefetch", ["off", 2, "auto"])
def test_a_dataset_keeps_its_order_with_every_prefetch(tf: Any, prefetch: int | str) -> None:
    pipelines = Pipelines(scenario(tf.data.Dataset.range(5)))
    assert pipelines.examples == 5
    assert take(pipelines.open(settings(2, prefetch)), 3) == [[[0, 1]], [[2, 3]], [[4, 0]]]


def test_every_opening_starts_at_the_first_example(tf: Any) -> None:
    pipelines = Pipelines(scenario(np.arange(8.0)))
    take(pipelines.open(settings(2)), 3)
    assert take(pipelines.open(settings(2)), 1) == [[[0, 1]]]


def test_a_batch_larger_than_the_data_is_refused(tf: Any) -> None:
    pipelines = Pipelines(scenario(np.arange(8.0)))
    pipelines.check(settings(8))
    with pytest.raises(KnobError, match="batch_size=9 is larger than the data; it can be at most 8"):
        pipelines.check(settings(9))


def test_data_of_unknown_length_take_any_batch(tf: Any) -> None:
    pipelines = Pipelines(scenario(tf.data.Dataset.range(5).filter(lambda x: x < 3)))
    assert pipelines.examples is None
    pipelines.check(settings(1_000_000))
    assert take(pipelines.open(settings(4)), 1) == [[[0, 1, 2, 0]]]


def test_full_batches_have_a_known_size_and_others_none(tf: Any) -> None:
    def uneven(_self: Any, examples: Any, batch_size: int) -> Any:
        return examples.batch(batch_size).repeat()

    assert Pipelines(scenario(np.arange(5.0))).open(settings(4)).batch_examples == 4
    feed = Pipelines(scenario(np.arange(5.0), uneven)).open(settings(4))
    assert feed.batch_examples is None
    assert take(feed, 3) == [[[0, 1, 2, 3]], [[4]], [[0, 1, 2, 3]]]


def test_the_signature_leaves_the_batch_size_open(tf: Any) -> None:
    pipelines = Pipelines(scenario((np.zeros((6, 3), np.float32), np.zeros(6, np.int64))))
    assert pipelines.signature(settings(2)) == [
        tf.TensorSpec([None, 3], tf.float32),
        tf.TensorSpec([None], tf.int64),
    ]


def test_the_signature_of_parts_without_a_rank_or_a_batch_stays_open(tf: Any) -> None:
    def shapeless(_self: Any, examples: Any, batch_size: int) -> Any:
        whole = examples.batch(batch_size, drop_remainder=True)
        return whole.map(lambda x: (tf.numpy_function(lambda part: part, [x], tf.float64), tf.constant(1.0)))

    rankless, scalar = Pipelines(scenario(np.arange(8.0), shapeless)).signature(settings(2))
    assert rankless.shape.rank is None
    assert scalar.shape == []


def test_a_pipeline_without_a_batch_is_the_scenarios_fault(tf: Any) -> None:
    pipelines = Pipelines(scenario(tf.data.Dataset.range(5).filter(lambda x: x < 0)))
    with pytest.raises(ScenarioError, match="no batch"):
        pipelines.open(settings())

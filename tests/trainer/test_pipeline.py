"""The input pipeline: its batches, no prefetching if it is off, and refused data that exceeds the memory."""

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from support.waiting import PATIENCE_S

from tfmon.trainer import Scenario, batch_feed
from tfmon.trainer.batch_feed import BatchFeed, MemoryShortageError, Pipelines

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]


def settings(batch_size: int = 4, prefetch: int | str = "off") -> dict[str, Any]:
    return {"batch_size": batch_size, "prefetch": prefetch}


def scenario(data: Any, batches: Any = None) -> Scenario:
    """Make a scenario with this data and this method of batching."""
    members = {"data": lambda _self: data, **({"batches": batches} if batches else {})}
    return type("Made", (Scenario,), members)(settings())


def take(feed: BatchFeed, count: int) -> list[Any]:
    return [[part.numpy().tolist() for part in batch] for batch in itertools.islice(feed.batches, count)]


class Endless:
    """Endless examples; an event is set when more than the expected number is read."""

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


def test_prefetch_off_makes_no_batch_ahead(tf):
    source = Endless(expected=4)
    feed = Pipelines(scenario(source.dataset(tf))).open(settings(prefetch="off"))
    assert not source.beyond.wait(0.5)
    take(feed, 2)
    assert source.beyond.is_set()


@pytest.mark.parametrize("prefetch", [1, "auto"])
def test_prefetch_makes_batches_ahead(tf, prefetch):
    source = Endless(expected=4)
    feed = Pipelines(scenario(source.dataset(tf))).open(settings(prefetch=prefetch))
    assert source.beyond.wait(PATIENCE_S)
    del feed


def test_arrays_are_trained_on_in_their_order_and_over_again(tf):
    x, y = np.arange(6, dtype=np.float32), np.arange(6) * 10
    pipelines = Pipelines(scenario((x, y)))
    assert pipelines.examples == 6
    assert take(pipelines.open(settings(4)), 3) == [
        [[0, 1, 2, 3], [0, 10, 20, 30]],
        [[4, 5, 0, 1], [40, 50, 0, 10]],
        [[2, 3, 4, 5], [20, 30, 40, 50]],
    ]


@pytest.mark.parametrize("prefetch", ["off", 2, "auto"])
def test_a_dataset_keeps_its_order_with_every_prefetch(tf, prefetch):
    pipelines = Pipelines(scenario(tf.data.Dataset.range(5)))
    assert pipelines.examples == 5
    for _ in range(2):  # every opening starts at the first example
        assert take(pipelines.open(settings(2, prefetch)), 3) == [[[0, 1]], [[2, 3]], [[4, 0]]]


def test_a_pipeline_has_what_the_missing_knobs_do_not_say(tf):
    class Bare(Scenario):
        batch_size = 3
        without = ("batch_size", "prefetch", "parallel_calls", "cache")

        def data(self) -> Any:
            return np.arange(6.0)

        def prepare(self, x: Any) -> Any:
            return 2 * x

    feed = Pipelines(Bare({})).open({})
    assert feed.batch_examples == 3
    assert take(feed, 2) == [[[0, 2, 4]], [[6, 8, 10]]]


def test_full_batches_have_a_known_size_and_others_none(tf):
    def uneven(_self: Any, examples: Any, batch_size: int) -> Any:
        return examples.batch(batch_size).repeat()

    assert Pipelines(scenario(np.arange(5.0))).open(settings(4)).batch_examples == 4
    feed = Pipelines(scenario(np.arange(5.0), uneven)).open(settings(4))
    assert feed.batch_examples is None
    assert take(feed, 3) == [[[0, 1, 2, 3]], [[4]], [[0, 1, 2, 3]]]


def test_the_signature_leaves_the_batch_size_open_and_parts_without_a_rank_or_a_batch(tf):
    pipelines = Pipelines(scenario((np.zeros((6, 3), np.float32), np.zeros(6, np.int64))))
    assert pipelines.signature(settings(2)) == [
        tf.TensorSpec([None, 3], tf.float32),
        tf.TensorSpec([None], tf.int64),
    ]

    def shapeless(_self: Any, examples: Any, batch_size: int) -> Any:
        whole = examples.batch(batch_size, drop_remainder=True)
        return whole.map(lambda x: (tf.numpy_function(lambda part: part, [x], tf.float64), tf.constant(1.0)))

    rankless, scalar = Pipelines(scenario(np.arange(8.0), shapeless)).signature(settings(2))
    assert rankless.shape.rank is None
    assert scalar.shape == []


GIB = 2**30


class Prepared(Scenario):
    """Examples of 10 bytes that become 400 kB each."""

    def data(self) -> Any:
        return np.zeros((1_000, 10), np.uint8)

    def prepare(self, x: Any) -> Any:
        import tensorflow as tf

        return tf.zeros([100_000], tf.float32)


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize(
    ("free", "cache", "fits"), [(GIB, True, True), (10**8, True, False), (10**8, False, True)]
)
def test_a_cache_that_does_not_fit_is_refused_and_a_pipeline_without_it_is_not(free, cache, fits, monkeypatch):
    monkeypatch.setattr(batch_feed, "free_bytes", lambda: free)
    settings = {"batch_size": 10, "prefetch": "off", "parallel_calls": "off", "cache": cache}
    pipelines = Pipelines(Prepared(settings))
    if fits:
        assert pipelines.open(settings).batch_examples == 10
    else:
        with pytest.raises(MemoryShortageError, match="the cache takes 381 MiB, but 95 MiB"):
            pipelines.open(settings)


@pytest.mark.usefixtures("tf")
def test_data_that_do_not_fit_twice_are_refused_before_they_are_copied(monkeypatch):
    monkeypatch.setattr(batch_feed, "free_bytes", lambda: 100)
    with pytest.raises(MemoryShortageError, match=r"the data take 9\.8 KiB, .* 100 B of memory are free: fewer"):
        Pipelines(Prepared({"batch_size": 10}))

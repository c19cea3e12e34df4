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


@pytest.mark.parametrize("prefetch", ["off", 1, "auto"])
def test_batches_keep_their_order_and_are_made_ahead_unless_prefetch_is_off(tf, prefetch):
    beyond = threading.Event()

    def endless() -> Any:
        for number in itertools.count():
            if number >= 4:
                beyond.set()
            yield np.float32(number)

    data = tf.data.Dataset.from_generator(endless, output_signature=tf.TensorSpec([], tf.float32))
    feed = Pipelines(scenario(data)).open(settings(prefetch=prefetch))
    assert beyond.wait(0.5 if prefetch == "off" else PATIENCE_S) is (prefetch != "off")
    take(feed, 2)
    assert beyond.is_set()
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


class Prepared(Scenario):
    """Examples of 10 bytes that become 400 kB each."""

    def data(self) -> Any:
        return np.zeros((1_000, 10), np.uint8)

    def prepare(self, x: Any) -> Any:
        import tensorflow as tf

        return tf.zeros([100_000], tf.float32)


@pytest.mark.usefixtures("tf")
def test_a_cache_or_data_that_do_not_fit_are_refused_and_a_pipeline_without_the_cache_is_not(monkeypatch):
    settings = {"batch_size": 10, "prefetch": "off", "parallel_calls": "off", "cache": True}
    monkeypatch.setattr(batch_feed, "free_bytes", lambda: 2**30)
    pipelines = Pipelines(Prepared(settings))
    assert pipelines.open(settings).batch_examples == 10
    monkeypatch.setattr(batch_feed, "free_bytes", lambda: 10**8)
    assert pipelines.open({**settings, "cache": False}).batch_examples == 10
    with pytest.raises(MemoryShortageError, match="the cache takes 381 MiB, but 95 MiB"):
        pipelines.open(settings)
    monkeypatch.setattr(batch_feed, "free_bytes", lambda: 100)  # too little for a copy of the data
    with pytest.raises(MemoryShortageError, match=r"the data take 9\.8 KiB, .* 100 B of memory are free: fewer"):
        Pipelines(Prepared({"batch_size": 10}))

"""The background thread that makes ready what a knob asks for."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np
import pytest
from support.waiting import wait_for

from tfmon.trainer.pipeline import BatchFeed, Pipelines
from tfmon.trainer.setups import SetupBuilder

from .running import OneStep
from .test_pipeline import scenario, settings, take

pytestmark = pytest.mark.trainer
DEADLINE_S = 20.0


def start(pipelines: Pipelines) -> tuple[SetupBuilder, queue.Queue[Any]]:
    delivered: queue.Queue[Any] = queue.Queue()
    preparer = SetupBuilder(pipelines, OneStep(print), lambda request, result: delivered.put((request, result)))
    preparer.start()
    return preparer, delivered


def test_a_pipeline_is_delivered_under_its_request(tf: Any) -> None:
    preparer, delivered = start(Pipelines(scenario(np.arange(8.0))))
    preparer.request(7, settings(2, 1), settings(4))
    request, setup = delivered.get(timeout=DEADLINE_S)
    assert request == 7
    assert setup.settings == settings(2, 1)
    assert setup.step is None
    assert take(setup.feed, 1) == [[[0, 1]]]


def test_an_error_is_delivered_and_the_next_pipeline_is_opened(tf: Any) -> None:
    def no_sevens(_self: Any, examples: Any, batch_size: int) -> Any:
        if batch_size == 7:
            raise ValueError("not seven")
        return examples.batch(batch_size)

    preparer, delivered = start(Pipelines(scenario(np.arange(8.0), no_sevens)))
    preparer.request(1, settings(7), settings(4))
    preparer.request(2, settings(8), settings(4))
    request, error = delivered.get(timeout=DEADLINE_S)
    assert (request, str(error)) == (1, "not seven")
    request, setup = delivered.get(timeout=DEADLINE_S)
    assert (request, setup.feed.batch_examples) == (2, None)


def test_a_wish_does_not_wait_for_the_end_of_the_pipeline_before(tf: Any) -> None:
    ending, ended = threading.Event(), threading.Event()

    class Slow:
        def __del__(self) -> None:
            ending.set()
            ended.wait(DEADLINE_S)

    preparer, delivered = start(Pipelines(scenario(np.arange(8.0))))
    try:
        preparer.discard(BatchFeed(iter([Slow()]), 1))
        assert ending.wait(DEADLINE_S)
        preparer.request(1, settings(2), settings(4))
        assert delivered.get(timeout=DEADLINE_S)[0] == 1
        assert not preparer.idle and preparer.took_time() and preparer.took_time(), "it is still being dropped"
    finally:
        ended.set()
    wait_for(lambda: preparer.idle, what="the end of the pipeline")
    assert preparer.took_time() and not preparer.took_time()


def test_an_error_while_preparing_ahead_is_nobodys(tf: Any) -> None:
    def only_four(_self: Any, examples: Any, batch_size: int) -> Any:
        if batch_size != 4:
            raise ValueError("only four")
        return examples.batch(batch_size)

    preparer, delivered = start(Pipelines(scenario(np.arange(64.0), only_four)))
    preparer.prepare_neighbours(settings(4))
    preparer.request(1, settings(4), settings(2))
    assert delivered.get(timeout=DEADLINE_S)[1].settings == settings(4)
    assert delivered.empty()

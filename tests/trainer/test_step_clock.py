"""What is collected of a window's steps, and what makes it no part of steady state."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tfmon.model import lane_statistics as histogram
from tfmon.trainer import step_clock
from tfmon.trainer.step_clock import LONG_COLLECTION_NS, CollectorWatch, StepClock

pytestmark = pytest.mark.trainer


class Clock:
    """A clock that moves by so much whenever it is read."""

    def __init__(self, by_ns: int) -> None:
        self._by_ns = by_ns
        self._now_ns = 0

    def __call__(self) -> int:
        self._now_ns += self._by_ns
        return self._now_ns


@pytest.fixture
def watch() -> Iterator[CollectorWatch]:
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    gc.disable()  # A real collection would be one hiccup more.
    yield CollectorWatch()
    gc.enable()
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def test_times_are_counted_into_the_bins_of_the_model() -> None:
    times = [1, 2, 999, 1_000_000, 1_000_001, 70_000_000_000]
    clock = StepClock()
    for place, time_ns in enumerate(times):
        clock.times[place] = time_ns
    clock.count(len(times))
    assert clock.histogram == histogram.count(times)
    assert clock.steps == len(times)
    assert clock.longest_ns == max(times)


def test_only_the_steps_that_were_done_are_counted() -> None:
    clock = StepClock()
    clock.times[0], clock.times[1], clock.times[2] = 10, 20, 5_000
    clock.count(2)
    assert (clock.steps, clock.longest_ns) == (2, 20)
    assert clock.histogram == histogram.count([10, 20])


def test_counts_add_up_until_the_next_window() -> None:
    clock = StepClock()
    clock.times[0] = 500
    clock.count(1)
    clock.count(1)
    assert clock.histogram == histogram.count([500, 500])
    clock.reset(77)
    assert (clock.began_ns, clock.steps, clock.longest_ns, clock.histogram) == (77, 0, 0, {})


@pytest.mark.parametrize(("took_ns", "hiccup"), [(LONG_COLLECTION_NS, False), (LONG_COLLECTION_NS + 1, True)])
def test_a_long_garbage_collection_is_noticed_once(
    watch: CollectorWatch, monkeypatch: pytest.MonkeyPatch, took_ns: int, hiccup: bool
) -> None:
    monkeypatch.setattr(step_clock, "time", SimpleNamespace(monotonic_ns=Clock(took_ns)))
    gc.collect()
    monkeypatch.undo()
    assert watch.take() is hiccup
    assert watch.take() is False


def test_the_collection_before_the_race_is_no_hiccup(
    watch: CollectorWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_clock, "time", SimpleNamespace(monotonic_ns=Clock(LONG_COLLECTION_NS + 1)))
    watch.settle()
    monkeypatch.undo()
    assert gc.get_freeze_count() > 0
    assert watch.take() is False

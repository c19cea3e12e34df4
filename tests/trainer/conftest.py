"""Fixtures of the trainer's tests."""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer.racing import Race
from trainer.running import Running


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow, on the CPU alone."""
    import tensorflow

    tensorflow.config.set_visible_devices([], "GPU")
    return tensorflow


@pytest.fixture
def running(tf: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Start loops in threads, with a short warm-up; loops that still train are stopped after the test."""
    monkeypatch.setattr("tfmon.trainer.loop.WARM_UP_NS", 0)
    callbacks = gc.callbacks[:]
    loops: list[Running] = []

    def start(*args: Any, **kwargs: Any) -> Running:
        loops.append(Running(*args, **kwargs))
        return loops[-1]

    yield start
    for loop in loops:
        loop.close()
    gc.callbacks[:] = callbacks
    gc.unfreeze()


@pytest.fixture
def race() -> Iterator[Callable[..., Race]]:
    """Start lanes in real children; they are ended after the test."""
    races: list[Race] = []

    def start(*args: Any, **kwargs: Any) -> Race:
        races.append(Race(*args, **kwargs))
        return races[-1]

    yield start
    for each in races:
        each.lanes.stop()


@pytest.fixture
def scenario_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write a scenario file; loading it here leaves no trace in this process."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "tfmon_scenario", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text: str) -> Path:
        path = tmp_path / "mine.py"
        path.write_text(text)
        return path

    return write

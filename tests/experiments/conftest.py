"""Experiments on real children that train nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.lanes import RacingGroup, group, patient
from support.waiting import LOOK_S, wait_for

from tfmon.experiments.control import ExperimentControl
from tfmon.experiments.sweep import Sweep

__all__ = ["group", "patient"]


def ended(experiment: ExperimentControl | Sweep) -> bool:
    """Wait for the end of an experiment, and return True."""
    wait_for(lambda: experiment.join(LOOK_S), what="the end of the experiment")
    return True


@pytest.fixture(autouse=True)
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that the machine lets wait says of its window what it says of the others."""
    monkeypatch.setenv("STOPPED", "inf")


@pytest.fixture
def bench(group: RacingGroup) -> Iterator[ExperimentControl]:
    bench = ExperimentControl(group.session, group)
    yield bench
    bench.stop()

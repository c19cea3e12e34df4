"""Experiments on real children that train nothing."""

from collections.abc import Iterator

import pytest
from support.lanes import RacingGroup
from support.waiting import LOOK_S, wait_for

from tfmon.series.engine import Series
from tfmon.series.series_control import ExperimentControl


def ended(experiment: ExperimentControl | Series) -> bool:
    """Wait for the end of an experiment, and return True."""
    wait_for(lambda: experiment.join(LOOK_S), what="the end of the experiment")
    return True


@pytest.fixture(autouse=True)
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that had to wait for the machine reports windows of the usual length."""
    monkeypatch.setenv("STOPPED", "inf")


@pytest.fixture
def bench(group: RacingGroup) -> Iterator[ExperimentControl]:
    bench = ExperimentControl(group.session, group)
    yield bench
    bench.stop()

"""Experiments on real children that train nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.lanes import RacingGroup, group

from tfmon.experiments.control import ExperimentControl

__all__ = ["group"]


@pytest.fixture
def bench(group: RacingGroup) -> Iterator[ExperimentControl]:
    bench = ExperimentControl(group.session, group)
    yield bench
    bench.stop()

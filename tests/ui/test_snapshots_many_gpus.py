"""Pictures of a race of one GPU against eight."""

from __future__ import annotations

import pytest
from support.many_gpus import eight_gpus

from .pilot import app_of


@pytest.mark.parametrize("size", [(80, 24), (120, 36)], ids=lambda size: "{}x{}".format(*size))
def test_a_race_of_one_gpu_against_eight(snap_compare, size):
    assert snap_compare(app_of(eight_gpus()), terminal_size=size)


def test_the_lane_on_eight_gpus_on_the_whole_width(snap_compare):
    assert snap_compare(app_of(eight_gpus()), terminal_size=(120, 36), press=["tab", "tab", "z"])


def test_the_page_of_a_lane_on_eight_gpus(snap_compare):
    assert snap_compare(app_of(eight_gpus()), terminal_size=(120, 90), press=["tab", "tab", "i"])

"""Pictures of the first seconds of a race and of its result."""

from __future__ import annotations

import pytest
from support.ui import CPU_MACHINE, Demo, racing_demo

from tfmon.model.spec import LaneSpec

from .pilot import app_of

SIZES = [(80, 24), (120, 36), (200, 50)]


def starting() -> Demo:
    specs = [LaneSpec("cpu", {"batch_size": 10}), LaneSpec("cpu", {"batch_size": 256})]
    demo = Demo(specs, CPU_MACHINE, mode="turns")
    demo.clock.ahead(0.4)
    for name in demo.names:
        demo.enter(name, "importing")
    demo.clock.ahead(4.1)
    demo.enter(demo.names[1], "building")
    demo.sample()
    return demo


def over() -> Demo:
    demo = racing_demo(CPU_MACHINE)
    for name in demo.names:
        demo.enter(name, "done")
    return demo


@pytest.mark.parametrize("size", SIZES[:2], ids="{0[0]}x{0[1]}".format)
def test_the_first_seconds(snap_compare, size):
    assert snap_compare(app_of(starting()), terminal_size=size)


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_a_result(snap_compare, size):
    assert snap_compare(app_of(over()), terminal_size=size)

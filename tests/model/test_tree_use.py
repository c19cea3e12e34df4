"""CPU of a lane that trains in slices: what it uses while it has them."""

from __future__ import annotations

import pytest
from support.ui import SECOND, Demo

from tfmon.model.lane_use import WAITS
from tfmon.model.readings import TreeSample
from tfmon.model.spec import LaneSpec

LANES = (LaneSpec("cpu", {"batch_size": 10}), LaneSpec("cpu", {"batch_size": 20}))


def racing(mode: str = "turns", lanes=LANES) -> Demo:
    demo = Demo(lanes, mode=mode)
    demo.go()
    return demo


def sample(demo: Demo, place: int, cpu_pct: float) -> None:
    demo.session.accept(
        TreeSample(lane=demo.names[place], at_ns=demo.clock(), cpu_pct=cpu_pct, private_bytes=1e6, processes=1)
    )


def alternate(demo: Demo, seconds: int, first_s: float = 0.5) -> None:
    """Let the first lane train for `first_s` of every second, and the second for the rest."""
    for _ in range(seconds):
        demo.session.grant_slice(demo.names[0])
        demo.clock.ahead(first_s)
        demo.session.grant_slice(demo.names[1])
        demo.clock.ahead(1 - first_s)


def cpu(demo: Demo, place: int = 0):
    return demo.session.snapshot().lanes[place].tree.cpu_pct


@pytest.mark.parametrize("first_s", [0.5, 0.2])
def test_in_turns_the_time_in_which_the_other_lane_trains_does_not_count(first_s):
    demo = racing()
    alternate(demo, 1, first_s)
    for place in (0, 1):
        sample(demo, place, 7.0)
    alternate(demo, 1, first_s)
    sample(demo, 0, 100 * first_s)
    sample(demo, 1, 150 * (1 - first_s))
    assert (cpu(demo, 0), cpu(demo, 1)) == (pytest.approx(100), pytest.approx(150))


def test_a_sample_in_the_middle_of_a_slice_counts_both_of_its_parts():
    demo = racing()
    sample(demo, 0, 7.0)
    demo.session.grant_slice(demo.names[0])
    demo.clock.ahead(0.25)
    sample(demo, 0, 100.0)
    demo.clock.ahead(0.25)
    demo.session.grant_slice(demo.names[1])
    demo.clock.ahead(0.75)
    sample(demo, 0, 25.0)
    assert cpu(demo) == pytest.approx(100)


def test_cpu_in_slices_is_that_of_all_cores_at_most():
    demo = racing()
    cores = demo.session.snapshot().machine.cores
    sample(demo, 0, 7.0)
    alternate(demo, 1, 0.5)
    sample(demo, 0, 90.0 * cores)
    assert cpu(demo) == 100 * cores > 0


def test_while_a_lane_waits_its_last_figure_stays_and_the_mean_does_not_fall():
    demo = racing()
    sample(demo, 0, 0.0)
    alternate(demo, 1)
    sample(demo, 0, 60.0)
    demo.clock.ahead(1)
    sample(demo, 0, 0.0)
    lane = demo.session.snapshot().lanes[0]
    assert (lane.tree.cpu_pct, lane.tree.racing_cpu_pct.samples) == (pytest.approx(120), 2)
    assert lane.tree.clock.in_slices(5.0, demo.clock() + SECOND) == WAITS


def test_all_at_once_all_of_the_time_counts():
    demo = racing("concurrent")
    for _ in range(2):
        demo.clock.ahead(1)
        sample(demo, 0, 80.0)
    assert cpu(demo) == 80.0


def test_a_paused_lane_uses_what_it_uses():
    demo = racing()
    sample(demo, 0, 0.0)
    demo.enter(demo.names[0], "paused")
    demo.clock.ahead(1)
    sample(demo, 0, 3.0)
    assert cpu(demo) == 3.0

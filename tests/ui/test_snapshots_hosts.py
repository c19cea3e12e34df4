"""Pictures of a race over three machines."""

from __future__ import annotations

import pytest
from support.ui import REMOTE, Demo, connect, hosts_demo, lose

from .pilot import app_of

RACING = (2_420, 7_663, 30_400)


def lost() -> Demo:
    demo = hosts_demo()
    lose(demo, "gpu2")
    demo.race(5, RACING)
    return demo


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)], ids=lambda size: "{}x{}".format(*size))
def test_a_race_over_three_machines(snap_compare, size):
    assert snap_compare(app_of(hosts_demo()), terminal_size=size)


def test_a_machine_that_is_lost(snap_compare):
    assert snap_compare(app_of(lost()), terminal_size=(80, 24))


def test_the_first_seconds_where_one_machine_is_connected_already(snap_compare):
    demo = Demo(REMOTE, mode="turns")
    demo.clock.ahead(1)
    connect(demo, "gpu2")
    demo.enter("cpu", "importing")
    demo.enter("gpu2/gpu:0", "importing")
    demo.clock.ahead(2)
    assert snap_compare(app_of(demo), terminal_size=(80, 24))


def test_the_result_of_three_machines(snap_compare):
    demo = hosts_demo()
    for name in demo.names:
        demo.enter(name, "done")
    assert snap_compare(app_of(demo), terminal_size=(80, 24))


def test_the_page_of_a_lane_on_another_machine(snap_compare):
    assert snap_compare(app_of(hosts_demo()), terminal_size=(120, 90), press=["tab", "tab", "enter"])


def test_three_machines_in_a_light_theme(snap_compare):
    assert snap_compare(app_of(lost(), theme="textual-light"), terminal_size=(120, 36))


def test_three_machines_without_colour_and_in_ascii(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_of(lost(), characters="ascii"), terminal_size=(80, 24), press=["tab", "tab"])

"""Pictures of the screen. After a wanted change run these with `--snapshot-update`, and look at them."""

from __future__ import annotations

import pytest
from support.ui import CPU_MACHINE, crossover_demo, racing_demo

from .pilot import app_of


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)], ids=lambda size: "{}x{}".format(*size))
def test_a_race_of_cpu_and_gpu(snap_compare, size):
    assert snap_compare(app_of(racing_demo()), terminal_size=size)


def test_a_race_of_two_variants_without_a_gpu(snap_compare):
    assert snap_compare(app_of(racing_demo(CPU_MACHINE)), terminal_size=(80, 24))


def test_a_failed_lane_beside_a_focused_one_with_a_request(snap_compare):
    demo = racing_demo()
    demo.fail("gpu:0")
    demo.ask("cpu", "batch_size", 40)
    assert snap_compare(app_of(demo), terminal_size=(80, 24), press=["tab"])


def test_a_light_theme_with_other_colours_of_the_lanes(snap_compare):
    app = app_of(racing_demo(), theme="textual-light")
    assert snap_compare(app, terminal_size=(120, 36))


def test_no_colour_and_no_braille(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_of(racing_demo(), characters="ascii"), terminal_size=(80, 24))


def test_the_page_of_a_crossover(snap_compare):
    assert snap_compare(app_of(crossover_demo()), terminal_size=(120, 36), press=["c"])

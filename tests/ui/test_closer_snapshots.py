"""Pictures of looking closer. After a wanted change run these with `--snapshot-update`, and look at them."""

from __future__ import annotations

import pytest
from support.ui import racing_demo

from tfmon.ui.render.series import METRICS

from .pilot import app_of


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=lambda size: "{}x{}".format(*size))
def test_zoom(snap_compare, size):
    assert snap_compare(app_of(racing_demo()), terminal_size=size, press=["tab", "tab", "z"])


def test_zoom_without_colour_and_braille(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_of(racing_demo(), characters="ascii"), terminal_size=(120, 36), press=["z"])


@pytest.mark.parametrize("metric", ["gpu", "memory"])
def test_a_chart_of_another_metric(snap_compare, metric):
    presses = [one.id for one in METRICS].index(metric)
    assert snap_compare(app_of(sampled()), terminal_size=(120, 36), press=["v"] * presses)


@pytest.mark.parametrize("scale", ["own", "log"])
def test_an_own_and_a_logarithmic_axis(snap_compare, scale):
    assert snap_compare(
        app_of(sampled()), terminal_size=(80, 24), press=["a"] * ["own", "log"].index(scale) + ["a"]
    )


def test_a_display_that_does_not_follow(snap_compare):
    assert snap_compare(app_of(sampled()), terminal_size=(80, 24), press=["F"])


def test_what_is_copied(snap_compare):
    command = "tfmon race small-dense --lane cpu,batch_size=16 --lane gpu:0,batch_size=512 --set prefetch=auto"
    assert snap_compare(app_of(racing_demo(), repeat=lambda: command), terminal_size=(80, 24), press=["y"])


def sampled():
    """Return a race whose CPU, memory and GPU are sampled every second, as in a real one."""
    demo = racing_demo()
    for second in range(30):
        demo.race(1, (7_600 - 60 * second, 2_400 + 20 * second))
    return demo

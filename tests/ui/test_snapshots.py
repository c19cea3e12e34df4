"""Pictures of the screen. After a wanted change run these with `--snapshot-update`, and look at them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import CPU_MACHINE, SCENARIOS, Demo, racing_demo
from textual.command import CommandInput
from textual.pilot import Pilot

from tfmon.model.events import BadLine, LanePrinted
from tfmon.model.spec import LaneSpec
from tfmon.ui.app import MonitorApp

SIZES = [(80, 24), (120, 36), (200, 50)]


def app_of(demo: Demo, **more) -> MonitorApp:
    wired = demo.session, demo.controls, demo.experiments
    return MonitorApp(*wired, scenarios=lambda: SCENARIOS, **{"characters": "braille", **more})


def importing_demo() -> Demo:
    demo = Demo()
    demo.clock.ahead(0.4)
    demo.enter("cpu", "importing")
    demo.clock.ahead(2.1)
    demo.sample()
    return demo


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_a_race_of_cpu_and_gpu(snap_compare, size):
    assert snap_compare(app_of(racing_demo()), terminal_size=size)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_a_race_of_two_variants_without_a_gpu(snap_compare, size):
    assert snap_compare(app_of(racing_demo(CPU_MACHINE)), terminal_size=size)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_lanes_that_get_ready(snap_compare, size):
    assert snap_compare(app_of(importing_demo()), terminal_size=size)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
def test_a_failed_lane(snap_compare, size):
    demo = racing_demo()
    demo.fail("gpu:0")
    assert snap_compare(app_of(demo), terminal_size=size)


def test_a_focused_lane_with_a_wish_and_a_paused_one(snap_compare):
    demo = racing_demo()
    demo.ask("cpu", "batch_size", 40)
    demo.enter("gpu:0", "paused")
    assert snap_compare(app_of(demo), terminal_size=(80, 24), press=["tab"])


def test_eight_lanes(snap_compare):
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(8)], CPU_MACHINE)
    demo.go()
    demo.race(30, [1_000 * (place + 1) for place in range(8)])
    assert snap_compare(app_of(demo), terminal_size=(200, 50))


def test_one_lane_at_a_time(snap_compare):
    assert snap_compare(app_of(racing_demo()), terminal_size=(60, 16), press=["tab", "tab"])


@pytest.mark.parametrize("height", [1, 6])
def test_lines_for_a_small_terminal(snap_compare, height):
    assert snap_compare(app_of(racing_demo()), terminal_size=(60, height))


def test_a_light_theme(snap_compare):
    assert snap_compare(app_of(racing_demo(), theme="textual-light"), terminal_size=(120, 36))


def test_no_colour(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_of(racing_demo()), terminal_size=(120, 36))


@pytest.mark.parametrize("characters", ["ascii", "block"])
def test_terminals_without_braille(snap_compare, characters):
    assert snap_compare(app_of(racing_demo(), characters=characters), terminal_size=(80, 24))


@pytest.mark.parametrize(
    "keys", [["question_mark"], ["k", "down", "right"], ["s", "d", "e"]], ids=["help", "knobs", "picker"]
)
def test_the_other_pages(snap_compare, keys):
    assert snap_compare(app_of(racing_demo()), terminal_size=(80, 24), press=keys)


def log_demo() -> Demo:
    demo = racing_demo()
    lines = ("2026-01-01 I cpu_feature_guard.cc:210] This TensorFlow binary is optimized.", "Epoch 1: loss 2.30")
    demo.session.accept(LanePrinted(lane="cpu", at_ns=demo.clock(), lines=lines))
    demo.session.accept(BadLine(lane="cpu", at_ns=demo.clock(), problem="not JSON"))
    return demo


def test_the_log_of_a_lane(snap_compare):
    assert snap_compare(app_of(log_demo()), terminal_size=(80, 24), press=["l"])


@pytest.mark.parametrize("theme", ["nord", "solarized-light", "ansi-dark"])
def test_other_themes(snap_compare, theme):
    assert snap_compare(app_of(racing_demo(), theme=theme), terminal_size=(100, 30))


@pytest.mark.parametrize("colours", ["purple-green", "yellow-blue"])
def test_other_colours_of_the_lanes(snap_compare, colours):
    assert snap_compare(app_of(racing_demo(), lane_colours=colours), terminal_size=(80, 24))


def test_the_command_palette(snap_compare):
    async def type_words(pilot: Pilot) -> None:
        await pilot.press("colon", *"batch")
        await pilot.pause(0.5)
        pilot.app.screen.query_one(CommandInput).cursor_blink = False

    assert snap_compare(app_of(racing_demo()), terminal_size=(100, 30), run_before=type_words)


def test_a_lane_that_failed_out_of_sight(snap_compare):
    demo = racing_demo()

    async def fail_behind_the_help(pilot: Pilot) -> None:
        await pilot.press("question_mark")
        demo.fail("gpu:0")
        pilot.app.pull()
        await pilot.press("escape")
        await pilot.pause()

    assert snap_compare(app_of(demo), terminal_size=(100, 30), run_before=fail_behind_the_help)


def test_a_race_of_known_length_to_look_at_only(snap_compare):
    demo = racing_demo()
    race = demo.session.snapshot().race
    demo.session._race = replace(race, seconds=60.0)
    assert snap_compare(app_of(demo, readonly=True), terminal_size=(120, 36))

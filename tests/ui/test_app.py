from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.ui import GPU_MACHINE, SCENARIOS, Clock, Demo, racing_demo
from textual.pilot import Pilot

from tfmon.errors import TfmonError, UsageError
from tfmon.model.events import LaneStarted
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec
from tfmon.probes.host import unknown_host
from tfmon.ui.app import Ending, MonitorApp
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.widgets.canvas import Canvas

DEADLINE_S = 5.0
Screen = Pilot[Ending]


def app_of(demo: Demo, **more) -> MonitorApp:
    wired = demo.session, demo.controls, demo.experiments
    return MonitorApp(*wired, **{"scenarios": lambda: SCENARIOS, "characters": "braille", **more})


def shown(pilot: Screen) -> str:
    return pilot.app.screen.query_one(Canvas).text()


async def until(pilot: Screen, true: Callable[[], object]) -> None:
    """Let the app work until something is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s; the screen shows:\n{shown(pilot)}"
        await pilot.pause()
        await asyncio.sleep(0)


async def press(pilot: Screen, *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


# ---------------------------------------------------------------- knobs


async def test_a_knob_key_asks_every_lane_and_is_echoed_at_once():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        await press(pilot, "B")
        assert demo.controls.calls == [
            ("set_knob", "cpu", "batch_size", 32),
            ("set_knob", "gpu:0", "batch_size", 32),
        ]
        assert shown(pilot).count("batch 20 32 requested") == 3, "in both panes and beside the key"
        await press(pilot, "b", "p")
        assert demo.controls.calls[2:] == [
            ("set_knob", "cpu", "batch_size", 16),
            ("set_knob", "gpu:0", "batch_size", 16),
            ("set_knob", "cpu", "prefetch", 1),
            ("set_knob", "gpu:0", "prefetch", 1),
        ]


async def test_asked_becomes_in_force_when_the_lane_says_so():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "tab", "B")
        assert "batch 20 32 requested" in shown(pilot)
        demo.apply("cpu", "batch_size", 32, 1)
        app.pull()
        assert "requested" not in shown(pilot)
        assert "batch 32" in shown(pilot)


async def test_the_timer_pulls_without_any_key():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        demo.enter("cpu", "paused")
        await until(pilot, lambda: "paused 0:00" in shown(pilot))


async def test_while_all_pause_it_draws_once_a_second():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        for name in demo.names:
            demo.enter(name, "paused")
        app.pull()
        drawn = app.snapshot
        app._tick()
        assert app.snapshot is drawn
        demo.clock.ahead(1)
        app._tick()
        assert "paused 0:01" in shown(pilot)


async def test_keys_act_on_the_focused_lane_only():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        await press(pilot, "tab", "tab", "p")
        assert "keys act on gpu:0 only" in shown(pilot)
        assert demo.controls.calls == [("set_knob", "gpu:0", "prefetch", 1)]


async def test_focus_goes_round_through_all_lanes():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        seen = []
        for key in ("tab", "tab", "tab", "shift+tab", "shift+tab", "escape"):
            await press(pilot, key)
            seen.append(app.view.focused)
        assert seen == ["cpu", "gpu:0", None, "gpu:0", "cpu", None]


async def test_the_end_of_a_range_is_said():
    demo = Demo()
    demo.go()
    for name in demo.names:
        demo.apply(name, "batch_size", 1)
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "b")
        assert demo.controls.calls == []
        assert "batch size is already 1" in shown(pilot)


async def test_a_failed_lane_shows_its_reason_and_keys_act_on_the_other():
    demo = racing_demo()
    demo.fail("gpu:0")
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        assert "✗ no module named 'keras_hub'" in shown(pilot)
        assert "▸ pip install keras-hub" in shown(pilot)
        assert "[bold]not markup[/bold]" in shown(pilot)
        await press(pilot, "p")
        assert demo.controls.calls == [("set_knob", "cpu", "prefetch", 1)]


async def test_a_remapped_key_acts_and_is_shown_and_the_old_one_does_not():
    demo = racing_demo()
    async with app_of(demo, keymap={"prefetch.next": "f"}).run_test(size=(120, 36)) as pilot:
        await press(pilot, "p")
        assert demo.controls.calls == []
        await press(pilot, "f")
        assert [call[2:] for call in demo.controls.calls] == [("prefetch", 1), ("prefetch", 1)]
        assert " f prefetch off" in shown(pilot).splitlines()[-1]


# ---------------------------------------------------------------- the race


async def test_space_pauses_what_races_and_then_lets_it_go_on():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        await press(pilot, "space")
        assert demo.controls.calls == [("pause", ("cpu", "gpu:0"))]
        assert "pause requested: cpu, gpu:0" in shown(pilot)
        for name in demo.names:
            demo.enter(name, "paused")
        await press(pilot, "escape", "space")
        assert demo.controls.calls[1:] == [("resume", ("cpu", "gpu:0"))]


async def test_space_before_the_race_says_that_there_is_nothing_to_pause():
    demo = Demo()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "space")
        assert demo.controls.calls == []
        assert "nothing to pause" in shown(pilot)


async def test_restart_takes_the_focused_lane_or_all_even_failed_ones():
    demo = racing_demo()
    demo.fail("gpu:0")
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        await press(pilot, "r", "tab", "r")
        assert demo.controls.calls == [("restart", ("cpu", "gpu:0")), ("restart", ("cpu",))]
        assert "restarting cpu" in shown(pilot)


async def test_a_knob_that_needs_a_restart_says_so():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        await press(pilot, "k", "down", "down", "right")
        assert demo.controls.calls == [("set_knob", "cpu", "graph", False), ("set_knob", "gpu:0", "graph", False)]
        assert "graph takes effect with a restart: cpu, gpu:0" in shown(pilot)
        await press(pilot, "down", "left", "escape")
        assert demo.controls.calls[-1] == ("set_knob", "gpu:0", "width", 64)
        assert isinstance(pilot.app.screen, RaceScreen)


async def test_the_knob_page_lists_value_help_and_kind_of_every_knob():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "k")
        text = shown(pilot)
        for part in ("batch", "prefetch", "graph", "width", "Units of the hidden layer.", "restarts the lane"):
            assert part in text
        assert "changes while it trains" in text


async def test_more_lanes_than_room_come_into_view_with_the_focus():
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(5)])
    demo.go()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        assert "A  cpu" in shown(pilot) and "C  cpu" not in shown(pilot)
        await press(pilot, "tab", "tab", "tab")
        assert "C  cpu" in shown(pilot) and "A  cpu" not in shown(pilot)
        await press(pilot, "pagedown")
        assert "E  cpu" in shown(pilot) and "lane 5 of 5" in shown(pilot)
        await press(pilot, "pagedown")
        assert "A  cpu" in shown(pilot)
        await press(pilot, "pageup")
        assert "E  cpu" in shown(pilot)


async def test_a_click_focuses_a_pane_and_a_second_one_all():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.click(offset=(90, 10))
        await until(pilot, lambda: app.view.focused == "gpu:0")
        await pilot.click(offset=(90, 10))
        await until(pilot, lambda: app.view.focused is None)


async def test_a_key_at_the_bottom_can_be_clicked():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        column = shown(pilot).splitlines()[-1].index("prefetch")
        await pilot.click(offset=(column, 35))
        await until(pilot, lambda: demo.controls.calls)
        assert demo.controls.calls[0] == ("set_knob", "cpu", "prefetch", 1)


async def test_resizing_through_all_kinds_of_sizes_leaves_no_debris():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        for width, height in ((80, 24), (60, 16), (60, 3), (10, 3), (1, 1), (200, 50), (120, 36)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            assert len(shown(pilot).splitlines()) <= height
            assert max(len(line) for line in shown(pilot).splitlines()) <= width
        assert "examples/s" in shown(pilot)


# ---------------------------------------------------------------- other pages


@pytest.mark.parametrize("key", ["question_mark", "f1"])
async def test_help_lists_every_key_and_explains_the_numbers(key):
    async with app_of(racing_demo()).run_test(size=(120, 140)) as pilot:
        await press(pilot, key)
        text = shown(pilot)
        for part in (
            "prefetch: off, 1, 2, auto",
            "Space",
            "Shift+Tab",
            "race another scenario",
            "examples/s",
            "n/a",
        ):
            assert part in text
        assert text.startswith(" C 7.7k ex/s  G 2.4k ex/s"), "the race stays in sight"
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, RaceScreen)


async def test_help_scrolls_where_it_does_not_fit_and_stops_at_its_end():
    async with app_of(racing_demo()).run_test(size=(80, 24)) as pilot:
        await press(pilot, "question_mark")
        assert "n/a" not in shown(pilot)
        while "n/a" not in shown(pilot):
            before = shown(pilot)
            await press(pilot, "pagedown")
            assert shown(pilot) != before, "the end, and no n/a"
        await press(pilot, "end")
        bottom = shown(pilot)
        await press(pilot, "down")
        assert shown(pilot) == bottom
        await press(pilot, "up")
        assert shown(pilot) != bottom


async def test_the_picker_filters_as_one_types_and_races_the_choice():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "s")
        assert all(info.name in shown(pilot) for info in SCENARIOS)
        await press(pilot, *"dense")
        assert "large-dense" in shown(pilot) and "conv" not in shown(pilot)
        await press(pilot, "down", "enter")
        await until(pilot, lambda: demo.controls.calls)
        assert demo.controls.calls == [("race", "large-dense")]
        assert isinstance(pilot.app.screen, RaceScreen)


async def test_the_keys_of_the_race_are_letters_in_the_picker():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "s", *"pbqrk?")
        assert demo.controls.calls == []
        assert "no scenario matches “pbqrk?”" in shown(pilot)
        await press(pilot, "enter", "ctrl+u")
        assert "conv" in shown(pilot)
        await press(pilot, "m", "x", "backspace", "i")
        assert "./mine.py" in shown(pilot)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, RaceScreen)
        assert demo.controls.calls == []


async def test_a_scenario_that_cannot_be_raced_is_told_in_a_line():
    demo = racing_demo()
    demo.controls.race_error = UsageError("mine.py:3: invalid syntax", "a scenario is a Python file")
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        await press(pilot, "s", "enter")
        await until(pilot, lambda: "mine.py:3: invalid syntax · a scenario is a Python file" in shown(pilot))


async def test_the_race_goes_on_behind_a_page():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "question_mark")
        demo.race(6, (5_000, 5_000), wobble=0)
        app.pull()
        assert shown(pilot).startswith(" C 5k ex/s  G 5k ex/s")
        await press(pilot, "escape")
        await until(pilot, lambda: " 0:48 " in shown(pilot))


async def test_what_tfmon_takes_is_shown_where_there_is_room():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        app.view = replace(app.view, sent_bytes_per_s=2_940.0)
        app.pull()
        assert "kB/s" not in shown(pilot), "its CPU is not known yet"
        for share in (Missing("first sample"), 1.2, 1.6):
            sample = unknown_host(demo.clock(), Missing("not read"))
            demo.session.accept(replace(sample, monitor_cpu_pct=share))
        app.pull()
        assert shown(pilot).splitlines()[-2].endswith("tfmon 1.4 % · 2.9 kB/s")
        app.say("a line so long that it leaves no room for anything else " + 10 * "and goes on ")
        assert "kB/s" not in shown(pilot)


# ---------------------------------------------------------------- beginning and end


async def test_the_lanes_are_started_after_the_first_paint():
    demo = Demo()
    seen: list[str] = []
    app = app_of(demo, on_ready=lambda: seen.append(app.screen.query_one(Canvas).text()))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: seen)
        assert "starting Python…" in seen[0]


async def test_a_race_that_cannot_start_says_why_and_stays_on_the_screen():
    clock = Clock()
    session = Session(GPU_MACHINE, clock)
    demo = Demo()

    def fail() -> None:
        raise TfmonError("there is no GPU 3", "nvidia-smi lists them")

    app = MonitorApp(session, demo.controls, demo.experiments, on_ready=fail, characters="braille")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "there is no GPU 3 · nvidia-smi lists them" in shown(pilot))
        clock.ahead(3600)
        app.pull()
        assert "there is no GPU 3" in shown(pilot)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quit_asks_the_lanes_to_stop_and_waits_for_them(key, monkeypatch):
    demo = racing_demo()
    may_end = threading.Event()
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        may_end.wait(DEADLINE_S)

    monkeypatch.setattr(demo.controls, "stop", stop)
    app = app_of(demo)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, key)
        await until(pilot, stopped.is_set)
        assert "stopping the lanes…" in shown(pilot)
        assert app.return_value is None
        may_end.set()
        await until(pilot, lambda: app.return_value == "quit")


@pytest.mark.parametrize("keys", [("q", "q"), ("ctrl+c", "ctrl+c"), ("question_mark", "ctrl+c", "q")])
async def test_asked_twice_it_leaves_at_once(keys, monkeypatch):
    demo = racing_demo()
    may_end = threading.Event()
    monkeypatch.setattr(demo.controls, "stop", lambda: may_end.wait(DEADLINE_S))
    app = app_of(demo)
    async with app.run_test(size=(80, 24)) as pilot:
        for key in keys:
            await pilot.press(key)
        await until(pilot, lambda: app.return_value == "forced")
    may_end.set()


async def test_a_signal_ends_it_from_any_thread():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "s")
        threading.Thread(target=app.request_quit).start()
        await until(pilot, lambda: app.return_value == "signal")
        assert demo.controls.calls == [("stop",)]


async def test_a_signal_before_the_first_paint_is_not_lost():
    demo = racing_demo()
    started: list[bool] = []
    app = app_of(demo, on_ready=lambda: started.append(True))
    app.request_quit()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.return_value == "signal")
    assert started == []


async def test_a_lane_that_starts_anew_begins_with_an_empty_history():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        demo.session.accept(LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={"batch_size": 20}))
        app.pull()
        assert "starting Python…" in shown(pilot)
        assert "no verdict yet" in shown(pilot)


# ---------------------------------------------------------------- looks


async def test_an_empty_no_color_is_as_if_it_were_not_there(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "")
    app = app_of(racing_demo())
    assert not app.no_color
    assert app.theme == "textual-dark"


async def test_no_color_takes_every_colour_out(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = app_of(racing_demo())
    async with app.run_test(size=(80, 24)):
        assert app.no_color
        colours = {
            colour.name
            for line in app.screen._compositor.render_strips()
            for segment in line.apply_filter(app._filters[-1], app.screen.background_colors[0])
            if segment.style is not None
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None
        }
        assert colours <= {"default"}


async def test_a_theme_can_be_changed_while_it_runs():
    app = app_of(racing_demo())
    async with app.run_test(size=(80, 24)) as pilot:
        before = app.palette["lane0"]
        app.theme = "textual-light"
        await until(pilot, lambda: app.palette["lane0"] != before)
        assert app.palette["text"].bgcolor != before.bgcolor

"""Keys, clicks and the end of the race, on the real app without a terminal."""

import asyncio
import re
import tempfile
import threading
from pathlib import Path

import pytest
from support.ui import GPU_MACHINE, SCENARIOS, Clock, Demo, FakeRuns, racing_demo
from support.waiting import LOOK_S, PATIENCE_S
from textual._xterm_parser import XTermParser
from textual.command import CommandList
from textual.events import Key, MouseScrollDown, MouseScrollUp
from textual.widget import Widget

from tfmon.analysis.analysis import analyse
from tfmon.errors import TfmonError, UsageError
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec
from tfmon.reports import race_report
from tfmon.ui.app import CALM_S, TICK_S, MonitorApp
from tfmon.ui.screens.race_screen import RaceScreen

from .pilot import app_of, chosen, press, shown, text_of, until, wheel

SIZE = (120, 36)


def set_knob(knob: str, value: object) -> list[tuple[object, ...]]:
    return [("set_knob", "cpu", knob, value), ("set_knob", "gpu:0", knob, value)]


async def test_a_knob_key_requests_a_value_of_every_lane_and_is_echoed_until_it_is_in_effect(demo, app, pilot):
    await press(pilot, "B")
    assert demo.controls.calls == set_knob("batch_size", 32)
    await until(pilot, lambda: shown(pilot).count("batch 20 → 32 requested") == 2)  # in both panes
    for number, name in enumerate(demo.names, 1):
        demo.apply(name, "batch_size", 32, number)
    app.monitor.pull()
    assert "requested" not in shown(pilot) and "batch 32" in shown(pilot)
    await press(pilot, "b", "p")
    assert demo.controls.calls[2:] == [*set_knob("batch_size", 16), *set_knob("prefetch", 1)]


async def test_a_run_whose_process_is_gone_says_so_after_every_key_and_takes_no_change(monkeypatch):
    monkeypatch.setattr("tfmon.ui.monitor.MESSAGE_S", LOOK_S)
    demo, left = racing_demo(), []
    gone = "process 7, which ran train.py, has ended unexpectedly"
    app = app_of(demo, detachable=True, leave=lambda: left.append(True), lost=lambda: gone)
    async with app.run_test(size=SIZE) as pilot:
        for key in ("space", "B", "v", "l", "escape"):
            await press(pilot, key)
            app.monitor.pull()
            await until(pilot, lambda: gone in shown(pilot))
        assert demo.controls.calls == []
        assert "pause" not in shown(pilot).splitlines()[-1]
        await press(pilot, "q")
        assert left


async def test_keys_act_on_the_focused_lane_focus_goes_round_and_esc_and_a_letter_are_two_keys(demo, app, pilot):
    seen = []
    for key in ("tab", "tab", "tab", "shift+tab", "shift+tab", "escape"):
        await press(pilot, key)
        seen.append(app.monitor.view.focused)
    assert seen == ["cpu", "gpu:0", None, "gpu:0", "cpu", None]
    await press(pilot, "tab", "tab", "p")
    assert "prefetch off → 1 · gpu:0 only" in shown(pilot), "the effect is said"
    assert demo.controls.calls == [("set_knob", "gpu:0", "prefetch", 1)]
    await press(pilot, "l")
    parser = XTermParser()
    (typed,) = (*parser.feed("\x1bk"), *parser.feed(""))
    app.post_message(typed)
    await until(pilot, lambda: "Knobs of " in shown(pilot))


@pytest.mark.parametrize("pilot", [(80, 24)], indirect=True)
async def test_the_knob_page_lists_all_knobs_and_changes_them_as_the_keys_do(demo, pilot):
    await press(pilot, "k")
    for part in ("batch", "prefetch", "restarts the lane", "while it trains", "Examples in one"):
        assert part in shown(pilot)
    await press(pilot, "down")
    assert chosen(pilot) == "prefetch"
    await press(pilot, "down", "right")
    assert demo.controls.calls == set_knob("graph", False)
    assert "graph on → off, with a restart of cpu, gpu:0" in shown(pilot)
    await press(pilot, "down", "left", "escape")
    assert demo.controls.calls[-1] == ("set_knob", "gpu:0", "width", 64)
    assert isinstance(pilot.app.screen, RaceScreen)


async def test_restart_takes_all_or_the_failed_or_the_focused_lane_but_a_knob_only_the_living(demo, app, pilot):
    await press(pilot, "r")
    assert demo.controls.calls == [("restart", ("cpu", "gpu:0"))]
    demo.fail("gpu:0")
    app.monitor.pull()
    await press(pilot, "p", "r", "tab", "r")
    restarts = [("restart", ("gpu:0",)), ("restart", ("cpu",))]
    assert demo.controls.calls[1:] == [("set_knob", "cpu", "prefetch", 1), *restarts]
    assert "restarting cpu" in shown(pilot)


async def test_space_pauses_what_races_and_then_resumes_it_and_t_changes_the_mode():
    demo = Demo(mode="turns")
    async with app_of(demo).run_test(size=SIZE) as pilot:
        await press(pilot, "space")
        assert demo.controls.calls == [] and "nothing to pause" in shown(pilot)
        demo.go()
        pilot.app.monitor.pull()
        await press(pilot, "space")
        assert "pause requested: cpu, gpu:0" in shown(pilot)
        demo.enter("cpu", "paused")
        pilot.app.monitor.pull()
        await press(pilot, "space")
        demo.enter("gpu:0", "paused")
        pilot.app.monitor.pull()
        await press(pilot, "space")
        assert "resumed: cpu, gpu:0" in shown(pilot)
        await press(pilot, "t")
        assert "share the cores" in shown(pilot)
        both = ("cpu", "gpu:0")
        assert demo.controls.calls == [
            ("pause", both), ("pause", ("gpu:0",)), ("resume", both), ("set_mode", "concurrent"),
        ]  # fmt: skip


async def test_a_race_that_nobody_touches_is_drawn_every_two_seconds(demo, app, pilot):
    demo.clock.ahead(1)
    demo.go()
    app.monitor.pull()
    await press(pilot, "i")
    assert app.refresh_s() == TICK_S, "somebody looks"
    demo.clock.ahead(11)
    app._tick()
    assert app.refresh_s() == CALM_S
    await press(pilot, "i")
    assert app.refresh_s() == TICK_S


async def test_a_snapshot_is_analysed_once_however_much_is_drawn(monkeypatch, app, pilot):
    analysed = []

    def count(snapshot, *before):
        analysed.append(snapshot)
        return analyse(snapshot, *before)

    monkeypatch.setattr("tfmon.ui.monitor.analyse", count)
    app.monitor.pull()
    assert len(analysed) == 1
    await press(pilot, "enter", "escape")
    await pilot.resize_terminal(80, 24)
    assert len(analysed) == len({id(snapshot) for snapshot in analysed})
    assert analysed[-1] is app.monitor.snapshot


LINE = "gpu:0 failed 0:00 ago, while hidden (Esc): no module named 'keras_hub'"


async def test_a_lane_that_fails_behind_a_page_is_told_there_and_on_the_race_until_esc(demo, pilot):
    await press(pilot, "question_mark")
    demo.fail("gpu:0")
    pilot.app.monitor.pull()
    assert LINE in shown(pilot)
    await press(pilot, "escape")
    assert LINE in shown(pilot), "closing the page does not acknowledge it"
    demo.clock.ahead(60)
    pilot.app.monitor.pull()
    assert "failed 1:00 ago" in shown(pilot)
    await press(pilot, "escape")
    assert "while hidden" not in shown(pilot)
    demo.fail("cpu")
    pilot.app.monitor.pull()
    await press(pilot, "question_mark")
    assert "while hidden" not in shown(pilot), "that one failed in sight"


async def test_a_click_focuses_a_pane_or_steps_a_knob_at_the_bottom_as_the_wheel_does(demo, app, pilot):
    await pilot.click(offset=(60, 10))
    await until(pilot, lambda: app.monitor.view.focused == "gpu:0")
    await pilot.click(offset=(90, 10))
    await until(pilot, lambda: app.monitor.view.focused is None)
    bottom = shown(pilot).splitlines()[-1]
    await pilot.click(offset=(bottom.index("prefetch"), 35))
    await until(pilot, lambda: demo.controls.calls)
    await pilot.click(offset=(bottom.index("batch"), 35), button=3)
    await until(pilot, lambda: len(demo.controls.calls) == 4)
    await wheel(pilot, MouseScrollUp, (bottom.index("batch"), 35))
    await wheel(pilot, MouseScrollDown, (bottom.index("batch"), 35))
    values = [call[2:] for call in demo.controls.calls if call[1] == "cpu"]
    assert values == [("prefetch", 1), *(("batch_size", value) for value in (16, 32, 16))]


async def test_hidden_lanes_are_shown_by_focus_page_keys_and_wheel():
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(5)]).go()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        rows = [row.split()[:1] for row in shown(pilot).splitlines()]
        assert [row[0] for row in rows if row and row[0] in "ABCDE"] == [*"ABCDE"], "a table of all lanes"
        await press(pilot, "tab", "tab", "tab")
        assert "C  cpu" in shown(pilot) and "A  cpu" not in shown(pilot)
        await press(pilot, "pagedown")
        assert "E  cpu" in shown(pilot) and "lane 5 of 5" in shown(pilot)
        await wheel(pilot, MouseScrollDown, (10, 10))
        assert "A  cpu" in shown(pilot)
        demo.fail(demo.names[4])
        pilot.app.monitor.pull()
        assert "cpu batch_size=16 failed 0:00 ago, while hidden" in shown(pilot)
        await press(pilot, "pageup")
        assert "E  cpu" in shown(pilot)


@pytest.mark.parametrize("pilot", [(80, 24)], indirect=True)
async def test_help_scrolls_and_stops_at_its_ends_and_keeps_what_matches(app, pilot):
    await press(pilot, "f1")
    top = shown(pilot)
    assert "change prefetch: off, 1, 2, auto" in top and "n/a" not in top
    await wheel(pilot, MouseScrollUp, (10, 10))
    assert app.screen.lines.scroll_offset.y == 0
    await wheel(pilot, MouseScrollDown, (10, 10))
    assert shown(pilot) != top
    await press(pilot, "end")
    bottom = shown(pilot)
    await press(pilot, "down")
    assert shown(pilot) == bottom
    await press(pilot, "up")
    assert shown(pilot) != bottom
    await press(pilot, "slash", *"profile 20")
    assert "Lanes" in shown(pilot) and "prefetch" not in shown(pilot)
    await press(pilot, "escape")
    assert "change prefetch: off, 1, 2, auto" in shown(pilot), "Esc drops the words first"
    await press(pilot, "escape")
    assert isinstance(pilot.app.screen, RaceScreen)


@pytest.mark.parametrize("pilot", [(80, 24)], indirect=True)
async def test_a_scenario_is_found_as_one_types_and_raced(demo, pilot):
    await press(pilot, "s")
    await until(pilot, lambda: all(info.name in shown(pilot) for info in SCENARIOS))
    await press(pilot, *"pbqrk?")
    assert demo.controls.calls == [], "the keys of the race are characters here"
    await until(pilot, lambda: "conv" not in shown(pilot))
    await press(pilot, *["backspace"] * 6, *"large")
    await until(pilot, lambda: "large-dense" in shown(pilot) and "conv" not in shown(pilot))
    await press(pilot, "enter")
    await until(pilot, lambda: demo.controls.calls)
    assert demo.experiments.calls == [("stop",)], "an experiment is stopped first"
    assert demo.controls.calls == [("race", "large-dense")]
    assert isinstance(pilot.app.screen, RaceScreen)
    demo.controls.race_error = UsageError("mine.py:3: invalid syntax", "a scenario is a Python file")
    await press(pilot, "s")
    await until(pilot, lambda: "▸ small-dense" in shown(pilot))
    await press(pilot, "enter")
    await until(pilot, lambda: "mine.py:3: invalid syntax · a scenario is a Python file" in shown(pilot))


async def test_w_saves_screen_and_table_or_the_text_of_a_page(demo, app, pilot, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app.monitor.source.table = lambda: race_report.to_text(analyse(demo.session.snapshot()))
    await press(pilot, "s", "w", "escape", "l", "slash", "w", "escape", "escape")
    assert not list(tmp_path.iterdir()), "where one types, w is a character"
    await press(pilot, "w")
    stem = re.search(r"saved .*(tfmon-small-dense-\d{8}-\d{6})\.svg", app.monitor.view.message)
    assert stem and "saved " in shown(pilot), app.monitor.view.message  # the path of the folder may be cut
    assert "<svg" in (tmp_path / f"{stem[1]}.svg").read_text()
    assert "cpu is 3.2× faster than gpu:0" in (tmp_path / f"{stem[1]}.txt").read_text()
    for file in tmp_path.iterdir():
        file.unlink()
    await press(pilot, "question_mark", "w", "escape")
    assert "change prefetch: off, 1, 2, auto" in next(tmp_path.glob("*.txt")).read_text()
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    await press(pilot, "w")
    assert "could not be saved: No such file or directory" in shown(pilot)


async def test_the_lanes_are_started_after_the_first_paint_and_why_they_cannot_stays_on_the_screen():
    demo = Demo()
    clock, seen = Clock(), []

    def fail(_say) -> None:
        seen.append(text_of(app.screen))
        raise TfmonError("there is no GPU 3", "nvidia-smi lists them")

    demo.session = Session(GPU_MACHINE, clock)
    app = app_of(demo, start=fail)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "there is no GPU 3 · nvidia-smi lists them" in shown(pilot))
        assert "examining the machine" in seen[0]
        clock.ahead(3600)
        app.monitor.pull()
        assert "there is no GPU 3" in shown(pilot)


@pytest.mark.parametrize(("keys", "again"), [(["q"], False), (["question_mark", "ctrl+c"], True)])
async def test_quit_stops_the_lanes_and_waits_or_until_pressed_again(keys, again, demo, app, pilot, monkeypatch):
    may_end, stopped = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        may_end.wait(PATIENCE_S)

    monkeypatch.setattr(demo.controls, "stop", stop)
    await press(pilot, *keys)
    await until(pilot, lambda: stopped.is_set() and "stopping the lanes…" in shown(pilot))
    assert app.return_value is None
    await pilot.press("q") if again else may_end.set()
    await until(pilot, lambda: app.return_value == ("forced" if again else "quit"))
    may_end.set()


async def test_a_signal_ends_it_from_any_thread_and_before_the_first_paint(demo, app, pilot):
    await press(pilot, "s")
    threading.Thread(target=app.request_quit).start()
    await until(pilot, lambda: app.return_value == "signal")
    assert demo.controls.calls == [("stop",)]
    started: list[bool] = []
    app = app_of(demo, start=lambda _say: started.append(True))
    app.request_quit()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.return_value == "signal")
    assert started == []


async def test_ctrl_z_suspends_or_says_why_not():
    stopped: list[int] = []
    for suspend, said in ((lambda: stopped.append(1), ""), (None, "not started by a shell")):
        app = app_of(racing_demo(), suspend=suspend)
        async with app.run_test() as pilot:
            await press(pilot, "ctrl+z")
            assert stopped == [1]
            assert said in app.monitor.view.message


async def test_no_key_changes_the_result_of_a_race_that_is_over(demo, app, pilot, monkeypatch):
    monkeypatch.setattr("tfmon.ui.monitor.MESSAGE_S", LOOK_S)
    demo.enter_all("done")
    await until(pilot, lambda: "95 % CI" in shown(pilot) and "leave" in shown(pilot))
    before = shown(pilot)
    for key in ("t", "space", "p", "B", "b", "g", "x", "e", "u"):
        await press(pilot, key)
    for _ in range(2):
        demo.clock.ahead(6)
        demo.sample((310, 290))
        app.monitor.pull()
    await until(pilot, lambda: shown(pilot) == before)
    called = {call[0] for call in demo.controls.calls}
    assert not called & {"set_mode", "set_knob", "pause", "resume"}, "nothing was requested of the lanes"


class OnTerminal(MonitorApp):
    """Handles errors as on a terminal; without one Textual raises them in the test."""

    is_headless = False


async def test_a_key_for_a_list_that_has_no_layout_yet_is_no_error(app, pilot):
    app.post_message(Key("colon", None))
    while app.return_code is None and not any(
        found.scrollable_content_region for found in app.screen.query(CommandList)
    ):
        app.post_message(Key("pagedown", None))
        await asyncio.sleep(0)
    await press(pilot, "escape", "escape")
    assert isinstance(app.screen, RaceScreen) and app.return_code is None


def fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("by design")


FAULTS = {
    "a key": lambda page, _: page._bindings.bind("f5", "fail") or setattr(page, "action_fail", fail),
    "a handler": lambda page, patch: patch.setattr(type(page), "on_key", fail, raising=False),
    "a timer": lambda page, _: page.set_timer(0.001, fail),
    "a callback": lambda page, _: page.call_later(fail),
    "a worker": lambda page, _: page.run_worker(asyncio.to_thread(fail)),
    "a widget's callback": lambda page, _: page.query(Widget).last().call_later(fail),
    "rendering": lambda page, _: [setattr(widget, "render_lines", fail) for widget in page.query(Widget)],
    "the layout": lambda page, _: setattr(page, "arrange", fail),
}


@pytest.mark.parametrize(
    ("key", "fault"), [*zip("ilkGdREs", FAULTS, strict=True), (":", "a handler"), (":", "rendering")]
)
async def test_a_page_that_fails_is_closed_with_a_line_and_the_race_goes_on(key, fault, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("tfmon.ui.monitor.NOTICE_S", PATIENCE_S)
    demo = racing_demo()
    app = app_of(demo, OnTerminal, runs=FakeRuns(), examine=lambda: "fine", repeat=lambda: "tfmon race")
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, key)
        failing = app.screen
        assert failing is not app.monitor.screen
        with monkeypatch.context() as patch:
            FAULTS[fault](failing, patch)
            failing.refresh(layout=True)
            app.post_message(Key("f5", None))
            while app.screen is not app.monitor.screen:  # the pilot would wait for a page that is gone
                await asyncio.sleep(LOOK_S)
        await until(pilot, lambda: "by design" in shown(pilot))
        notice = app.monitor.view.notice
        line = re.fullmatch(r"the page failed: ZeroDivisionError: by design \(traceback: (\S+)\)", notice)
        assert "in fail" in Path(line[1]).read_text()
        await press(pilot, "p")
        assert demo.controls.calls and "by design" in shown(pilot), "a key in the same burst does not hide it"
        await press(pilot, key)
        assert app.screen is not failing and app.screen is not app.monitor.screen
        assert app.broken is None and app.return_value is None


async def test_the_screen_is_left_when_it_fails_again_and_again_and_not_for_what_keys_do(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    demo = racing_demo()
    app = app_of(demo, OnTerminal)
    async with app.run_test(size=SIZE) as pilot:
        monkeypatch.setattr(RaceScreen, "action_next_span", fail)
        for _ in range(5):
            await press(pilot, "h")
        assert "the screen failed: ZeroDivisionError" in app.monitor.view.notice and app.broken is None
        demo.clock.ahead(1)
        monkeypatch.setattr("tfmon.ui.screens.race_screen.draw", fail)
        await until(pilot, lambda: app.broken is not None)
    assert app.return_value is None and not demo.controls.calls, "the lanes still train"

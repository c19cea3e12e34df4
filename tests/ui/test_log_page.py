"""The page of a lane's log."""

from __future__ import annotations

from support.ui import Demo, racing_demo
from textual.events import MouseScrollDown, MouseScrollUp

from tfmon.model.events import LanePrinted
from tfmon.model.lane_state import LogLine
from tfmon.ui.render.rows import cells, plain
from tfmon.ui.screens.log import log_rows
from tfmon.ui.screens.race import RaceScreen

from .pilot import app_of, press, shown, wheel


def talking_demo(count: int = 100) -> Demo:
    demo = racing_demo()
    lines = tuple(f"line {number} of {'odd' if number % 2 else 'even'} ones" for number in range(count))
    demo.session.accept(LanePrinted(lane="cpu", at_ns=demo.clock(), lines=lines))
    demo.session.accept(LanePrinted(lane="gpu:0", at_ns=demo.clock(), lines=("from the other lane",)))
    return demo


def say(demo: Demo, *lines: str) -> None:
    demo.session.accept(LanePrinted(lane="cpu", at_ns=demo.clock(), lines=lines))


async def test_l_opens_the_log_of_the_focused_lane_with_its_newest_lines():
    demo = talking_demo()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "l")
        assert "Log of lane C: cpu" in shown(pilot)
        assert "line 99 of odd ones" in shown(pilot) and "line 0 of" not in shown(pilot)
        await press(pilot, "tab")
        assert "Log of lane G: gpu:0" in shown(pilot) and "from the other lane" in shown(pilot)
        assert "started, process 4001" in shown(pilot)
        await press(pilot, "l")
        assert isinstance(pilot.app.screen, RaceScreen)
        await press(pilot, "tab", "tab", "l")
        assert "Log of lane G: gpu:0" in shown(pilot)


async def test_it_follows_until_one_scrolls_up_and_again_from_the_end_on():
    demo = talking_demo()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "l")
        assert "following" in shown(pilot)
        say(demo, "news")
        pilot.app.pull()
        assert "news" in shown(pilot)
        await press(pilot, "pageup")
        assert "10 newer below" in shown(pilot) and "news" not in shown(pilot)
        before = shown(pilot)
        say(demo, "more news")
        pilot.app.pull()
        assert shown(pilot) == before.replace("10 newer", "11 newer").replace("106 lines", "107 lines")
        await press(pilot, "end")
        assert "more news" in shown(pilot) and "following" in shown(pilot)
        await wheel(pilot, MouseScrollUp, (10, 10))
        assert "3 newer below" in shown(pilot)
        await wheel(pilot, MouseScrollDown, (10, 10))
        assert "following" in shown(pilot)
        await press(pilot, "home")
        assert "started, process 4000" in shown(pilot)
        await press(pilot, *["pagedown"] * 12)
        assert "following" in shown(pilot)


async def test_a_filter_of_words_is_typed_kept_and_dropped():
    demo = talking_demo()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "l", "slash", *"EVEN 9q")
        assert "filter EVEN 9q▏   0 of 105 lines" in shown(pilot), "keys are characters while one types"
        await press(pilot, "backspace")
        assert "5 of 105 lines" in shown(pilot)
        assert "line 98 of even" in shown(pilot) and "line 97" not in shown(pilot)
        await press(pilot, "enter")
        assert "filter EVEN 9   5 of" in shown(pilot)
        await press(pilot, "slash", "escape")
        assert "filter all   105 lines" in shown(pilot)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, RaceScreen)


def test_lines_are_wrapped_marked_and_stamped_and_fill_the_page_from_the_end():
    log = [LogLine(second * 10**9, "printed", "word " * 20) for second in range(59, 62)]
    log.append(LogLine(62 * 10**9, "trouble", "no"))
    rows = log_rows(log, 60 * 10**9, 60, 6)
    text = plain(rows)
    assert len(rows) == 6 and max(map(cells, rows)) <= 60
    assert text[-1] == "   0:02 ! no"
    assert text[-3].startswith("   0:01   word") and text[-2].startswith("          word")
    assert plain(log_rows(log[:1], 60 * 10**9, 200, 6))[0].startswith("  -0:01   word")

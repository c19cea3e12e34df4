"""A replay on the screen: its keys, its time line and keys row, and the pages over it."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.recordings import RECORDED

from tfmon.api import live
from tfmon.api.live import Replay
from tfmon.api.settings import ScreenOptions
from tfmon.errors import TfmonError
from tfmon.model.ports import ReplayState, TimeMark
from tfmon.recordings.library import EXAMPLE
from tfmon.recordings.player import Player
from tfmon.recordings.reader import Recording
from tfmon.ui.app import MonitorApp
from tfmon.ui.keys import RACE_KEYS, watches
from tfmon.ui.render.bars import LEAST_BAR, timeline_row
from tfmon.ui.render.rows import plain
from tfmon.ui.screens.help import HelpPage
from tfmon.ui.screens.race_screen import TAKEN

from .pilot import press, shown, until

SECOND = 1_000_000_000
REFUSAL = "this is a replay of a race that is over: nothing in it can be changed"


@pytest.fixture
def player(request):
    """A paused player: only keys change something."""
    with Recording(getattr(request, "param", RECORDED)) as opened:
        player = Player(opened)
        player.toggle()
        yield player


@pytest.fixture
def app(player):
    return MonitorApp(Replay(player), characters="braille")


def at(player: Player) -> float:
    return (player.state().at_ns - player.state().from_ns) / SECOND


async def test_keys_move_through_the_race_which_plays_by_itself_to_the_end(player, pilot):
    await press(pilot, "right")
    assert at(player) == 5
    await press(pilot, "left", "right", "right")
    assert at(player) == 10
    event = player.state().event
    await press(pilot, "full_stop", "full_stop", "comma")
    assert player.state().event == event + 1
    await press(pilot, "plus", "plus", "minus")
    assert player.state().speed == 2
    await press(pilot, "home")
    assert at(player) == 0
    await press(pilot, "shift+right")
    assert player.state().at_end
    await press(pilot, "shift+left")
    assert at(player) == 0
    await press(pilot, *["plus"] * 5, "space")
    await until(pilot, lambda: player.state().at_end)
    await until(pilot, lambda: shown(pilot).splitlines()[-2].startswith(" end "))


async def test_keys_and_pages_change_nothing_and_say_that_this_is_a_replay_and_q_leaves(player, pilot):
    await press(pilot, "end")
    before = player.session.snapshot()
    for key in RACE_KEYS:
        if not watches(key.action) and key.id != TAKEN:
            pilot.app.monitor.say("")
            await press(pilot, key.keys.split(",")[0])
            assert REFUSAL in shown(pilot), key.id
            assert len(pilot.app.screen_stack) == 1, key.id
    await press(pilot, "c")
    assert "no crossover was measured" in shown(pilot) and len(pilot.app.screen_stack) == 1, "no empty page"
    await press(pilot, "k", "right")
    assert REFUSAL in shown(pilot) and "change" not in shown(pilot).splitlines()[-1]
    await press(pilot, "question_mark")
    assert "On this page: knobs" in shown(pilot)
    await press(pilot, "slash", *"event back")
    assert "one event back" in shown(pilot), "the keys of a replay"
    await press(pilot, "escape", "escape", "i")
    assert len(pilot.app.screen_stack) == 2
    assert "d doctor" not in shown(pilot) and "P profile" not in shown(pilot)
    await press(pilot, "escape", "question_mark")
    assert isinstance(pilot.app.screen, HelpPage)
    assert "one event back" in shown(pilot)
    await press(pilot, "escape", "tab")
    assert "keys act on cpu batch_size=10 only" in shown(pilot)
    assert player.session.snapshot() == before
    await press(pilot, "q")
    assert pilot.app.return_value == "quit", "at once: no lane has to end"


async def test_the_time_line_can_be_clicked_and_messages_go_although_it_is_paused(player, monkeypatch, pilot):
    monkeypatch.setattr("tfmon.ui.monitor.MESSAGE_S", 0.05)
    line = shown(pilot).splitlines()[-2]
    await pilot.click(offset=(line.rindex("─"), 34))
    await until(pilot, lambda: player.state().at_end)
    await pilot.click(offset=(shown(pilot).splitlines()[-2].index("━"), 34))
    await until(pilot, lambda: at(player) == 0)
    for x in range(2, 118, 6):
        await pilot.click(offset=(x, 34))
    assert pilot.app.return_value is None and len(pilot.app.screen_stack) == 1, "no key of a race is below it"
    await pilot.click(offset=(30, 10))
    await until(pilot, lambda: pilot.app.monitor.view.focused == "cpu")
    await press(pilot, "r")
    await until(pilot, lambda: REFUSAL not in shown(pilot))


@pytest.mark.parametrize("pilot", [(120, 60)], indirect=True)
async def test_the_page_of_a_lane_names_no_keys_that_a_replay_has_not(player, pilot):
    await press(pilot, "right", "i")
    assert "Heartbeat" in shown(pilot) and "last message" in shown(pilot)
    assert "K ends this lane" not in shown(pilot)
    await press(pilot, "i", "end", "i")
    assert "Lane A" in shown(pilot) and "Heartbeat" not in shown(pilot), "no heading without a line"


def replay(at_s: float = 30, **more) -> ReplayState:
    marks = (
        TimeMark(10 * SECOND, "batch_size 64 (cpu)", "knob"),
        TimeMark(28 * SECOND, "gpu:0 failed", "trouble"),
        TimeMark(50 * SECOND, "mode turns", "request"),
    )
    values = {"from_ns": 0, "to_ns": 60 * SECOND, "event": 5, "events": 9, "playing": True, "speed": 10}
    return ReplayState(at_ns=round(at_s * SECOND), **{**values, "marks": marks, **more})


def time_line(at_s: float = 30, **more) -> str:
    return plain([timeline_row(replay(at_s, **more), 120)])[0]


def test_it_says_how_far_and_how_fast_it_is_and_what_just_happened():
    shown = time_line()
    assert shown.startswith(" replay ×10 0:30  0:00 ━"), "it begins and ends with the times of its ends"
    assert "─ 1:00  event 5 of 9  gpu:0 failed" in shown
    assert [shown.count(sign) for sign in "┬✗█"] == [1, 1, 1]
    assert "paused" in time_line(playing=False)
    assert "end" in time_line(event=9, playing=False)
    assert "failed" not in time_line(40)
    assert "cut off at its end" in time_line(note="the recording is cut off at its end")


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_bar_and_its_marks_keep_their_place(width):
    bars = set()
    for at_s in range(61):
        for one in (replay(at_s, event=at_s, events=449), replay(at_s, started_ns=15 * SECOND, playing=False)):
            linked = ["go_to" in style for text, style in timeline_row(one, width) for _ in text]
            bars.add((one.started_ns, linked.index(True), sum(linked)))
    assert len(bars) == 2 and all(size >= LEAST_BAR for _, _, size in bars), bars


@pytest.mark.parametrize("player", [EXAMPLE], indirect=True)
async def test_a_replay_offers_no_undo_and_has_one_measure_of_its_time(player, app, pilot):
    effects = 0
    for mark in player.state().marks:
        player.go_to(mark.at_ns + SECOND)
        app.monitor.pull()
        await press(pilot)
        told = shown(pilot)
        effects += bool(re.search(r"→ \d+: ", told))
        assert "to undo" not in told and not re.search(r"% of \d+:\d\d", told), told
    assert effects, "where a race offers to undo it"
    before = player.state().at_ns
    await press(pilot, "left_square_bracket")
    at_ns = player.state().at_ns
    assert at_ns in [mark.at_ns for mark in player.state().marks] and at_ns < before
    line = shown(pilot).splitlines()[-2]
    assert line.split()[2].startswith("-"), "the bar begins before the start signal, and says so"


def test_an_error_of_the_screen_is_not_blamed_on_the_recording(monkeypatch):
    failed = SimpleNamespace(run=lambda mouse: None, broken=KeyError(0))
    monkeypatch.setattr(live, "_app", lambda *arguments: failed)
    with Recording(EXAMPLE) as opened, pytest.raises(TfmonError) as caught:
        live.replay(opened, ScreenOptions())
    message = re.fullmatch(r"the screen failed: KeyError: 0 \(traceback: (\S+)\)", caught.value.message)
    assert f"the recording stays as it is: tfmon replay {EXAMPLE} --headless" in caught.value.hint
    report = Path(message[1])
    assert "KeyError" in report.read_text()
    report.unlink()

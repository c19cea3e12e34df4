"""The replay on the screen: its keys move through the race, and nothing in it can be changed."""

from __future__ import annotations

import re

import pytest
from support.recordings import RECORDED
from textual.command import CommandList

from tfmon.api.live import replay_of
from tfmon.recordings.library import EXAMPLE
from tfmon.recordings.player import Player, play_all
from tfmon.recordings.reader import Recording
from tfmon.ui.app import MonitorApp
from tfmon.ui.keys import RACE_KEYS, watches
from tfmon.ui.screens.replay import TAKEN
from tfmon.ui.screens.text import HelpPage

from .pilot import press, shown, until

SECOND = 1_000_000_000
REFUSAL = "this is a replay of a race that is over: nothing in it can be changed"


@pytest.fixture
def player():
    """A player that is paused, so that nothing happens but what the keys do."""
    with Recording(RECORDED) as opened:
        player = Player(opened)
        player.toggle()
        yield player


def app_of(player: Player, **more) -> MonitorApp:
    return MonitorApp(replay_of(player), characters="braille", **more)


def at(player: Player) -> float:
    return (player.state().at_ns - player.state().from_ns) / SECOND


async def test_it_draws_the_race_with_its_time_line(player):
    async with app_of(player).run_test(size=(120, 36)) as pilot:
        await press(pilot, "end")
        screen = shown(pilot)
        assert "small-dense" in screen and "5.5×" in screen
        lines = screen.splitlines()
        assert lines[-2].startswith(" end ")
        assert lines[-1].startswith(" Space play")
        assert player.session.snapshot().lanes == play_all(RECORDED)[1].lanes


async def test_keys_move_through_the_race(player):
    async with app_of(player).run_test(size=(120, 36)) as pilot:
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


async def test_it_plays_by_itself_to_the_end(player):
    async with app_of(player).run_test(size=(120, 36)) as pilot:
        await press(pilot, *["plus"] * 6, "space")
        await until(pilot, lambda: player.state().at_end)
        await until(pilot, lambda: shown(pilot).splitlines()[-2].startswith(" end "))


async def test_a_key_that_would_change_a_race_says_that_this_is_a_replay(player):
    async with app_of(player).run_test(size=(120, 36)) as pilot:
        await press(pilot, "end")
        before = player.session.snapshot()
        for key in RACE_KEYS:
            if not watches(key.action) and key.id not in TAKEN:
                pilot.app.monitor.say("")
                await press(pilot, key.keys.split(",")[0])
                assert REFUSAL in shown(pilot), key.id
                assert len(pilot.app.screen_stack) == 1, key.id
        assert player.session.snapshot() == before


async def test_the_pages_show_and_change_nothing_and_q_leaves(player):
    async with app_of(player).run_test(size=(120, 36)) as pilot:
        await press(pilot, "end")
        before = player.session.snapshot()
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


async def test_a_recording_without_a_gpu_does_not_promise_one():
    with Recording(EXAMPLE) as opened:
        async with app_of(Player(opened)).run_test(size=(80, 24)) as pilot:
            await press(pilot, "G")
            await until(pilot, lambda: "no GPU was read up to this moment of the recording" in shown(pilot))


async def test_the_time_line_can_be_clicked_and_messages_go_although_it_is_paused(player, monkeypatch):
    monkeypatch.setattr("tfmon.ui.monitor.MESSAGE_S", 0.05)
    async with app_of(player).run_test(size=(120, 36)) as pilot:
        line = shown(pilot).splitlines()[-2]
        await pilot.click(offset=(line.rindex("─"), 34))
        await until(pilot, lambda: player.state().at_end)
        for x in range(2, 118, 6):
            await pilot.click(offset=(x, 34))
        assert pilot.app.return_value is None and len(pilot.app.screen_stack) == 1, "no key of a race is below it"
        await pilot.click(offset=(30, 10))
        await until(pilot, lambda: pilot.app.monitor.view.focused == "cpu")
        await press(pilot, "r")
        await until(pilot, lambda: REFUSAL not in shown(pilot))


async def test_why_a_key_does_nothing_stays_while_the_race_plays_on(player):
    async with app_of(player).run_test(size=(120, 36)) as pilot:
        await press(pilot, "end", "r")
        pilot.app.monitor.pull()
        assert REFUSAL in shown(pilot)
        await press(pilot, "i", "S")
        assert REFUSAL in shown(pilot), "nothing is requested of a lane that is gone"


async def test_every_size(player):
    async with app_of(player).run_test(size=(120, 36)) as pilot:
        await press(pilot, "end", "r")
        for width, height in ((30, 1), (30, 3), (60, 8), (80, 16), (80, 24), (200, 50)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda height=height: len(shown(pilot).splitlines()) == height)
            assert max(map(len, shown(pilot).splitlines())) <= width


async def test_the_palette_has_only_what_a_replay_does(player):
    async with app_of(player).run_test(size=(120, 60)) as pilot:
        await press(pilot, "plus", "plus", "minus")
        assert player.state().speed == 2
        await press(pilot, "colon")
        commands = pilot.app.screen.query_one(CommandList)
        await until(pilot, lambda: commands.option_count)
        listed = [str(commands.get_option_at_index(place).prompt) for place in range(commands.option_count)]
        assert any(text.startswith("faster: ×1") for text in listed)
        assert not any(text.startswith("batch size up") for text in listed)


async def test_the_time_line_counts_as_the_header_does(player):
    async with app_of(player).run_test(size=(120, 36)) as pilot:
        await press(pilot, "end")
        header, line = shown(pilot).splitlines()[1], shown(pilot).splitlines()[-2]
        counted = re.search(r"(\d+:\d\d) · ", header)
        assert counted and line.split()[1] == counted[1], (header, line)
        await press(pilot, "home")
        assert shown(pilot).splitlines()[-2].split()[1].startswith("-"), "before the start signal"

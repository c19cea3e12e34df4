"""The command palette: all that the keys do, found by words."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.ui import racing_demo
from textual.command import CommandList, CommandPalette
from textual.widgets import Input

from tfmon.ui.keys import RACE_KEYS, key_of, without_arrows
from tfmon.ui.render.style import TEXT, to_ascii
from tfmon.ui.screens.race import RaceScreen

from .pilot import app_of, press, shown, until


def options(pilot) -> list[str]:
    commands = pilot.app.screen.query_one(CommandList)
    return [str(commands.get_option_at_index(place).prompt) for place in range(commands.option_count)]


async def search(pilot, words: str = "") -> None:
    """Type words once the palette listens, and wait for what is found."""
    await until(pilot, lambda: isinstance(pilot.app.focused, Input))
    await press(pilot, *words)
    await until(pilot, lambda: options(pilot) and words in options(pilot)[0])


async def test_it_lists_every_action_with_its_key():
    async with app_of(racing_demo(), characters="ascii").run_test(size=(120, 80)) as pilot:
        for key in ("colon", "ctrl+p"):
            await press(pilot, key)
            await search(pilot)
            await until(pilot, lambda: pilot.app.screen.has_class("-ready"))
            listed = options(pilot)
            for one in RACE_KEYS:
                if one.id != "palette":
                    ((words, _),) = to_ascii(((f"{one.help}  ({key_of(one.id, without_arrows())})", TEXT),))
                    assert any(words in text for text in listed), one.id
            strips = pilot.app.screen._compositor.render_strips()
            assert "".join(segment.text for strip in strips for segment in strip).isascii()
            await press(pilot, "escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, RaceScreen))


async def test_what_is_chosen_is_done_over_the_race_and_over_a_page():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "colon")
        await search(pilot, "prefetch:")
        await press(pilot, "enter")
        await until(pilot, lambda: demo.controls.calls)
        assert demo.controls.calls[0] == ("set_knob", "cpu", "prefetch", 1)
        await until(pilot, lambda: isinstance(app.screen, RaceScreen))
        await press(pilot, "question_mark", "colon")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await search(pilot, "theme nord")
        before = app.monitor.palette["text"].bgcolor
        await press(pilot, "enter")
        await until(pilot, lambda: app.theme == "nord" and app.monitor.palette["text"].bgcolor != before)
        await press(pilot, "colon")
        await search(pilot, "all the knobs")
        await press(pilot, "enter")
        await until(pilot, lambda: not isinstance(app.screen, CommandPalette) and "Knobs of" in shown(pilot))


@pytest.mark.process
def test_the_screen_does_not_load_it():
    code = "import sys, tfmon.api.live; sys.exit('tfmon.ui.screens.palette' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

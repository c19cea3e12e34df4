"""Keys of the user's own, and what all bindings have in common."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import combinations

import pytest
from support.ui import racing_demo
from textual.binding import Binding
from textual.screen import Screen

import tfmon.ui.screens
from tfmon.ui.keys import KEYS, RACE_KEYS, key_named, key_of, label, read_keymap

from .pilot import app_of, press, shown


def screens() -> list[type[Screen]]:
    for module in pkgutil.iter_modules(tfmon.ui.screens.__path__, "tfmon.ui.screens."):
        importlib.import_module(module.name)

    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(one) for one in kind.__subclasses__()))

    return sorted(
        (one for one in below(Screen) if one.__module__.startswith("tfmon.")), key=lambda one: one.__name__
    )


def test_every_binding_of_ours_has_an_id_but_those_that_edit_text():
    assert {"RaceScreen", "KnobPage", "LogPage", "ReplayScreen"} <= {screen.__name__ for screen in screens()}
    for screen in screens():
        bindings = [one for one in screen.__dict__.get("BINDINGS", ()) if isinstance(one, Binding)]
        fixed = {one.key for one in bindings if one.id is None and one.action != "refuse"}
        assert fixed <= {"backspace", "ctrl+u"}, screen
        assert {one.id for one in bindings if one.id is not None} <= {key.id for key in KEYS}, screen


def test_ids_are_unique_and_built_in_keys_of_the_race_do_not_clash():
    assert len({key.id for key in KEYS}) == len(KEYS)
    for one, other in combinations(RACE_KEYS, 2):
        assert not set(one.keys.split(",")) & set(other.keys.split(","))


def test_built_in_keys_are_named_as_remapped_ones_and_what_is_no_key_has_no_name():
    for key in KEYS:
        keys = key.keys.split(",")
        assert [key_named(one) for one in keys] == keys
        assert key.label == label(keys[0])
    for written in ("", "foo", "ctrl+", "hold+x", "f f", "shift+1", "\x1b"):
        assert key_named(written) == ""
    assert key_of("prefetch.next", {"prefetch.next": "ctrl+f,f"}) == "Ctrl+F", "written by its first"
    assert key_of("prefetch.next", {}) == "p"


@pytest.mark.parametrize(
    ("written", "named", "shown"),
    [
        ("f", "f", "f"), ("F", "F", "F"), ("?", "question_mark", "?"), ("Esc", "escape", "Esc"),
        ("Ctrl+X", "ctrl+x", "Ctrl+X"), ("shift+b", "B", "B"), ("PgDn", "pagedown", "PgDn"), ("F5", "f5", "F5"),
        ("+", "plus", "+"), ("-", "minus", "-"), (".", "full_stop", "."), ("comma", "comma", ","),
        ("shift+tab", "shift+tab", "Shift+Tab"), (" space ", "space", "Space"), ("é", "é", "é"),
        ("ctrl+@", "ctrl+at", "Ctrl+@"),
    ],
)  # fmt: skip
def test_keys_are_named_as_textual_does_and_written_as_people_do(written, named, shown):
    assert key_named(written) == named
    assert label(named) == shown


def test_an_unknown_name_is_one_clear_line():
    (line,) = read_keymap({"nonsense": "f"})[1]
    assert "there is no key 'nonsense'" in line


def test_any_key_can_be_given_to_any_binding():
    for wanted in (
        {"prefetch.next": "b", "batch.down": "p"},
        {"batch.up": "B,up"},
        {"close": "escape,x"},
        {"batch.up": "plus", "batch.down": "minus"},
        {key.id: key.keys for key in KEYS},
    ):
        assert read_keymap(wanted) == (wanted, [])


async def test_swapped_keys_act_and_all_pages_show_them():
    keymap, wrong = read_keymap(
        {"prefetch.next": "b", "batch.down": "p", "help": "F2", "close": "x", "knobs": "Z"}
    )
    assert not wrong
    demo = racing_demo()
    async with app_of(demo, keymap=keymap).run_test(size=(120, 60)) as pilot:
        await press(pilot, "b", "p")
        assert [call[2:] for call in demo.controls.calls[::2]] == [("prefetch", 1), ("batch_size", 16)]
        assert "F2 help" in shown(pilot).splitlines()[-1]
        await press(pilot, "f2")
        assert "x back" in shown(pilot)
        assert "F2 " in shown(pilot)
        await press(pilot, "x", "Z")
        assert "Knobs of all lanes" in shown(pilot)
        await press(pilot, "Z")
        assert "examples/s" in shown(pilot)


async def test_a_terminal_without_arrows_names_keys_in_words():
    app = app_of(racing_demo(), characters="ascii", keymap={"move.up": "f5"})
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "k")
        assert "Left Right change" in shown(pilot) and "F5 Down choose" in shown(pilot)
        await press(pilot, "down", "left", "question_mark")
        assert "  Down         down by a line" in shown(pilot)

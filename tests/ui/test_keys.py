"""What all bindings have in common, and how keys are written."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import combinations

import pytest
from support.ui import racing_demo
from textual.binding import Binding
from textual.screen import Screen

import tfmon.ui.screens
from tfmon.ui.keys import KEYS, RACE_KEYS, label

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


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("f", "f"), ("F", "F"), ("question_mark", "?"), ("escape", "Esc"), ("ctrl+x", "Ctrl+X"),
        ("pagedown", "PgDn"),
        ("f5", "F5"), ("plus", "+"), ("minus", "-"), ("full_stop", "."), ("shift+tab", "Shift+Tab"),
        ("space", "Space"), ("ctrl+at", "Ctrl+@"),
    ],
)  # fmt: skip
def test_keys_are_written_as_people_do(named, shown):
    assert label(named) == shown


async def test_a_terminal_without_arrows_names_keys_in_words():
    app = app_of(racing_demo(), characters="ascii")
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "k")
        assert "Left Right change" in shown(pilot) and "Up Down choose" in shown(pilot)
        await press(pilot, "down", "left", "question_mark")
        assert "  Down         down by a line" in shown(pilot)

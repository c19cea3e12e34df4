"""The help, the command palette, and the list of scenarios."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette, SimpleCommand, SimpleProvider
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from tfmon.model.control_messages import BeginRace, Perform
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, Key, key_of, label, listed_keys
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.layout import Hint
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, crop, entry
from tfmon.ui.render.style import KEY, STRONG
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.screens.page import Page, bindings_of, bound, closer
from tfmon.ui.screens.text_pages import ListPage, ScrollPage
from tfmon.ui.terminal import Guarded

NUMBERS = Path(__file__).parents[1] / "numbers.md"
ITEM = re.compile(r"^- \*\*(.+?)\*\*: ((?:.|\n)+?)(?=\n- |\s*\Z)", re.MULTILINE)
BESIDE_LIST = 6
"""Cells beside the text of a command."""


class HelpPage(ScrollPage):
    """Lists the keys, first of the page, and explains every number."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("help"), closer("choose")]
    still = True
    title_text = "Help"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        of = monitor.app.screen
        self._first = _keys_of_page(of) if isinstance(of, Page) else ()
        self._of = of.tab or str(of.title_text) if isinstance(of, Page) else ""
        if monitor.view.replay:
            self.title_text = "Help: a replay"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        monitor = self.monitor
        listed = listed_keys(replay=monitor.view.replay, sweep=monitor.sweep is not None)
        return help_rows(monitor.view.keys, width, listed, self._first, self._of)


def _keys_of_page(page: Screen[Any]) -> tuple[Key, ...]:
    common = {binding.id for binding in Page.BINDINGS if isinstance(binding, Binding)}
    own = [
        (BY_ID[binding.id], binding)
        for binding in bindings_of(type(page))
        if binding.id in BY_ID and binding.id not in common
    ]
    return tuple(replace(known, keys=one.key, action=one.action) for known, one in own)


def help_rows(
    keys: Mapping[str, str],
    width: int,
    listed: Iterable[Key] = listed_keys(replay=False, sweep=False),
    first: Iterable[Key] = (),
    name: str = "",
) -> list[Row]:
    """Return the help on keys and numbers."""
    rows: list[Row] = []
    first = tuple(first)
    if first:
        rows += [BLANK, ((f"  On this page: {name}", STRONG),)]
        for key in first:
            rows += entry(label(keys.get(key.id, key.keys)), key.help, width, KEY)
    group, listed_ids = "", {key.id for key in first}
    for key in listed:
        if key.id in listed_ids:
            continue
        if key.group != group:
            group = key.group
            rows += [BLANK, ((f"  {group}", STRONG),)]
        rows += entry(key_of(key.id, keys), key.help, width, KEY)
    for heading, explained in explained_numbers():
        rows += [BLANK, ((f"  {heading}", STRONG),)]
        for one, meaning in explained:
            rows += entry(one, meaning, width, TEXT)
    return rows


class Palette(Guarded, CommandPalette):
    """Textual's palette without icon and moving bar. Its lists drop `reverse` in Textual 8.2: use bold."""

    CSS: ClassVar[str] = """
    Palette SearchIcon, Palette LoadingIndicator { display: none; }
    Palette CommandInput { padding-left: 1; }
    Palette.colourless CommandList > .option-list--option { text-style: none; }
    Palette.colourless CommandList > .option-list--option-highlighted { text-style: bold underline; }
    Palette.plain #--input { border: ascii $border; }
    Palette.plain CommandList { border: none; scrollbar-size-vertical: 0; }
    """

    def type_early(self, text: str) -> None:
        self.query_one(Input).insert_text_at_cursor(text)

    def on_unmount(self) -> None:
        """Free the lines that Textual 8.2 keeps of removed widgets."""
        for widget in self.widgets:
            widget.refresh()

    def on_mount(self) -> None:
        """Remember the widgets: Textual removes them before the palette. Its cursor is still, as the screen is."""
        self.query_one(Input).cursor_blink = False
        self.widgets = [*self.walk_children(Widget, with_self=True)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore keys before the list has a layout, because Textual 8.2 raises `KeyError`."""
        if action in ("command_list", "cursor_down") and not self.query_one(CommandList).size.height:
            return False
        return super().check_action(action, parameters)


def palette_of(monitor: Monitor) -> Palette:
    """Return the palette with the actions of the page and of the race."""
    keys, race, shown = monitor.view.keys, monitor.screen, monitor.app.screen
    actions_of = [(race, *one) for one in _actions(race, keys)]
    if shown is not race:
        actions_of = [
            *((shown, _line(shown, key.help, keys.get(key.id, key.keys)), key.action)
              for key in _keys_of_page(shown) if not key.id.startswith("move.")),
            *actions_of,
        ]  # fmt: skip
    actions: dict[str, tuple[Screen[Any], str]] = {}
    for place, text, action in actions_of:
        if action not in ("open('palette')", "show_tab('race')"):
            actions.setdefault(text, (place, action))
    commands = [
        SimpleCommand(text, partial(screen.call_next, screen.run_action, action))
        for text, (screen, action) in actions.items()
    ]
    return _list_of(commands, "What do you want to do?", monitor)


class ScenarioPage(ListPage):
    """Lists the scenarios, with the text of the chosen one below. Enter starts its race."""

    AUTO_FOCUS = "FilterInput"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter"),
        bound("move.down", "cursor(1)"),
        bound("move.up", "cursor(-1)"),
    ]
    still = True
    title_text = "Which scenario do you want to race?"
    columns = (Column("scenario"), Column("about", 80), Column("from"))
    noun = "scenario"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        race = monitor.snapshot.race.scenario
        self._entries = [
            Entry(
                one.name,
                ((one.name, STRONG), (one.title, TEXT), (one.origin, DIM)),
                whole=one.doc,
                mark="▸" if one.name == race else " ",
            )
            for one in monitor.source.scenarios()
        ]

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        return self._entries

    def on_mount(self) -> None:
        self.filter.display = True
        super().on_mount()

    def type_early(self, text: str) -> None:
        self.filter.insert_text_at_cursor(text)

    def hints(self) -> list[Hint]:
        return [Hint(self.key("choose"), "race it", "choose"), Hint(self.key("close"), "back", "dismiss")]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_choose()

    def action_cursor(self, direction: int) -> None:
        self.body.move_cursor(row=self.body.cursor_row + direction)

    async def action_dismiss(self, result: str | None = None) -> None:
        self.dismiss(result)

    def act(self, entry: Entry) -> None:
        monitor, number = self.monitor, self.monitor.snapshot.race.number

        def change() -> None:
            monitor.source.ask(Perform("end_series"))
            monitor.source.ask(BeginRace(str(entry.id)))

        self.dismiss(None)
        monitor.say(f"starting the race of {entry.id}…", lambda snapshot: snapshot.race.number != number)
        monitor.work(change)


def _list_of(commands: Iterable[SimpleCommand], question: str, monitor: Monitor) -> Palette:
    # As Textual's own `search_commands` does; its type says a class.
    provider: Any = SimpleProvider(monitor.app.screen, list(commands))
    palette = Palette([provider], placeholder=question)
    palette.set_class(monitor.view.charset == "ascii", "plain")
    palette.set_class(monitor.app.no_color, "colourless")
    return palette


def _actions(screen: Screen[Any], keys: Mapping[str, str]) -> list[tuple[str, str]]:
    lines = []
    for binding in type(screen).BINDINGS:
        if isinstance(binding, Binding) and binding.action != "refuse":
            shown = _line(screen, binding.description, keys.get(binding.id or "", binding.key))
            lines.append((shown, binding.action))
    themes = [] if screen.app.no_color else sorted(screen.app.available_themes)
    return lines + [(f"use the colours of the theme {name}", f"app.set_theme({name!r})") for name in themes]


def _line(screen: Screen[Any], help: str, keys: str) -> str:
    """Return what a key does, and the key at the right."""
    key, room = label(keys), screen.app.size.width - BESIDE_LIST
    return f"{crop(help, room - len(key) - 2):<{max(0, room - len(key))}}{key}"


def explained_numbers() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of `numbers.md`: numbers and their meanings."""
    sections = NUMBERS.read_text(encoding="utf-8").split("## ")[1:]
    return [
        (part.partition("\n")[0], [(one[1], " ".join(one[2].split())) for one in ITEM.finditer(part)])
        for part in sections
    ]

"""The help, the command palette and the scenarios."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette, SimpleProvider
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from tfmon.model.requests import Command
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, Key, label, listed_keys
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.bars import Hint
from tfmon.ui.render.rows import DIM, TEXT, Row, crop, section
from tfmon.ui.render.style import STRONG
from tfmon.ui.render.table import Entry
from tfmon.ui.screens.page import bindings_of, bound, closer
from tfmon.ui.screens.text_pages import ListPage, Page

NUMBERS = Path(__file__).parents[1] / "numbers.md"
ITEM = re.compile(r"^- \*\*(.+?)\*\*: ((?:.|\n)+?)(?=\n- |\s*\Z)", re.MULTILINE)
MARGIN_CELLS = 6


class HelpPage(Page):
    """Lists the keys, the page's first, and explains the numbers."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("help"), closer("choose")]
    still = True
    title_text = "Help"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        page = monitor.app.screen
        self._first = _keys_of_page(page) if isinstance(page, Page) else ()
        self._page_name = page.tab or str(page.title_text) if isinstance(page, Page) else ""
        if monitor.view.replay:
            self.title_text = "Help: a replay"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        monitor = self.monitor
        listed = listed_keys(replay=monitor.view.replay, sweep=monitor.sweep is not None)
        return help_rows(monitor.view.keys, width, listed, self._first, self._page_name)


def _keys_of_page(page: Screen[Any]) -> tuple[Key, ...]:
    common = {binding.id for binding in Page.BINDINGS if isinstance(binding, Binding)} - {"filter"}
    return tuple(
        replace(BY_ID[binding.id], keys=binding.key, action=binding.action)
        for binding in bindings_of(type(page))
        if binding.id in BY_ID and binding.id not in common
    )


def help_rows(
    keys: Mapping[str, str],
    width: int,
    listed: Iterable[Key] = listed_keys(replay=False, sweep=False),
    first: Collection[Key] = (),
    name: str = "",
) -> list[Row]:
    """Return the help for keys and numbers."""
    rows: list[Row] = []
    groups = {f"On this page: {name}": [*first]} if first else {}
    for key in listed:
        if key.id not in {page_key.id for page_key in first}:
            groups.setdefault(key.group, []).append(key)
    for group, group_keys in groups.items():
        rows += section(
            group, ((label(keys.get(key.id, key.keys)), key.help) for key in group_keys), width, STRONG
        )
    for heading, explained in explained_numbers():
        rows += section(heading, explained, width, TEXT)
    return rows


class Palette(CommandPalette):
    """Textual's palette without icon and moving bar. Its lists drop `reverse` in Textual 8.2: use bold."""

    CSS: ClassVar[str] = """
    Palette SearchIcon, Palette LoadingIndicator { display: none; }
    Palette CommandInput { padding-left: 1; }
    Palette.colourless CommandList > .option-list--option { text-style: none; }
    Palette.colourless CommandList > .option-list--option-highlighted { text-style: bold underline; }
    Palette.plain #--input { border: ascii $border; }
    Palette.plain CommandList { border: none; scrollbar-size-vertical: 0; }
    """

    def on_key(self, event: events.Key) -> None:
        """Type characters that arrive before the input has the focus."""
        if event.is_printable:
            self.query_one(Input).insert_text_at_cursor(event.character or "")

    def on_mount(self) -> None:
        """Store the widgets, because Textual removes them before the palette."""
        self.query_one(Input).cursor_blink = False
        self.widgets = [*self.walk_children(Widget, with_self=True)]

    def on_unmount(self) -> None:
        """Free the lines that Textual 8.2 keeps for removed widgets."""
        for widget in self.widgets:
            widget.refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore keys before the layout, because Textual 8.2 raises `KeyError`."""
        if action in ("command_list", "cursor_down") and not self.query_one(CommandList).size.height:
            return False
        return super().check_action(action, parameters)


def palette_of(monitor: Monitor) -> Palette:
    """Return a palette with the actions of page and race."""
    app, keys, race, shown = monitor.app, monitor.view.keys, monitor.screen, monitor.app.screen
    actions: dict[str, tuple[Screen[Any], str]] = {}

    def add(screen: Screen[Any], help: str, action: str, pressed: str = "") -> None:
        room = app.size.width - MARGIN_CELLS - len(pressed)
        if action not in ("refuse", "open('palette')", "show_tab('race')"):
            actions.setdefault(f"{crop(help, room - 2):<{max(0, room)}}{pressed}", (screen, action))

    for key in _keys_of_page(shown) if shown is not race else ():
        if not key.id.startswith("move."):
            add(shown, key.help, key.action, label(keys.get(key.id, key.keys)))
    for binding in (known for known in type(race).BINDINGS if isinstance(known, Binding)):
        add(race, binding.description, binding.action, label(keys.get(binding.id or "", binding.key)))
    for name in [] if app.no_color else sorted(app.available_themes):
        add(race, f"use the colours of the theme {name}", f"app.set_theme({name!r})")
    commands: list[Any] = [
        (text, partial(screen.call_next, screen.run_action, action)) for text, (screen, action) in actions.items()
    ]
    # As in Textual's `search_commands`; the declared type is a class.
    provider: Any = SimpleProvider(shown, commands)
    palette = Palette([provider], placeholder="What do you want to do?")
    palette.set_class(monitor.view.charset == "ascii", "plain")
    palette.set_class(app.no_color, "colourless")
    return palette


class ScenarioPage(ListPage):
    """Lists the scenarios, and starts a race of the chosen scenario."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter"),
        bound("move.down", "cursor(1)"),
        bound("move.up", "cursor(-1)"),
    ]
    still = True
    title_text = "Which scenario do you want to race?"
    columns = ("scenario", "about", "from")
    noun = "scenario"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        race = monitor.snapshot.race.scenario
        self._entries = [
            Entry(
                scenario.name,
                ((scenario.name, STRONG), (scenario.title, TEXT), (scenario.origin, DIM)),
                whole=scenario.doc,
                mark="▸" if scenario.name == race else " ",
            )
            for scenario in monitor.source.scenarios()
        ]

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        return self._entries

    def on_mount(self) -> None:
        self.filter.display = True
        super().on_mount()

    @property
    def typing(self) -> bool:
        return True

    def hints(self) -> list[Hint]:
        return [Hint(self.key("choose"), "race it", "choose"), Hint(self.key("close"), "back", "dismiss")]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_choose()

    def action_cursor(self, direction: int) -> None:
        self.body.move_cursor(row=self.body.cursor_row + direction)

    async def action_dismiss(self, result: str | None = None) -> None:
        self.dismiss(result)

    def act(self, entry: Entry) -> None:
        monitor = self.monitor

        def change() -> None:
            monitor.source.ask(Command("end series"))
            monitor.source.ask(Command("begin race", name=str(entry.id)))

        self.dismiss(None)
        monitor.say(f"starting the race of {entry.id}…")
        monitor.work(change)


def explained_numbers() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of `numbers.md`: names and meanings."""
    sections = NUMBERS.read_text(encoding="utf-8").split("## ")[1:]
    return [
        (part.partition("\n")[0], [(match[1], " ".join(match[2].split())) for match in ITEM.finditer(part)])
        for part in sections
    ]

"""The command palette: every action by what it is for, with its key. Loaded when it is first opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from textual.binding import Binding
from textual.command import CommandPalette, SimpleCommand, SimpleProvider
from textual.screen import Screen

from tfmon.ui.keys import label
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.style import TEXT, to_ascii
from tfmon.ui.screens.text import keys_of_page
from tfmon.ui.textual_compat import forget_lines


class Palette(CommandPalette):
    """Textual's palette without its icon, which not every terminal can show, and its moving bar.

    Without colour the chosen line is bold and underlined: Textual 8.2 drops `reverse` from the styles of a list.
    """

    CSS: ClassVar[str] = """
    Palette SearchIcon, Palette LoadingIndicator { display: none; }
    Palette CommandInput { padding-left: 1; }
    Palette.colourless CommandList > .option-list--option { text-style: none; }
    Palette.colourless CommandList > .option-list--option-highlighted { text-style: bold underline; }
    Palette.plain #--input { border: ascii $border; }
    Palette.plain CommandList { border: none; scrollbar-size-vertical: 0; }
    """

    def on_unmount(self) -> None:
        """Free the memory of the lines that were shown."""
        forget_lines()


def palette_of(monitor: Monitor) -> Palette:
    """Return the palette with all that the keys of the race do, after those of the page that is shown.

    What is chosen is done there.
    """
    keys, charset, race, shown = monitor.view.keys, monitor.view.charset, monitor.screen, monitor.app.screen
    found = [(race, *one) for one in _actions(race, keys)]
    if shown is not race:
        found = [(shown, *one) for one in _page_actions(shown, keys)] + found
    actions: dict[str, tuple[Screen[Any], str]] = {}
    for place, text, action in found:
        if charset == "ascii":
            text = "".join(part for part, _ in to_ascii(((text, TEXT),)))
        if action not in ("open('palette')", "show_tab('race')"):
            actions.setdefault(text, (place, action))
    commands: list[Any] = [SimpleCommand(text, _doing(*one)) for text, one in actions.items()]
    provider: Any = SimpleProvider(
        shown, commands
    )  # as Textual's own `search_commands` does; its type says a class
    palette = Palette([provider], placeholder="What do you want to do?")
    palette.set_class(charset == "ascii", "plain")
    palette.set_class(monitor.app.no_color, "colourless")
    return palette


def _actions(screen: Screen[Any], keys: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the lines of the palette with their actions: those of the screen's keys, then the themes."""
    found = []
    for binding in type(screen).BINDINGS:
        if isinstance(binding, Binding) and binding.action != "refuse":
            key = keys.get(binding.id or "", binding.key).split(",")[0]
            tab = f"{binding.action[10:-2]}: " if binding.action.startswith("show_tab(") else ""
            found.append((f"{tab}{binding.description}  ({label(key)})", binding.action))
    themes = [] if screen.app.no_color else sorted(screen.app.available_themes)
    return found + [(f"colours: theme {name}", f"app.set_theme({name!r})") for name in themes]


def _page_actions(page: Screen[Any], keys: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what the keys of a page do, but for those that move in it and those that every page has."""
    return [
        (f"{key.help}  ({label(keys.get(key.id, key.keys).split(',')[0])})", key.action)
        for key in keys_of_page(page)
        if not key.id.startswith("move.")
    ]


def _doing(screen: Screen[Any], action: str) -> Callable[[], None]:
    return lambda: screen.call_next(screen.run_action, action)

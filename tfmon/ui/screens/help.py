"""The help page: every key by what it is for, and every number on the screen in a sentence."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.keys import PAGE_KEYS, RACE_KEYS, STOP, key_of
from tfmon.ui.render.glossary import SECTIONS
from tfmon.ui.render.rows import BLANK, Row, wrap
from tfmon.ui.render.style import KEY, STRONG, TEXT
from tfmon.ui.screens.page import ScrollPage, bound, closer

_LABEL_CELLS = 13


class HelpPage(ScrollPage):
    """Lists keys and explains numbers."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("help"), bound("choose", "dismiss", "enter")]
    title_text = "Help"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the whole help."""
        return help_rows(dict(self.shell.view.keys), width)


def help_rows(keys: dict[str, str], width: int) -> list[Row]:
    """Return the whole help for a width."""
    rows: list[Row] = []
    group = ""
    for key in (*RACE_KEYS, *PAGE_KEYS, STOP):
        if key.group != group:
            group = key.group
            rows += [BLANK, ((f"  {group}", STRONG),)]
        rows += entry(key_of(key.id, keys), key.help, width, KEY)
    for heading, explained in SECTIONS:
        rows += [BLANK, ((f"  {heading}", STRONG),)]
        for name, meaning in explained:
            rows += entry(name, meaning, width, TEXT)
    return rows


def entry(name: str, meaning: str, width: int, style: str) -> list[Row]:
    """Return a name and what is said of it, wrapped beside it."""
    lines = wrap(meaning, max(10, min(100, width - _LABEL_CELLS - 4)), 9)
    return [
        ((f"  {name if place == 0 else '':<{_LABEL_CELLS}}", style), (line, TEXT))
        for place, line in enumerate(lines)
    ]

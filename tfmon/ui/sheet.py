"""A full page of rows over the race, which goes on; its first line keeps the race in sight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tfmon.model.session import Snapshot
from tfmon.ui.canvas import Canvas
from tfmon.ui.charset import to_ascii
from tfmon.ui.page import one_line
from tfmon.ui.rows import BLANK, Row, fit
from tfmon.ui.shell import Shell
from tfmon.ui.style import DIM, STRONG


class Sheet(ModalScreen[str | None]):
    """Base of the help, the scenario picker and the knob page."""

    CSS = "Sheet { background: $background; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close")]
    title_text = ""
    foot_text = "Esc closes"

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.shell = shell
        self.cursor = 0

    def compose(self) -> ComposeResult:
        """Give Textual the one widget of the page."""
        yield Canvas(self.shell.palette)

    def on_mount(self) -> None:
        """Draw as soon as the page has a size."""
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size."""
        self.redraw()

    def follow(self, snapshot: Snapshot) -> None:
        """Draw again with newer figures."""
        self.redraw()

    def redraw(self) -> None:
        """Show the body between the race in one line and the keys of the page."""
        width, height = self.app.size
        snapshot = self.shell.snapshot
        room = max(0, height - 4)
        body = (self.body(snapshot, width, room) + [BLANK] * room)[:room]
        rows: list[Row] = [one_line(snapshot, width), ((f" {self.title_text}", STRONG),), *body]
        rows += [BLANK, ((f" {self.foot_text}", DIM),)]
        fitted = [fit(row, width) for row in rows[:height]]
        if self.shell.view.charset == "ascii":
            fitted = [to_ascii(row) for row in fitted]
        self.query_one(Canvas).show(fitted)

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the rows of the page; at most `height` are shown."""
        raise NotImplementedError

    def dress(self, styles: Mapping[str, Style]) -> None:
        """Take the styles of another theme."""
        self.query_one(Canvas).dress(styles)

    async def action_dismiss(self, result: str | None = None) -> None:
        """Close the page."""
        self.dismiss(result)


class ScrollSheet(Sheet):
    """A page of rows that scrolls where they do not fit."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j,space", "scroll_rows(1)", "down"),
        Binding("up,k", "scroll_rows(-1)", "up"),
        Binding("pagedown", "scroll_rows(10)", "page down"),
        Binding("pageup", "scroll_rows(-10)", "page up"),
    ]

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return all rows of the page."""
        raise NotImplementedError

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the rows that are in view."""
        rows = self.rows(snapshot, width)
        self.cursor = max(0, min(self.cursor, len(rows) - height))
        more = len(rows) > height
        self.foot_text = "Esc closes" + (" · ↑ ↓ PgUp PgDn scroll" if more else "")
        return rows[self.cursor : self.cursor + height]

    def action_scroll_rows(self, amount: int) -> None:
        """Move down, or up for a negative amount."""
        self.cursor += amount
        self.redraw()

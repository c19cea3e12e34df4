"""Bases of the pages of lines: keys move through them, a filter leaves some of them; and text that scrolls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, Row, plain
from tfmon.ui.render.style import DIM, STRONG
from tfmon.ui.render.table import matches
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.page import WHEEL_ROWS, Page, bound

MOVING: tuple[BindingType, ...] = (
    bound("choose", "choose", "enter"),
    *map(bound, ("move.down", "move.up", "move.page.down", "move.page.up", "move.home", "move.end")),
)
"""Bindings of the pages of lines."""


class FilterPage(Page):
    """A page of lines through which one moves; after `/` one types words, and only what contains all is shown.

    A page implements `go_to`, `place` and `last`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [bound("filter")]
    typing = False
    """Whether keys are characters of the filter now."""
    words = ""
    wheel_rows = WHEEL_ROWS
    """How far a turn of the wheel moves."""

    @property
    def line(self) -> str | None:
        """The line that is typed now; None where keys are no characters."""
        return self.words if self.typing else None

    def take_line(self, line: str) -> None:
        """Take the line as typed up to now."""
        self.filter_by(line)

    def on_key(self, event: events.Key) -> None:
        """Take what is typed; Ctrl+U shows all again, also where the filter is kept."""
        line = self.line
        if event.key == "ctrl+u":
            line = ""
        elif line is None:
            return
        elif event.key == "backspace":
            line = line[:-1]
        elif event.is_printable and event.character is not None:
            line += event.character
        else:
            return
        event.stop()
        self.take_line(line)

    def on_paste(self, event: events.Paste) -> None:
        """Take the first line of what is pasted."""
        line = self.line
        if line is not None and event.text.strip():
            event.stop()
            self.take_line(line + event.text.strip().splitlines()[0])

    def action_filter(self) -> None:
        """Let the user type a filter."""
        self.typing = True
        self.redraw()

    def keep_filter(self) -> bool:
        """End typing, and return whether the user typed; the filter stays."""
        typed, self.typing = self.typing, False
        if typed:
            self.redraw()
        return typed

    async def action_dismiss(self, result: str | None = None) -> None:
        """Close the page; a filter goes first."""
        if (self.typing or self.words) and not type(self).typing:
            self.typing = False
            self.filter_by("")
        else:
            await super().action_dismiss(result)

    def filter_by(self, words: str) -> None:
        """Show what contains these words."""
        self.words = words
        self.redraw()

    def filter_row(self, count: str, note: str = "") -> Row:
        """Return the filter with how much it leaves."""
        if not self.typing and not self.words:
            return ((f" {count}{note}", DIM),)
        typed = f" / {self.words}{'▏' if self.typing else ''}"
        return ((typed, STRONG), (f"   {count}{note}", DIM))

    def typing_hints(self) -> list[Hint]:
        """Return the actions of the keys while a filter is typed."""
        return [Hint(("choose",), "keeps the filter"), Hint(("close",), "shows all")]

    def hints(self) -> list[Hint]:
        """Return the actions of the keys now."""
        if self.typing and not type(self).typing:
            return self.typing_hints()
        hints = super().hints()
        if self.words and not type(self).typing:
            hints[-1] = Hint(("close",), "all", "dismiss")
        return hints

    # ------------------------------------------------------------ moving through the lines

    def go_to(self, place: int) -> None:
        """Move to the line at a place, or the nearest."""
        raise NotImplementedError

    def place(self) -> int:
        """Return the place of the line that was moved to."""
        raise NotImplementedError

    def last(self) -> int:
        """Return the place of the last line."""
        raise NotImplementedError

    def action_move(self, direction: int) -> None:
        """Move down by a line, or up."""
        self.go_to(self.place() + direction)

    def action_scroll_page(self, direction: int) -> None:
        """Move by what is shown."""
        self.go_to(self.place() + direction * self.page_rows)

    def action_scroll_home(self) -> None:
        """Move to the first line."""
        self.go_to(0)

    def action_scroll_end(self) -> None:
        """Move to the last line."""
        self.go_to(self.last())

    def wheel(self, direction: int) -> None:
        """Move by some lines."""
        self.go_to(self.place() + direction * self.wheel_rows)


class ScrollPage(FilterPage):
    """A page of rows that scrolls; a filter leaves the entries that match, with the heads of their sections."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVING,
        bound("move.down", keys="space"),
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.cursor = 0
        """Place of the first row in view."""
        self._more = False

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return all rows of the page."""
        raise NotImplementedError

    def _found(self, snapshot: Snapshot, width: int) -> list[Row]:
        rows = self.rows(snapshot, width)
        return matching_rows(rows, self.words) if self.words.strip() else rows

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the rows that are in view."""
        rows = self._found(snapshot, width)
        head: list[Row] = []
        if self.typing or self.words:
            head = [self.filter_row("" if rows else "nothing matches")]
        room = height - len(head)
        self._more = len(rows) > room
        self.cursor = max(0, min(self.cursor, len(rows) - room))
        return head + rows[self.cursor : self.cursor + room]

    def own_hints(self) -> list[Hint]:
        """Return what the keys of a text do."""
        scroll = [Hint(("move.up", "move.down", "move.page.down"), "scroll")] if self._more else []
        return [*super().own_hints(), Hint(("filter",), "search", "filter"), *scroll]

    def filter_by(self, words: str) -> None:
        """Show what contains these words, from the top."""
        self.start_over()
        super().filter_by(words)

    def start_over(self) -> None:
        """Show the first rows."""
        self.cursor = 0

    def action_choose(self) -> None:
        """Keep the filter that is typed."""
        self.keep_filter()

    def go_to(self, place: int) -> None:
        """Show the row at a place first."""
        self.cursor = max(0, place)
        self.redraw()

    def place(self) -> int:
        """Return the place of the first row in view."""
        return self.cursor

    def last(self) -> int:
        """Return a place behind the rows; drawing goes back to what fills the page."""
        return len(self._found(self.monitor.snapshot, self.app.size.width))


def matching_rows(rows: Sequence[Row], words: str) -> list[Row]:
    """Return the entries that contain all the words, with the head of their section.

    A blank row ends a section; its first row is its head. A row that is indented deeper than the section's entries
    belongs to the entry before it. A head that matches keeps its whole section.
    """
    found: list[Row] = []
    for section in _split_at_blanks(rows):
        head, *rest = section
        indents = [len(text) - len(text.lstrip()) for text in plain(rest)]
        blocks: list[list[Row]] = []
        for row, indent in zip(rest, indents, strict=True):
            if blocks and indent > min(indents):
                blocks[-1].append(row)
            else:
                blocks.append([row])
        kept = [block for block in blocks if matches(" ".join(plain(block)), words)]
        if matches(" ".join(plain([head])), words):
            kept = blocks
        elif not kept:
            continue
        found += [*([BLANK] if found else []), head, *(row for block in kept for row in block)]
    return found


def _split_at_blanks(rows: Sequence[Row]) -> list[list[Row]]:
    sections: list[list[Row]] = [[]]
    for row in rows:
        if "".join(text for text, _ in row).strip():
            sections[-1].append(row)
        elif sections[-1]:
            sections.append([])
    return [section for section in sections if section]

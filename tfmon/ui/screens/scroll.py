"""Pages of text that scrolls, with what a filter leaves of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, Row, plain
from tfmon.ui.render.table import matches
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.filtered import FilterPage
from tfmon.ui.screens.page import WHEEL_ROWS, bound


class ScrollPage(FilterPage):
    """A page of rows that scrolls; a filter leaves the entries that match, with the heads of their sections."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter"),
        bound("move.down", "scroll_rows(1)", "down,j,space"),
        bound("move.up", "scroll_rows(-1)"),
        bound("move.page.down"),
        bound("move.page.up"),
        bound("move.home"),
        bound("move.end"),
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
        return [Hint(("filter",), "search", "filter"), *scroll]

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

    def action_scroll_rows(self, amount: int) -> None:
        """Move down, or up for a negative amount."""
        self.cursor = max(0, self.cursor + amount)
        self.redraw()

    def action_scroll_page(self, direction: int) -> None:
        """Move by what is shown."""
        self.action_scroll_rows(direction * self.page_rows)

    def action_scroll_home(self) -> None:
        """Show the first row."""
        self.action_scroll_rows(-self.cursor)

    def action_scroll_end(self) -> None:
        """Show the last row."""
        self.action_scroll_rows(len(self._found(self.monitor.snapshot, self.app.size.width)))

    def wheel(self, direction: int) -> None:
        """Scroll some rows."""
        self.action_scroll_rows(direction * WHEEL_ROWS)


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

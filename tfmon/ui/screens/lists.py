"""Pages that are filtered as one types: lists of entries, and texts that scroll."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, plain
from tfmon.ui.render.style import DIM, STRONG, TEXT, WARN
from tfmon.ui.render.table import (
    Column,
    Entry,
    Order,
    arranged,
    entry_rows,
    head_row,
    in_view,
    matches,
    whole_rows,
    widths,
)
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.page import WHEEL_ROWS, Page, bound

if TYPE_CHECKING:
    from tfmon.ui.app import MonitorApp

ABOUT_ROWS = 6
"""Most rows below a list for the whole text of the chosen entry."""


class FilterPage(Page):
    """A page on which one types words after `/`; only what contains all of them is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("filter"),
        Binding("backspace", "erase", "erase a character"),
        Binding("ctrl+u", "clear", "show all"),
    ]
    typing = False
    """Whether keys are characters of the filter now."""
    words = ""

    def on_key(self, event: events.Key) -> None:
        """Take what is typed into the filter."""
        if self.typing and event.is_printable and event.character is not None:
            event.stop()
            self.filter_by(self.words + event.character)

    def action_filter(self) -> None:
        """Let the user type a filter."""
        self.typing = True
        self.redraw()

    def action_erase(self) -> None:
        """Erase the last character."""
        if self.typing:
            self.filter_by(self.words[:-1])

    def action_clear(self) -> None:
        """Show everything again."""
        self.filter_by("")

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
        """Return what the keys do while a filter is typed."""
        return [Hint(("choose",), "keeps the filter"), Hint(("close",), "shows all")]

    def hints(self) -> list[Hint]:
        """Return what the keys do now."""
        if self.typing and not type(self).typing:
            return self.typing_hints()
        hints = super().hints()
        if self.words and not type(self).typing:
            hints[-1] = Hint(("close",), "all", "dismiss")
        return hints


class ListPage(FilterPage):
    """A list of which one entry is chosen: filtered, sorted by a column, with the whole text of the chosen one.

    A page implements `entries`, and what Enter does with the chosen one as `act`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter"),
        bound("move.down"),
        bound("move.up"),
        bound("move.page.down", "move(10)"),
        bound("move.page.up", "move(-10)"),
        bound("move.home"),
        bound("move.end"),
        bound("sort"),
        bound("sort.reverse"),
    ]
    columns: ClassVar[tuple[Column, ...]] = ()
    wraps: ClassVar[bool] = False
    """Whether the last column is wrapped where it is cut."""
    noun: ClassVar[str] = ""
    """What the entries are, in the plural."""
    nothing: str = "nothing is here"

    def __init__(self, monitor: MonitorApp) -> None:
        super().__init__(monitor)
        self.order = Order()
        self.chosen: Hashable | None = None
        """Id of the chosen entry; None for the first."""
        self.first = 0
        """Place of the first entry in view."""
        self.shown: list[Entry] = []
        """The entries that match, as sorted."""
        self._rows: list[int] = []
        """Place of the entry that each row of the body shows, -1 for none."""
        self._arranged: tuple[object, ...] = ()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return all entries of the list; the same object as long as nothing has changed."""
        raise NotImplementedError

    def act(self, entry: Entry) -> None:
        """Do with the chosen entry what Enter is for."""

    def note(self) -> str:
        """Return what else is said beside how many entries there are."""
        return f" {self.noun}"

    @property
    def cursor(self) -> int:
        """Place of the chosen entry among those shown."""
        places = (place for place, entry in enumerate(self.shown) if entry.id == self.chosen)
        return next(places, self.default_place())

    def default_place(self) -> int:
        """Return the place that is chosen before the user chooses one."""
        return 0

    @property
    def entry(self) -> Entry | None:
        """The chosen entry; None where none is shown."""
        return self.shown[self.cursor] if self.shown else None

    def matching(self, every: Sequence[Entry]) -> list[Entry]:
        """Return the entries that match, sorted; done again only when something has changed."""
        key = (id(every), len(every), self.words, self.order)
        if key != self._arranged[:4]:
            self._arranged = (*key, arranged(every, self.words, self.order), every)
        return self._arranged[4]  # type: ignore[return-value]

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the filter, the head, the entries in view, and the whole text of the chosen one."""
        every = self.entries(snapshot)
        self.shown = self.matching(every)
        self._rows = []
        count = f"{len(self.shown)} of {len(every)}" if self.words else f"{len(every)}"
        rows: list[Row] = [self.filter_row(count, self.note())]
        if not self.shown:
            said = f"nothing matches “{self.words}”" if self.words and every else self.nothing
            return [*rows, BLANK, ((f"   {said}", WARN if self.words else TEXT),)]
        sizes = widths(self.columns, every, width)
        rows.append(head_row(self.columns, sizes, self.order))
        cursor = self.cursor
        most = min(ABOUT_ROWS, (height - len(rows)) // 3)
        about = whole_rows(self.shown[cursor], sizes, width, most, wraps=self.wraps)
        room = height - len(rows) - len(about)

        def height_of(place: int) -> int:
            return len(entry_rows(self.shown[place], sizes, chosen=False, wraps=True)) if self.wraps else 1

        self.first, last = in_view(height_of, len(self.shown), self.first, cursor, room)
        self._rows = [-1] * len(rows)
        for place in range(self.first, last):
            drawn = entry_rows(self.shown[place], sizes, chosen=place == cursor, wraps=self.wraps)
            rows += drawn
            self._rows += [place] * len(drawn)
        return [*rows, *[BLANK] * (height - len(rows) - len(about)), *about]

    def own_hints(self) -> list[Hint]:
        """Return what the keys of a list do."""
        hints = [Hint(("filter",), "filter", "filter")]
        if len(self.shown) > 1:
            hints += [Hint(("move.up", "move.down"), "choose"), Hint(("sort", "sort.reverse"), "sort", "sort")]
        return hints

    def choose(self, place: int) -> None:
        """Choose the entry at a place, or the nearest."""
        if self.shown:
            self.chosen = self.shown[max(0, min(place, len(self.shown) - 1))].id
        self.redraw()

    def action_move(self, direction: int) -> None:
        """Choose another entry; a step beyond an end goes to the other one."""
        place = self.cursor + direction
        if abs(direction) == 1 and self.shown and not self.wraps:
            place %= len(self.shown)
        self.choose(place)

    def action_scroll_home(self) -> None:
        """Choose the first entry."""
        self.choose(0)

    def action_scroll_end(self) -> None:
        """Choose the last entry."""
        self.choose(len(self.shown) - 1)

    def action_sort(self) -> None:
        """Sort by the next column; after the last one as the entries come."""
        column = 0 if self.order.column is None else self.order.column + 1
        self.order = Order(column) if column < len(self.columns) else Order()
        self.redraw()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.order = Order(self.order.column, not self.order.down)
        self.redraw()

    def action_choose(self) -> None:
        """Keep the filter that is typed, or do with the chosen entry what Enter is for."""
        if not self.keep_filter() and self.entry is not None:
            self.act(self.entry)

    def wheel(self, direction: int) -> None:
        """Choose another entry."""
        self.choose(self.cursor + direction)

    def clicked(self, row: int) -> None:
        """Choose the entry that was clicked."""
        if 0 <= row < len(self._rows) and self._rows[row] >= 0:
            self.choose(self._rows[row])


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

    def __init__(self, monitor: MonitorApp) -> None:
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
        self.cursor = 0
        super().filter_by(words)

    def action_choose(self) -> None:
        """Keep the filter that is typed."""
        self.keep_filter()

    def action_scroll_rows(self, amount: int) -> None:
        """Move down, or up for a negative amount."""
        self.cursor = max(0, self.cursor + amount)
        self.redraw()

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

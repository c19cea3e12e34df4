"""Pages of text that scrolls, and of a table of which one row is chosen. Both can be filtered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.console import OverflowMethod
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.coordinate import Coordinate
from textual.scroll_view import ScrollView
from textual.widgets import DataTable, Input

from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID
from tfmon.ui.lines import Lines
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.layout import Hint
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, Span, crop
from tfmon.ui.render.style import STRONG, WARN, to_ascii
from tfmon.ui.render.table import (
    Column,
    Entry,
    Order,
    arranged,
    heads_of,
    matching_rows,
    whole_rows,
    widths,
)
from tfmon.ui.screens.page import Page, bound
from tfmon.ui.terminal import Guarded

ABOUT_ROWS = 6
MOST_REMOVED = 20
"""If more rows must be removed, rewriting the table takes less time."""


class FilterInput(Guarded, Input):
    """The words to look for."""


class ScrollPage(Page):
    """A page of `rows` that scrolls; a filter leaves the entries that match, with the heads of their sections."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("filter", word="filter")]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._filter_keys = {*monitor.view.keys.get("filter", BY_ID["filter"].keys).split(",")}
        self.filter = FilterInput(placeholder="words to look for", compact=True)
        self.filter.display = False
        self.lines = Lines()
        self.body: ScrollView = self.lines

    def content(self) -> ComposeResult:
        self.body.add_class("body")
        self.body.can_focus = True
        yield self.filter
        yield self.body

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return all rows of the page."""
        raise NotImplementedError

    def fill(self, snapshot: Snapshot, width: int) -> None:
        rows = self.rows(snapshot, width)
        if self.filter_text:
            rows = matching_rows(rows, self.filter_text) or [((" nothing matches", WARN),)]
        self.paint(self.lines, rows, width)

    def start_over(self) -> None:
        self.body.scroll_home(animate=False)

    @property
    def filter_text(self) -> str:
        """The words that are looked for."""
        return self.filter.value.strip()

    @property
    def typing(self) -> bool:
        """Whether keys are characters of the filter now."""
        return self.focused is self.filter

    def on_key(self, event: events.Key) -> None:
        """Open the filter, and pass it the pending input of the page: words may follow its key in one burst."""
        opens = not self.typing and {event.key, event.character} & self._filter_keys
        if opens or (self.typing and event.is_printable and event.character is not None):
            event.stop()
            event.prevent_default()
            if opens:
                self.action_filter()
            else:
                self.filter.insert_text_at_cursor(event.character or "")

    def action_filter(self) -> None:
        self.filter.display = True
        self.set_focus(self.filter)
        self.redraw()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.end_typing()

    def end_typing(self) -> None:
        """Give the keys back to the page."""
        self.set_focus(self.body)
        self.filter.display = bool(self.filter_text)
        self.redraw()

    async def action_dismiss(self, result: str | None = None) -> None:
        if self.filter.display:
            self.filter.value = ""
            self.end_typing()
        else:
            await super().action_dismiss(result)

    def hints(self) -> list[Hint]:
        if self.typing:
            return [Hint(self.key("choose"), "keeps the filter"), Hint(self.key("close"), "shows all", "dismiss")]
        return super().hints()


class EntryTable(Guarded, DataTable[Text], inherit_bindings=False):
    """The entries of a list, a row each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("move.down", "cursor_down"),
        bound("move.up", "cursor_up"),
        bound("move.page.down", "page_down"),
        bound("move.page.up", "page_up"),
        bound("move.home", "scroll_top"),
        bound("move.end", "scroll_bottom"),
    ]

    def __init__(self) -> None:
        super().__init__(
            show_row_labels=False,
            cursor_type="row",
            cursor_foreground_priority="renderable",
            cursor_background_priority="css",
        )
        self._entries: Sequence[Entry] = ()

    def fill(self, heads: list[Text], entries: Sequence[Entry], write: Callable[[Span], Text]) -> None:
        """Show these entries. Only changes are written, and the table stays at its scroll position."""
        gone = len(self._entries) - len(entries)
        if len(heads) != len(self.columns) or gone > MOST_REMOVED:
            self.forget()
            for head in heads:
                self.add_column(head, width=head.cell_len)
        resized = heads != [column.label for column in self.ordered_columns]
        for column, head in zip(self.ordered_columns, heads, strict=True):
            column.label, column.width = head, head.cell_len
        for row in reversed(self.ordered_rows[len(entries) :]):
            self.remove_row(row.key)
        for place, (old, new) in enumerate(zip(self._entries, entries, strict=False)):
            if old is not new and old != new:
                for at, (before, now) in enumerate(zip(old.row, new.row, strict=True)):
                    if before != now:
                        self.update_cell_at(Coordinate(place, at), write(now))
        if resized and self._entries and entries:  # Textual draws the heads again only where a cell changes
            self.update_cell_at(Coordinate(0, 0), write(entries[0].row[0]))
        for entry in entries[len(self._entries) :]:
            self.add_row(*map(write, entry.row))
        self._entries = entries

    def forget(self) -> None:
        self.clear(columns=True)
        self._entries = ()


class ListPage(ScrollPage):
    """A table of which one entry is chosen, filtered and sorted. A page implements `entries` and `act`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("sort", word="sort"),
        bound("sort.reverse", word="reverse"),
    ]
    columns: tuple[Column, ...] = ()
    noun: ClassVar[str] = ""
    nothing: str = "nothing is here"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.body: EntryTable = EntryTable()
        self.order = Order()
        self.shown: Sequence[Entry] = ()
        self._every: Sequence[Entry] = ()
        self._shown_by: tuple[object, ...] = ()
        self._sizes: list[int] = []
        self._look = Style()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return all entries. Return the same object if nothing has changed."""
        raise NotImplementedError

    def act(self, entry: Entry) -> None:
        """Do with the chosen entry what Enter is for."""

    def note(self) -> str:
        """Return the note beside the number of entries."""
        return ""

    def plain_text(self) -> str:
        cells = ("  ".join(text for text, _ in entry.row).rstrip() for entry in self.shown)
        return "\n".join([super().plain_text(), *cells])

    @property
    def entry(self) -> Entry | None:
        """The chosen entry. None without one."""
        return self.shown[min(self.body.cursor_row, len(self.shown) - 1)] if self.shown else None

    def fill(self, snapshot: Snapshot, width: int) -> None:
        every, columns, chosen = self.entries(snapshot), self.columns, self.entry
        shown_by = (columns, self.filter_text, self.order, width)
        if (look := self.style_of("text")) != self._look:
            self._look = look
            self.body.forget()
        elif every is self._every and shown_by == self._shown_by:
            return
        self._every, self._shown_by = every, shown_by
        self.shown = arranged(every, self.filter_text, self.order)
        self.body.show_header = bool(self.shown)
        self._sizes = widths(columns, every, width) if columns else []
        arrow = "↓" if self.order.down else "↑"
        heads = []
        for at, (head, size) in enumerate(zip(heads_of(columns), self._sizes, strict=True)):
            text, style = (head + arrow, STRONG) if at == self.order.column else (head, DIM)
            heads.append(self.write((crop(text, size).ljust(size), style)))
        self.body.fill(heads, self.shown, self.write)
        places = {entry.id: place for place, entry in enumerate(self.shown)}
        place = 0 if chosen is None else places.get(chosen.id, self.body.cursor_row)
        if place != self.body.cursor_row:
            self.body.move_cursor(row=place)

    def write(self, span: Span) -> Text:
        """Return styled text as Textual's widgets take it, cut to the room."""
        plain = self.monitor.view.charset == "ascii"
        ((text, style),) = to_ascii((span,)) if plain else (span,)
        cut: OverflowMethod = "crop" if plain else "ellipsis"
        return Text(text.replace("\n", " "), self.style_of(style), no_wrap=True, overflow=cut)

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        shown, every = len(self.shown), len(self._every)
        count = f"{shown} of {every}" if self.filter_text else str(every)
        ending = "" if every == 1 else "es" if self.noun.endswith("s") else "s"
        rows: list[Row] = [((f" {count} {self.noun}{ending}{self.note()}", DIM),)]
        if not shown:
            matches = f"nothing matches “{self.filter_text}”"
            said = (matches, WARN) if self.filter_text and every else (self.nothing, TEXT)
            rows += [BLANK, (("   ", TEXT), said)]
        return rows

    def below(self, width: int, height: int) -> list[Row]:
        most = min(ABOUT_ROWS, height // 3)
        return [] if self.entry is None else whole_rows(self.entry, self._sizes, width, most)

    def action_choose(self) -> None:
        if self.entry is not None:
            self.act(self.entry)

    def action_sort(self) -> None:
        """Sort by the next column; after the last one as the entries come."""
        column = 0 if self.order.column is None else self.order.column + 1
        self.order = Order(column) if column < len(self.columns) else Order()
        self.redraw()

    def action_reverse(self) -> None:
        self._sort_by(self.order.column)

    def _sort_by(self, column: int | None) -> None:
        self.order = Order(column, column == self.order.column and not self.order.down)
        self.redraw()

    def on_data_table_row_highlighted(self, event: EntryTable.RowHighlighted) -> None:
        self.redraw()

    def on_data_table_row_selected(self, event: EntryTable.RowSelected) -> None:
        """Do what Enter is for: the chosen entry was clicked."""
        if self.entry is not None:
            self.act(self.entry)

    def on_data_table_header_selected(self, event: EntryTable.HeaderSelected) -> None:
        """Sort by the column whose name was clicked."""
        self._sort_by(event.column_index)

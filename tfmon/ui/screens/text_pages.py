"""Pages of text and of a table, with a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.coordinate import Coordinate
from textual.scroll_view import ScrollView
from textual.widgets import DataTable, Input
from textual.widgets.data_table import CursorType

from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID
from tfmon.ui.lines import Lines
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.layout import Hint
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, crop
from tfmon.ui.render.style import STRONG, WARN
from tfmon.ui.render.table import (
    NO_ORDER,
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


class FilterInput(Guarded, Input):
    """The words to look for."""


class ScrollPage(Page):
    """A page of `rows` that scrolls and can be filtered."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("filter", word="filter")]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._filter_keys = {*monitor.view.keys.get("filter", BY_ID["filter"].keys).split(",")}
        self.filter = FilterInput(placeholder="words to look for", compact=True)
        self.filter.display = self.filter.cursor_blink = False
        self.lines = Lines()
        self.body: ScrollView = self.lines

    def content(self) -> ComposeResult:
        self.body.add_class("body")
        self.body.can_focus = True
        yield self.filter
        yield self.body

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
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
        return self.filter.value.strip()

    @property
    def typing(self) -> bool:
        return self.focused is self.filter

    def on_key(self, event: events.Key) -> None:
        """Open the filter, and pass it words that follow its key in one burst."""
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

    def __init__(self, cursor: CursorType = "row") -> None:
        super().__init__(
            show_row_labels=False,
            cursor_type=cursor,
            cursor_foreground_priority="renderable",
            cursor_background_priority="css",
        )
        self.entries: Sequence[Entry] = ()
        self.sizes: list[int] = []
        self._drawn: tuple[object, ...] = ()

    def show(
        self,
        columns: Sequence[Column],
        entries: Sequence[Entry],
        width: int,
        style_of: Callable[[str], Style],
        order: Order = NO_ORDER,
    ) -> None:
        def write(text: str, style: str) -> Text:
            return Text(text.replace("\n", " "), style_of(style), no_wrap=True, overflow="ellipsis")

        before, sizes = self.entries, widths(columns, entries, width)
        drawn = (columns, sizes, order, style_of("text"), [entry.id for entry in entries])
        self.entries, self.sizes, self.show_header = entries, sizes, bool(entries)
        if drawn == self._drawn:
            for y, (old, new) in enumerate(zip(before, entries, strict=True)):
                for x, cell in enumerate(new.row) if old is not new else ():
                    if cell != old.row[x]:
                        self.update_cell_at(Coordinate(y, x), write(*cell))
            return
        self._drawn, place, top = drawn, self.cursor_row, self.scroll_offset.y
        chosen = before[place].id if place < len(before) else None
        self.clear(columns=True)
        for at, (head, size) in enumerate(zip(heads_of(columns), sizes, strict=True)):
            arrow, style = ("↓" if order.down else "↑", STRONG) if at == order.column else ("", DIM)
            self.add_column(write(crop(head + arrow, size).ljust(size), style), width=size)
        for entry in entries:
            self.add_row(*(write(*cell) for cell in entry.row))
        places = [at for at, entry in enumerate(entries) if entry.id == chosen]
        self.move_cursor(row=places[0] if places else place, scroll=False)
        self.scroll_to(y=top, animate=False)
        self.call_after_refresh(self.move_cursor, row=self.cursor_row)


class ListPage(ScrollPage):
    """A table of entries that can be filtered and sorted."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("sort", word="sort"), bound("sort.reverse", word="reverse")]
    columns: tuple[Column, ...] = ()
    noun: ClassVar[str] = ""
    nothing: str = "nothing is here"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.body: EntryTable = EntryTable()
        self.order = NO_ORDER
        self.shown: Sequence[Entry] = ()
        self._every: Sequence[Entry] = ()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return all entries. Return the same object if nothing has changed."""
        raise NotImplementedError

    def act(self, entry: Entry) -> None:
        """Do with the chosen entry what Enter is for."""

    def note(self) -> str:
        return ""

    def plain_text(self) -> str:
        cells = ("  ".join(text for text, _ in entry.row).rstrip() for entry in self.shown)
        return "\n".join([super().plain_text(), *cells])

    @property
    def entry(self) -> Entry | None:
        return self.shown[min(self.body.cursor_row, len(self.shown) - 1)] if self.shown else None

    def fill(self, snapshot: Snapshot, width: int) -> None:
        self._every = self.entries(snapshot)
        self.shown = arranged(self._every, self.filter_text, self.order)
        if self.columns:
            self.body.show(self.columns, self.shown, width, self.style_of, self.order)

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
        return [] if self.entry is None else whole_rows(self.entry, self.body.sizes, width, most)

    def action_choose(self) -> None:
        if self.entry is not None:
            self.act(self.entry)

    def action_sort(self) -> None:
        column = 0 if self.order.column is None else self.order.column + 1
        self.order = Order(column) if column < len(self.columns) else NO_ORDER
        self.redraw()

    def action_reverse(self) -> None:
        self._sort_by(self.order.column)

    def _sort_by(self, column: int | None) -> None:
        self.order = Order(column, column == self.order.column and not self.order.down)
        self.redraw()

    def on_data_table_row_highlighted(self, event: EntryTable.RowHighlighted) -> None:
        self.redraw()

    def on_data_table_row_selected(self, event: EntryTable.RowSelected) -> None:
        if self.entry is not None:
            self.act(self.entry)

    def on_data_table_header_selected(self, event: EntryTable.HeaderSelected) -> None:
        self._sort_by(event.column_index)

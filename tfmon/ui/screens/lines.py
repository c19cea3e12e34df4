"""Pages of lines: text that scrolls, and lists of which one entry is chosen. Both can be filtered."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.layout import Hint
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row
from tfmon.ui.render.style import STRONG, WARN
from tfmon.ui.render.table import (
    Column,
    Entry,
    Order,
    arranged,
    column_at,
    entry_rows,
    head_row,
    in_view,
    matching_rows,
    whole_rows,
    widths,
)
from tfmon.ui.screens.page import FRAME_ROWS, WHEEL_ROWS, Page, bound

_NO_ENTRY, _HEAD = -1, -2
"""What a row of the body is that shows no entry: nothing to click, or the names of the columns."""
ABOUT_ROWS = 6
"""Most rows below a list for the whole text of the chosen entry."""


class ScrollPage(Page):
    """A page of `rows` that scrolls; a filter leaves the entries that match, with the heads of their sections."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter"),
        *map(bound, ("move.down", "move.up", "move.page.down", "move.page.up", "move.home", "move.end", "filter")),
    ]
    typing = False
    """Whether keys are characters of the filter now."""
    filter_text = ""
    wheel_rows = WHEEL_ROWS

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.first = 0
        """Place of the first row in view, or of the first entry."""
        self._more = False

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return all rows of the page."""
        raise NotImplementedError

    def _found(self, snapshot: Snapshot, width: int) -> list[Row]:
        rows = self.rows(snapshot, width)
        return matching_rows(rows, self.filter_text) if self.filter_text.strip() else rows

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the rows that are in view."""
        rows = self._found(snapshot, width)
        head: list[Row] = []
        if self.typing or self.filter_text:
            head = [self.filter_row("" if rows else "nothing matches")]
        room = height - len(head)
        self._more = len(rows) > room
        self.first = max(0, min(self.first, len(rows) - room))
        return head + rows[self.first : self.first + room]

    def own_hints(self) -> list[Hint]:
        scroll = [Hint(("move.up", "move.down", "move.page.down"), "scroll")] if self._more else []
        return [*super().own_hints(), Hint(("filter",), "search", "filter"), *scroll]

    def start_over(self) -> None:
        """Show the first rows: others are to be shown than before."""
        self.first = 0

    def action_choose(self) -> None:
        self.keep_filter()

    def on_key(self, event: events.Key) -> None:
        """Take what is typed; Ctrl+U shows all again, also where the filter is kept."""
        filter_text = self.filter_text
        if event.key == "ctrl+u":
            filter_text = ""
        elif not self.typing:
            return
        elif event.key == "backspace":
            filter_text = filter_text[:-1]
        elif event.is_printable and event.character is not None:
            filter_text += event.character
        else:
            return
        event.stop()
        self.filter_by(filter_text)

    def on_paste(self, event: events.Paste) -> None:
        """Take the first line of what is pasted."""
        if self.typing and event.text.strip():
            event.stop()
            self.filter_by(self.filter_text + event.text.strip().splitlines()[0])

    def action_filter(self) -> None:
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
        if (self.typing or self.filter_text) and not type(self).typing:
            self.typing = False
            self.filter_by("")
        else:
            await super().action_dismiss(result)

    def filter_by(self, filter_text: str) -> None:
        """Show what contains these words."""
        self.start_over()
        self.filter_text = filter_text
        self.redraw()

    def filter_row(self, count: str, note: str = "") -> Row:
        """Return the filter with how much it leaves."""
        if not self.typing and not self.filter_text:
            return ((f" {count}{note}", DIM),)
        typed = f" / {self.filter_text}{'▏' if self.typing else ''}"
        return ((typed, STRONG), (f"   {count}{note}", DIM))

    def typing_hints(self) -> list[Hint]:
        """Return the actions of the keys while a filter is typed."""
        return [Hint(("choose",), "keeps the filter"), Hint(("close",), "shows all")]

    def hints(self) -> list[Hint]:
        if self.typing and not type(self).typing:
            return self.typing_hints()
        hints = super().hints()
        if self.filter_text and not type(self).typing:
            hints[-1] = Hint(("close",), "all", "dismiss")
        return hints

    @property
    def cursor(self) -> int:
        """Place of the line that was moved to."""
        return self.first

    def last(self) -> int:
        """Return a place behind the rows; drawing goes back to what fills the page."""
        return len(self._found(self.monitor.snapshot, self.app.size.width))

    def go_to(self, place: int) -> None:
        """Move to the line at a place, or the nearest."""
        self.first = max(0, place)
        self.redraw()

    def action_move(self, direction: int) -> None:
        self.go_to(self.cursor + direction)

    def action_scroll_page(self, direction: int) -> None:
        rows = max(1, self.app.size.height - FRAME_ROWS - 1)  # one row stays in sight
        self.go_to(self.cursor + direction * rows)

    def action_scroll_home(self) -> None:
        self.go_to(0)

    def action_scroll_end(self) -> None:
        self.go_to(self.last())

    def wheel(self, event: events.MouseEvent, direction: int) -> None:
        self.go_to(self.cursor + direction * self.wheel_rows)


# ---------------------------------------------------------------- lists


class ListPage(ScrollPage):
    """A list of which one entry is chosen, filtered and sorted. A page implements `entries` and `act`."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("sort"), bound("sort.reverse")]
    columns: tuple[Column, ...] = ()
    wheel_rows = 1
    wraps: ClassVar[bool] = False
    """Whether the last column is wrapped where it is cut."""
    noun: ClassVar[str] = ""
    nothing: str = "nothing is here"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.order = Order()
        self.chosen: Hashable | None = None
        """Id of the chosen entry; None for the first."""
        self.shown: list[Entry] = []
        self._rows: list[int] = []
        """Place of the entry that each row of the body shows; negative for none."""
        self._sizes: list[int] = []
        self._arranged: list[Entry] = []
        self._arranged_by: tuple[object, ...] = ()
        """What `_arranged` was made from, and of which entries."""

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return all entries of the list; the same object as long as nothing has changed."""
        raise NotImplementedError

    def act(self, entry: Entry) -> None:
        """Do with the chosen entry what Enter is for."""

    def note(self) -> str:
        """Return the note beside the number of entries."""
        return ""

    @property
    def cursor(self) -> int:
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
        key = (id(every), len(every), self.filter_text, self.order)
        if key != self._arranged_by[:4]:
            self._arranged = list(arranged(every, self.filter_text, self.order))
            self._arranged_by = (*key, every)
        return self._arranged

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the filter, the head, the entries in view, and the whole text of the chosen one."""
        every = self.entries(snapshot)
        self.shown = self.matching(every)
        self._rows = []
        count = f"{len(self.shown)} of {len(every)}" if self.filter_text else str(len(every))
        ending = "" if len(every) == 1 else "es" if self.noun.endswith("s") else "s"
        rows: list[Row] = [self.filter_row(count, f" {self.noun}{ending}{self.note()}")]
        if not self.shown:
            said = f"nothing matches “{self.filter_text}”" if self.filter_text and every else self.nothing
            return [*rows, BLANK, ((f"   {said}", WARN if self.filter_text else TEXT),)]
        sizes = self._sizes = widths(self.columns, every, width)
        rows.append(head_row(self.columns, sizes, self.order))
        above = max(int(self.typing), height - 1)
        rows, self._rows = rows[:above], [_NO_ENTRY, _HEAD][:above]
        cursor = self.cursor
        most = min(ABOUT_ROWS, (height - len(rows)) // 3)
        about = whole_rows(self.shown[cursor], sizes, width, most, wraps=self.wraps)
        room = height - len(rows) - len(about)

        def height_of(place: int) -> int:
            return len(entry_rows(self.shown[place], sizes, chosen=False, wraps=True)) if self.wraps else 1

        self.first, last = in_view(height_of, len(self.shown), self.first, cursor, room)
        for place in range(self.first, last):
            drawn = entry_rows(self.shown[place], sizes, chosen=place == cursor, wraps=self.wraps)
            rows += drawn
            self._rows += [place] * len(drawn)
        return [*rows, *[BLANK] * (height - len(rows) - len(about)), *about]

    def own_hints(self) -> list[Hint]:
        hints = [Hint(("filter",), "filter", "filter")]
        if len(self.shown) > 1:
            hints += [Hint(("move.up", "move.down"), "choose"), Hint(("sort", "sort.reverse"), "sort", "sort")]
        return hints

    def start_over(self) -> None:
        """Keep the chosen entry, also among others."""

    def go_to(self, place: int) -> None:
        if self.shown:
            self.chosen = self.shown[max(0, min(place, len(self.shown) - 1))].id
        self.redraw()

    def last(self) -> int:
        return len(self.shown) - 1

    def action_move(self, direction: int) -> None:
        """Choose another entry; a step beyond an end goes to the other one."""
        place = self.cursor + direction
        if abs(direction) == 1 and self.shown and not self.wraps:
            place %= len(self.shown)
        self.go_to(place)

    def action_sort(self) -> None:
        """Sort by the next column; after the last one as the entries come."""
        column = 0 if self.order.column is None else self.order.column + 1
        self.order = Order(column) if column < len(self.columns) else Order()
        self.redraw()

    def action_reverse(self) -> None:
        self._sort_by(self.order.column)

    def _sort_by(self, column: int | None) -> None:
        """Sort by a column; by the one that it is sorted by already, in the other direction."""
        self.order = Order(column, column == self.order.column and not self.order.down)
        self.redraw()

    def action_choose(self) -> None:
        """Keep the filter that is typed, or do with the chosen entry what Enter is for."""
        if not self.keep_filter() and self.entry is not None:
            self.act(self.entry)

    def clicked(self, row: int) -> None:
        """Choose the entry that was clicked, or sort by the column whose name was."""
        place = self._rows[row] if 0 <= row < len(self._rows) else _NO_ENTRY
        if place >= 0:
            self.go_to(place)
        elif place == _HEAD:
            self._sort_by(column_at(self._sizes, self.app.mouse_position.x))

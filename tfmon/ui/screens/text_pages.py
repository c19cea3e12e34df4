"""Pages of text and tables, with a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.scroll_view import ScrollView
from textual.widgets import DataTable, Input
from textual.widgets.data_table import CursorType

from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, key_of, label
from tfmon.ui.lines import Lines
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.bars import Hint, hint_row, message_of, refusal_line, tab_row
from tfmon.ui.render.race_frame import one_line
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cells, crop, fit, spread
from tfmon.ui.render.style import STRONG, WARN, strong
from tfmon.ui.render.table import MARK_CELLS, Entry, arranged, matching_rows, whole_rows, widths
from tfmon.ui.screens.page import MonitorScreen, bindings_of, bound, closer

SCROLLBAR_CELLS, FRAME_ROWS, ABOUT_ROWS = 1, 4, 6
CHANGING = ("lane.stack", "lane.kill", "try", "undo", "run.delete", "move.left", "move.right")


class Page(MonitorScreen):
    """A page with tabs, title, `rows` with a filter, and keys."""

    AUTO_FOCUS = ".body"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("filter", word="filter"),
        bound("help", word="help"),
        bound("close", word="back"),
        closer("quit"),
        bound("lane.detail", keys="i"),
        *map(
            bound, ("picture", "report", "palette", "lane.log", "knobs", "lane.profile", "gpus", "doctor", "runs")
        ),
    ]
    BLANK = True
    """Otherwise Textual 8.2 keeps the lines below the widgets, 160 kB a page."""
    tab = ""
    title_text = ""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.top, self.foot = Lines(), Lines(classes="foot")
        self._filter_keys = {*monitor.view.keys.get("filter", BY_ID["filter"].keys).split(",")}
        self.filter = Input(placeholder="words to look for", compact=True)
        self.filter.display = self.filter.cursor_blink = False
        self.lines = Lines()
        self.body: ScrollView = self.lines

    def compose(self) -> ComposeResult:
        yield self.top
        yield from self.content()
        yield self.foot

    def content(self) -> ComposeResult:
        self.body.add_class("body")
        self.body.can_focus = True
        yield self.filter
        yield self.body

    def on_mount(self) -> None:
        self.redraw()

    def key(self, binding: str) -> str:
        return key_of(binding, self.monitor.view.keys)

    def redraw(self) -> None:
        if not self.is_mounted:
            return
        monitor, snapshot = self.monitor, self.monitor.snapshot
        monitor.view.note_failures(snapshot)
        width, height = self.app.size
        self.fill(snapshot, width - SCROLLBAR_CELLS)
        tabs = tab_row(monitor.view.tabs, self.tab, monitor.view.keys, width, alone=len(snapshot.lanes) == 1)
        self.paint(self.top, [tabs, self._title(width), *self.above(snapshot, width)], width)
        message: Row = ((f" {self.message(snapshot)}", strong(WARN)),)
        self.paint(self.foot, [*self.below(width, height), message, hint_row(self.hints(), width)], width)

    def paint(self, lines: Lines, rows: Sequence[Row], width: int) -> None:
        lines.show([fit(row, width) for row in rows])

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        raise NotImplementedError

    def fill(self, snapshot: Snapshot, width: int) -> None:
        rows = self.rows(snapshot, width)
        if self.filter_text:
            rows = matching_rows(rows, self.filter_text) or [((" nothing matches", WARN),)]
        self.paint(self.lines, rows, width)

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        return []

    def below(self, width: int, height: int) -> list[Row]:
        return []

    def _title(self, width: int) -> Row:
        title, race = (((f" {self.title_text}", STRONG),), (*one_line(self.monitor.analysis), (" ", TEXT)))
        return title if self.still or cells(title) + cells(race) + 3 > width else spread(title, race, width)

    def hints(self) -> list[Hint]:
        if self.typing:
            return [Hint(self.key("choose"), "keeps the filter"), Hint(self.key("close"), "shows all", "dismiss")]
        idle = CHANGING if self.monitor.refusal else ()
        shown = (binding for binding in bindings_of(type(self)) if binding.show and binding.id not in idle)
        keys = self.monitor.view.keys
        return [
            Hint(label(keys.get(binding.id or "", binding.key)), binding.description, binding.action)
            for binding in shown
        ]

    def message(self, snapshot: Snapshot) -> str:
        return message_of(self.monitor.view, snapshot) or refusal_line(snapshot)

    def start_over(self) -> None:
        self.body.scroll_home(animate=False)

    @property
    def filter_text(self) -> str:
        return self.filter.value.strip()

    @property
    def typing(self) -> bool:
        return self.focused is self.filter

    def on_key(self, event: events.Key) -> None:
        """Open the filter, and pass characters that arrive together with the key."""
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
        elif self.tab:
            self.monitor.show("race")
        else:
            self.dismiss(result)


class OneLanePage(Page):
    """A page of a lane; a key goes to the next lane."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("move.next", word="next lane"), bound("move.previous")]
    subject: ClassVar[str]

    def redraw(self) -> None:
        lane = self.lane
        self.title_text = self.subject if lane is None else f"{self.subject} {lane.spec.id}: {lane.title}"
        super().redraw()

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        lane = self.lane
        return [BLANK, (("  there is no lane yet", TEXT),)] if lane is None else self.lane_rows(lane, width)

    def lane_rows(self, lane: LaneState, width: int) -> list[Row]:
        raise NotImplementedError

    @property
    def lane(self) -> LaneState | None:
        lanes = self.monitor.snapshot.lanes
        return lanes[self.monitor.lane % len(lanes)] if lanes else None

    def action_turn(self, direction: int) -> None:
        self.monitor.lane += direction
        self.start_over()
        self.redraw()


class EntryTable(DataTable[Text], inherit_bindings=False):
    """The entries of a list."""

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
        columns: Sequence[str],
        entries: Sequence[Entry],
        width: int,
        style_of: Callable[[str], Style],
        sorted_by: int | None = None,
        arrow: str = "",
    ) -> None:
        def write(text: str, style: str) -> Text:
            return Text(text.replace("\n", " "), style_of(style), no_wrap=True, overflow="ellipsis")

        before, sizes = self.entries, widths(columns, entries, width)
        drawn = (columns, sizes, sorted_by, arrow, style_of("text"), [entry.row for entry in entries])
        self.entries, self.sizes, self.show_header = entries, sizes, bool(entries)
        if drawn == self._drawn:
            return
        self._drawn, row_index, top = drawn, self.cursor_row, self.scroll_offset.y
        chosen = before[row_index].id if row_index < len(before) else None
        self.clear(columns=True)
        for number, (name, size) in enumerate(zip(columns, sizes, strict=True)):
            name = name if number else " " * MARK_CELLS + name
            is_sorted = number == sorted_by
            heading = crop(name + (arrow if is_sorted else ""), size).ljust(size)
            self.add_column(write(heading, STRONG if is_sorted else DIM), width=size)
        for entry in entries:
            self.add_row(*(write(*cell) for cell in entry.row))
        ids = [entry.id for entry in entries]
        self.move_cursor(row=ids.index(chosen) if chosen in ids else row_index, scroll=False)
        self.scroll_to(y=top, animate=False)
        self.call_after_refresh(self.move_cursor, row=self.cursor_row)


class ListPage(Page):
    """A table of entries with filter and sorting."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("sort", word="sort"), bound("sort.reverse", word="reverse")]
    columns: tuple[str, ...] = ()
    noun: ClassVar[str] = ""
    nothing: str = "nothing is here"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.body: EntryTable = EntryTable()
        self.sorted_by: int | None = None
        self.down = False
        self.shown: Sequence[Entry] = ()
        self._every: Sequence[Entry] = ()

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return all entries."""
        raise NotImplementedError

    def act(self, entry: Entry) -> None:
        """Perform Enter's action for an entry."""

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
        self.shown = arranged(self._every, self.filter_text, self.sorted_by, down=self.down)
        if self.columns:
            arrow = "↓" if self.down else "↑"
            self.body.show(self.columns, self.shown, width, self.style_of, self.sorted_by, arrow)

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        shown, every = len(self.shown), len(self._every)
        count = f"{shown} of {every}" if self.filter_text else str(every)
        ending = "" if every == 1 else "es" if self.noun.endswith("s") else "s"
        rows: list[Row] = [((f" {count} {self.noun}{ending}{self.note()}", DIM),)]
        if not shown:
            span = (f"   nothing matches “{self.filter_text}”", WARN) if every else (f"   {self.nothing}", TEXT)
            rows += [BLANK, (span,)]
        return rows

    def below(self, width: int, height: int) -> list[Row]:
        most = min(ABOUT_ROWS, height // 3)
        return [] if self.entry is None else whole_rows(self.entry, self.body.sizes, width, most)

    def action_choose(self) -> None:
        if self.entry is not None:
            self.act(self.entry)

    def action_sort(self) -> None:
        column = 0 if self.sorted_by is None else self.sorted_by + 1
        self.sorted_by, self.down = column if column < len(self.columns) else None, False
        self.redraw()

    def action_reverse(self) -> None:
        self.down = not self.down
        self.redraw()

    def on_data_table_row_highlighted(self, event: EntryTable.RowHighlighted) -> None:
        self.redraw()

    def on_data_table_row_selected(self, event: EntryTable.RowSelected) -> None:
        if self.entry is not None:
            self.act(self.entry)

    def on_data_table_header_selected(self, event: EntryTable.HeaderSelected) -> None:
        self.down = event.column_index == self.sorted_by and not self.down
        self.sorted_by = event.column_index
        self.redraw()

"""Base of the pages over the race: rows of text below the race in one line, with the keys at the bottom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tfmon.model.session import Snapshot
from tfmon.ui.canvas import Canvas
from tfmon.ui.keys import KEYS, key_of
from tfmon.ui.render.bars import message_of
from tfmon.ui.render.race import one_line
from tfmon.ui.render.rows import BLANK, Row, fit
from tfmon.ui.render.style import DIM, STRONG, WARN, strong, to_ascii
from tfmon.ui.view import with_failures

if TYPE_CHECKING:
    from tfmon.ui.app import MonitorApp

_KEYS = {key.id: key for key in KEYS}
_WHEEL_ROWS = 3


def bound(binding: str, action: str = "", keys: str = "") -> Binding:
    """Return the binding of an id of `tfmon.ui.keys`; a page may give it another action, or other keys."""
    key = _KEYS[binding]
    return Binding(keys or key.keys, action or key.action, key.help, id=key.id)


def closer(binding: str) -> Binding:
    """Return the binding that closes a page with the key that opened it."""
    return bound(binding, "dismiss")


class Page(ModalScreen[str | None]):
    """The race in one line, a title, the body of the page, the message, and the keys of the page.

    A page implements `body`. It is no `abc.ABC`: Textual's classes have a metaclass of their own.
    """

    CSS = "Page { background: $background; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [bound("close"), bound("picture"), bound("palette")]
    BLANK = True
    """The canvas covers the page, so Textual need not draw lines of its own.

    Textual 8.2 keeps the lines of the last 1,024 widgets that it drew: 160 kB for every page that was opened.
    """
    title_text = ""
    keys_text = ""
    """The bottom line, set by `body`; empty for the key that closes the page."""

    def __init__(self, monitor: MonitorApp) -> None:
        super().__init__()
        self.monitor = monitor
        self.canvas = Canvas(monitor.palette)
        self.cursor = 0

    def compose(self) -> ComposeResult:
        """Give Textual the one widget of the page."""
        yield self.canvas

    def on_mount(self) -> None:
        """Draw as soon as the page has a size."""
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size."""
        self.redraw()

    def on_screen_resume(self) -> None:
        """Draw what happened while the command palette was open."""
        self.redraw()

    def key(self, binding: str) -> str:
        """Return how a key is written, as remapped."""
        return key_of(binding, self.monitor.view.keys)

    def redraw(self) -> None:
        """Draw the latest snapshot; only what changed is painted."""
        monitor, snapshot = self.monitor, self.monitor.snapshot
        view = monitor.view = with_failures(monitor.view, snapshot, ())
        width, height = self.app.size
        room = max(0, height - 4)
        body = (self.body(snapshot, width, room) + [BLANK] * room)[:room]
        rows: list[Row] = [one_line(monitor.analysis, width), ((f" {self.title_text}", STRONG),), *body]
        keys = self.keys_text or f"{self.key('close')} closes"
        rows += [((f" {message_of(view, snapshot)}", strong(WARN)),), ((f" {keys}", DIM),)]
        fitted = [fit(row, width) for row in rows[:height]]
        if view.charset == "ascii":
            fitted = [to_ascii(row) for row in fitted]
        self.canvas.show(fitted)

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the rows of the page; at most `height` are shown."""
        raise NotImplementedError

    def wheel(self, direction: int) -> None:
        """Act on a turn of the wheel: 1 is down, -1 is up."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Go down."""
        self.wheel(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Go up."""
        self.wheel(-1)

    def dress(self, styles: Mapping[str, Style]) -> None:
        """Take the styles of another theme."""
        self.canvas.dress(styles)

    def action_save_picture(self) -> None:
        """Save the page as a picture and as text."""
        self.monitor.save_picture(self.canvas.text())

    async def action_show_palette(self) -> None:
        """Open the command palette of the race."""
        await self.app.screen_stack[0].run_action("show_palette")

    async def action_dismiss(self, result: str | None = None) -> None:
        """Close the page."""
        self.dismiss(result)


class ListPage(Page):
    """A page with a list, of which one entry is chosen by keys and wheel."""

    def entries(self) -> int:
        """Return how many entries the list has now."""
        raise NotImplementedError

    def action_move(self, direction: int) -> None:
        """Choose another entry."""
        self.cursor = (self.cursor + direction) % max(1, self.entries())
        self.redraw()

    def wheel(self, direction: int) -> None:
        """Choose another entry."""
        self.action_move(direction)


class FilterPage(Page):
    """A page on which one types words; only what contains all of them is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("backspace", "erase", "erase a character"),
        Binding("ctrl+u", "clear", "show all"),
    ]
    typing = True
    """Whether keys are characters of the filter now."""
    words = ""

    def on_key(self, event: events.Key) -> None:
        """Take what is typed into the filter."""
        if self.typing and event.is_printable and event.character is not None:
            event.stop()
            self.filter_by(self.words + event.character)

    def action_erase(self) -> None:
        """Erase the last character."""
        self.filter_by(self.words[:-1])

    def action_clear(self) -> None:
        """Show everything again."""
        self.filter_by("")

    def filter_by(self, words: str) -> None:
        """Show what contains these words."""
        self.words = words
        self.cursor = 0
        self.redraw()


def matches(text: str, words: str) -> bool:
    """Return whether a text contains every one of the words, in any case."""
    text = text.lower()
    return all(word in text for word in words.lower().split())


class ScrollPage(Page):
    """A page of rows that scrolls where they do not fit."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("move.down", "scroll_rows(1)", "down,j,space"),
        bound("move.up", "scroll_rows(-1)", "up,k"),
        bound("move.page.down"),
        bound("move.page.up"),
        bound("move.home"),
        bound("move.end"),
    ]

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return all rows of the page."""
        raise NotImplementedError

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the rows that are in view."""
        rows = self.rows(snapshot, width)
        self.cursor = max(0, min(self.cursor, len(rows) - height))
        more = len(rows) > height
        scroll = ("move.up", "move.down", "move.page.up", "move.page.down")
        keys = f" · {' '.join(self.key(one) for one in scroll)} scroll" if more else ""
        self.keys_text = f"{self.key('close')} closes{keys}"
        return rows[self.cursor : self.cursor + height]

    def action_scroll_rows(self, amount: int) -> None:
        """Move down, or up for a negative amount."""
        self.cursor = max(0, self.cursor + amount)
        self.redraw()

    def action_scroll_home(self) -> None:
        """Show the first row."""
        self.action_scroll_rows(-self.cursor)

    def action_scroll_end(self) -> None:
        """Show the last row."""
        self.action_scroll_rows(len(self.rows(self.monitor.snapshot, self.app.size.width)))

    def wheel(self, direction: int) -> None:
        """Scroll some rows."""
        self.action_scroll_rows(direction * _WHEEL_ROWS)

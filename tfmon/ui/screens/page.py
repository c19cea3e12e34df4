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
from tfmon.ui.keys import KEYS, key_of
from tfmon.ui.render.bars import message_of
from tfmon.ui.render.race import one_line
from tfmon.ui.render.rows import BLANK, Row, fit
from tfmon.ui.render.style import DIM, STRONG, WARN, strong, to_ascii
from tfmon.ui.render.verdict import watched
from tfmon.ui.view import Shell
from tfmon.ui.widgets.canvas import Canvas

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
    """Base of all pages: the race in one line, a title, a body, what there is to say, and the keys of the page.

    A page must have its `body`. It is no `abc.ABC`: Textual's classes have a metaclass of their own.
    """

    CSS = "Page { background: $background; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [bound("close"), bound("picture"), bound("palette")]
    BLANK = True
    """The canvas covers it, so Textual need not keep lines of it.

    8.2 keeps those of the last 1,024 widgets that it drew, in a cache whose keys are `StylesCache` objects: 160 kB
    for every page that was opened.
    """
    title_text = ""
    foot_text = ""
    """What `body` says of the keys; that the page can be closed goes without saying."""

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

    def on_screen_resume(self) -> None:
        """Draw what happened meanwhile: the palette was closed."""
        self.redraw()

    def follow(self, snapshot: Snapshot) -> None:
        """Draw again with newer figures."""
        self.shell.view = watched(self.shell.view, snapshot, ())
        self.redraw()

    def key(self, binding: str) -> str:
        """Return how a key is written, as remapped."""
        return key_of(binding, self.shell.view.keys)

    def redraw(self) -> None:
        """Show the body between the race in one line and the keys of the page."""
        width, height = self.app.size
        snapshot = self.shell.snapshot
        room = max(0, height - 4)
        body = (self.body(snapshot, width, room) + [BLANK] * room)[:room]
        rows: list[Row] = [one_line(snapshot, width), ((f" {self.title_text}", STRONG),), *body]
        said = message_of(self.shell.view, snapshot)
        rows += [((f" {said}", strong(WARN)),), ((f" {self.foot_text or self.key('close') + ' closes'}", DIM),)]
        fitted = [fit(row, width) for row in rows[:height]]
        if self.shell.view.charset == "ascii":
            fitted = [to_ascii(row) for row in fitted]
        self.query_one(Canvas).show(fitted)

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the rows of the page; at most `height` are shown."""
        raise NotImplementedError

    def wheel(self, direction: int) -> None:
        """Do what turning the wheel does: 1 is down, -1 is up."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Go down."""
        self.wheel(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Go up."""
        self.wheel(-1)

    def dress(self, styles: Mapping[str, Style]) -> None:
        """Take the styles of another theme."""
        self.query_one(Canvas).dress(styles)

    def action_save_picture(self) -> None:
        """Save the page as a picture and as text."""
        from tfmon.ui.app import save

        self.shell.say(save(self.app, self.shell.snapshot.race.scenario, self.query_one(Canvas).text()))

    async def action_show_palette(self) -> None:
        """Open the command palette of the race."""
        await self.app.screen_stack[0].run_action("show_palette")

    async def action_dismiss(self, result: str | None = None) -> None:
        """Close the page."""
        self.dismiss(result)


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
        self.foot_text = f"{self.key('close')} closes{keys}"
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
        self.action_scroll_rows(len(self.rows(self.shell.snapshot, self.app.size.width)))

    def wheel(self, direction: int) -> None:
        """Scroll some rows."""
        self.action_scroll_rows(direction * _WHEEL_ROWS)

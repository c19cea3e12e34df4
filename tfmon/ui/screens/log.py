"""The page of a lane's log: what it printed and what happened to it, filtered, and followed as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from tfmon import units
from tfmon.model.lane_state import LogLine
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, WARN
from tfmon.ui.screens.page import FilterPage, bound, closer, matches

if TYPE_CHECKING:
    from tfmon.ui.app import MonitorApp

_TIME_CELLS = 9
_MOST_ROWS = 6
"""A line that is longer than this ends in an ellipsis."""
_WHEEL_LINES = 3
_OTHER_ROWS = 5
"""Rows of the page that are no lines of the log."""
_STYLES = {"printed": TEXT, "event": DIM, "trouble": WARN}
_MARKS = {"printed": " ", "event": "·", "trouble": "!"}
"""Colour is never the only cue."""


class LogPage(FilterPage):
    """Shows the log of one lane, and follows it until one scrolls up; from the last line on it follows again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("lane.log"),
        bound("filter"),
        bound("choose", "keep_filter", "enter"),
        bound("move.down", "scroll_lines(1)"),
        bound("move.up", "scroll_lines(-1)", "up,k"),
        bound("move.page.down", "scroll_lines(10)"),
        bound("move.page.up", "scroll_lines(-10)"),
        bound("move.home"),
        bound("move.end"),
        bound("move.next"),
        bound("move.previous"),
    ]

    def __init__(self, monitor: MonitorApp, index: int) -> None:
        super().__init__(monitor)
        self._index = index
        self.typing = False
        self._last: int | None = None
        """Place of the last line in view among those that match; None while the newest is followed."""
        self._found: list[LogLine] = []

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the filter, and the lines that end with the one that was scrolled to."""
        if not snapshot.lanes:
            return [BLANK, ((" there is no lane", TEXT),)]
        lane = snapshot.lanes[self._index % len(snapshot.lanes)]
        found = self._found = [line for line in lane.log if matches(line.text, self.words)]
        if self._last is not None and self._last >= len(found) - 1:
            self._last = None
        shown = found if self._last is None else found[: self._last + 1]
        other = f"   ({self.key('move.next')}: the next lane)" if len(snapshot.lanes) > 1 else ""
        self.title_text = f"Log of lane {lane.spec.id}: {lane.title}{other}"
        self.keys_text = self._foot()
        following = "following" if self._last is None else f"{len(found) - len(shown)} newer below"
        head = _filter_row(self.words, self.typing, len(found), len(lane.log), following)
        room = max(0, height - 1)
        origin_ns = snapshot.race.started_ns or lane.started_ns
        return [head, *log_rows(shown, origin_ns, width, room)]

    def _foot(self) -> str:
        if self.typing:
            return f"type to filter · {self.key('choose')} keeps it · {self.key('close')} shows all"
        keys = " ".join(self.key(one) for one in ("move.up", "move.down", "move.page.up", "move.page.down"))
        end = f"{self.key('move.end')} follows"
        return f"{self.key('filter')} filter · {keys} scroll · {end} · {self.key('close')} closes"

    def action_filter(self) -> None:
        """Let the user type a filter."""
        self.typing = True
        self.redraw()

    def action_keep_filter(self) -> None:
        """End typing; the filter stays."""
        self.typing = False
        self.redraw()

    async def action_dismiss(self, result: str | None = None) -> None:
        """Close the page; while a filter is typed, drop that instead."""
        if self.typing:
            self.typing = False
            self.filter_by("")
        else:
            await super().action_dismiss(result)

    def action_scroll_lines(self, amount: int) -> None:
        """Move down, or up for a negative amount."""
        newest = len(self._found) - 1
        at = newest if self._last is None else self._last
        self._last = max(0, at + amount)
        self.redraw()

    def action_scroll_home(self) -> None:
        """Show the first lines."""
        width, height = self.app.size
        self._last = max(0, fitting(self._found, width, height - _OTHER_ROWS) - 1)
        self.redraw()

    def action_scroll_end(self) -> None:
        """Show the newest line, and follow."""
        self._last = None
        self.redraw()

    def action_turn(self, direction: int) -> None:
        """Show another lane."""
        self._index += direction
        self._last = None
        self.redraw()

    def wheel(self, direction: int) -> None:
        """Scroll some lines."""
        self.action_scroll_lines(direction * _WHEEL_LINES)

    def filter_by(self, words: str) -> None:
        """Show the lines that contain these words, the newest last."""
        self._last = None
        super().filter_by(words)


def log_rows(lines: list[LogLine], origin_ns: int, width: int, height: int) -> list[Row]:
    """Return the last lines that fit into so many rows, each with its time since the race began, wrapped."""
    rows: list[Row] = []
    for line in reversed(lines):
        pieces = _pieces(line, width)
        since_s = (line.at_ns - origin_ns) / 1e9
        time = ("-" if since_s <= -1 else "") + units.clock(abs(since_s))
        style = _STYLES[line.kind]
        block: list[Row] = [
            (
                (f"{time if first else '':>{_TIME_CELLS - 2}} ", DIM),
                (_MARKS[line.kind] if first else " ", style),
                (" " + piece, style),
            )
            for first, piece in ((place == 0, piece) for place, piece in enumerate(pieces))
        ]
        rows = block + rows
        if len(rows) >= height:
            break
    return rows[max(0, len(rows) - height) :]


def fitting(lines: list[LogLine], width: int, height: int) -> int:
    """Return how many of the first lines fit into so many rows."""
    for place, line in enumerate(lines):
        height -= len(_pieces(line, width))
        if height < 0:
            return place
    return len(lines)


def _pieces(line: LogLine, width: int) -> list[str]:
    return wrap(line.text, width - _TIME_CELLS - 2, _MOST_ROWS)


def _filter_row(words: str, typing: bool, found: int, total: int, following: str) -> Row:
    count = f"{found} of {total} lines" if words else f"{total} lines"
    shown: Row = ((words, STRONG), ("▏" if typing else "", DIM)) if words or typing else (("all", DIM),)
    return ((" filter ", DIM), *shown, (f"   {count} · {following}", DIM))

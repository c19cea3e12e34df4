"""The log of a lane."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from textual.binding import BindingType

from tfmon import units
from tfmon.model.lane_state import LogLine
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import DIM, TEXT, Row, beside
from tfmon.ui.render.style import TROUBLE, WARN
from tfmon.ui.render.table import matches
from tfmon.ui.screens.page import bound
from tfmon.ui.screens.text_pages import OneLanePage

Source: TypeAlias = Literal["event", "output", "tensorflow"]
Level: TypeAlias = Literal["", "warning", "error"]

VIEWS: tuple[tuple[str, tuple[Source, ...]], ...] = (
    ("all", ("event", "output", "tensorflow")),
    ("events", ("event",)),
    ("output", ("output",)),
    ("TensorFlow", ("tensorflow",)),
)
_WORDS = {"event": "event", "output": "output", "tensorflow": "TF"}
_MARKS: dict[str, str] = {"": " ", "warning": "!", "error": "✗"}
MOST_ROWS = 6
_STYLES = {"warning": WARN, "error": TROUBLE}

_GLOG = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: )?([IWEF])(?:\d{4} \d\d:\d\d:\d+\.\d+ +\d+)? *"
    r"\S+\.(?:cc|h|cpp|cu)[:\]]"
)
_LIBRARY = re.compile(
    r"^(?:(INFO|WARNING|ERROR|FATAL):tensorflow:|WARNING: All log messages before absl::|To enable the following "
    r"instructions: |.*/site-packages/(?:keras|tensorflow)/.*Warning: )"
)
_ERROR = re.compile(
    r"^(?:Traceback \(most recent|\w[\w.]*(?:Error|Exception|Interrupt)\b|(?:ERROR|CRITICAL|FATAL)\b)"
)
_WARNING = re.compile(r"^(?:WARN(?:ING)?\b|.*\b\w*Warning: )")
_LEVELS: dict[str, Level] = {"W": "warning", "E": "error", "F": "error"}


class LogPage(OneLanePage):
    """Shows a lane's log, and follows new lines from the end."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("log.view", word="other lines")]
    tab = "log"
    subject = "Log of lane"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.view = 0
        self.following = True
        self._of_rows: list[LogLine] = []
        self._drawn: tuple[object, ...] = ()
        self._count = ""

    def on_mount(self) -> None:
        self.watch(self.lines, "scroll_y", self._scrolled, init=False)

    def _scrolled(self) -> None:
        self.following = self.lines.is_vertical_scroll_end
        self.redraw()

    def fill(self, snapshot: Snapshot, width: int) -> None:
        before, first = self._drawn, self._of_rows[self.lines.scroll_offset.y :][:1]
        lane = self.lane
        every = [] if lane is None else lines_of(lane.log, self.view)
        matching = [line for line in every if matches(line.text, self.filter_text)]
        origin_ns = 0 if lane is None else snapshot.race.started_ns or lane.process.started_ns
        rows = [(line, row) for line in matching for row in _log_rows(line, origin_ns, width)]
        self._of_rows = [line for line, _ in rows]
        self._count = f"{len(matching)} of {len(every)}" if self.filter_text else str(len(every))
        self.paint(self.lines, [row for _, row in rows], width)
        self._drawn = (self._of_rows, self.app.size)
        if before == self._drawn:
            return  # do not interrupt the user's scrolling
        if self.following:
            self.lines.scroll_end(animate=False)
        elif first and first[0] in self._of_rows:
            self.lines.scroll_to(y=self._of_rows.index(first[0]), animate=False)

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        ending, state = "" if self._count == "1" else "s", "following" if self.following else "newer ones below"
        return [((f" {self._count} line{ending}: {VIEWS[self.view][0]} · {state}", DIM),)]

    def action_turn_view(self) -> None:
        self.view = (self.view + 1) % len(VIEWS)
        self.redraw()

    def start_over(self) -> None:
        self.following, self._drawn = True, ()


@functools.lru_cache(maxsize=2_048)
def source_of(line: LogLine) -> tuple[Source, Level]:
    """Return the source and level of a line."""
    if line.kind != "printed":
        return "event", "error" if line.kind == "trouble" else ""
    text = line.text.lstrip()
    if result := _GLOG.match(text):
        return "tensorflow", _LEVELS.get(result[1], "")
    if result := _LIBRARY.match(text):
        word = (result[1] or ("W" if "arning" in text else "I"))[0].upper()
        return "tensorflow", _LEVELS.get(word, "")
    if _ERROR.match(text):
        return "output", "error"
    return "output", "warning" if _WARNING.match(text) else ""


def lines_of(log: Sequence[LogLine], view: int) -> list[LogLine]:
    """Return the lines in a view."""
    return [line for line in log if source_of(line)[0] in VIEWS[view][1]]


def _log_rows(line: LogLine, origin_ns: int, width: int) -> list[Row]:
    source, level = source_of(line)
    since = units.signed_clock((line.at_ns - origin_ns) / 1e9)
    style = _STYLES.get(level, DIM if source == "event" else TEXT)
    prefix = f"{since:>7}  {_WORDS[source]:<6}  "
    (_, first), *more = beside((prefix, DIM), line.text, style, width - 2, MOST_ROWS) or [(("", DIM), ("", style))]
    return [((f" {_MARKS[level]}", style), (prefix, DIM), first), *((("  ", DIM), *row) for row in more)]

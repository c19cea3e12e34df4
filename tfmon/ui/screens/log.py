"""The page of a lane's log: what it printed and what happened to it, filtered, and followed as it grows."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from textual.binding import BindingType

from tfmon import units
from tfmon.model.lane_state import LogLine
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.layout import Hint
from tfmon.ui.render.rows import DIM, TEXT
from tfmon.ui.render.style import TROUBLE, WARN
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.screens.lines import ListPage
from tfmon.ui.screens.page import WHEEL_ROWS, OneLanePage, bound

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
"""Colour is never the only cue."""
_RANKS = {"": 2, "warning": 1, "error": 0}
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


class LogPage(OneLanePage, ListPage):
    """Shows the log of one lane, and follows it until one moves up; from the last line on it follows again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("move.next"),
        bound("move.previous"),
        bound("log.view"),
    ]
    tab = "log"
    columns = (Column("time", 9), Column("from", 10), Column("line"))
    noun = "line"
    wheel_rows = WHEEL_ROWS
    wraps = True
    nothing = "no line yet"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.view = 0
        self._kept: tuple[object, ...] = ()
        self._entries: list[Entry] = []

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        lane = self.lane
        if lane is None:
            self.title_text, self._entries = "Log", []
            return self._entries
        self.title_text = f"Log of lane {lane.spec.id}: {lane.title}"
        origin_ns = snapshot.race.started_ns or lane.process.started_ns
        if self._kept != (key := (id(lane.log), self.view, origin_ns)):
            self._entries = log_entries(lane.log, self.view, origin_ns)
            self._kept, self._lines = key, lane.log  # the lines are kept, so that no others get their id
        return self._entries

    @property
    def following(self) -> bool:
        """Whether the newest line is chosen, and the next one will be."""
        return self.chosen is None or not self.shown or self.cursor == len(self.shown) - 1

    def default_place(self) -> int:
        """Follow: the newest line is chosen where no other is, or where that one is gone."""
        return max(0, len(self.shown) - 1)

    def note(self) -> str:
        """Return which lines these are, and whether the newest is followed."""
        if self.following:
            self.chosen = None
        newer = len(self.shown) - 1 - self.cursor
        state = "following" if self.chosen is None else f"{newer} newer below"
        return f": {VIEWS[self.view][0]} · {state}"

    def own_hints(self) -> list[Hint]:
        following = VIEWS[(self.view + 1) % len(VIEWS)][0]
        hints = [Hint(("log.view",), f"shows {following}", "turn_view"), Hint(("filter",), "filter", "filter")]
        hints += self.lane_hints()
        if len(self.shown) > 1:
            hints += [Hint(("move.up", "move.down"), "scroll"), Hint(("sort", "sort.reverse"), "sort", "sort")]
        if not self.following:
            hints.insert(0, Hint(("move.end",), "follows", "scroll_end"))
        return hints

    def action_turn_view(self) -> None:
        self.view = (self.view + 1) % len(VIEWS)
        self.redraw()

    def action_scroll_end(self) -> None:
        """Show the newest line, and follow."""
        self.chosen = None
        self.redraw()

    def start_over(self) -> None:
        self.chosen = None


@functools.lru_cache(maxsize=2_048)
def source_of(line: LogLine) -> tuple[Source, Level]:
    """Return where a line comes from, by the head that TensorFlow's loggers write, and how grave it is."""
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


def log_entries(lines: Sequence[LogLine], view: int, origin_ns: int) -> list[Entry]:
    """Return the lines of a view as entries, each with its time since the race began."""
    sources = VIEWS[view % len(VIEWS)][1]
    alike: Counter[LogLine] = Counter()
    entries = []
    for place, line in enumerate(lines):
        source, level = source_of(line)
        if source not in sources:
            continue
        alike[line] += 1
        since = units.signed_clock((line.at_ns - origin_ns) / 1e9)
        style = _STYLES.get(level, DIM if source == "event" else TEXT)
        entries.append(
            Entry(
                (line, alike[line]),
                ((f"{since:>7}", DIM), (_WORDS[source], DIM), (line.text, style)),
                ranks=(place, (_WORDS[source], place), (_RANKS[level], place)),
                mark=_MARKS[level],
                searched=line.text,
            )
        )
    return entries

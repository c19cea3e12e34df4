"""Where a line of a lane's log comes from, and how grave it is. Pure."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from tfmon import units
from tfmon.model.lane_log import LogLine
from tfmon.ui.render.style import DIM, TEXT, TROUBLE, WARN
from tfmon.ui.render.table import Column, Entry

Source: TypeAlias = Literal["event", "output", "tensorflow"]
Level: TypeAlias = Literal["", "warning", "error"]

VIEWS: tuple[tuple[str, tuple[Source, ...]], ...] = (
    ("all", ("event", "output", "tensorflow")),
    ("events", ("event",)),
    ("output", ("output",)),
    ("TensorFlow", ("tensorflow",)),
)
"""What can be shown, each with its sources."""
COLUMNS = (Column("time", 9), Column("from", 10), Column("line"))
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


@functools.lru_cache(maxsize=2_048)
def source_of(line: LogLine) -> tuple[Source, Level]:
    """Return where a line comes from and how grave it is.

    A printed line is TensorFlow's if it has the head that its C++ logger or its Python logger writes.
    """
    if line.kind != "printed":
        return "event", "error" if line.kind == "trouble" else ""
    text = line.text.lstrip()
    if found := _GLOG.match(text):
        return "tensorflow", _LEVELS.get(found[1], "")
    if found := _LIBRARY.match(text):
        word = (found[1] or ("W" if "arning" in text else "I"))[0].upper()
        return "tensorflow", _LEVELS.get(word, "")
    if _ERROR.match(text):
        return "output", "error"
    return "output", "warning" if _WARNING.match(text) else ""


def log_entries(lines: Sequence[LogLine], view: int, origin_ns: int) -> list[Entry]:
    """Return the lines of a view as entries, each with its time since the race began."""
    sources = VIEWS[view % len(VIEWS)][1]
    return list(_entries(lines, sources, origin_ns))


def _entries(lines: Sequence[LogLine], sources: tuple[Source, ...], origin_ns: int) -> Iterator[Entry]:
    alike: Counter[LogLine] = Counter()
    for place, line in enumerate(lines):
        source, level = source_of(line)
        if source not in sources:
            continue
        alike[line] += 1
        since_s = (line.at_ns - origin_ns) / 1e9
        style = _STYLES.get(level, DIM if source == "event" else TEXT)
        yield Entry(
            (line, alike[line]),
            ((f"{units.signed_clock(since_s):>7}", DIM), (_WORDS[source], DIM), (line.text, style)),
            ranks=(place, (_WORDS[source], place), (_RANKS[level], place)),
            mark=_MARKS[level],
            searched=line.text,
        )

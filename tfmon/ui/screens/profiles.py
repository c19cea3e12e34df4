"""The page of two lanes' profiles: which operations and which waiting explain that a step of one takes longer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.memory_peak import memory_beside, memory_cells, memory_heads, memory_lines
from tfmon.analysis.profile_diff import (
    GROUPINGS,
    DiffRow,
    Grouping,
    ProfiledSide,
    compare,
    heads,
    sentences,
    side_of,
)
from tfmon.model.control_messages import ProfileLanes
from tfmon.model.lane_state import PAUSED, LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, wrap
from tfmon.ui.render.style import STRONG, WARN
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.screens.lines import ListPage
from tfmon.ui.screens.page import bound, closer

_WIDE = 100
"""Width from which the table also shows confidence, frequency and location."""
_NUMBERS, _MORE = 44, 34
"""Cells of the columns beside the name."""
_PROFILING = "the lanes train 20 steps under TensorFlow's profiler, in turns, 3 times each; they do not count…"
_IN_WORDS = {"operation": "by operation", "kind": "by type of operation", "layer": "by layer"}
_MEMORY = len(GROUPINGS)
"""Index of the memory table, after the tables of time."""


class ProfilesPage(ListPage):
    """Has two lanes profiled in turns when it is shown first, and compares them part by part."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter", "profile both"),
        bound("move.next", word="types, layers, memory"),
        bound("move.previous"),
        bound("move.right", "pair(1)"),
        bound("move.left", "pair(-1)"),
        closer("lane.profile"),
    ]
    tab = "profile"
    noun = "part"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._grouping, self._other = 0, 0
        self._in_progress, self._problem = False, ""
        self._rows: Sequence[Entry] = ()
        self._told: list[str] = []
        self._made_of: tuple[object, ...] = ()

    @property
    def lanes(self) -> Sequence[LaneState]:
        """The first lane and the lane to compare with it, or fewer if there are not so many."""
        first, *others = self.monitor.snapshot.lanes or (None,)
        return [first, others[self._other % len(others)]] if first is not None and others else []

    def _sides(self) -> Sequence[ProfiledSide]:
        """Return both lanes with their profiles. Empty if either lane has none."""
        sides = [side_of(lane) for lane in self.lanes]
        return sides if all(side.profiles for side in sides) else ()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if not self._sides():
            self._profile()

    def act(self, entry: Entry) -> None:
        """Do nothing for a single part: Enter is for all."""

    def action_choose(self) -> None:
        self._profile()

    def _profile(self) -> None:
        lanes = self.lanes
        if self._in_progress or not lanes or not self.may_act():
            return
        if idle := [lane for lane in lanes if lane.over or lane.phase == PAUSED]:
            self._problem = f"{idle[0].title} does not train, so there is nothing to profile"
            self.redraw()
            return
        self._in_progress, self._problem = True, ""

        def take(problem: str) -> None:
            self._in_progress, self._problem = False, problem
            self.monitor.pull()
            self.redraw()

        command = ProfileLanes(tuple(lane.spec.name for lane in lanes))
        self.monitor.work(partial(self.monitor.source.ask, command), take, take)
        self.redraw()

    def action_turn(self, direction: int) -> None:
        self._grouping = (self._grouping + direction) % (_MEMORY + 1)
        self.start_over()
        self.redraw()

    def action_pair(self, direction: int) -> None:
        self._other += direction
        self.redraw()
        if not self._sides():
            self._profile()

    def fill(self, snapshot: Snapshot, width: int) -> None:
        sides, place = self._sides(), self._grouping
        lanes = [f"{lane.spec.id} {lane.title}" for lane in self.lanes]
        self.title_text = f"What explains the difference of {' and '.join(lanes)}" if lanes else "Two profiles"
        made_of = (place, width, *(side.profiles for side in sides))
        if made_of != self._made_of:
            self._made_of, self._rows, self._told = made_of, (), []
            if sides and place == _MEMORY:
                self._told = [line for side in sides for line in memory_lines(side, f"{side.id}: ")]
                self.columns = tuple(Column(head) for head in memory_heads(sides))
                self._rows = _memory_entries(sides)
            elif sides:
                first, second = sides
                by = GROUPINGS[place]
                name = max(16, width - _NUMBERS - (_MORE if width >= _WIDE else 0))
                diff = compare(first.profiles, second.profiles, by)
                self._told = sentences(compare(first.profiles, second.profiles), first.id, second.id)
                self.columns = _columns(by, name, first.id, second.id, wide=width >= _WIDE)
                self._rows = _entries(diff.rows, name, wide=width >= _WIDE)
        super().fill(snapshot, width)

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        return self._rows

    def note(self) -> str:
        if self._grouping == _MEMORY:
            return " of the memory at its peak, by layer"
        return f", {_IN_WORDS[GROUPINGS[self._grouping]]}; they add up to the difference of the step time"

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        rows: list[Row] = []
        if self._in_progress:
            rows += _broken(_PROFILING, TEXT, width)
        elif self._problem:
            rows += _broken(self._problem, WARN, width)
        for line in self._told:
            rows += _broken(line, STRONG, width)
        if not self._rows:
            ready = self._in_progress or self._problem
            hint = "" if ready else f"{self.key('choose')} profiles both lanes in turns; these steps do not count"
            return [BLANK, *rows, *_broken(hint, TEXT, width)]
        return [*rows, *super().above(snapshot, width)]


def _broken(text: str, style: str, width: int) -> list[Row]:
    return [((f" {line}", style),) for line in wrap(text, width - 2, 3)] if text else []


_NARROW = (0, 1, 2, 3, 5)
"""Columns for a narrow terminal."""


def _memory_entries(sides: Sequence[ProfiledSide]) -> list[Entry]:
    entries = []
    for parts in memory_beside(sides):
        name, *texts = memory_cells(parts)
        sizes = [None if part is None else part.allocated_bytes for part in parts for _ in ("memory", "share")]
        entries.append(Entry(name, ((name, TEXT), *((text.rjust(8), TEXT) for text in texts)), (name, *sizes)))
    return entries


def _columns(by: Grouping, name: int, first: str, second: str, *, wide: bool) -> tuple[Column, ...]:
    columns = [Column(head, 40 if at else name) for at, head in enumerate(heads(by, first, second))]
    return tuple(columns if wide else (columns[at] for at in _NARROW))


def _entries(rows: Sequence[DiffRow], name: int, *, wide: bool) -> list[Entry]:
    cells = [row.cells(name) for row in rows]
    sizes = [max((len(one[at]) for one in cells), default=0) for at in range(8)]
    places = range(8) if wide else _NARROW
    entries = []
    for row, texts in zip(rows, cells, strict=True):
        style = TEXT if row.difference.certain else DIM
        times = [None if side is None else side.step_ns for side in (row.first, row.second)]
        largest = abs(row.difference.value_ns)
        ranks = [row.name, *times, largest, texts[4], largest, *texts[6:]]
        shown = tuple((texts[at].rjust(sizes[at]) if 1 <= at <= 5 else texts[at], style) for at in places)
        whole = "; ".join(filter(None, (f"{row.name} {row.kind}", *texts[3:5], *texts[6:])))
        entries.append(Entry((row.name, row.kind), shown, tuple(ranks[at] for at in places), whole))
    return entries

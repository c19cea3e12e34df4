"""The comparison of two profiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.compare_profiles import GROUPINGS, DiffRow, ProfiledSide, compare, heads, sentences, side_of
from tfmon.analysis.memory_peak import memory_beside, memory_cells, memory_heads, memory_lines
from tfmon.model.control_messages import Command
from tfmon.model.lane_events import PAUSED
from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, styled_lines
from tfmon.ui.render.style import STRONG, WARN
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.screens.page import bound, closer
from tfmon.ui.screens.text_pages import ListPage

_NAME_CELLS, _WIDE = 30, 100
_NARROW_COLUMNS = (0, 1, 2, 3, 5)
_PROFILING = "the lanes train 20 steps under TensorFlow's profiler, in turns, 3 times each; they do not count…"
_IN_WORDS = {"operation": "by operation", "kind": "by type of operation", "layer": "by layer"}
_MEMORY = len(GROUPINGS)


class ProfilesPage(ListPage):
    """Requests and compares the profiles of two lanes."""

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
        self._summary: list[str] = []
        self._made_of: tuple[object, ...] = ()

    @property
    def lanes(self) -> Sequence[LaneState]:
        first, *rest = self.monitor.snapshot.lanes or (None,)
        return [first, rest[self._other % len(rest)]] if first is not None and rest else []

    def _sides(self) -> Sequence[ProfiledSide]:
        sides = [side_of(lane) for lane in self.lanes]
        return sides if all(side.profiles for side in sides) else ()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if not self._sides():
            self._profile()

    def act(self, entry: Entry) -> None:
        """Do nothing: Enter profiles the lanes."""

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

        command = Command("profile lanes", tuple(lane.spec.name for lane in lanes))
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
        sides, grouping = self._sides(), self._grouping
        lanes = [f"{lane.spec.id} {lane.title}" for lane in self.lanes]
        self.title_text = f"What explains the difference of {' and '.join(lanes)}" if lanes else "Two profiles"
        column_indexes = range(8) if width >= _WIDE else _NARROW_COLUMNS
        made_of = (grouping, column_indexes, *(side.profiles for side in sides))
        if made_of != self._made_of:
            self._made_of, self._rows, self._summary = made_of, (), []
            if sides and grouping == _MEMORY:
                self._summary = [line for side in sides for line in memory_lines(side, f"{side.id}: ")]
                self.columns = tuple(map(Column, memory_heads(sides)))
                self._rows = _memory_entries(sides)
            elif sides:
                first, second = sides
                self._summary = sentences(compare(first.profiles, second.profiles), first.id, second.id)
                names = heads(GROUPINGS[grouping], first.id, second.id)
                self.columns = tuple(Column(names[at]) for at in column_indexes)
                self._rows = _entries(
                    compare(first.profiles, second.profiles, GROUPINGS[grouping]).rows, column_indexes
                )
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
            rows += styled_lines(_PROFILING, width - 1, 3, lead=" ")
        elif self._problem:
            rows += styled_lines(self._problem, width - 1, 3, WARN, " ")
        for line in self._summary:
            rows += styled_lines(line, width - 1, 3, STRONG, " ")
        if not self._rows:
            ready = self._in_progress or self._problem
            hint = "" if ready else f"{self.key('choose')} profiles both lanes in turns; these steps do not count"
            return [BLANK, *rows, *styled_lines(hint, width - 1, 3, lead=" ")]
        return [*rows, *super().above(snapshot, width)]


def _memory_entries(sides: Sequence[ProfiledSide]) -> list[Entry]:
    entries = []
    for parts in memory_beside(sides):
        name, *texts = memory_cells(parts)
        sizes = [None if part is None else part.allocated_bytes for part in parts for _ in ("memory", "share")]
        entries.append(Entry(name, ((name, TEXT), *((text.rjust(8), TEXT) for text in texts)), (name, *sizes)))
    return entries


def _entries(rows: Sequence[DiffRow], column_indexes: Sequence[int]) -> list[Entry]:
    entries = []
    for row in rows:
        texts = row.cells(_NAME_CELLS)
        style = TEXT if row.difference.certain else DIM
        times = [None if side is None else side.step_ns for side in (row.first, row.second)]
        largest = abs(row.difference.value_ns)
        ranks = (row.name, *times, largest, texts[4], largest, *texts[6:])
        cells = tuple((texts[at].rjust(9) if 1 <= at <= 5 else texts[at], style) for at in column_indexes)
        whole = "; ".join(filter(None, (f"{row.name} {row.kind}", *texts[3:5], *texts[6:])))
        entries.append(Entry((row.name, row.kind), cells, tuple(ranks[at] for at in column_indexes), whole))
    return entries

"""The page of two lanes' profiles: which operations and which waiting explain that a step of one takes longer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.profile_diff import GROUPINGS, DiffRow, ProfiledSide, compare, sentences, side_of
from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, wrap
from tfmon.ui.render.style import STRONG, WARN
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.screens.lines import ListPage
from tfmon.ui.screens.page import bound, closer

_WIDE = 100
"""From so many cells on, the table also says how sure a difference is, how often a part runs, and where."""
_NUMBERS, _MORE = 44, 34
"""Cells of the columns beside the name."""
_PROFILING = "the lanes train 20 steps under TensorFlow's profiler, in turns, 3 times each; they do not count…"
_IN_WORDS = {"operation": "by operation", "kind": "by type of operation", "layer": "by layer"}


class ProfilesPage(ListPage):
    """Has two lanes profiled in turns when it is shown first, and compares them part by part."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter", "profile both"),
        bound("move.next", word="operations, types, layers"),
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
        """The first lane and the one that it is compared with; fewer than two where there are not so many."""
        first, *others = self.monitor.snapshot.lanes or (None,)
        return [first, others[self._other % len(others)]] if first is not None and others else []

    def _sides(self) -> Sequence[ProfiledSide]:
        """Return both lanes with their profiles; nothing while one has none."""
        sides = [side_of(lane) for lane in self.lanes]
        return sides if all(side.profiles for side in sides) else ()

    # ------------------------------------------------------------ profiles

    def on_screen_resume(self) -> None:
        """Have the lanes profiled if they are not yet."""
        super().on_screen_resume()
        if not self._sides():
            self._profile()

    def act(self, entry: Entry) -> None:
        """Do nothing for a single part: Enter is for all."""

    def action_choose(self) -> None:
        self._profile()

    def _profile(self) -> None:
        lanes = self.lanes
        if self._in_progress or self.monitor.refusal or not lanes:
            return
        if over := [lane for lane in lanes if lane.over]:
            self._problem = f"{over[0].title} does not train, so there is nothing to profile"
            self.redraw()
            return
        self._in_progress, self._problem = True, ""

        def take(problem: str) -> None:
            self._in_progress, self._problem = False, problem
            self.monitor.pull()
            self.redraw()

        first, second = (lane.spec.name for lane in lanes)
        self.monitor.work(partial(self.monitor.source.profile_pair, first, second), take, take)
        self.redraw()

    def action_turn(self, direction: int) -> None:
        """Group the parts in the next way."""
        self._grouping = (self._grouping + direction) % len(GROUPINGS)
        self.start_over()
        self.redraw()

    def action_pair(self, direction: int) -> None:
        """Compare the first lane with the next one."""
        self._other += direction
        self.redraw()
        if not self._sides():
            self._profile()

    # ------------------------------------------------------------ what is shown

    def fill(self, snapshot: Snapshot, width: int) -> None:
        sides, by = self._sides(), GROUPINGS[self._grouping]
        lanes = [f"{lane.spec.id} {lane.title}" for lane in self.lanes]
        self.title_text = f"What explains the difference of {' and '.join(lanes)}" if lanes else "Two profiles"
        made_of = (by, width, *(profile for side in sides for profile in side.profiles))
        if [*map(id, made_of[2:])] != [*map(id, self._made_of[2:])] or made_of[:2] != self._made_of[:2]:
            self._made_of, self._rows, self._told = made_of, (), []
            if sides:
                first, second = sides
                name = max(16, width - _NUMBERS - (_MORE if width >= _WIDE else 0))
                diff = compare(first.profiles, second.profiles, by)
                self._told = sentences(compare(first.profiles, second.profiles), first.id, second.id)
                self.columns = _columns(by, name, first.id, second.id, wide=width >= _WIDE)
                self._rows = _entries(diff.rows, name, wide=width >= _WIDE)
        super().fill(snapshot, width)

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        return self._rows

    def note(self) -> str:
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


def _columns(by: str, name: int, first: str, second: str, *, wide: bool) -> tuple[Column, ...]:
    columns = [Column(by, name), Column(first), Column(second), Column("difference")]
    more = [Column("±"), Column("share"), Column("runs a step"), Column("device")]
    return (*columns, *(more if wide else [Column("share")]))


def _entries(rows: Sequence[DiffRow], name: int, *, wide: bool) -> list[Entry]:
    """Return the parts as rows of the table; a difference that is not certain is dim."""
    times = [row.times for row in rows]
    sizes = [max((len(pair[at]) for pair in times), default=0) for at in (0, 1)]
    changes = [max((len(write) for write in texts), default=0) for texts in zip(*map(_changes, rows), strict=True)]
    entries = []
    for row, pair in zip(rows, times, strict=True):
        style = TEXT if row.change.certain else DIM
        change, reach, share = (text.rjust(size) for text, size in zip(_changes(row), changes, strict=True))
        left, right = (text.rjust(size) for text, size in zip(pair, sizes, strict=True))
        texts = [row.label(name), left, right, change]
        texts += [reach, share, row.runs, row.devices] if wide else [share]
        ranks = [row.name, *_times(row), abs(row.change.value)]
        share_rank = abs(row.change.value)
        ranks += [row.change.high, share_rank, row.runs, row.devices] if wide else [share_rank]
        entries.append(
            Entry((row.name, row.kind), tuple((text, style) for text in texts), tuple(ranks), whole=_whole(row))
        )
    return entries


def _changes(row: DiffRow) -> tuple[str, str, str]:
    return row.change.text, row.change.reach, row.share_text


def _times(row: DiffRow) -> tuple[float | None, float | None]:
    first, second = (None if side is None else side.step_ns for side in (row.first, row.second))
    return first, second


def _whole(row: DiffRow) -> str:
    """Return all that there is to say about a part."""
    kind = f" ({row.kind})" if row.kind and row.kind != row.name else ""
    said = [f"{row.name}{kind}: {row.change.text} {row.change.reach}".rstrip()]
    if row.runs:
        said.append(f"runs a step: {row.runs}")
    if row.devices:
        said.append(f"on {row.devices}")
    for word, side in (("first", row.first), ("second", row.second)):
        if side is not None and (at_once := side.parallelism) is not None and at_once >= 1.05:
            said.append(f"{at_once:.2g} operations at once on the {word}")
    return "; ".join(said)

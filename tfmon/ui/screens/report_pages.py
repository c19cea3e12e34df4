"""Pages of reports, accounts, profiles and text to copy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.compare_profiles import GROUPINGS, DiffRow, ProfiledSide, compare, heads, sentences, side_of
from tfmon.analysis.memory_peak import memory_beside, memory_cells, memory_heads, memory_lines
from tfmon.analysis.run_account import Account, account_lines, account_of
from tfmon.errors import TfmonError
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_events import PAUSED
from tfmon.model.lane_relations import ordered_settings
from tfmon.model.lane_state import LaneState
from tfmon.model.ports import ANSWER_S
from tfmon.model.requests import Command
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, beside, crop, meter, styled_lines
from tfmon.ui.render.style import STRONG, TROUBLE, WARN
from tfmon.ui.render.table import Entry
from tfmon.ui.screens.page import bound, closer
from tfmon.ui.screens.text_pages import ListPage, OneLanePage, Page

_STYLES = (("✗", TROUBLE), ("!", WARN))


class ReportPage(Page):
    """A report that a thread writes, again after Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("choose", "choose", "enter", "again")]
    still = True
    note: ClassVar[str]
    waiting: ClassVar[str]
    offer = "makes the report"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.reports: dict[tuple[int, Command], str] = {}
        self.in_progress: tuple[int, Command] | None = None

    def request(self) -> Command:
        """Return the request for the report."""
        raise NotImplementedError

    def instead(self) -> str:
        """Return why there cannot be a report. Empty if there can."""
        return ""

    @property
    def _key(self) -> tuple[int, Command]:
        return self.monitor.snapshot.race.number, self.request()

    def on_screen_resume(self) -> None:
        if self._key not in self.reports:
            self.action_choose()

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        if self._key not in self.reports or self._key == self.in_progress:
            offer = f"{self.key('choose')} {self.offer}"
            text = self.waiting if self._key == self.in_progress else self.instead() or offer
            return [BLANK, *styled_lines(text, width - 2, 3, lead="  ")]
        rows = [row for line in self.reports[self._key].splitlines() for row in _rows(line, width)]
        return [BLANK, *rows, BLANK, *styled_lines(self.note, width - 2, 4, DIM, "  ")]

    def action_choose(self) -> None:
        if self.in_progress or self.instead():
            return
        key = self.in_progress = self._key

        def take(report: str) -> None:
            self.reports[key] = report
            self.in_progress = None
            self.redraw()

        self.monitor.work(partial(self.monitor.source.ask, key[1]), take, take)
        self.redraw()


class DoctorPage(ReportPage):
    """Shows the doctor's report."""

    tab = "doctor"
    title_text = "Doctor: is TensorFlow fit to use the GPU, and this machine for a fair race?"
    note = "TensorFlow itself was not loaded, so as not to disturb the race: `tfmon doctor` does that, too."
    waiting = "examining TensorFlow, drivers and the machine…"

    def request(self) -> Command:
        return Command("examine")


class ProfilePage(ReportPage, OneLanePage):
    """Requests and shows a lane's profile."""

    tab = "profile"
    subject = "Profile of lane"
    note = "`tfmon profile` also writes the trace for Perfetto (--chrome FILE) or for xprof (--keep DIR)."
    waiting = "the lane trains 20 steps under TensorFlow's profiler; they do not count…"
    offer = "profiles 20 steps of this lane; they do not count"

    def request(self) -> Command:
        return Command("profile lanes", () if self.lane is None else (self.lane.spec.name,))

    def instead(self) -> str:
        if self.lane is None:
            return "there is no lane yet"
        over = f"{self.lane.title} does not train, so there is nothing to profile"
        return over if self.lane.over else self.monitor.refusal


def _rows(line: str, width: int) -> Iterator[Row]:
    style = next((style for mark, style in _STYLES if line.lstrip().startswith(mark)), TEXT)
    if style == TEXT and line and not line.startswith(" "):
        style = STRONG
    if len(line) <= width - 4 or not line.strip():
        yield ((f"  {line}", style),)
        return
    columns = [match.end() for match in re.finditer(r"(?<=\S) {2,}|^ +(\w+: )?", line)]
    indent = max((at for at in columns if at < width * 0.6), default=0)
    yield from beside((f"  {line[:indent]}", style), line[indent:], style, width - 2, 20)


NAME_CELLS, BAR_CELLS = 26, 16
NONE = "not known before the first step: a lane reports its account while it trains"


class AccountPage(OneLanePage):
    """Shows the account of a lane."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("account")]
    subject = "Account of lane"

    def lane_rows(self, lane: LaneState, width: int) -> list[Row]:
        account = account_of(lane)
        none = styled_lines(NONE, width - 2, lead="  ")
        return [BLANK, *(none if account is None else _account_rows(account, width))]


def _account_rows(account: Account, width: int) -> list[Row]:
    until = "its exit" if account.over else "its last report"
    rows = [*styled_lines(f"From the start of the command to {until}", width - 2, lead="  "), BLANK]
    for part, time, share, location in account_lines(account):
        style = DIM if part.startswith("·") else STRONG
        line = f"  {crop(part, NAME_CELLS):<{NAME_CELLS}}{time:>9} {share:>6}  "
        if style == STRONG:
            rows.append(((line, style), *(meter(float(share[:-2]) / 100, BAR_CELLS, TEXT) if share else ())))
        else:
            rows.append(((line, style), (crop(location, max(0, width - len(line) - 2)), TEXT)))
    return rows


_COMMAND = "The command that races these lanes with the settings in effect"
_HINTS = (
    "copied, if this terminal lets programs copy (OSC 52; it gives no answer)",
    "to select with the mouse, hold Shift (Option on a Mac) while you drag",
)


class CopyPage(Page):
    """Copies and shows the verdict and the command."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("copy")]
    still = True
    title_text = "Copied"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._verdict = verdict_lines(monitor.analysis)
        self._command, self._problem = "", ""
        try:
            self._command = monitor.source.ask(Command("repeat"), ANSWER_S)
        except TfmonError as error:
            self._problem = error.line

    def on_mount(self) -> None:
        self.app.copy_to_clipboard("\n".join(filter(None, [*self._verdict, self._command])) + "\n")

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        rows = [BLANK, *styled_lines("\n".join(self._verdict), width, 99)]
        if self._command or self._problem:
            rows += [BLANK, *styled_lines(_COMMAND, width - 2, 9, STRONG, "  "), BLANK]
        rows += [((line, TEXT),) for line in continued(self._command, width)]
        rows += [*beside(("  there is none: ", WARN), self._problem, WARN, width, 3), BLANK]
        return rows + [row for sentence in _HINTS for row in styled_lines(sentence, width - 2, 2, DIM, "  ")]


def verdict_lines(analysis: Analysis) -> list[str]:
    """Return the verdict and the differing settings."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    scenario = f"{snapshot.race.scenario}: " if snapshot.race.scenario else ""
    lines = [f"{scenario}{verdict.answer}", *snapshot.race.differs, verdict.note, *analysis.finish_lines]
    for lane in snapshot.lanes if snapshot.differing else ():
        differing = [(knob, value) for knob, value, differs in ordered_settings(lane) if differs]
        settings = ", ".join(f"{short_name(knob)} {show(value)}" for knob, value in differing)
        lines.append(f"{lane.spec.id}: {lane.spec.place}, {settings}")
    return [*filter(None, lines)]


def continued(command: str, width: int) -> Sequence[str]:
    """Split a command into lines that a shell joins."""
    parts = re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+", command)
    lines: list[str] = []
    for word in parts:
        if lines and len(lines[-1]) + 1 + len(word) + 2 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


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
        self._summary: list[str] = []

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

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        lanes, sides, self._summary = [f"{lane.spec.id} {lane.title}" for lane in self.lanes], self._sides(), []
        self.title_text = f"What explains the difference of {' and '.join(lanes)}" if lanes else "Two profiles"
        if not sides:
            return ()
        if self._grouping == _MEMORY:
            self._summary = [line for side in sides for line in memory_lines(side, f"{side.id}: ")]
            self.columns = tuple(memory_heads(sides))
            return _memory_entries(sides)
        (first, second), grouping = sides, GROUPINGS[self._grouping]
        self._summary = sentences(compare(first.profiles, second.profiles), first.id, second.id)
        column_indexes = range(8) if self.app.size.width >= _WIDE else _NARROW_COLUMNS
        names = heads(grouping, first.id, second.id)
        self.columns = tuple(names[at] for at in column_indexes)
        return _entries(compare(first.profiles, second.profiles, grouping).rows, column_indexes)

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
        if not self.shown and not self.filter_text:
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

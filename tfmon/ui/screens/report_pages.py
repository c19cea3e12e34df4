"""Pages of reports, accounts and text to copy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.run_account import Account, account_lines, account_of
from tfmon.errors import TfmonError
from tfmon.model.control_messages import Command
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_relations import ordered_settings
from tfmon.model.lane_state import LaneState
from tfmon.model.ports import ANSWER_S
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, beside, crop, meter, styled_lines
from tfmon.ui.render.style import STRONG, TROUBLE, WARN
from tfmon.ui.screens.page import bound, closer
from tfmon.ui.screens.text_pages import OneLanePage, ScrollPage

_STYLES = (("✗", TROUBLE), ("!", WARN))


class ReportPage(ScrollPage):
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


class CopyPage(ScrollPage):
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

    @property
    def text(self) -> str:
        return "\n".join([*self._verdict, *([self._command] if self._command else [])]) + "\n"

    def on_mount(self) -> None:
        self.app.copy_to_clipboard(self.text)

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

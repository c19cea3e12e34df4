"""The pages of reports, and of text to copy."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.analysis import Analysis
from tfmon.errors import TfmonError
from tfmon.model.control_messages import Perform, ProfileLanes
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_relations import ordered_settings
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, beside, indented, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, WARN
from tfmon.ui.screens.page import OneLanePage, bound, closer
from tfmon.ui.screens.text_pages import ScrollPage

_STYLES = (("✗", TROUBLE), ("!", WARN))


class ReportPage(ScrollPage):
    """A report that a thread makes at first and by Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("choose", "choose", "enter", "again")]
    still = True
    note: ClassVar[str]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.reports: dict[Hashable, str] = {}
        self.in_progress: Hashable | None = None

    def about(self) -> Hashable | None:
        raise NotImplementedError

    def maker(self) -> Callable[[], str]:
        raise NotImplementedError

    def may_make(self) -> bool:
        raise NotImplementedError

    def instead(self) -> str:
        raise NotImplementedError

    def on_screen_resume(self) -> None:
        if self.may_make() and self.about() not in self.reports:
            self._make()

    def _make(self) -> None:
        about = self.in_progress = self.about()

        def take(report: str) -> None:
            self.reports[about] = report
            self.in_progress = None
            self.redraw()

        self.monitor.work(self.maker(), take, take)
        self.redraw()

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        about = self.about()
        if about not in self.reports or about == self.in_progress:
            return [BLANK, *indented(self.instead(), TEXT, width, 3)]
        rows = [row for line in self.reports[about].splitlines() for row in _rows(line, width)]
        return [BLANK, *rows, BLANK, *indented(self.note, DIM, width, 4)]

    def action_choose(self) -> None:
        if self.may_make():
            self._make()


class DoctorPage(ReportPage):
    """Makes the doctor examine the machine."""

    tab = "doctor"
    title_text = "Doctor: is TensorFlow fit to use the GPU, and this machine for a fair race?"
    note = "TensorFlow itself was not loaded, so as not to disturb the race: `tfmon doctor` does that, too."

    def about(self) -> str:
        return "this machine"

    def maker(self) -> Callable[[], str]:
        return partial(self.monitor.source.ask, Perform("examine"))

    def may_make(self) -> bool:
        return not self.in_progress

    def instead(self) -> str:
        return "examining TensorFlow, drivers and the machine…"


class ProfilePage(ReportPage, OneLanePage):
    """Shows the latest profile of a lane, which it requests first."""

    tab = "profile"
    note = "`tfmon profile` also writes the trace for Perfetto (--chrome FILE) or for xprof (--keep DIR)."

    def about(self) -> tuple[int, str] | None:
        return None if self.lane is None else (self.monitor.snapshot.race.number, self.lane.spec.name)

    def maker(self) -> Callable[[], str]:
        assert self.lane is not None, "there is no lane to profile"
        return partial(self.monitor.source.ask, ProfileLanes((self.lane.spec.name,)))

    def may_make(self) -> bool:
        lane = self.lane
        return not (lane is None or lane.over or self.in_progress or self.monitor.refusal)

    def instead(self) -> str:
        lane = self.lane
        if lane is None:
            return "there is no lane yet"
        if self.in_progress == self.about():
            return "the lane trains 20 steps under TensorFlow's profiler; they do not count…"
        if lane.over:
            return f"{lane.title} does not train, so there is nothing to profile"
        return f"{self.key('choose')} profiles 20 steps of {lane.title}; they do not count"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        lane = self.lane
        self.title_text = "Profile" if lane is None else f"Profile of lane {lane.spec.id}: {lane.title}"
        return super().rows(snapshot, width)


def _rows(line: str, width: int) -> Iterator[Row]:
    style = next((style for mark, style in _STYLES if line.lstrip().startswith(mark)), TEXT)
    if style == TEXT and line and not line.startswith(" "):
        style = STRONG
    if len(line) <= width - 4 or not line.strip():
        yield ((f"  {line}", style),)
        return
    columns = [match.end() for match in re.finditer(r"(?<=\S) {2,}|^ +(\w+: )?", line)]
    indent = max((at for at in columns if at < width * 0.6), default=0)
    first, *more = wrap(line[indent:], max(10, width - 4 - indent), 20)
    yield ((f"  {line[:indent]}{first}", style),)
    yield from (((f"  {' ' * indent}{part}", style),) for part in more)


_COMMAND = "The command that races these lanes with the settings in effect"
_TOLD = (
    "copied, if this terminal lets programs copy (OSC 52; it gives no answer)",
    "to select with the mouse, hold Shift (Option on a Mac) while you drag",
)


class CopyPage(ScrollPage):
    """Copies the verdict and the command, and shows both."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("copy")]
    still = True
    title_text = "Copied"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._verdict = verdict_lines(monitor.analysis)
        self._command, self._problem = "", ""
        try:
            self._command = monitor.source.repeat()
        except TfmonError as error:
            self._problem = error.line

    @property
    def text(self) -> str:
        return "\n".join([*self._verdict, *([self._command] if self._command else [])]) + "\n"

    def on_mount(self) -> None:
        self.app.copy_to_clipboard(self.text)

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        rows: list[Row] = [BLANK]
        for line in self._verdict:
            rows += [((part, TEXT),) for part in wrap(line, width, 9)]
        if self._command or self._problem:
            rows += [BLANK, *indented(_COMMAND, STRONG, width), BLANK]
        rows += [((line, TEXT),) for line in continued(self._command, width)]
        rows += [*beside(("  there is none: ", WARN), self._problem, WARN, width, 3), BLANK]
        return rows + [row for sentence in _TOLD for row in indented(sentence, DIM, width, 2)]


def verdict_lines(analysis: Analysis) -> list[str]:
    """Return the verdict and the settings in which the lanes differ."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    scenario = f"{snapshot.race.scenario}: " if snapshot.race.scenario else ""
    lines = [f"{scenario}{verdict.text}", *snapshot.race.differs, verdict.note, *analysis.finish_lines]
    for lane in snapshot.lanes if snapshot.differing else ():
        differing = [(knob, value) for knob, value, differs in ordered_settings(lane) if differs]
        settings = ", ".join(f"{short_name(knob)} {show(value)}" for knob, value in differing)
        lines.append(f"{lane.spec.id}: {lane.spec.place}, {settings}")
    return [*filter(None, lines)]


def continued(command: str, width: int) -> Sequence[str]:
    """Return a command in lines that a shell joins."""
    parts = re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+", command)
    lines: list[str] = []
    for word in parts:
        if lines and len(lines[-1]) + 1 + len(word) + 2 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]

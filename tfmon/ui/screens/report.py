"""A page with a report that takes a moment: the doctor's, or a lane's profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias

from textual.binding import BindingType

from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, TROUBLE, WARN
from tfmon.ui.screens.page import ScrollPage, bound, closer
from tfmon.ui.view import Shell

Ask: TypeAlias = Callable[[Callable[[str], None]], None]
"""Asks for a report, and takes what is to be called with it."""
_STYLES = (("✗", TROUBLE), ("!", WARN))


class ReportPage(ScrollPage):
    """Asks for a report when it opens, and shows it once it is there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("doctor"),
        closer("lane.profile"),
        bound("choose", "dismiss", "enter"),
    ]

    def __init__(
        self,
        shell: Shell,
        title: str,
        ask: Callable[[Callable[[str], None]], None],
        meanwhile: str,
        afterword: str,
    ) -> None:
        super().__init__(shell)
        self.title_text = title
        self._ask = ask
        self._meanwhile = meanwhile
        self._afterword = afterword
        self._report: list[str] | None = None

    def on_mount(self) -> None:
        """Ask for the report."""
        super().on_mount()
        self._ask(self._take)

    def _take(self, report: str) -> None:
        self._report = report.splitlines()
        if self.is_mounted:
            self.redraw()

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the report, or that it is being made."""
        if self._report is None:
            return [BLANK, ((f"  {self._meanwhile}", TEXT),)]
        afterword = [((f"  {line}", DIM),) for line in wrap(self._afterword, width - 4, 4)]
        return [BLANK, *(_row(line) for line in self._report), BLANK, *afterword]


def doctor_page(shell: Shell) -> ReportPage:
    """Return the page of the doctor's report."""
    return ReportPage(
        shell,
        "Doctor: is TensorFlow fit to use the GPU, and this machine for a fair race?",
        shell.examine,
        "looking at TensorFlow, drivers and the machine…",
        "TensorFlow itself was not loaded, not to disturb the race: `tfmon doctor` does that, too.",
    )


def profile_page(shell: Shell, lane: LaneState) -> ReportPage:
    """Return the page of a lane's profile."""
    return ReportPage(
        shell,
        f"Profile of {lane.title}",
        lambda then: shell.profile(lane.spec.name, then),
        "the lane trains 20 steps under TensorFlow's profiler; they count in no figure…",
        "`tfmon profile` also writes the trace for Perfetto (--chrome FILE) or for xprof (--keep DIR).",
    )


def _row(line: str) -> Row:
    style = next((style for mark, style in _STYLES if line.lstrip().startswith(mark)), TEXT)
    if style == TEXT and line and not line.startswith(" "):
        style = STRONG
    return ((f"  {line}", style),)

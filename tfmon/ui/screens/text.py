"""The pages of text that scrolls: the help, and reports that take a moment to make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual.binding import BindingType

from tfmon.model.lane_state import LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.keys import PAGE_KEYS, RACE_KEYS, STOP, Key, key_of
from tfmon.ui.render.glossary import SECTIONS
from tfmon.ui.render.rows import BLANK, Row, entry, wrap
from tfmon.ui.render.style import DIM, KEY, STRONG, TEXT, TROUBLE, WARN
from tfmon.ui.screens.page import ScrollPage, bound, closer

if TYPE_CHECKING:
    from tfmon.ui.app import MonitorApp

Request: TypeAlias = Callable[[Callable[[str], None]], None]
"""Starts making a report, and takes what is to be called with it."""
_STYLES = (("✗", TROUBLE), ("!", WARN))


class HelpPage(ScrollPage):
    """Lists the keys by what they are for, and explains every number on the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("help"), bound("choose", "dismiss", "enter")]
    title_text = "Help"
    listed: ClassVar[Iterable[Key]] = (*RACE_KEYS, *PAGE_KEYS, STOP)

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the whole help."""
        return help_rows(self.monitor.view.keys, width, self.listed)


def help_rows(keys: Mapping[str, str], width: int, listed: Iterable[Key] = HelpPage.listed) -> list[Row]:
    """Return the help on keys, written as remapped, and on numbers."""
    rows: list[Row] = []
    group = ""
    for key in listed:
        if key.group != group:
            group = key.group
            rows += [BLANK, ((f"  {group}", STRONG),)]
        rows += entry(key_of(key.id, keys), key.help, width, KEY)
    for heading, explained in SECTIONS:
        rows += [BLANK, ((f"  {heading}", STRONG),)]
        for name, meaning in explained:
            rows += entry(name, meaning, width, TEXT)
    return rows


class ReportPage(ScrollPage):
    """Requests a report when it opens, and shows it once it is ready."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("doctor"),
        closer("lane.profile"),
        bound("choose", "dismiss", "enter"),
    ]

    def __init__(
        self,
        monitor: MonitorApp,
        title: str,
        request: Request,
        meanwhile: str,
        note: str,
    ) -> None:
        """Show `meanwhile` until there is a report, and `note` below it."""
        super().__init__(monitor)
        self.title_text = title
        self._request = request
        self._meanwhile = meanwhile
        self._note = note
        self._report: list[str] | None = None

    def on_mount(self) -> None:
        """Request the report."""
        super().on_mount()
        self._request(self._take)

    def _take(self, report: str) -> None:
        self._report = report.splitlines()
        if self.is_mounted:
            self.redraw()

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the report, or that it is in preparation."""
        if self._report is None:
            return [BLANK, ((f"  {self._meanwhile}", TEXT),)]
        note = [((f"  {line}", DIM),) for line in wrap(self._note, width - 4, 4)]
        return [BLANK, *(_row(line) for line in self._report), BLANK, *note]


def doctor_page(monitor: MonitorApp) -> ReportPage:
    """Return the page of the doctor's report."""
    return ReportPage(
        monitor,
        "Doctor: is TensorFlow fit to use the GPU, and this machine for a fair race?",
        monitor.examine,
        "examining TensorFlow, drivers and the machine…",
        "TensorFlow itself was not loaded, so as not to disturb the race: `tfmon doctor` does that, too.",
    )


def profile_page(monitor: MonitorApp, lane: LaneState) -> ReportPage:
    """Return the page of a lane's profile."""
    return ReportPage(
        monitor,
        f"Profile of {lane.title}",
        lambda then: monitor.profile(lane.spec.name, then),
        "the lane trains 20 steps under TensorFlow's profiler; they do not count…",
        "`tfmon profile` also writes the trace for Perfetto (--chrome FILE) or for xprof (--keep DIR).",
    )


def _row(line: str) -> Row:
    style = next((style for mark, style in _STYLES if line.lstrip().startswith(mark)), TEXT)
    if style == TEXT and line and not line.startswith(" "):
        style = STRONG
    return ((f"  {line}", style),)

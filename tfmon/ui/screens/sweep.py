"""A sweep on the screen: its table, the best on top, and a curve over a knob."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.sweep import Found
from tfmon.analysis.sweep_text import curves_of, progress_text
from tfmon.model.session import Snapshot
from tfmon.model.several import KINDS
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, Row, spread
from tfmon.ui.render.style import DIM, STRONG
from tfmon.ui.render.sweep import Entries, answer_rows, columns_of, curve_rows
from tfmon.ui.render.table import Column, Entry
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.lists import ListPage
from tfmon.ui.screens.page import bound


class SweepPage(ListPage):
    """The combinations of a sweep, the best on top."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("close", "all", "escape"), bound("quit"), bound("sweep.curve")]
    title_text = "Sweep"
    noun = "combinations"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        curves = [curve.knob for curve in curves_of(self.found)]
        self.curve: int | None = next((at for at, knob in enumerate(curves) if knob in KINDS), None)
        """Which curve is shown; None for none."""
        self._shown: tuple[Found, int] | None = None
        self._entries: list[Entry] = []
        self._made = Entries()
        self._before = 0

    @property
    def found(self) -> Found:
        """What is known of the sweep."""
        assert self.monitor.sweep is not None, "no sweep is shown"
        return self.monitor.sweep

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return the combinations; the same list as long as nothing has changed."""
        found, width = self.found, self.app.size.width
        if self._shown is None or self._shown[0] is not found or self._shown[1] != width:
            self._shown = (found, width)
            self._entries = self._made.of(found, self.columns)
        return self._entries

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        """The columns: those of the knobs first."""
        return columns_of(self.found, self.app.size.width)

    def _title(self, width: int) -> Row:
        found = self.found
        title: Row = ((f" Sweep of {found.state.plan.scenario}", STRONG),)
        return spread(title, ((f"{progress_text(found)} ", DIM),), width)

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the answer, the curve if it is wanted, and the list."""
        found = self.found
        above = answer_rows(found, self.monitor.source.unsaved(), width)[: max(1, height // 4)]
        if self.curve is not None:
            above += curve_rows(found, self.curve, width, max(6, (height - len(above)) // 2))
        above.append(BLANK)
        self._before = len(above)
        return [*above, *super().body(snapshot, width, max(3, height - len(above)))]

    def clicked(self, row: int) -> None:
        """Choose the entry that was clicked."""
        super().clicked(row - self._before)

    def own_hints(self) -> list[Hint]:
        """Return the actions of the keys now."""
        curve = [Hint(("sweep.curve",), "curve", "toggle_curve")] if curves_of(self.found) else []
        return [*super().own_hints(), *curve]

    def hints(self) -> list[Hint]:
        """Return the actions of the keys now."""
        if self.typing:
            return self.typing_hints()
        leaves = "leave" if self.found.state.over else "end and keep"
        shows_all = [Hint(("close",), "all", "all")] if self.words else []
        return [
            *self.own_hints(),
            *shows_all,
            Hint(("report",), "report", "save_report"),
            Hint(("help",), "help", "open('help')"),
            Hint(("quit",), leaves, "quit"),
        ]

    def action_toggle_curve(self) -> None:
        """Show the first curve, then the next, then none."""
        count = len(curves_of(self.found))
        if not count:
            self.monitor.say("no knob of this sweep is a number")
            return
        after = 0 if self.curve is None else self.curve + 1
        self.curve = after if after < count else None
        self.redraw()

    def action_all(self) -> None:
        """Take the filter back."""
        self.typing = False
        self.filter_by("")

"""A sweep on the screen: its table, the best on top, and a curve over a knob."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from textual.binding import BindingType
from textual.screen import Screen

from tfmon.analysis.sweep import Found
from tfmon.analysis.sweep_text import curves_of, progress_text
from tfmon.model.ports import Controls, Experiments
from tfmon.model.session import Session, Snapshot
from tfmon.model.several import KINDS
from tfmon.ui.app import MonitorApp
from tfmon.ui.keys import BY_ID, PAGE_KEYS, STOP, SWEEP_KEYS, Key
from tfmon.ui.render.rows import BLANK, Row, spread
from tfmon.ui.render.style import DIM, STRONG
from tfmon.ui.render.sweep import Entries, answer_rows, columns_of, curve_rows
from tfmon.ui.render.table import Entry
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.lists import ListPage
from tfmon.ui.screens.page import bound
from tfmon.ui.screens.playing import NoExperiments

if TYPE_CHECKING:
    from tfmon.ui.render.table import Column


class Ends(Protocol):
    """What ends a sweep."""

    def stop(self) -> None:
        """End every lane and wait until all are gone."""


class SweepPage(ListPage):
    """The combinations of a sweep, the best on top."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("close", "all", "escape"), bound("quit"), bound("sweep.curve")]
    title_text = "Sweep"
    noun = "combinations"

    def __init__(self, monitor: SweepApp) -> None:
        super().__init__(monitor)
        self._sweep = monitor
        curves = [curve.knob for curve in curves_of(monitor.found)]
        self.curve: int | None = next((at for at, knob in enumerate(curves) if knob in KINDS), None)
        """Which curve is shown; None for none."""
        self._shown: tuple[Found, int] | None = None
        self._entries: list[Entry] = []
        self._made = Entries()
        self._before = 0

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return the combinations; the same list as long as nothing has changed."""
        found, width = self._sweep.found, self.app.size.width
        if self._shown is None or self._shown[0] is not found or self._shown[1] != width:
            self._shown = (found, width)
            self._entries = self._made.of(found, self.columns)
        return self._entries

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        """The columns: those of the knobs first."""
        return columns_of(self._sweep.found, self.app.size.width)

    def _title(self, width: int) -> Row:
        found = self._sweep.found
        title: Row = ((f" Sweep of {found.state.plan.scenario}", STRONG),)
        return spread(title, ((f"{progress_text(found)} ", DIM),), width)

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the answer, the curve if it is wanted, and the list."""
        found = self._sweep.found
        above = answer_rows(found, self._sweep.unsaved(), width)[: max(1, height // 4)]
        if self.curve is not None:
            above += curve_rows(found, self.curve, width, max(6, (height - len(above)) // 2))
        above.append(BLANK)
        self._before = len(above)
        return [*above, *super().body(snapshot, width, max(3, height - len(above)))]

    def clicked(self, row: int) -> None:
        """Choose the entry that was clicked."""
        super().clicked(row - self._before)

    def own_hints(self) -> list[Hint]:
        """Return what the keys do now."""
        curve = [Hint(("sweep.curve",), "curve", "toggle_curve")] if curves_of(self._sweep.found) else []
        return [*super().own_hints(), *curve]

    def hints(self) -> list[Hint]:
        """Return what the keys do now."""
        if self.typing:
            return self.typing_hints()
        leaves = "leave" if self._sweep.found.state.over else "end and keep"
        shows_all = [Hint(("close",), "all", "all")] if self.words else []
        return [
            *self.own_hints(),
            *shows_all,
            Hint(("report",), "report", "save_report"),
            Hint(("help",), "help", "show_help"),
            Hint(("quit",), leaves, "app.quit"),
        ]

    def action_toggle_curve(self) -> None:
        """Show the first curve, then the next, then none."""
        count = len(curves_of(self._sweep.found))
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


class SweepApp(MonitorApp):
    """A sweep on the screen. Thread: the app's only, except for `request_quit`."""

    def __init__(
        self,
        session: Session,
        sweep: Callable[[], Found],
        ends: Ends,
        *,
        unsaved: Callable[[], str] = str,
        file: str = "",
        **more: Any,  # noqa: ANN401 - of the screen
    ) -> None:
        """Prepare the screen.

        Args:
            session: The one of an empty race.
            sweep: Returns what is known.
            ends: Ends the sweep.
            unsaved: Returns why what is measured is not saved; empty while all is well.
            file: The file it is written into; empty for none.
            more: What `MonitorApp` takes besides.
        """
        self._known, self.unsaved, self._recorded = sweep, unsaved, file
        self.found = sweep()
        super().__init__(session, cast(Controls, ends), cast(Experiments, NoExperiments()), **more)

    def get_default_screen(self) -> Screen[None]:
        """Return the table."""
        return cast("Screen[None]", SweepPage(self))

    @property
    def tabs(self) -> tuple[str, ...]:
        """A sweep has no pages beside it."""
        return ()

    @property
    def help_keys(self) -> tuple[Key, ...]:
        """The keys of a sweep."""
        return (*SWEEP_KEYS, *PAGE_KEYS, BY_ID["picture"], BY_ID["report"], STOP)

    @property
    def may_change_lanes(self) -> bool:
        """No key changes a lane."""
        return False

    def may_change(self) -> bool:
        """Return False, and say why."""
        self.say("a sweep chooses its settings itself: no key changes its lanes")
        return False

    def save_report(self) -> None:
        """Save a report of what the sweep measured, and say where."""
        self.report_of(self._recorded, self.say)

    def pull(self) -> None:
        """Read what the sweep came to, and draw what changed."""
        self.found = self._known()
        super().pull()

"""The pages of what is tried: the history of a race, and tuning, which goes on while its page is closed."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tfmon.model.lane_state import LaneState
from tfmon.model.race import KEPT, TuneState
from tfmon.model.session import Snapshot
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.experiments import history_rows, tune_rows
from tfmon.ui.render.rows import BLANK, Row
from tfmon.ui.render.style import TEXT
from tfmon.ui.render.tabs import Hint
from tfmon.ui.requests import targets, to_improve
from tfmon.ui.screens.page import Page, bound, closer
from tfmon.ui.screens.scroll import ScrollPage


class HistoryPage(ScrollPage):
    """Shows every change of the race, what it did to its lane, and the verdict from then on."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("history"), bound("undo")]
    title_text = "History: every change of the race, and what came of it"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the table."""
        return [BLANK, *history_rows(self.monitor.analysis, width)]

    def own_hints(self) -> list[Hint]:
        """Return the actions of the keys now."""
        return [Hint(("undo",), "takes back the last change", "undo"), *super().own_hints()]


class TunePage(Page):
    """Starts a series on a lane, shows it while it is measured, and stops it; closed, it goes on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("tune"),
        bound("move.next", "move(1)", "tab,down"),
        bound("move.previous", "move(-1)", "shift+tab,up"),
        bound("choose", "start_or_stop"),
        bound("undo"),
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        lanes = targets(monitor.snapshot.lanes, monitor.view.focused)
        self._chosen = to_improve(monitor.analysis, lanes)

    def _in_progress(self) -> TuneState | None:
        experiment = self.monitor.snapshot.experiment
        return experiment if isinstance(experiment, TuneState) and not experiment.over else None

    def _lane(self) -> LaneState | None:
        """Return the lane that is tuned, or that was chosen."""
        state = self._in_progress()
        if state is not None:
            self._chosen = state.lane
        return next((lane for lane in self.monitor.snapshot.lanes if lane.spec.name == self._chosen), None)

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return what bounds the lane, what was tried, and what came of it."""
        lane = self._lane()
        if lane is None:
            self.title_text = "Tune"
            return [BLANK, ((" there is no lane to tune", TEXT),)]
        self.title_text = f"Tune {lane.title}: try what may help, one change after the other, and keep what does"
        return [BLANK, *tune_rows(self.monitor.analysis, lane, width)]

    def own_hints(self) -> list[Hint]:
        """Return the actions of the keys now."""
        snapshot = self.monitor.snapshot
        if self._in_progress() is not None:
            return [Hint(("choose",), "stops it, the lane gets its settings back", "start_or_stop")]
        hints = []
        lane = self._lane()
        if lane is not None and not lane.over:
            hints.append(Hint(("choose",), f"tunes {lane.spec.id}", "start_or_stop"))
        if len(snapshot.lanes) > 1:
            hints.append(Hint(("move.next",), "next lane", "move(1)"))
        if any(one.outcome == KEPT for one in (snapshot.tuned.attempts if snapshot.tuned else ())):
            hints.append(Hint(("undo",), "takes back what was kept last", "undo"))
        return hints

    def action_move(self, direction: int) -> None:
        """Choose another lane."""
        names = [lane.spec.name for lane in self.monitor.snapshot.lanes]
        if names:
            at = names.index(self._chosen) if self._chosen in names else 0
            self._chosen = names[(at + direction) % len(names)]
        self.redraw()

    def action_start_or_stop(self) -> None:
        """Start the series on the chosen lane, or end the one that runs."""
        lane = self._lane()
        if not self.monitor.may_change():
            return
        experiments = self.monitor.experiments
        if self._in_progress() is not None:
            self.start_experiment(experiments.stop)
        elif lane is not None and self.may_act():
            self.start_experiment(lambda: experiments.start_tuning(lane.spec.name, everything=True))

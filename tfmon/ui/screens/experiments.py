"""The pages of history, crossover, tuning and sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.result import HISTORY_HEADS
from tfmon.analysis.series_layout import SeriesTable
from tfmon.analysis.series_tables import crossover_table, progress_text, sweep_table, tuning_table
from tfmon.analysis.sweep_ranking import Ranking
from tfmon.model.knobs import short_name
from tfmon.model.lane_state import LaneState
from tfmon.model.requests import Command
from tfmon.model.series import CROSSOVER, TUNING
from tfmon.model.session import Snapshot
from tfmon.model.spec import KINDS
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, spread, styled_lines
from tfmon.ui.render.style import STRONG, WARN
from tfmon.ui.render.table import GAP, Entry, answer_rows, columns_of, curve_rows
from tfmon.ui.screens.page import bound, closer
from tfmon.ui.screens.text_pages import FRAME_ROWS, SCROLLBAR_CELLS, ListPage
from tfmon.ui.source import targets, to_improve

MOST_CHART = 20
LEAST_CHART = 9


class HistoryPage(ListPage):
    """Lists the changes of a race and their effects."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("history"), bound("undo", word="undo the last")]
    title_text = "History: every change of the race, and what came of it"
    columns = tuple(HISTORY_HEADS)
    noun = "change"
    nothing = "no setting was changed yet"

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        changes = [row.cells(len(snapshot.lanes)) for row in self.monitor.analysis.history]
        return [
            Entry(index, tuple((text, TEXT) for text in cells), whole="   ".join(cells))
            for index, cells in enumerate(changes)
        ]


class SeriesPage(ListPage):
    """The results of a series; Enter starts or stops it."""

    nothing = "nothing was measured in this race"
    policy = ""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.curve: int | None = 0
        self.if_free = False
        self.table = SeriesTable((), ())

    def make(self) -> SeriesTable | None:
        raise NotImplementedError

    def lead(self, width: int) -> list[Row]:
        return []

    def begin(self) -> None:
        """Start a series."""

    @property
    def running(self) -> bool:
        experiment = self.monitor.snapshot.experiment
        return experiment is not None and experiment.plan.policy == self.policy and not experiment.over

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        self.table = self.make() or SeriesTable((), ())
        self.columns, entries = columns_of(self.table, self.app.size.width - SCROLLBAR_CELLS - GAP)
        return entries

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        table, height = self.table, self.app.size.height - FRAME_ROWS
        above = [*self.lead(width), *answer_rows(table, width)][: max(1, height // 3)]
        room = height - len(above)
        free = room - len(table.rows) - 7
        if self.if_free:
            self.curve = 0 if free >= LEAST_CHART else None
        if self.curve is not None and table.curves:
            most = min(MOST_CHART, max(6, room // 2, free))
            above += curve_rows(table.curves[self.curve % len(table.curves)], width, most)
        return [*above, BLANK, *super().above(snapshot, width)]

    def action_choose(self) -> None:
        if not self.monitor.may_change():
            return
        if self.running:
            self.run_experiment(Command("end series"))
        else:
            self.begin()


class TunePage(SeriesPage):
    """Shows, starts and stops the tuning of a lane."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter", "start or stop"),
        closer("tune"),
        bound("move.next", "choose_lane(1)", "tab", "next lane"),
        bound("move.previous", "choose_lane(-1)", "shift+tab"),
        bound("undo", word="undo the last"),
    ]
    noun = "change"
    nothing = "nothing was tried yet"
    policy = TUNING

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        lanes = targets(monitor.snapshot.lanes, monitor.view.focused)
        self._chosen = to_improve(monitor.analysis, lanes)

    def make(self) -> SeriesTable | None:
        return tuning_table(self.monitor.analysis)

    def _lane(self) -> LaneState | None:
        state = self.monitor.snapshot.tuned
        if state is not None and self.running:
            self._chosen = state.lane
        return next((lane for lane in self.monitor.snapshot.lanes if lane.spec.name == self._chosen), None)

    def lead(self, width: int) -> list[Row]:
        lane = self._lane()
        if lane is None:
            self.title_text = "Tune"
            return [((" there is no lane to tune", TEXT),)]
        self.title_text = f"Tune {lane.title}: try what may help, one change after the other, and keep what does"
        bottleneck = self.monitor.analysis.lane(lane.spec.name).bottleneck
        if bottleneck is None:
            return []
        rows = styled_lines(f"now {bottleneck.text}", width - 1, 2, STRONG, " ")
        if bottleneck.causes and not self.running:
            remedies = "may help: " + ", ".join(cause.remedy for cause in bottleneck.causes)
            rows += styled_lines(remedies, width - 1, 4, lead=" ")
        return [*rows, BLANK]

    def action_choose_lane(self, direction: int) -> None:
        names = [lane.spec.name for lane in self.monitor.snapshot.lanes]
        if names:
            at = names.index(self._chosen) if self._chosen in names else 0
            self._chosen = names[(at + direction) % len(names)]
        self.redraw()

    def begin(self) -> None:
        lane = self._lane()
        if lane is not None and self.may_act():
            self.run_experiment(Command("begin tuning", (lane.spec.name,), values=(True,)))


class CrossoverPage(SeriesPage):
    """Shows and stops a crossover."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("choose", "choose", "enter", "stop, or another one"),
        closer("crossover"),
    ]
    title_text = "Crossover"
    noun = "value"
    policy = CROSSOVER

    def make(self) -> SeriesTable | None:
        if self.monitor.analysis.curve is not None:
            self.title_text = f"Crossover over {short_name(self.monitor.analysis.curve.state.knob)}"
        return crossover_table(self.monitor.analysis)

    def begin(self) -> None:
        self.monitor.open("new crossover")


class SweepPage(SeriesPage):
    """The combinations of a sweep, the best first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("close", "all", "escape"),
        bound("quit", word="end or leave"),
        bound("report", word="report"),
        bound("sweep.curve", word="curve"),
    ]
    noun = "combination"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        knobs = [curve.knob for curve in sweep_table(self.ranking).curves]
        self.curve = next((at for at, knob in enumerate(knobs) if knob in KINDS), None)
        self.if_free = self.curve is None

    @property
    def ranking(self) -> Ranking:
        assert self.monitor.sweep is not None, "no sweep is shown"
        return self.monitor.sweep

    def make(self) -> SeriesTable | None:
        return sweep_table(self.ranking)

    def lead(self, width: int) -> list[Row]:
        recording = self.monitor.snapshot.recording
        return [((f" {recording.reason}", WARN),)] if recording is not None and recording.reason else []

    def _title(self, width: int) -> Row:
        title: Row = ((f" Sweep of {self.ranking.state.plan.scenario}", STRONG),)
        return spread(title, ((f"{progress_text(self.ranking)} ", DIM),), width)

    def action_toggle_curve(self) -> None:
        count = len(self.table.curves)
        if not count:
            self.monitor.say("no knob of this sweep is a number")
            return
        next_curve = 0 if self.curve is None else self.curve + 1
        self.if_free = False
        self.curve = next_curve if next_curve < count else None
        self.redraw()

    async def action_all(self) -> None:
        if self.filter.display:
            await self.action_dismiss()

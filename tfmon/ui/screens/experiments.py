"""The pages of series: crossover, tuning, sweep. Each shows the answer, a curve, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.series import SeriesTable
from tfmon.analysis.series_tables import crossover_table, progress_text, sweep_table, tuning_table
from tfmon.analysis.sweep import Ranking
from tfmon.model.knobs import short_name
from tfmon.model.lane_state import LaneState
from tfmon.model.series import KEPT, CrossoverState, Experiment, TuneState
from tfmon.model.session import Snapshot
from tfmon.model.spec import KINDS
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.layout import Hint
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, spread, wrap
from tfmon.ui.render.style import STRONG, WARN
from tfmon.ui.render.table import Column, Entry, answer_rows, curve_rows, entry_of, history_rows, places_in
from tfmon.ui.screens.lines import ListPage, ScrollPage
from tfmon.ui.screens.page import bound, closer
from tfmon.ui.source import targets, to_improve

MOST_CHART = 20
LEAST_CHART = 9
"""Free rows needed for a curve that was not requested."""


class HistoryPage(ScrollPage):
    """Shows every change of the race, what it did to its lane, and the verdict from then on."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("history"), bound("undo")]
    title_text = "History: every change of the race, and what came of it"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        return [BLANK, *history_rows(self.monitor.analysis, width)]

    def own_hints(self) -> list[Hint]:
        undo = [] if self.monitor.refusal else [Hint(("undo",), "takes back the last change", "undo")]
        return [*undo, *super().own_hints()]


class SeriesPage(ListPage):
    """The results of a series so far; Enter starts such a series or stops it. A page implements `make`."""

    nothing = "nothing was measured in this race"
    kind: ClassVar[tuple[type[Experiment], ...]] = ()
    """The state of the series that the page starts and stops; empty for none."""
    stops: ClassVar[str] = ""
    """What Enter does while one runs."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.curve: int | None = 0
        self.if_free = False
        """Whether the first one is shown where rows are free for it, and only there."""
        self.table = SeriesTable((), ())
        """The latest table; the same object as long as nothing has changed."""
        self._made_from: object = None
        self._shown: tuple[SeriesTable, int] | None = None
        """The table that `_entries` are of, and the width that they are for."""
        self._places: tuple[int, ...] = ()
        self._entries: list[Entry] = []
        self._above = 0

    def make(self, before: SeriesTable) -> SeriesTable | None:
        """Return the table of what is known now, None for none; `before` is the one before it."""
        raise NotImplementedError

    def lead(self, width: int) -> list[Row]:
        """Return the rows above the answer."""
        return []

    def begin(self) -> None:
        """Start a series, or ask for one."""

    def starts(self) -> str:
        """Return the action of Enter while none runs; empty for none."""
        return ""

    @property
    def running(self) -> bool:
        """Whether a series of this kind is measured now."""
        experiment = self.monitor.snapshot.experiment
        return isinstance(experiment, self.kind) and not experiment.over

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        """The columns that have room."""
        shown = [self.table.columns[at] for at in self._places]
        return tuple(Column(one.name.rjust(one.right), one.most) for one in shown)

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return the rows of the table; the same list as long as nothing has changed."""
        table, width = self.table, self.app.size.width
        if self._shown is None or self._shown[0] is not table or self._shown[1] != width:
            self._shown = (table, width)
            self._places = places_in(table.columns, width)
            self._entries = [entry_of(row, table.columns, self._places) for row in table.rows]
        return self._entries

    def refresh_table(self) -> None:
        """Make the table again if something has changed."""
        known = self.monitor.sweep or self.monitor.analysis
        if self._made_from is not known:
            self._made_from, self.table = known, self.make(self.table) or SeriesTable((), ())

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the answer, the curve if it is wanted, and the list."""
        self.refresh_table()
        table = self.table
        above = [*self.lead(width), *answer_rows(table, width)][: max(1, height // 3)]
        room = height - len(above)
        free = room - len(table.rows) - 7
        if self.if_free:
            self.curve = 0 if free >= LEAST_CHART else None
        if self.curve is not None and table.curves:
            most = min(MOST_CHART, max(6, room // 2, free))
            above += curve_rows(table.curves[self.curve % len(table.curves)], width, most)
        above.append(BLANK)
        self._above = len(above)
        return [*above, *super().body(snapshot, width, max(3, height - len(above)))]

    def clicked(self, row: int) -> None:
        super().clicked(row - self._above)

    def own_hints(self) -> list[Hint]:
        does = "" if self.monitor.refusal else self.stops if self.running else self.starts()
        return [*([Hint(("choose",), does, "choose")] if does else []), *super().own_hints()]

    def action_choose(self) -> None:
        """Keep the filter that is typed, or stop what runs, or start it."""
        if self.keep_filter() or not self.monitor.may_change():
            return
        if self.running:
            self.start_experiment(self.monitor.experiments.stop)
        else:
            self.begin()


class TunePage(SeriesPage):
    """Starts a series on a lane, shows it while it is measured, and stops it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("tune"),
        bound("move.next", "choose_lane(1)", "tab"),
        bound("move.previous", "choose_lane(-1)", "shift+tab"),
        bound("undo"),
    ]
    noun = "change"
    nothing = "nothing was tried yet"
    kind = (TuneState,)
    stops = "stops it, the lane gets its settings back"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        lanes = targets(monitor.snapshot.lanes, monitor.view.focused)
        self._chosen = to_improve(monitor.analysis, lanes)

    def make(self, before: SeriesTable) -> SeriesTable | None:
        return tuning_table(self.monitor.analysis)

    def _lane(self) -> LaneState | None:
        state = self.monitor.snapshot.tuned
        if state is not None and self.running:
            self._chosen = state.lane
        return next((lane for lane in self.monitor.snapshot.lanes if lane.spec.name == self._chosen), None)

    def lead(self, width: int) -> list[Row]:
        """Return the bottleneck of the lane, and what may be tried."""
        lane = self._lane()
        if lane is None:
            self.title_text = "Tune"
            return [((" there is no lane to tune", TEXT),)]
        self.title_text = f"Tune {lane.title}: try what may help, one change after the other, and keep what does"
        bottleneck = self.monitor.analysis.lane(lane.spec.name).bottleneck
        if bottleneck is None:
            return []
        rows: list[Row] = [((f" {line}", STRONG),) for line in wrap(f"now {bottleneck.text}", width - 2, 2)]
        if bottleneck.causes and not self.running:
            remedies = "may help: " + ", ".join(one.remedy for one in bottleneck.causes)
            rows += [((f" {line}", TEXT),) for line in wrap(remedies, width - 2, 4)]
        return [*rows, BLANK]

    def starts(self) -> str:
        lane = self._lane()
        return f"tunes {lane.spec.id}" if lane is not None and not lane.over else ""

    def own_hints(self) -> list[Hint]:
        hints, snapshot = super().own_hints(), self.monitor.snapshot
        if len(snapshot.lanes) > 1 and not self.running:
            hints.insert(1, Hint(("move.next",), "next lane", "choose_lane(1)"))
        if any(one.outcome == KEPT for one in (snapshot.tuned.attempts if snapshot.tuned else ())):
            hints.insert(2, Hint(("undo",), "takes back what was kept last", "undo"))
        return hints

    def action_choose_lane(self, direction: int) -> None:
        names = [lane.spec.name for lane in self.monitor.snapshot.lanes]
        if names:
            at = names.index(self._chosen) if self._chosen in names else 0
            self._chosen = names[(at + direction) % len(names)]
        self.redraw()

    def begin(self) -> None:
        lane, experiments = self._lane(), self.monitor.experiments
        if lane is not None and self.may_act():
            self.start_experiment(lambda: experiments.start_tuning(lane.spec.name, everything=True))


class CrossoverPage(SeriesPage):
    """Shows a crossover while it is measured and afterwards, and stops it."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("crossover")]
    title_text = "Crossover"
    noun = "value"
    kind = (CrossoverState,)
    stops = "stops it and keeps what it has"

    def make(self, before: SeriesTable) -> SeriesTable | None:
        if self.monitor.analysis.curve is not None:
            self.title_text = f"Crossover over {short_name(self.monitor.analysis.curve.knob)}"
        return crossover_table(self.monitor.analysis)

    def starts(self) -> str:
        return "another one"

    def begin(self) -> None:
        self.monitor.open("new crossover")


class SweepPage(SeriesPage):
    """The combinations of a sweep, the best on top."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("close", "all", "escape"), bound("quit"), bound("sweep.curve")]
    noun = "combination"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.refresh_table()
        knobs = [curve.knob for curve in self.table.curves]
        self.curve = next((at for at, knob in enumerate(knobs) if knob in KINDS), None)
        self.if_free = self.curve is None

    @property
    def ranking(self) -> Ranking:
        """What is known of the sweep."""
        assert self.monitor.sweep is not None, "no sweep is shown"
        return self.monitor.sweep

    def make(self, before: SeriesTable) -> SeriesTable | None:
        return sweep_table(self.ranking, before)

    def lead(self, width: int) -> list[Row]:
        """Return that what was measured is not saved, if so."""
        unsaved = self.monitor.source.unsaved()
        return [((f" {unsaved}", WARN),)] if unsaved else []

    def _title(self, width: int) -> Row:
        title: Row = ((f" Sweep of {self.ranking.state.plan.scenario}", STRONG),)
        return spread(title, ((f"{progress_text(self.ranking)} ", DIM),), width)

    def own_hints(self) -> list[Hint]:
        curve = [Hint(("sweep.curve",), "curve", "toggle_curve")] if self.table.curves else []
        return [*super().own_hints(), *curve]

    def hints(self) -> list[Hint]:
        if self.typing:
            return self.typing_hints()
        leaves = "leave" if self.ranking.state.over else "end and keep"
        shows_all = [Hint(("close",), "all", "all")] if self.filter_text else []
        return [
            *self.own_hints(),
            *shows_all,
            Hint(("report",), "report", "save_report"),
            Hint(("help",), "help", "open('help')"),
            Hint(("quit",), leaves, "quit"),
        ]

    def action_toggle_curve(self) -> None:
        """Show the first curve, then the next, then none."""
        count = len(self.table.curves)
        if not count:
            self.monitor.say("no knob of this sweep is a number")
            return
        after = 0 if self.curve is None else self.curve + 1
        self.if_free = False
        self.curve = after if after < count else None
        self.redraw()

    def action_all(self) -> None:
        self.typing = False
        self.filter_by("")

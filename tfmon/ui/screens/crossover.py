"""The page of the crossover: which knob, how far it is, the curve and what it says."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tfmon import units
from tfmon.analysis.crossover import Curve, CurvePoint, curve_of, values_of
from tfmon.model.knobs import Knob, KnobError, show
from tfmon.model.ports import ExperimentError
from tfmon.model.race import CrossoverState
from tfmon.model.readings import Estimate
from tfmon.model.session import Snapshot
from tfmon.ui.render.curve_chart import chart_rows
from tfmon.ui.render.rows import BLANK, Row, fit, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, lane_style, strong
from tfmon.ui.requests import short_name
from tfmon.ui.screens.page import Page, bound, closer
from tfmon.ui.view import may_change


class CrossoverPage(Page):
    """Starts a crossover, shows it while it is measured, and stops it; closed, it goes on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("crossover"),
        bound("move.down", keys="down,tab"),
        bound("move.up", keys="up,shift+tab"),
        bound("choose", "start_or_stop"),
    ]
    title_text = "Crossover: at which value of a knob does one lane overtake the other?"

    @property
    def _under_way(self) -> bool:
        experiment = self.shell.snapshot.experiment
        return isinstance(experiment, CrossoverState) and not experiment.over

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the choice of the knob, or the curve."""
        experiment = snapshot.experiment
        knobs = candidates(snapshot)
        close, enter = self.key("close"), self.key("choose")
        choose = "" if not knobs else f"{enter} races over {short_name(knobs[self.cursor % len(knobs)].name)}"
        if self._under_way:
            self.foot_text = f"{enter} stops it and keeps what it has · {close} closes, it goes on"
        else:
            arrows = f"{self.key('move.up')} {self.key('move.down')}"
            self.foot_text = f"{arrows} choose · {choose} · {close} closes" if knobs else ""
        rows: list[Row] = [BLANK]
        if not self._under_way:
            rows += [_choice(knob, chosen=at == self.cursor % len(knobs)) for at, knob in enumerate(knobs)]
            if not knobs:
                rows.append(((" this scenario has no knob that is a number", TEXT),))
            rows.append(BLANK)
        if isinstance(experiment, CrossoverState):
            rows += crossover_rows(snapshot, experiment, width, height - len(rows))
        return rows

    def action_move(self, direction: int) -> None:
        """Choose another knob."""
        count = len(candidates(self.shell.snapshot))
        self.cursor = (self.cursor + direction) % count if count else 0
        self.redraw()

    def action_start_or_stop(self) -> None:
        """Start the crossover of the chosen knob, or end the one that runs."""
        if not may_change(self.shell):
            return
        if self._under_way:
            self.shell.experiments.stop()
            self.shell.pull()
            return
        knobs = candidates(self.shell.snapshot)
        if not knobs:
            return
        try:
            self.shell.experiments.start_crossover(knobs[self.cursor % len(knobs)].name)
        except ExperimentError as error:
            self.shell.say(str(error))
        self.shell.pull()


def candidates(snapshot: Snapshot) -> list[Knob]:
    """Return the knobs of the race that have a curve: the scenario's own numbers first, then the batch size."""
    found = []
    for knob in snapshot.race.knobs:
        apart = any(knob.name in lane.spec.apart for lane in snapshot.lanes)
        try:
            values_of(knob, None, None)
        except KnobError:
            continue
        if not apart and not knob.words:
            found.append(knob)
    return found


def crossover_rows(snapshot: Snapshot, experiment: CrossoverState, width: int, height: int) -> list[Row]:
    """Return the answer, how far it is, the chart and the table, as far as they have room."""
    curve = curve_of(snapshot, experiment)
    names = [lane.spec.name for lane in snapshot.lanes]
    places = [names.index(name) for name in experiment.lanes]
    ids = (snapshot.lanes[places[0]].spec.id, snapshot.lanes[places[1]].spec.id)
    styles = (lane_style(places[0]), lane_style(places[1]))
    rows: list[Row] = [((f" {line}", STRONG),) for line in wrap(curve.text, width - 2, 3)]
    rows += [((f" {_progress(experiment)}", DIM),), BLANK]
    table = _table(curve, ids, styles)
    chart_height = min(16, height - len(rows) - len(table) - 1)
    if chart_height >= 6:
        chart = chart_rows(curve, ids, styles, min(width - 2, 100), chart_height)
        rows += [*chart, BLANK] if chart else []
    return [fit(row, width) for row in (*rows, *table)]


def _choice(knob: Knob, *, chosen: bool) -> Row:
    mark = (" ▸ ", STRONG) if chosen else ("   ", TEXT)
    note = "" if knob.kind == "live" else "  (each value restarts the lanes)"
    return (mark, (short_name(knob.name).ljust(18), STRONG if chosen else TEXT), (knob.help + note, DIM))


def _progress(experiment: CrossoverState) -> str:
    if experiment.over:
        return f"{experiment.ended}; these are the values it had" if experiment.ended else "all is measured"
    left = f" · about {units.clock(experiment.left_s)} left" if experiment.left_s is not None else ""
    if experiment.at is None:
        return "waiting for the lanes"
    return f"measuring {short_name(experiment.knob)} {show(experiment.at)}{left}"


def _table(curve: Curve, ids: tuple[str, str], styles: tuple[str, str]) -> list[Row]:
    head: Row = (
        (f" {short_name(curve.knob):>12}", DIM),
        (f"{ids[0]} ex/s".rjust(14), strong(styles[0])),
        (f"{ids[1]} ex/s".rjust(14), strong(styles[1])),
        ("   ahead", DIM),
    )
    return [head, *(_table_row(place, ids) for place in curve.places)]


def _table_row(place: CurvePoint, ids: tuple[str, str]) -> Row:
    value: tuple[str, str] = (f" {show(place.value):>12}", TEXT)
    if place.refused:
        return (value, (f"   {place.refused}", DIM))
    speeds = [units.rate(one.value) if one else "–" for one in (place.first, place.second)]
    ahead = ("   " + _ahead(place, ids), STRONG if place.sure else DIM)
    return (value, (f"{speeds[0]:>14}{speeds[1]:>14}", TEXT), ahead)


def _ahead(place: CurvePoint, ids: tuple[str, str]) -> str:
    """Write who is ahead and by how much: B 1.31× (1.27 to 1.35, 6 pairs)."""
    ratio, id = place.ratio, ids[0]
    if ratio is None:
        return f"{place.pairs} pairs so far" if place.pairs else "–"
    if ratio.value < 1:
        ratio, id = Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.pairs), ids[1]
    factor, interval = units.ratio_in(ratio.value, ratio.low, ratio.high)
    return f"{id if place.sure else '–'} {factor} ({interval}, {ratio.pairs} pairs)"

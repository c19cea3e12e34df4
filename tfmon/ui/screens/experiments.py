"""The pages of experiments: each starts one, shows it while it is measured, and stops it; closed, it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from tfmon.analysis.crossover import values_of
from tfmon.model.knobs import Knob, KnobError
from tfmon.model.lane_state import LaneState
from tfmon.model.race import CrossoverState, TuneState
from tfmon.model.session import Snapshot
from tfmon.ui.render.experiments import crossover_rows, tune_rows
from tfmon.ui.render.rows import BLANK, Row
from tfmon.ui.render.style import DIM, STRONG, TEXT
from tfmon.ui.requests import short_name, start, undo
from tfmon.ui.screens.page import ListPage, Page, bound, closer

if TYPE_CHECKING:
    from tfmon.ui.app import MonitorApp


class TunePage(Page):
    """Starts a series on a lane, shows it while it is measured, and stops it; closed, it goes on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("tune"),
        bound("move.next", "move(1)", "tab,down"),
        bound("move.previous", "move(-1)", "shift+tab,up"),
        bound("choose", "start_or_stop"),
        bound("undo", "undo"),
    ]

    def __init__(self, monitor: MonitorApp, lane: str | None) -> None:
        super().__init__(monitor)
        self._chosen = lane

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
            self.title_text, self.keys_text = "Tune", ""
            return [BLANK, ((" there is no lane to tune", TEXT),)]
        self.title_text = f"Tune {lane.title}: try what may help, one change after the other, and keep what does"
        enter, close = self.key("choose"), self.key("close")
        if self._in_progress() is not None:
            self.keys_text = f"{enter} stops it, the lane gets its settings back · {close} closes, it goes on"
        else:
            other = f"{self.key('move.next')}: the next lane · " if len(snapshot.lanes) > 1 else ""
            undo = f"{self.key('undo')} takes back what was kept last"
            self.keys_text = f"{enter} tunes {lane.title} · {other}{undo} · {close} closes"
        return [BLANK, *tune_rows(self.monitor.analysis, lane, width)]

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
            start(self.monitor, experiments.stop)
        elif lane is not None:
            start(self.monitor, lambda: experiments.start_tuning(lane.spec.name, everything=True))

    def action_undo(self) -> None:
        """Take back the change that was kept last."""
        undo(self.monitor)


# ---------------------------------------------------------------- crossover


class CrossoverPage(ListPage):
    """Starts a crossover, shows it while it is measured, and stops it; closed, it goes on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("crossover"),
        bound("move.down", keys="down,tab"),
        bound("move.up", keys="up,shift+tab"),
        bound("choose", "start_or_stop"),
    ]
    title_text = "Crossover: at which value of a knob does one lane overtake the other?"

    @property
    def _in_progress(self) -> bool:
        experiment = self.monitor.snapshot.experiment
        return isinstance(experiment, CrossoverState) and not experiment.over

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return the choice of the knob, or the curve."""
        knobs = candidates(snapshot)
        close, enter = self.key("close"), self.key("choose")
        choose = "" if not knobs else f"{enter} races over {short_name(knobs[self.cursor % len(knobs)].name)}"
        if self._in_progress:
            self.keys_text = f"{enter} stops it and keeps what it has · {close} closes, it goes on"
        else:
            arrows = f"{self.key('move.up')} {self.key('move.down')}"
            self.keys_text = f"{arrows} choose · {choose} · {close} closes" if knobs else ""
        rows: list[Row] = [BLANK]
        if not self._in_progress:
            rows += [_choice(knob, chosen=at == self.cursor % len(knobs)) for at, knob in enumerate(knobs)]
            if not knobs:
                rows.append(((" this scenario has no knob that is a number", TEXT),))
            rows.append(BLANK)
        rows += crossover_rows(self.monitor.analysis, width, height - len(rows))
        return rows

    def entries(self) -> int:
        """Return how many knobs have a curve."""
        return len(candidates(self.monitor.snapshot))

    def action_start_or_stop(self) -> None:
        """Start the crossover of the chosen knob, or end the one that runs."""
        if not self.monitor.may_change():
            return
        knobs, experiments = candidates(self.monitor.snapshot), self.monitor.experiments
        if self._in_progress:
            start(self.monitor, experiments.stop)
        elif knobs:
            knob = knobs[self.cursor % len(knobs)].name
            start(self.monitor, lambda: experiments.start_crossover(knob))


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


def _choice(knob: Knob, *, chosen: bool) -> Row:
    mark = (" ▸ ", STRONG) if chosen else ("   ", TEXT)
    note = "" if knob.kind == "live" else "  (each value restarts the lanes)"
    return (mark, (short_name(knob.name).ljust(18), STRONG if chosen else TEXT), (knob.help + note, DIM))

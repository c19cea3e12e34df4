"""The page of what was tried on a lane: each change with its gain, the best settings and their code."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.tuning import advised, best_of, change_text, gain_of, gain_text, news, pairs_of, settings_text
from tfmon.model.lane_state import LaneState
from tfmon.model.ports import ExperimentError
from tfmon.model.race import KEPT, REFUSED, STOPPED, UNDONE, Attempt, TuneState
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, fit, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT
from tfmon.ui.screens.page import Page, bound, closer
from tfmon.ui.view import Shell, may_change, undo_advice

_CHANGE_CELLS, _GAIN_CELLS = 26, 34


class TunePage(Page):
    """Starts a series on a lane, shows it while it is measured, and stops it; closed, it goes on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        closer("tune"),
        bound("move.next", "move(1)", "tab,down"),
        bound("move.previous", "move(-1)", "shift+tab,up"),
        bound("choose", "start_or_stop"),
        bound("undo", "undo"),
    ]

    def __init__(self, shell: Shell, lane: str | None) -> None:
        super().__init__(shell)
        self._chosen = lane

    def _under_way(self) -> TuneState | None:
        experiment = self.shell.snapshot.experiment
        return experiment if isinstance(experiment, TuneState) and not experiment.over else None

    def _lane(self) -> LaneState | None:
        """Return the lane that is tuned, or that was chosen."""
        state = self._under_way()
        if state is not None:
            self._chosen = state.lane
        return next((lane for lane in self.shell.snapshot.lanes if lane.spec.name == self._chosen), None)

    def body(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """Return what bounds the lane, what was tried, and what came of it."""
        lane = self._lane()
        if lane is None:
            self.title_text, self.foot_text = "Tune", ""
            return [BLANK, ((" there is no lane to tune", TEXT),)]
        self.title_text = f"Tune {lane.title}: try what may help, one change after the other, and keep what does"
        enter, close = self.key("choose"), self.key("close")
        if self._under_way() is not None:
            self.foot_text = f"{enter} stops it, the lane gets its settings back · {close} closes, it goes on"
        else:
            other = f"{self.key('move.next')}: the next lane · " if len(snapshot.lanes) > 1 else ""
            undo = f"{self.key('undo')} takes back what was kept last"
            self.foot_text = f"{enter} tunes {lane.title} · {other}{undo} · {close} closes"
        return [BLANK, *tune_rows(snapshot, lane, width)]

    def action_move(self, direction: int) -> None:
        """Choose another lane."""
        names = [lane.spec.name for lane in self.shell.snapshot.lanes]
        if names:
            at = names.index(self._chosen) if self._chosen in names else 0
            self._chosen = names[(at + direction) % len(names)]
        self.redraw()

    def action_start_or_stop(self) -> None:
        """Start the series on the chosen lane, or end the one that runs."""
        lane = self._lane()
        if not may_change(self.shell):
            return
        if self._under_way() is not None:
            self.shell.experiments.stop()
        elif lane is not None:
            try:
                self.shell.experiments.start_tuning(lane.spec.name, everything=True)
            except ExperimentError as error:
                self.shell.say(str(error))
        self.shell.pull()

    def action_undo(self) -> None:
        """Take back the change that was kept last."""
        undo_advice(self.shell)


def tune_rows(snapshot: Snapshot, lane: LaneState, width: int) -> list[Row]:
    """Return what bounds a lane, the table of what was tried on it, the best settings and their code."""
    found, state = advised(snapshot, lane), snapshot.tuned
    rows: list[Row] = []
    if found is not None:
        rows += [((f" {line}", STRONG),) for line in wrap(f"now {found.text}", width - 2, 2)]
        if found.advice and (state is None or state.over):
            rows.append(((" may help: " + ", ".join(f"{one.text} ({one.why})" for one in found.advice), TEXT),))
    if state is None:
        return [fit(row, width) for row in rows]
    if state.lane == lane.spec.name:
        rows += [((f" {line}", TEXT),) for line in wrap(_progress(snapshot, state), width - 2, 2)]
    attempts = [one for one in state.attempts if one.lane == lane.spec.name]
    if attempts:
        head = f" {'tried':<{_CHANGE_CELLS}}{'throughput':<{_GAIN_CELLS}}{'pairs':>5}   outcome"
        rows += [BLANK, ((head, DIM),), *(_row(lane, one) for one in attempts)]
    if state.lane == lane.spec.name and state.over:
        rows += _best_rows(state, width)
    return [fit(row, width) for row in rows]


def _progress(snapshot: Snapshot, state: TuneState) -> str:
    if not state.over:
        return news(snapshot)
    if state.ended:
        return f"ended early: {state.ended}"
    return "nothing else that this scenario's knobs can do helps" if state.everything else ""


def _row(lane: LaneState, attempt: Attempt) -> Row:
    estimate = attempt.gain if attempt.outcome else gain_of(lane, attempt)
    gained = gain_text(estimate) if estimate is not None else "–"
    pairs = estimate.pairs if estimate is not None else len(pairs_of(lane, attempt))
    kept = attempt.outcome == KEPT
    outcome = attempt.outcome or "under way"
    if attempt.outcome == REFUSED:
        outcome = f"not possible: {attempt.reason}"
    return (
        (f" {change_text(attempt):<{_CHANGE_CELLS}}", STRONG if kept else TEXT),
        (f"{gained:<{_GAIN_CELLS}}{pairs:>5}   ", TEXT if attempt.outcome not in (UNDONE, STOPPED) else DIM),
        (outcome, STRONG if kept else DIM),
    )


def _best_rows(state: TuneState, width: int) -> list[Row]:
    """Return the settings that a series came to, the speed-up, and the code that does the same elsewhere."""
    best = best_of(state)
    if not best.settings:
        return [BLANK, ((" best: the settings it began with", STRONG),)]
    speed_up = f": {gain_text(best.speed_up)} in all" if best.speed_up is not None else ""
    rows: list[Row] = [BLANK, ((f" best: {settings_text(state)}{speed_up}", STRONG),)]
    rows += [((f"   {line}", TEXT),) for line in best.code]
    return rows

"""The screen's `Experiments`: one series at a time."""

from __future__ import annotations

import threading
from dataclasses import replace

from tfmon.analysis.crossover_curve import plan_crossover
from tfmon.analysis.tuning_trials import find_change, plan_tuning
from tfmon.errors import ExperimentError
from tfmon.model.ports import Controls
from tfmon.model.series import TUNING, SeriesState
from tfmon.model.session import Session, Snapshot
from tfmon.series.crossover import Crossover
from tfmon.series.engine import Series
from tfmon.series.tuning import Tuning

STOP_PATIENCE_S = 2.0
"""For the lanes to restore their settings."""


class ExperimentControl:
    """Runs series in their own thread. Thread: any; `stop` waits briefly."""

    def __init__(self, session: Session, controls: Controls) -> None:
        self._session = session
        self._controls = controls
        self._lock = threading.Lock()
        self._series: Series | None = None
        self._station: Crossover | Tuning | None = None

    @property
    def measured(self) -> Snapshot | None:
        """The snapshot before the settings were restored."""
        return self._station.measured if self._station is not None else None

    def start_crossover(self, knob: str, low: float | None = None, high: float | None = None) -> None:
        """Race two lanes over the values of a knob; raises ExperimentError."""
        snapshot = self._session.snapshot()
        lanes = [lane for lane in snapshot.lanes if not lane.over]
        sizes = [lane.process.data_examples for lane in lanes if lane.process.data_examples is not None]
        specs = [replace(lane.spec, settings=lane.in_effect) for lane in lanes]
        examples = min(sizes, default=None)
        self.run(plan_crossover(snapshot.race.knobs, specs, knob, (low, high), examples))

    def start_tuning(self, lane: str, *, everything: bool) -> None:
        """Try the likeliest change, or everything until nothing helps; raises ExperimentError."""
        self.run(plan_tuning(self._session.snapshot(), lane, everything=everything))

    def undo(self) -> str:
        """Undo the last change, and return its text; raises ExperimentError."""
        with self._lock:
            self._check_idle()
            snapshot = self._session.snapshot()
            changes, state = find_change(snapshot)
            if any(snapshot.lane(change.lane).over for change in changes):
                raise ExperimentError("the lane has ended, and its result stays as it is")
            for change in changes:
                self._controls.set_knob(change.lane, change.knob, change.before)
            if state is not None:
                self._session.advance_series(state)
        return "; ".join(f"{snapshot.lane(change.lane).spec.id} {change.text}" for change in changes)

    def run(self, state: SeriesState) -> None:
        """Run a planned series; raises ExperimentError while another runs."""
        with self._lock:
            self._check_idle()
            make = Tuning if state.plan.policy == TUNING else Crossover
            self._station = station = make(self._session, self._controls, state)
            station.keep(state)
            self._series = Series(state, station, [station], station.keep)
            self._series.start()

    def _check_idle(self) -> None:
        if not self.join(0):
            raise ExperimentError("an experiment is running already")

    def stop(self) -> None:
        """End the series, and restore the settings."""
        with self._lock:
            if self._series is not None:
                self._series.stop()
                self._series.join(STOP_PATIENCE_S)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has ended."""
        return self._series is None or self._series.join(timeout_s)

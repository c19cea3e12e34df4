"""Starts and stops experiments on the lanes of a race, one at a time. It is the screen's `Experiments`."""

from __future__ import annotations

import threading
from dataclasses import replace

from tfmon.analysis.crossover import plan_crossover
from tfmon.analysis.tuning import find_change, plan_tuning
from tfmon.experiments.driver import LaneDriver, why_ended
from tfmon.experiments.lane_series import Crossover, Tuning
from tfmon.model.ports import Controls, ExperimentError
from tfmon.model.series import Experiment, TuneState
from tfmon.model.session import Session, Snapshot
from tfmon.model.threads import start_thread

STOP_PATIENCE_S = 2.0
"""Longest wait of `stop` for the lanes to return to their settings."""


class ExperimentControl:
    """Runs experiments in their own thread. Thread: any; `stop` waits briefly, the others return at once."""

    def __init__(self, session: Session, controls: Controls) -> None:
        self._session = session
        self._controls = controls
        self._lock = threading.Lock()
        self._driver: LaneDriver | None = None
        self._thread: threading.Thread | None = None
        self.measured: Snapshot | None = None
        """The snapshot at the end of the last measurement, before the lanes got back their settings."""

    def start_crossover(self, knob: str, low: float | None = None, high: float | None = None) -> None:
        """Race the first two training lanes over the values of a knob; raises ExperimentError."""
        snapshot = self._session.snapshot()
        lanes = [lane for lane in snapshot.lanes if not lane.over]
        sizes = [lane.process.data_examples for lane in lanes if lane.process.data_examples is not None]
        specs = [replace(lane.spec, settings=lane.in_effect) for lane in lanes]
        examples = min(sizes, default=None)
        self.run(plan_crossover(snapshot.race.knobs, specs, knob, (low, high), examples))

    def start_tuning(self, lane: str, *, everything: bool) -> None:
        """Try the likeliest change on a lane, or everything until nothing helps; raises ExperimentError."""
        self.run(plan_tuning(self._session.snapshot(), lane, everything=everything))

    def undo(self) -> str:
        """Undo the last change, made or kept, and return its text; raises ExperimentError if none exists."""
        with self._lock:
            self._check_idle()
            snapshot = self._session.snapshot()
            changes, state = find_change(snapshot)
            if any(snapshot.lane(one.lane).over for one in changes):
                raise ExperimentError("the lane has ended, and its result stays as it is")
            for one in changes:
                self._controls.set_knob(one.lane, one.knob, one.before)
            if state is not None:
                self._session.set_experiment(state)
        return "; ".join(f"{snapshot.lane(one.lane).spec.id} {one.text}" for one in changes)

    def run(self, state: Experiment) -> None:
        """Run a planned experiment; raises ExperimentError while another one runs."""
        with self._lock:
            self._check_idle()
            driver = LaneDriver(self._session, self._controls)
            series = Tuning(driver, state) if isinstance(state, TuneState) else Crossover(driver, state)
            self.measured = None
            driver.tell(state)

            def work() -> None:
                ended = ""
                try:
                    series.measure()
                except Exception as error:  # noqa: BLE001 - whatever it is, the lanes get their settings back
                    ended = why_ended(error)
                self.measured = self._session.snapshot()
                try:
                    series.give_back()
                    driver.tell(replace(series.state, over=True, ended=ended))
                finally:
                    driver.close()

            def fail(reason: str) -> None:
                known = self._session.snapshot().experiment
                if known is not None:
                    driver.tell(replace(known, over=True, ended=reason))

            self._driver = driver
            self._thread = start_thread("tfmon-experiment", work, fail)

    def _check_idle(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            raise ExperimentError("an experiment is running already")

    def stop(self) -> None:
        """End the running experiment, if any; the lanes get their settings back."""
        with self._lock:
            if self._driver is not None and self._thread is not None:
                self._driver.stop()
                self._thread.join(STOP_PATIENCE_S)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the running experiment; return whether it has ended."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

"""Starts and stops trials on the lanes of the race, one at a time. It is the screen's `Trials`."""

from __future__ import annotations

import threading

from tfmon.model.ports import Controls, TrialError
from tfmon.model.session import Session
from tfmon.model.trials import CrossoverState
from tfmon.race.crossover import plan_crossover
from tfmon.trials.crossover import Crossover
from tfmon.trials.driver import Driver

PATIENCE_S = 2.0
"""How long `stop` waits for a trial to give the lanes their settings back."""


class Bench:
    """Runs trials in a thread of its own.

    Thread: any; `stop` waits a moment, the others return at once.
    """

    def __init__(self, session: Session, controls: Controls) -> None:
        self._session = session
        self._controls = controls
        self._lock = threading.Lock()
        self._driver: Driver | None = None
        self._thread: threading.Thread | None = None

    def start_crossover(self, knob: str) -> None:
        """Race the first two lanes that can train over the values of a knob.

        Errors: TrialError when that cannot be.
        """
        snapshot = self._session.snapshot()
        lanes = [lane for lane in snapshot.lanes if not lane.over]
        sizes = [lane.data_examples for lane in lanes if lane.data_examples is not None]
        specs = [lane.spec for lane in lanes]
        self.run(plan_crossover(snapshot.race.knobs, specs, knob, examples=min(sizes, default=None)))

    def run(self, state: CrossoverState) -> None:
        """Run a crossover that was planned.

        Errors: TrialError while another one is under way.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise TrialError("a trial is under way already")
            driver = Driver(self._session, self._controls)
            crossover = Crossover(driver, state, self._session.set_trial)
            self._session.set_trial(state)

            def work() -> None:
                crossover.run()
                driver.close()

            self._driver = driver
            self._thread = threading.Thread(target=work, name="tfmon-trial", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the trial that runs, if one does; the lanes get their settings back."""
        with self._lock:
            if self._driver is not None and self._thread is not None:
                self._driver.stop()
                self._thread.join(PATIENCE_S)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the trial that runs; return whether it has ended."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

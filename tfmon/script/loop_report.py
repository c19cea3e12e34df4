"""What is told of a training loop besides its steps: epochs, validation, and what cannot be known of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Sized
from typing import Any, Protocol

from tfmon.model.lane_events import Progressed

TRAINING, VALIDATION = "training", "validation"
LOOP_IN_GRAPH = "the loop over the data runs inside of a graph"


class Recorder(Protocol):
    """What a lane does with steps; `script.lane.Lane` is the usual one."""

    feed: Any
    """What counts the batches that graphs pull themselves."""
    confirm: Callable[[], int]
    """Returns how many more steps the optimizers have counted than were told."""
    traces: Any
    """What counts the functions that are traced, as `count`; None for nothing."""
    waiting: Sized
    """True in a boolean context while a request waits."""

    def begin_step(self, at_ns: int | None = None) -> bool:
        """Begin a step, now or at a time before, and wait while the lane is paused."""

    def end_step(self, *, steps: int, loss: object, examples: int, input_ns: int, ended_ns: int | None) -> None:
        """End a step, now or at a time before."""

    def alike_until(self) -> int:
        """Return until when steps like the last one may be told together; 0 for not at all.

        Units: nanoseconds of `time.monotonic_ns`.
        """

    def end_steps(self, ends_ns: Sequence[int], *, loss: object, examples: int, input_ns: int) -> None:
        """End the step that was begun and others after it, each of which began where the one before ended.

        A step goes on from the last end.

        Args:
            ends_ns: When they ended.
            loss: That of the last one.
            examples: All of theirs.
            input_ns: Their wait for batches.
        """

    def take_back(self, steps: int, examples: int) -> None:
        """Count fewer steps and examples than were told: they were parts of others."""

    def tell_step(self, text: str) -> None:
        """Report what is counted as a step."""

    def cancel_step(self) -> None:
        """Forget the step that was begun."""

    def stop_clock(self) -> None:
        """Measure nothing until the next step begins."""

    def obey(self) -> bool:
        """Do what was requested, and wait while the lane is paused."""

    def report_progress(self, progress: Callable[[], Progressed]) -> None:
        """Report how far the loop is, now and with each window."""

    def cannot_know(self, what: str, reason: str) -> None:
        """Report what stays unknown, and why."""

    def take_feed(self) -> None:
        """Count what the feed has counted."""

    def skip_feed(self) -> None:
        """Do not count what the feed has counted since it was taken."""


class LoopReport:
    """How far a loop is, and what was told of it. Thread: that of the loop."""

    def __init__(self) -> None:
        self.doing = ""
        """`training` or `validation`; empty before either was told."""
        self._epoch = 1
        self._batches: int | None = None
        self._told: set[str] = set()
        self.doubts: dict[str, str] = {}
        """What may stay unknown of the steps, and why; an empty reason for what is known again."""
        self.counted = ""
        """What is counted as a step."""

    @property
    def epochs_done(self) -> int:
        """Epochs that have ended."""
        return self._epoch - 1

    def epoch_over(self, batches: int) -> None:
        """Record that an epoch of so many batches has ended."""
        self._batches = batches
        self._epoch += 1

    def progress(self, batch: int | None) -> Progressed:
        """Return how far the loop is; `batch` counts those of the epoch, None where no dataset is read."""
        return Progressed(
            at_ns=time.monotonic_ns(),
            doing=self.doing,
            epoch=self._epoch if self._batches is not None or batch is not None else 0,
            batch=batch or 0,
            batches=self._batches,
            epochs_done=self.epochs_done,
        )

    def unknown(self, what: str) -> bool:
        """Return whether a lane was told that something stays unknown."""
        return what in self._told

    def tell(self, lane: Recorder) -> None:
        """Tell a lane once what is in doubt, and why."""
        for what, reason in self.doubts.items():
            if reason and what not in self._told:
                lane.cannot_know(what, reason)
                self._told.add(what)

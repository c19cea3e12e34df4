"""What is told of a training loop besides its steps: epochs, validation, and what cannot be known of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfmon.model.lane_events import Progressed

if TYPE_CHECKING:
    from tfmon.script.lane import Lane

TRAINING, VALIDATION = "training", "validation"
LOOP_IN_GRAPH = "the loop over the data runs inside of a graph"


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

    def tell(self, lane: Lane) -> None:
        """Tell a lane once what is in doubt, and why."""
        for what, reason in self.doubts.items():
            if reason and what not in self._told:
                lane.cannot_know(what, reason)
                self._told.add(what)

"""The loss of a lane by its steps, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

MOST_POINTS = 256


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Losses that windows reported; when there are too many, every second one is dropped, and so on from then."""

    points: tuple[tuple[int, float], ...] = ()
    """Steps and losses, in the order of the steps."""
    every: int = 1
    """One of so many losses is kept."""
    seen: int = 0

    def plus(self, step: int, loss: float | None) -> LossCurve:
        """Return the curve with the loss of a step; the same one for None."""
        if loss is None:
            return self
        if self.seen % self.every:
            return LossCurve(self.points, self.every, self.seen + 1)
        points = (*self.points, (step, loss))
        if len(points) < MOST_POINTS:
            return LossCurve(points, self.every, self.seen + 1)
        return LossCurve(points[::2], 2 * self.every, self.seen + 1)

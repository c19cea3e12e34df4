"""A measured value with its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float
    pairs: int
    """Measurements behind it."""

    @property
    def half_width(self) -> float:
        """Half the interval over the value: 0.05 means ±5 %."""
        return (self.high - self.low) / 2 / self.value

    def clear_of(self, value: float) -> bool:
        """Return whether the interval leaves a value out."""
        return self.low > value or self.high < value

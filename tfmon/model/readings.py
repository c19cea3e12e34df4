"""A measured value, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands where a number would stand that nobody measured. Arithmetic on it does not type-check."""

    reason: str
    """A user's words, such as "no GPU in this lane"."""


Reading: TypeAlias = float | Missing
"""A number in the unit that its field's name ends in, or why it is not known. Never 0 for unknown."""

NOT_READ = Missing("not read here")


def known(reading: Reading) -> float | None:
    """Return the number, or None where it is missing."""
    return None if isinstance(reading, Missing) else reading


# ---------------- a measured value with its interval


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

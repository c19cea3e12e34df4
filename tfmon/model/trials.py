"""What a series of measurements is about and how far it is, for the screen."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmon.model.knobs import KnobValue


@dataclass(frozen=True, slots=True)
class CrossoverState:
    """A race of two lanes over the values of a knob; what was measured is in the lanes."""

    knob: str
    lanes: tuple[str, str]
    """Names of the lanes that are compared."""
    values: tuple[KnobValue, ...]
    refused: dict[KnobValue, str] = field(default_factory=dict)
    """Values at which nothing can be measured, and why."""
    at: KnobValue | None = None
    """The value that is measured now."""
    left_s: float | None = None
    """About how long it will take yet; None while that is not known."""
    over: bool = False
    ended: str = ""
    """Why it ended before all was measured; empty otherwise."""

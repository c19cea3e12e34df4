"""What a series of measurements is about and how far it is: a crossover, or advice that is tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tfmon.model.estimate import Estimate
from tfmon.model.knobs import KnobValue

KEPT, WITHDRAWN, REFUSED, UNDONE, STOPPED = "kept", "withdrawn", "refused", "undone", "stopped"
"""What came of an attempt. `refused`: the new setting could not come into force, or the lane failed under it."""


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


@dataclass(frozen=True, slots=True)
class Block:
    """Slices in a row that a lane trained under one of the two settings of an attempt."""

    changed: bool
    """True under the new settings."""
    since_ns: int
    until_ns: int | None = None
    """None while it is under way."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One lane trained under two settings by turns; what was measured is in the lane."""

    lane: str
    before: dict[str, KnobValue]
    """Every knob and its value in the old settings."""
    after: dict[str, KnobValue]
    bound: str = ""
    """What bound the lane when this was proposed: a kind of `race.diagnosis`."""
    why: str = ""
    """What the change is meant to do."""
    restarts: bool = False
    """Whether the two settings need a process each."""
    blocks: tuple[Block, ...] = ()
    outcome: str = ""
    """`kept`, `withdrawn`, `refused`, `undone` or `stopped`; empty while it is under way."""
    reason: str = ""
    """Why it was refused."""
    gain: Estimate | None = None
    """Throughput under the new settings over that under the old ones, when it was decided."""

    @property
    def change(self) -> dict[str, KnobValue]:
        """The knobs that differ, with their new values."""
        return {knob: value for knob, value in self.after.items() if self.before.get(knob) != value}


@dataclass(frozen=True, slots=True)
class TuneState:
    """Advice that is tried on a lane, or was; what was tried earlier in the race stays."""

    lane: str
    everything: bool = False
    """True when it goes on until nothing helps any more."""
    attempts: tuple[Attempt, ...] = ()
    """All of this race, on any lane; the latest last."""
    first: int = 0
    """Place of the first attempt of this series."""
    total: Attempt | None = None
    """The settings at the end against those at the beginning; None unless several changes were kept."""
    over: bool = False
    ended: str = ""
    """Why it ended before there was nothing left to try; empty otherwise."""

    @property
    def latest(self) -> Attempt | None:
        """The attempt of this series that is or was made last."""
        attempts = self.attempts[self.first :]
        return self.total if self.total is not None else attempts[-1] if attempts else None


Trial: TypeAlias = CrossoverState | TuneState

"""The table of a series, whichever it is: crossover, tuning or sweep. Pure.

A row for each combination that was or will be measured, also for one that failed; the answer; and a curve for each
knob that is a number. Screen, text, Markdown and HTML show this table.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tfmon import units
from tfmon.model.knobs import KnobValue, Settings, show
from tfmon.model.readings import Estimate

DASH = "–"
"""Stands for a figure that is not known."""
Level: TypeAlias = Literal["", "best", "faint", "refused", "failed"]
"""How much a row matters, or what came of it."""
Cell: TypeAlias = tuple[str, Any]
"""A text, and what its column sorts by: None where that is not known."""


@dataclass(frozen=True, slots=True)
class SeriesColumn:
    """A column of the table."""

    name: str
    right: int = 0
    """Numbers are aligned to the right, in so many cells on a screen; 0 for words."""
    most: int = 40
    """Cells that it takes at most."""
    optional: bool = False
    """Whether a screen without room for all columns goes without it: the rightmost one leaves first."""


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """What was measured under one combination."""

    id: Hashable
    cells: tuple[Cell, ...]
    """One for each column; the last one says what came of it."""
    level: Level = ""
    outcome: Level = ""
    """The level of the last cell."""
    mark: str = " "
    whole: str = ""
    """All that there is to say about it."""
    source: object = None
    """What it was made from; the same as long as nothing has changed."""


@dataclass(frozen=True, slots=True)
class CurveLine:
    """One line of a curve."""

    id: str
    """One character."""
    name: str
    """What the line is of; empty for the only one."""
    place: int
    """Which colour it has."""
    points: tuple[Estimate | None, ...]
    """What is known at each value of the knob."""


@dataclass(frozen=True, slots=True)
class SeriesCurve:
    """Throughput, or a ratio, over the values of a knob."""

    knob: str
    title: str
    about: str
    axis: str
    """What is drawn upwards."""
    values: tuple[KnobValue, ...]
    """From the lowest."""
    lines: tuple[CurveLine, ...]
    """The one that matters most first."""
    marks: tuple[float, ...] = ()
    """Values of the knob that are marked: crossings."""
    ratios: bool = False
    """Whether the points are ratios, and not examples/s."""

    def texts(self, point: Estimate) -> tuple[str, str]:
        """Return a point and its interval as text."""
        if self.ratios:
            return units.ratio_in(point.value, point.low, point.high)
        return units.rate(point.value), rates(point)


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """What a series came to so far."""

    columns: tuple[SeriesColumn, ...]
    rows: tuple[SeriesRow, ...]
    curves: tuple[SeriesCurve, ...] = ()
    answer: tuple[str, ...] = ()
    """The result in sentences."""
    notes: tuple[str, ...] = ()
    """How far it is, or why it ended."""
    code: tuple[str, ...] = ()
    """The lines of TensorFlow that do the same."""
    troubles: tuple[str, ...] = ()
    """What went wrong."""


def rates(speed: Estimate) -> str:
    """Return the interval of a throughput in examples/s: `4 990 to 5 010`."""
    return f"{units.rate(speed.low)} to {units.rate(speed.high)}"


def settings_text(settings: Settings) -> str:
    """Name settings as the command line takes them: "batch_size=512 mixed_precision=off"."""
    return " ".join(f"{knob}={show(value)}" for knob, value in settings.items())

"""What a report says, whatever it is of: sections of blocks, described once for all forms it is written in.

`text` and `html` write them. JSON is another matter: its keys are those of the kind of report.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tfmon.model.readings import ProcessName

DASH = "–"
NoteKind: TypeAlias = Literal["", "verdict", "trouble", "quiet"]
VERDICT: NoteKind = "verdict"
TROUBLE: NoteKind = "trouble"
QUIET: NoteKind = "quiet"


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph."""

    text: str
    kind: NoteKind = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """A list of sentences."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to be copied, or what a program printed."""

    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """Something that was checked."""

    label: str
    title: str
    text: str = ""
    details: tuple[str, ...] = ()
    status: str = ""
    """By which a terminal may colour the label."""


@dataclass(frozen=True, slots=True)
class Items:
    """What was checked, one after the other."""

    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells."""

    rows: Sequence[Sequence[str]]
    """The head first; one of empty texts is not shown."""
    about: str = ""
    left: Collection[int] = (0,)
    """Places of the columns of words; those of the others are aligned to the right."""
    values: Sequence[Sequence[float | None]] | None = None
    """The numbers behind the cells of each row but the head; a page sorts by them."""
    marked: Collection[int] = ()
    """Places of the rows, from 1, that stand out."""
    brief: Sequence[int] = ()
    """Places of the columns that a terminal has room for; empty for all."""
    folded: str = ""
    """The summary under which a page folds it away, and which other forms leave out; empty to show it."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of figures, and the figures."""

    title: str
    about: str
    spec: dict[str, Any]
    """For Vega-Lite; see `charts`."""
    table: Table | None = None
    drawn: Sequence[str] = ()
    """The same chart in characters, where there is one."""
    legend: Sequence[tuple[str, str]] = ()
    """Colours of the style sheet with what they stand for."""

    @property
    def caption(self) -> str:
        """The title, and what the chart shows, in a line."""
        return ": ".join(filter(None, (self.title, self.about)))


Block: TypeAlias = Note | Lines | Code | Items | Table | Chart


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks about one thing."""

    heading: str
    blocks: Sequence[Block | None]
    """None for what this report does not have."""
    long: bool = False
    """Whether a brief form leaves it out."""

    @property
    def shown(self) -> list[Block]:
        """The blocks that have something to say."""
        return [one for one in self.blocks if one is not None and not (isinstance(one, Lines) and not one.texts)]


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said about a race, a sweep, or whatever else."""

    title: str
    sections: Sequence[Section]
    answer: Sequence[Note | Code] = ()
    """What came of it, the most important first."""
    when: str = ""
    keys: Sequence[tuple[str, str]] = ()
    """Keys and names of the series that a reader of a page can hide in all charts."""
    hosts: Collection[str] = ()
    others: Collection[ProcessName] = ()
    data: dict[str, Any] = field(default_factory=dict)

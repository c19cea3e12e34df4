"""Reports of sections and blocks, and common parts of JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

from tfmon import units
from tfmon.model.codec import clean
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import ProcessName
from tfmon.model.header import JSON_SCHEMA
from tfmon.model.race import Machine
from tfmon.model.session import Snapshot
from tfmon.version import __version__

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
    """Code or output."""

    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """A checked item."""

    label: str
    title: str
    text: str = ""
    details: tuple[str, ...] = ()
    status: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """Checked items."""

    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells."""

    rows: Sequence[Sequence[str]]
    """The first row is the header. An empty header is not displayed."""
    about: str = ""
    left: Collection[int] = (0,)
    """Columns aligned to the left."""
    values: Sequence[Sequence[float | None]] | None = None
    """Sort keys, without the header."""
    marked: Collection[int] = ()
    brief: Sequence[int] = ()
    """The columns for a terminal."""
    folded: str = ""
    """Summary of a folded table in HTML."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its figures."""

    title: str
    about: str
    spec: dict[str, Any]
    table: Table | None = None
    drawn: Sequence[str] = ()
    legend: Sequence[tuple[str, str]] = ()

    @property
    def caption(self) -> str:
        """Title and description."""
        return ": ".join(filter(None, (self.title, self.about)))


Block: TypeAlias = Note | Lines | Code | Items | Table | Chart


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks about one subject."""

    heading: str
    blocks: Sequence[Block | None]
    long: bool = False

    @property
    def shown(self) -> list[Block]:
        """The non-empty blocks."""
        blocks = (block for block in self.blocks if block is not None)
        return [block for block in blocks if not isinstance(block, Lines) or block.texts]


@dataclass(frozen=True, slots=True)
class Report:
    """A report."""

    title: str
    sections: Sequence[Section]
    answer: Sequence[Note | Code] = ()
    when: str = ""
    keys: Sequence[tuple[str, str]] = ()
    hosts: Collection[str] = ()
    processes: Collection[ProcessName] = ()
    data: dict[str, Any] = field(default_factory=dict)


def common_keys() -> dict[str, Any]:
    """Return the keys with which every JSON object starts."""
    return {"schema": JSON_SCHEMA, "tfmon": __version__}


def minute(started: str | None) -> str:
    """Return the date and time to the minute."""
    return (started or "")[:16].replace("T", " ")


def one_line(text: str) -> str:
    """Return a text in one line without control codes."""
    return " ".join(clean(text).split("\n"))


def host_names(machines: Iterable[tuple[str, Machine]]) -> set[str]:
    """Return the names that shared reports must not contain."""
    return {name for host, machine in machines for name in (host.rpartition("@")[2], machine.hostname)}


def recording_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the recording's path and failure as JSON."""
    path, reason = (snapshot.recording.path, snapshot.recording.reason) if snapshot.recording else ("", "")
    return {"recording": path or None, "recording_stopped": reason or None}


def repeated(command: str) -> tuple[Block, ...]:
    """Return blocks with the command that repeats a run."""
    return (Note("To do it again:"), Code(command)) if command else ()


def machine_rows(machine: Machine) -> list[list[str]]:
    """Return a machine as rows of names and values."""
    return [
        ["processor", f"{machine.cpu_name or 'unknown'}, {machine.cores} cores"],
        ["usable cores", units.cores(machine.usable_cores)],
        ["memory", units.memory(machine.memory_bytes)],
        ["GPUs", ", ".join(machine.gpus) or ": ".join(filter(None, ("none", machine.no_gpu)))],
        ["system", machine.system],
        ["name", machine.hostname],
    ]


def versions_text(versions: Mapping[str, str | None]) -> str:
    """Return such as `TensorFlow 2.21.0, Keras 3.14.0`."""
    names = ("TensorFlow", "Keras", "NumPy", "Python")
    return ", ".join(f"{name} {version}" for name in names if (version := versions.get(name.lower())))

"""Writes reports as plain text and Markdown."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence

from tfmon.model.fast_dataclass import dataclass
from tfmon.reports import VERDICT, Block, Chart, Code, Item, Items, Lines, Note, Report, Section, Table

_NO_BREAK = "\u00a0"
_PLAIN = str.maketrans(
    {"±": "+-", "×": "x", "…": "...", "°": " deg ", "–": "-", "≈": "~", "→": "->", "✓": "+", "✗": "x"}
)
Paint = Callable[[str, str], str]


def unpainted(text: str, _: str) -> str:
    """Return a label unchanged."""
    return text


def write(
    report: Report, *, brief: bool = False, last: bool = False, width: int = sys.maxsize, paint: Paint = unpainted
) -> str:
    """Return a report as text.

    `brief` omits headings and long sections; `last` moves the answer to the end.
    """
    shown = [section for section in report.sections if not (brief and section.long)]
    blocks = [block for section in shown for block in section.shown]
    items = [item for block in blocks if isinstance(block, Items) for item in block.items]
    writer = _TextWriter(
        brief,
        width,
        paint,
        label=max((len(item.label) for item in items), default=0),
        title=max((len(item.title) for item in items if item.text), default=0),
    )
    parts = [list(writer.section(section)) for section in shown]
    parts.insert(len(parts) if last else 0, list(writer.section(Section("", report.answer))))
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def plain(text: str) -> str:
    """Return a text in ASCII."""
    return text.translate(_PLAIN).encode("ascii", "replace").decode()


@dataclass(frozen=True, slots=True)
class _TextWriter:
    brief: bool
    width: int
    paint: Paint
    label: int
    title: int

    def section(self, section: Section) -> Iterator[str]:
        heading, margin = "" if self.brief else section.heading, ""
        for number, block in enumerate(section.shown):
            lines = self._block(block)
            if lines and heading:
                yield heading
                heading, margin = "", "  "
            elif lines and number and isinstance(block, Table | Chart):
                yield ""
            yield from (margin + line if line else "" for line in lines)

    def _block(self, block: Block) -> list[str]:
        match block:
            case Note():
                return _broken(block.text, self.width)
            case Lines():
                return [line for text in block.texts for line in _broken(text, self.width)]
            case Code():
                return [f"  {line}" for line in block.text.splitlines()]
            case Items():
                return [line for item in block.items for line in self._item(item)]
            case Table():
                return self._table(block)
            case Chart():
                rows = self._table(block.table) if block.table is not None else []
                caption = [] if self.brief else [block.caption]
                return [*caption, *block.drawn, *([""] if block.drawn and rows else []), *rows]

    def _item(self, item: Item) -> Iterator[str]:
        title = f"{item.title:{self.title}}  {item.text}" if item.text else item.title
        yield f"{self.paint(item.label.ljust(self.label), item.status)}  {title}"
        yield from (f"{'':{self.label}}  {detail}" for detail in item.details)

    def _table(self, block: Table) -> list[str]:
        if self.brief and block.folded:
            return []
        kept = (self.brief and block.brief) or range(len(block.rows[0]))
        rows = [[row[column] for column in kept] for row in block.rows]
        lines = table(rows, [index for index, column in enumerate(kept) if column not in block.left])
        return lines if self.brief or not block.about else [block.about, *lines]


def _broken(text: str, width: int) -> list[str]:
    if width == sys.maxsize:
        return text.splitlines()
    return textwrap.wrap(text, width, break_long_words=True, break_on_hyphens=False)


def fitted(text: str) -> str:
    """Wrap a text for the terminal."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        lines += _wrapped(line, indent) or [""]
    return "\n".join(lines)


def _wrapped(line: str, indent: str) -> list[str]:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return aligned lines, or folded rows for a narrow terminal."""
    from rich.cells import cell_len

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]

    def padded(cell: str, index: int) -> str:
        space = " " * (widths[index] - cell_len(cell))
        return space + cell if index in right else cell + space

    shown = rows if any(rows[0]) else rows[1:]
    lines = ["  ".join(padded(cell, index) for index, cell in enumerate(row)).rstrip() for row in shown]
    if all(len(_wrapped(line, "")) < 2 for line in lines):
        return lines
    lines = []
    for first, *cells in rows[1:]:
        texts = [f"{name} {cell}".strip() for name, cell in zip(rows[0][1:], cells, strict=True) if cell]
        labelled = [text.replace(" ", _NO_BREAK) for text in texts]
        wrapped = _wrapped("  " + "   ".join(labelled), "  ")
        lines += [first, *(line.replace(_NO_BREAK, " ") for line in wrapped)]
    return lines


MOST_ROWS = 40
_SPECIAL = re.compile(r"([\\`*\[\]<>|~#]|(?<![^\W_])_|_(?![^\W_]))")


def to_markdown(report: Report, hide: Callable[[str], str]) -> str:
    """Return a report without its pictures; `hide` removes private text."""
    return "\n".join(_MarkdownWriter(hide).lines(report)).rstrip("\n") + "\n"


class _MarkdownWriter:
    def __init__(self, hide: Callable[[str], str]) -> None:
        self._hide = hide

    def _text(self, text: str) -> str:
        return _SPECIAL.sub(r"\\\1", self._hide(" ".join(text.split())))

    def lines(self, report: Report) -> Iterator[str]:
        for note in report.answer:
            yield from self._block(note)
        yield from (self._text(" · ".join(filter(None, (report.title, report.when)))), "")
        for section in report.sections:
            yield from self._section(section)

    def _section(self, section: Section) -> Iterator[str]:
        lines = [line for block in section.shown for line in self._block(block)]
        if lines and section.heading:
            yield from (f"### {self._text(section.heading)}", "")
        yield from lines

    def _block(self, block: object) -> Iterator[str]:
        match block:
            case Note():
                text = self._text(block.text)
                yield from (f"**{text}**" if block.kind == VERDICT else text, "")
            case Lines():
                yield from (*(f"- {self._text(text)}" for text in block.texts), "")
            case Code():
                yield from self._fenced(block.text)
            case Items():
                for item in block.items:
                    title_text = ": ".join(filter(None, (self._text(item.title), self._text(item.text))))
                    yield f"- **{self._text(item.label)}** {title_text}"
                    yield from (f"  - {self._text(detail)}" for detail in item.details)
                yield ""
            case Table():
                yield from self._table(block)
            case Chart():
                if block.drawn or (block.table is not None and not block.table.folded):
                    yield from (self._text(block.caption), "")
                if block.drawn:
                    yield from self._fenced("\n".join(block.drawn))
                if block.table is not None:
                    yield from self._table(block.table)

    def _table(self, table: Table) -> Iterator[str]:
        if table.folded:
            return
        (heads, *rows), more = table.rows, len(table.rows) - 1 - MOST_ROWS
        ruled = [["---" if column in table.left else "---:" for column in range(len(heads))]]
        cells = [[self._text(cell) for cell in row] for row in (heads, *rows[:MOST_ROWS])]
        if table.about:
            yield from (self._text(table.about), "")
        for row in (cells[0], *ruled, *cells[1:]):
            yield f"| {' | '.join(row)} |"
        yield from ("", f"… and {more} more rows", "") if more > 0 else ("",)

    def _fenced(self, text: str) -> Iterator[str]:
        text = self._hide(text)
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        yield from (fence, text, fence, "")

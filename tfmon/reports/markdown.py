"""Writes a report as Markdown, to paste into an issue or a chat."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tfmon.reports.sections import VERDICT, Chart, Code, Items, Lines, Note, Report, Section, Table

MOST_ROWS = 40
"""Most rows of a table that is pasted."""
_SPECIAL = re.compile(r"([\\`*\[\]<>|~#]|(?<![^\W_])_|_(?![^\W_]))")
"""What Markdown would take for markup; not `_` within a word."""


def write(report: Report, hide: Callable[[str], str]) -> str:
    """Return a report without its pictures; `hide` takes out what must not be handed on."""
    return "\n".join(_Writer(hide).lines(report)).rstrip("\n") + "\n"


class _Writer:
    def __init__(self, hide: Callable[[str], str]) -> None:
        self._hide = hide

    def _text(self, text: str) -> str:
        return _SPECIAL.sub(r"\\\1", self._hide(" ".join(text.split())))

    def lines(self, report: Report) -> Iterator[str]:
        """Yield the lines of a report."""
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
                for one in block.items:
                    told = ": ".join(filter(None, (self._text(one.title), self._text(one.text))))
                    yield f"- **{self._text(one.label)}** {told}"
                    yield from (f"  - {self._text(detail)}" for detail in one.details)
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
        ruled = [["---" if place in table.left else "---:" for place in range(len(heads))]]
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

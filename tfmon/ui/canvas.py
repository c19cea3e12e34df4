"""A widget that holds rows of cells and repaints only the runs of cells that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tfmon.ui.rows import BLANK, TEXT, Row

MERGE_CELLS = 10
"""Runs closer than this are repainted as one: moving the cursor costs more bytes than the cells between."""


class Canvas(Widget):
    """Shows rows. Thread: the app's only."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self, styles: Mapping[str, Style]) -> None:
        super().__init__()
        self._palette = styles
        self._rows: tuple[Row, ...] = ()

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; what is on the screen already is left alone."""
        old, self._rows = self._rows, tuple(rows)
        regions = [
            Region(first, y, last - first, 1)
            for y, (before, after) in enumerate(zip_longest(old, self._rows, fillvalue=BLANK))
            if before != after
            for first, last in changed_runs(before, after)
        ]
        if regions:
            self.refresh(*regions)

    def dress(self, styles: Mapping[str, Style]) -> None:
        """Take the styles of another theme."""
        self._palette = styles
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen, for Textual."""
        row = self._rows[y] if y < len(self._rows) else BLANK
        strip = Strip([Segment(text, self._palette[style]) for text, style in row])
        return strip.adjust_cell_length(self.size.width, self._palette[TEXT])

    def text(self) -> str:
        """Return what is shown as plain text."""
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self._rows)


def changed_runs(before: Row, after: Row) -> list[tuple[int, int]]:
    """Return the runs of cells, first and one past the last, in which two rows differ.

    Rows with characters that are not one cell wide count as one run.
    """
    old, new = _cells(before), _cells(after)
    if old is None or new is None:
        return [(0, max(sum(cell_len(text) for text, _ in row) for row in (before, after)))]
    runs: list[tuple[int, int]] = []
    for place, (left, right) in enumerate(zip_longest(old, new)):
        if left == right:
            continue
        if runs and place - runs[-1][1] < MERGE_CELLS:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs


def _cells(row: Row) -> list[tuple[str, str]] | None:
    """Return a row as cells with their styles; None if some character is not one cell wide."""
    cells: list[tuple[str, str]] = []
    for text, style in row:
        if not text.isascii() and cell_len(text) != len(text):
            return None
        cells += [(character, style) for character in text]
    return cells

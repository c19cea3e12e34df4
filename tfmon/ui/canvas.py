"""A widget that holds rows of cells and repaints only the runs of cells that changed."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tfmon.ui.render.rows import BLANK, TEXT, Row, cell_len, cells, cut
from tfmon.ui.textual_compat import Surviving, TerminalApp, is_on_top

MERGE_CELLS = 10
"""Runs closer than this are merged: moving the cursor costs more bytes than the cells between."""
SHIFT_CELLS = 12
"""Moving cells costs as many bytes as repainting about this many cells."""


class Canvas(Surviving, ScrollView, can_focus=False):
    """Shows rows. Writes changes directly to the terminal: Textual would re-render the whole widget.

    Thread: the app's only.
    """

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; overflow: hidden; }"

    def __init__(self, styles: Mapping[str, Style], *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._palette = styles
        self._seen: dict[str, Style] = {}
        self._rows: tuple[Row, ...] = ()

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; only changes are painted, and nothing while the terminal takes no frame."""
        terminal = self.app
        assert isinstance(terminal, TerminalApp)
        if not terminal.may_paint():
            return
        old, self._rows = self._rows, tuple(rows)
        if old == self._rows:
            return
        if len(old) != len(rows):
            self.virtual_size = Size(0, len(rows))
        same_size = len(old) == len(self._rows) and cells(old[0]) == cells(self._rows[0])
        if same_size and self._seen and is_on_top(self):
            colours = self.app.console.color_system
            system = None if colours is None else COLOR_SYSTEMS[colours]
            terminal.paint(update(old, self._rows, self._styles(), system))
        else:
            self.refresh()

    def dress(self, styles: Mapping[str, Style]) -> None:
        """Take the styles of another theme."""
        if styles is self._palette:
            return
        self._palette = styles
        self._seen = {}
        self.refresh()

    def _styles(self) -> dict[str, Style]:
        """Return the styles, without colour if the user disabled it."""
        if not self._seen:
            ground = self.background_colors[1]
            for name, style in self._palette.items():
                segments = [Segment("x", style)]
                for line_filter in self.app.get_line_filters():
                    segments = line_filter.apply(segments, ground)
                self._seen[name] = segments[0].style or Style.null()
        return self._seen

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return lines of the screen, for Textual."""
        styles = self._styles()
        strips = []
        for y in crop.translate((0, self.scroll_offset.y)).line_range:
            row = self._rows[y] if y < len(self._rows) else BLANK
            strip = Strip([Segment(text, styles[style]) for text, style in row])
            strips.append(strip.adjust_cell_length(self.size.width, styles[TEXT]).crop(crop.x, crop.right))
        return strips


def changes(before: Row, after: Row) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the runs of cells that move one to the left, and the runs that differ after that move."""
    shifts: list[tuple[int, int]] = []
    runs: list[tuple[int, int]] = []
    start, before, after = _unlike(before, after)
    old, new = _cells(before), _cells(after)
    if old is None or new is None:
        return [], [(start, start + max(cells(before), cells(after)))]
    for first, last in _runs(old, new, start):
        begin, end = first - start, last - start
        if last - first > SHIFT_CELLS and end <= len(old[0]):
            moved = old[0][begin + 1 : end] + "\0", [*old[1][begin + 1 : end], ""]
            rest = _runs(moved, (new[0][begin:end], new[1][begin:end]), first)
            if sum(stop - begun for begun, stop in rest) + SHIFT_CELLS < last - first:
                shifts.append((first, last))
                runs += rest
                continue
        runs.append((first, last))
    return shifts, runs


def _runs(old: _Cells, new: _Cells, start: int) -> list[tuple[int, int]]:
    (texts, styles), (new_texts, new_styles) = old, new
    shared, longest = sorted((len(texts), len(new_texts)))
    cells = zip(texts, new_texts, styles, new_styles, strict=False)
    differ = [place for place, (one, other, was, now) in enumerate(cells) if one != other or was != now]
    runs: list[tuple[int, int]] = []
    for place in (*differ, *range(shared, longest)):
        if runs and place + start - runs[-1][1] < MERGE_CELLS:
            runs[-1] = (runs[-1][0], place + start + 1)
        else:
            runs.append((place + start, place + start + 1))
    return runs


def _unlike(before: Row, after: Row) -> tuple[int, Row, Row]:
    """Return the spans between the common start and end of both rows, and the first differing cell."""
    x = start = 0
    for left, right in zip(before, after, strict=False):
        if left != right:
            break
        x += cell_len(left[0])
        start += 1
    before, after = before[start:], after[start:]
    if cells(before) == cells(after):
        end = 0
        for left, right in zip(reversed(before), reversed(after), strict=False):
            if left != right:
                break
            end += 1
        if end:
            before, after = before[:-end], after[:-end]
    return x, before, after


_Cells: TypeAlias = tuple[str, Sequence[str]]


def _cells(row: Row) -> _Cells | None:
    text = "".join([text for text, _ in row])
    if not text.isascii() and any(cell_len(part) != len(part) for part, _ in row):
        return None
    styles: list[str] = []
    for part, style in row:
        styles += [style] * len(part)
    return text, styles


RESET = "\x1b[0m"


def update(
    before: Sequence[Row], after: Sequence[Row], styles: Mapping[str, Style], colours: ColorSystem | None
) -> str:
    """Return the escape codes that change a terminal from some rows to others of the same size."""
    moves: list[str] = []
    runs: list[tuple[int, int, int]] = []
    for y, (old, new) in enumerate(zip(before, after, strict=True)):
        if old is new or old == new:
            continue
        shifts, changed = changes(old, new)
        # Delete a cell and all to its right comes closer; insert one at the end of the run, and it is back.
        moves += [f"\x1b[{y + 1};{first + 1}H\x1b[P\x1b[{y + 1};{last}H\x1b[@" for first, last in shifts]
        runs += [(y, first, last) for first, last in changed]
    return "".join(moves) + repaint(after, runs, styles, colours)


def repaint(
    rows: Sequence[Row],
    runs: Iterable[tuple[int, int, int]],
    styles: Mapping[str, Style],
    colours: ColorSystem | None,
) -> str:
    """Return the escape codes of each run (row, first cell, one past the last): its text, and style changes."""
    out: list[str] = []
    now: Style | None = None
    for y, first, last in runs:
        out.append(f"\x1b[{y + 1};{first + 1}H")
        for text, name in cut(rows[y] if y < len(rows) else BLANK, first, last):
            style = styles[name]
            if now is not style:
                out.append(change(now, style, colours))
                now = style
            out.append(text)
    return "".join([*out, RESET]) if out else ""


@functools.lru_cache(maxsize=1_024)
def change(before: Style | None, after: Style, colours: ColorSystem | None) -> str:
    """Return the code that goes over from one style to another; None is a terminal that was reset."""
    if colours is None:
        return ""
    old, new = ("", "", "") if before is None else _codes(before, colours), _codes(after, colours)
    if any(was and not now for was, now in zip(old, new, strict=True)) or (old[0] and old[0] != new[0]):
        return f"\x1b[{';'.join(['0', *filter(None, new)])}m"  # what is to go can only be taken off all at once
    changed = [now for was, now in zip(old, new, strict=True) if was != now]
    return f"\x1b[{';'.join(changed)}m" if changed else ""


@functools.lru_cache(maxsize=256)
def _codes(style: Style, colours: ColorSystem) -> tuple[str, str, str]:
    """Return the codes of a style's attributes, colour and background. Empty for the terminal's defaults."""
    attributes, _, rest = style.without_color.render("x", color_system=colours).partition("mx")
    fore, ground = style.color, style.bgcolor
    return (
        attributes.removeprefix("\x1b[") if rest else "",
        "" if fore is None else ";".join(fore.downgrade(colours).get_ansi_codes()),
        "" if ground is None else ";".join(ground.downgrade(colours).get_ansi_codes(foreground=False)),
    )

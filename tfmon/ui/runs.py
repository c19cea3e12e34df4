"""The escape codes that bring the changed cells of a terminal up to date, and no more. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from rich.color import ColorSystem
from rich.style import Style

from tfmon.ui.rows import BLANK, Row, cell_len

RESET = "\x1b[0m"


def repaint(
    rows: Sequence[Row],
    runs: Iterable[tuple[int, int, int]],
    styles: Mapping[str, Style],
    colours: ColorSystem | None,
) -> str:
    """Return what to write: for each run (row, first cell, one past the last) a move, its text, and its styles.

    A style is written where it differs from that of the cell written before, and only in what differs.
    """
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


def cut(row: Row, first: int, last: int) -> Row:
    """Return the cells of a row from the first to before the last; a wide character belongs to its first cell."""
    kept: list[tuple[str, str]] = []
    x = 0
    for text, style in row:
        if x >= last:
            break
        width = cell_len(text)
        if x + width > first:
            if width == len(text):
                text = text[max(0, first - x) : last - x]
            kept.append((text, style))
        x += width
    return tuple(kept)


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
    """Return the codes of a style's attributes, of its colour and of its ground; empty for the terminal's own."""
    attributes, _, rest = style.without_color.render("x", color_system=colours).partition("mx")
    fore, ground = style.color, style.bgcolor
    return (
        attributes.removeprefix("\x1b[") if rest else "",
        "" if fore is None else ";".join(fore.downgrade(colours).get_ansi_codes()),
        "" if ground is None else ";".join(ground.downgrade(colours).get_ansi_codes(foreground=False)),
    )

"""Numbers drawn large, of half blocks. Pure."""

from __future__ import annotations

HEIGHT = 3
"""Rows of a large figure. It is drawn with half blocks: a dot is half a cell high, about square."""
_DOTS = {
    "0": "### #.# #.# #.# ###",
    "1": ".#. ##. .#. .#. ###",
    "2": "### ..# ### #.. ###",
    "3": "### ..# ### ..# ###",
    "4": "#.# #.# ### ..# ..#",
    "5": "### #.. ### ..# ###",
    "6": "### #.. ### #.# ###",
    "7": "### ..# ..# ..# ..#",
    "8": "### #.# ### #.# ###",
    "9": "### #.# ### ..# ###",
    ".": ". . . . #",
    "-": "... ... ### ... ...",
    " ": ". . . . .",
}
_HALVES = {("#", "#"): "█", ("#", "."): "▀", (".", "#"): "▄", (".", "."): " "}


def large(text: str) -> tuple[str, str, str]:
    """Return three rows of equal width that show the text; it may contain digits, points, dashes and blanks."""
    rows = ["", "", ""]
    for place, character in enumerate(text):
        dots = _DOTS[character].split()
        dots.insert(0, "." * len(dots[0]))
        for y in range(HEIGHT):
            cells = "".join(_HALVES[pair] for pair in zip(dots[2 * y], dots[2 * y + 1], strict=True))
            rows[y] += (" " if place else "") + cells
    return rows[0], rows[1], rows[2]

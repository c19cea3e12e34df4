"""Draw `docs/screen.svg`: the race screen at a moment of the example recording, in colour.

    python docs/picture.py

The picture needs no font. Charts, bars and frames are drawn as shapes, and every run of text has the
width of its cells, so columns line up in any monospace font. The picture contains its text and a digest of the
recording, by which a test knows whether it is of today's screen.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.screen import Screen

from tfmon.analysis.verdict import find_verdict
from tfmon.model.lane_events import RACING
from tfmon.model.ports import Source
from tfmon.model.session import Snapshot
from tfmon.recordings.library import EXAMPLE
from tfmon.recordings.player import Player
from tfmon.recordings.reader import Recording
from tfmon.ui.app import MonitorApp
from tfmon.ui.lines import Lines

PICTURE = Path(__file__).with_name("screen.svg")
SIZE = (120, 36)
CELL_W, CELL_H = 8.0, 17.0
MARGIN = 10
BASELINE = 12.6
FONTS = "ui-monospace, 'SF Mono', Menlo, 'DejaVu Sans Mono', 'Cascadia Mono', Consolas, monospace"
SECOND_NS = 1_000_000_000

Rows = list[list[Segment]]


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(asyncio.run(rows_of_example())), "utf-8")


class Race(Source):
    """A recording that is shown as a race under way."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def snapshot(self) -> Snapshot:
        """Return the state at the position of the player."""
        return self._player.session.snapshot()


async def rows_of_example() -> Rows:
    """Return the rows of the race screen at the moment that is shown."""
    with Recording(EXAMPLE) as recording:
        player = Player(recording)
        _go_to_verdict(player, recording.times_ns)
        app = MonitorApp(Race(player), characters="braille")
        async with app.run_test(size=SIZE) as pilot:
            app.monitor.pull()
            await pilot.pause()
            return rows_on(app.screen)


def rows_on(screen: Screen[Any]) -> Rows:
    """Return the rows of a screen, of whose widgets some stand side by side."""
    rows: Rows = [[] for _ in range(SIZE[1])]
    for lines in sorted(screen.query(Lines), key=lambda lines: lines.region.x):
        for y, strip in enumerate(lines.render_lines(lines.size.region), lines.region.y):
            rows[y] += strip
    return rows


def _go_to_verdict(player: Player, times_ns: Sequence[int]) -> None:
    """Go to the last half second in which every lane races and the verdict names a winner."""
    for at_ns in range(times_ns[-1], times_ns[0], -SECOND_NS // 2):
        player.go_to(at_ns)
        snapshot = player.session.snapshot()
        if find_verdict(snapshot).winner and all(lane.phase == RACING for lane in snapshot.lanes):
            return
    raise SystemExit("the example recording has no moment with a winner")


def text_of(rows: Rows) -> str:
    """Return the screen as plain text."""
    return "\n".join("".join(segment.text for segment in row).rstrip() for row in rows)


def digest() -> str:
    """Return the digest of the example recording."""
    return hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()


def draw(rows: Rows) -> str:
    """Return the picture of the rows."""
    background = _colour(rows[0][0].style, "bgcolor", "#121212")
    width, height = SIZE[0] * CELL_W + 2 * MARGIN, SIZE[1] * CELL_H + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        f' viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>tfmon, at a moment of its example recording (sha256 {digest()})</title>",
        f"<desc>{escape(text_of(rows))}</desc>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{background}"/>',
        f'<g transform="translate({MARGIN} {MARGIN})" font-family="{FONTS}" font-size="13.2">',
    ]
    for y, row in enumerate(rows):
        x = 0
        for segment in row:
            parts += _segment(segment, x * CELL_W, y * CELL_H, background)
            x += segment.cell_length
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _colour(style: Style | None, which: str, otherwise: str) -> str:
    colour = getattr(style, which, None)
    return otherwise if colour is None or colour.triplet is None else colour.triplet.hex


def _segment(segment: Segment, x: float, y: float, background: str) -> Iterator[str]:
    """Give the shapes and the words of one run of cells in one style."""
    style = segment.style or Style.null()
    front, back = _colour(style, "color", "#e0e0e0"), _colour(style, "bgcolor", background)
    if style.reverse:
        front, back = back, front
    if back != background:
        yield f'<path d="{_box(x, y, 0, 0, segment.cell_length, 1)}" fill="{back}"/>'
    yield from _shapes(segment.text, x, y, front)
    bold = ' font-weight="bold"' if style.bold else ""
    for start, words in _words(segment.text):
        yield (
            f'<text x="{x + start * CELL_W:g}" y="{y + BASELINE:g}" fill="{front}"{bold}'
            f' textLength="{cell_len(words) * CELL_W:g}" lengthAdjust="spacingAndGlyphs">{escape(words)}</text>'
        )


def _is_shape(character: str) -> bool:
    """Return whether a character is box drawing, a block element or braille."""
    return "\u2500" <= character <= "\u259f" or "\u2800" <= character <= "\u28ff"


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Give the stretches of text between shapes and blanks, with where they start; a single blank joins two."""
    start, words = 0, ""
    for at, character in enumerate(text):
        after = text[at + 1 : at + 2]
        ends = not words or after in ("", " ") or _is_shape(after)
        if _is_shape(character) or (character == " " and ends):
            if words:
                yield start, words
            words = ""
        else:
            start = start if words else at
            words += character
    if words:
        yield start, words


def _shapes(text: str, x: float, y: float, colour: str) -> Iterator[str]:
    """Give one element for all lines, one for all blocks, and one for all dots of a run."""
    lines, blocks, dots, shades = [], [], [], []
    for at, character in enumerate(text):
        left = x + at * CELL_W
        if character in LINES:
            lines.append(_line(character, left, y))
        elif character in SHADES:
            shades.append((left, SHADES[character]))
        elif "\u2800" <= character <= "\u28ff":
            dots += _dots(ord(character) - 0x2800, left, y)
        elif character in BLOCKS:
            blocks += [_box(left, y, *part) for part in BLOCKS[character]]
        elif _is_shape(character):
            raise ValueError(f"no shape for {character!r} (U+{ord(character):04X})")
    if lines:
        yield f'<path d="{"".join(lines)}" fill="none" stroke="{colour}"/>'
    if blocks:
        yield f'<path d="{"".join(blocks)}" fill="{colour}" shape-rendering="crispEdges"/>'
    if dots:
        yield f'<path d="{"".join(dots)}" stroke="{colour}" stroke-width="2.3" stroke-linecap="round"/>'
    for opacity in sorted({opacity for _, opacity in shades}):
        boxes = "".join(_box(left, y, 0, 0, 1, 1) for left, one in shades if one == opacity)
        yield f'<path d="{boxes}" fill="{colour}" fill-opacity="{opacity}" shape-rendering="crispEdges"/>'


def _box(left: float, top: float, x: float, y: float, width: float, height: float) -> str:
    """Return a box in a cell, its place and size in shares of the cell."""
    across = f"M{left + x * CELL_W:g} {top + y * CELL_H:g}h{width * CELL_W:g}"
    return f"{across}v{height * CELL_H:g}h{-width * CELL_W:g}z"


def _dots(bits: int, left: float, top: float) -> Iterable[str]:
    """Give the dots of a braille character. Source: Unicode, "Braille Patterns": which bit is which dot."""
    for bit, (column, row) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]):
        if bits >> bit & 1:
            yield f"M{left + (column + 0.5) * CELL_W / 2:g} {top + (row + 0.5) * CELL_H / 4:g}h0"


def _line(character: str, left: float, top: float) -> str:
    """Return the strokes of a box-drawing character: from the middle of the cell to the sides that it names."""
    middle_x, middle_y = left + CELL_W / 2, top + CELL_H / 2
    sides = {
        "w": f"M{left:g} {middle_y:g}H{middle_x:g}",
        "e": f"M{middle_x:g} {middle_y:g}H{left + CELL_W:g}",
        "n": f"M{middle_x:g} {top:g}V{middle_y:g}",
        "s": f"M{middle_x:g} {middle_y:g}V{top + CELL_H:g}",
    }
    names = LINES[character]
    if names.isupper():  # a round corner, from one side to the other
        ends = {
            "N": f"{middle_x:g} {top:g}", "S": f"{middle_x:g} {top + CELL_H:g}",
            "W": f"{left:g} {middle_y:g}", "E": f"{left + CELL_W:g} {middle_y:g}",
        }  # fmt: skip
        return f"M{ends[names[0]]}Q{middle_x:g} {middle_y:g} {ends[names[1]]}"
    return "".join(sides[name] for name in names)


LINES = {
    "─": "we", "│": "ns", "┤": "nsw", "├": "nse", "┴": "new", "┬": "swe", "┼": "nswe", "━": "we", "┃": "ns",
    "┌": "se", "┐": "sw", "└": "ne", "┘": "nw", "┏": "se", "┓": "sw", "┗": "ne", "┛": "nw",
    "╭": "SE", "╮": "SW", "╰": "NE", "╯": "NW",
}  # fmt: skip
"""Box-drawing characters by the sides that they reach."""
SHADES = {"░": 0.28, "▒": 0.52, "▓": 0.76}
_QUARTERS = {"1": (0, 0, 0.5, 0.5), "2": (0.5, 0, 0.5, 0.5), "3": (0, 0.5, 0.5, 0.5), "4": (0.5, 0.5, 0.5, 0.5)}
BLOCKS = {
    "█": [(0, 0, 1, 1)], "▀": [(0, 0, 1, 0.5)], "▐": [(0.5, 0, 0.5, 1)],
    "═": [(0, 0.36, 1, 0.07), (0, 0.57, 1, 0.07)],
    **{character: [(0, 1 - size / 8, 1, size / 8)] for size, character in enumerate("▁▂▃▄▅▆▇", 1)},
    **{character: [(0, 0, 1 - size / 8, 1)] for size, character in enumerate("▉▊▋▌▍▎▏", 1)},
    **{
        character: [_QUARTERS[part] for part in parts]
        for character, parts in zip(
            "▘▝▖▗▚▞▛▜▙▟", ["1", "2", "3", "4", "14", "23", "123", "124", "134", "234"], strict=True
        )
    },
}  # fmt: skip
"""Block elements by the boxes that they are made of."""


if __name__ == "__main__":
    main()

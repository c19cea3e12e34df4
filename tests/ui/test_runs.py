"""Escape codes of changed cells, read back by a terminal emulator."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.style import Style

from tfmon.ui.render.rows import fit
from tfmon.ui.widgets.canvas import change, changed_runs, cut, repaint

STYLES = {
    "text": Style(color="#e0e0e0", bgcolor="#121212"),
    "strong": Style(color="#e0e0e0", bgcolor="#121212", bold=True),
    "lane": Style(color="#56b4e9", bgcolor="#121212"),
    "plain": Style(),
    "dim": Style(dim=True),
    "turned": Style(color="red", reverse=True),
}
WIDTH = 12
spans = st.lists(st.tuples(st.text("ab ─8", max_size=6), st.sampled_from(sorted(STYLES))), max_size=4)
screens = st.lists(spans.map(lambda row: fit(row, WIDTH)), min_size=3, max_size=3)


def runs_of(before, after):
    return [(y, *run) for y, pair in enumerate(zip(before, after, strict=True)) for run in changed_runs(*pair)]


def all_of(rows):
    return [(y, 0, WIDTH) for y in range(len(rows))]


def shown(*written: str):
    screen = pyte.Screen(WIDTH, 3)
    stream = pyte.Stream(screen)
    for text in written:
        stream.feed(text)
    return [[screen.buffer[y][x] for x in range(WIDTH)] for y in range(3)]


@given(screens, screens, st.sampled_from([ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD]))
def test_the_changed_cells_make_the_old_screen_the_new_one(before, after, colours):
    at_first = repaint(before, all_of(before), STYLES, colours)
    update = repaint(after, runs_of(before, after), STYLES, colours)
    anew = repaint(after, all_of(after), STYLES, colours)
    assert shown(at_first, update) == shown(anew)


def test_without_colours_only_text_is_written():
    rows = [(("ab", "lane"), ("c", "strong"))]
    assert repaint(rows, [(0, 1, 3)], STYLES, None) == "\x1b[1;2Hbc\x1b[0m"


def test_only_what_differs_is_written():
    assert change(STYLES["text"], STYLES["lane"], ColorSystem.TRUECOLOR) == "\x1b[38;2;86;180;233m"
    assert change(STYLES["text"], STYLES["strong"], ColorSystem.TRUECOLOR) == "\x1b[1m"
    assert change(STYLES["strong"], STYLES["text"], ColorSystem.TRUECOLOR).startswith("\x1b[0;38;2;")
    assert change(STYLES["turned"], STYLES["plain"], ColorSystem.TRUECOLOR) == "\x1b[0m"


def test_no_run_writes_nothing():
    assert repaint([()], [], STYLES, ColorSystem.TRUECOLOR) == ""


def test_a_row_is_cut_at_cells_within_its_spans():
    assert cut((("abc", "text"), ("def", "lane")), 2, 4) == (("c", "text"), ("d", "lane"))
    assert cut((("日本", "text"), ("x", "lane")), 0, 5) == (("日本", "text"), ("x", "lane"))

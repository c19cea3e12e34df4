"""Text from elsewhere cannot steer the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmon.model.codec import clean


@pytest.mark.parametrize(
    ("dirty", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[10;20Hgone", "gone"),
        ("\x1b[?25lhidden", "hidden"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9d0;title\x9ctext", "text"),
        ("\x1bPq#0\x1b\\text", "text"),
        ("\x1b(Btext", "text"),
        ("\x1b7text\x1b8", "text"),
        ("\x1bMtext", "text"),
        ("\x1bctext", "text"),
    ],
)
def test_escape_sequences_go_and_the_text_around_them_stays(dirty, shown):
    assert clean(dirty) == shown


def test_a_command_without_an_end_takes_no_more_than_its_line():
    assert clean("\x1b]0;no end\nthe error") == "\nthe error"


def test_an_escape_at_the_end_is_dropped():
    assert clean("text\x1b") == clean("text\x1b[") == clean("text\x1b[31") == "text"


def test_control_characters_go_but_line_ends_stay_and_tabs_are_spaces():
    assert clean("a\x00b\x07c\rd\x7fe\x85f") == "abcdef"
    assert clean("one\ntwo\tthree") == "one\ntwo    three"


@pytest.mark.parametrize("mark", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_direction_marks_go(mark):
    assert clean(f"safe{mark}exe") == "safeexe"


def test_what_cannot_be_encoded_goes():
    assert clean("a\ud800b\udcff") == "ab"


def test_letters_of_other_scripts_stay():
    assert clean("Größe 大きさ × שלום 🙂") == "Größe 大きさ × שלום 🙂"


def test_long_text_is_cut_and_says_so():
    assert clean("x" * 10, limit=10) == "x" * 10
    assert clean("x" * 11, limit=10) == "x" * 9 + "…"


@settings(deadline=None)
@given(st.text(st.characters(), max_size=60) | st.text("\x1b[]P0;m\x07\\\n\x9b\x9d\x9c\u202e\ud800a", max_size=30))
def test_nothing_that_steers_is_left_of_any_text(text):
    shown = clean(text, limit=50)
    shown.encode()
    assert len(shown) <= 50
    assert not {id for id in shown if unicodedata.category(id) == "Cc"} - {"\n"}
    assert clean(shown, limit=50) == shown

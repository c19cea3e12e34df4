"""The bottom lines of a replay."""

from __future__ import annotations

import pytest

from tfmon.model.ports import ReplayState, TimeMark
from tfmon.ui.keys import RACE_KEYS, REPLAY_KEYS, watches
from tfmon.ui.render.rows import cells
from tfmon.ui.render.style import to_ascii
from tfmon.ui.screens.replay import cell_of, keys_row, time_of, timeline_row

SECOND = 1_000_000_000


def replay(at_s: float = 30, **more) -> ReplayState:
    marks = (
        TimeMark(10 * SECOND, "batch_size 64 (cpu)", "knob"),
        TimeMark(28 * SECOND, "gpu:0 failed", "trouble"),
        TimeMark(50 * SECOND, "mode turns", "request"),
    )
    values = {"from_ns": 0, "to_ns": 60 * SECOND, "event": 5, "events": 9, "playing": True, "speed": 10}
    return ReplayState(at_ns=round(at_s * SECOND), **{**values, "marks": marks, **more})


def text(row) -> str:
    return "".join(part for part, _ in row)


def test_it_says_how_far_and_how_fast_it_is_and_what_just_happened():
    shown = text(timeline_row(replay(), 120)[0])
    assert shown.startswith(" replay ×10 0:30 ━")
    assert "─ 1:00  event 5 of 9  gpu:0 failed" in shown
    assert [shown.count(sign) for sign in "┬✗█"] == [1, 1, 1]
    assert "paused" in text(timeline_row(replay(playing=False), 120)[0])
    assert "end" in text(timeline_row(replay(event=9, playing=False), 120)[0])
    assert "failed" not in text(timeline_row(replay(40), 120)[0])
    assert "cut off at its end" in text(timeline_row(replay(note="the recording is cut off at its end"), 120)[0])


def test_every_width():
    for width in range(1, 160):
        for one in (replay(0), replay(60), replay(playing=False), replay(to_ns=0, at_s=0)):
            row, start, size = timeline_row(one, width)
            assert cells(row) == width
            assert start + size <= width
            assert cells(keys_row(one, {}, "", width)) == width
            assert text(to_ascii(row)).isascii()


def test_a_cell_and_its_time_belong_together():
    one = replay()
    for width in (10, 77):
        assert [cell_of(one, time_of(one, cell, width), width) for cell in range(width)] == pytest.approx(
            list(range(width)), abs=1
        )
        assert (cell_of(one, 0, width), cell_of(one, one.to_ns, width)) == (0, width - 1)


def test_the_keys_give_way_to_a_message_and_are_shown_as_remapped():
    assert text(keys_row(replay(), {}, "no", 40)).strip() == "no"
    shown = text(keys_row(replay(), {"replay.pause": "f9", "quit": "f10"}, "", 120))
    assert "F9 pause" in shown and "F10 quit" in shown and ", . step" in shown
    assert "Space play" in text(keys_row(replay(playing=False), {}, "", 120))


def test_no_key_has_two_meanings():
    watching = [name for key in RACE_KEYS if watches(key.action) for name in key.keys.split(",")]
    own = [name for key in REPLAY_KEYS for name in key.keys.split(",")]
    assert not set(own) & set(watching)
    assert len(set(own)) == len(own)

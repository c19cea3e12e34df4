from __future__ import annotations

from dataclasses import replace

from support.ui import racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.session import Snapshot
from tfmon.ui.render.bars import progress_row
from tfmon.ui.render.race import draw
from tfmon.ui.render.rows import plain
from tfmon.ui.view import View


def snapshot(**race) -> Snapshot:
    known = racing_demo().session.snapshot()
    return replace(known, race=replace(known.race, **race))


def text(known: Snapshot) -> str:
    return plain([progress_row(known)])[0]


def test_a_race_of_so_many_seconds_says_how_far_it_is():
    assert text(snapshot(seconds=84.0)) == "▓" * 10 + "░" * 10 + " 50 % of 1:24"
    assert text(snapshot(seconds=1.0)) == "▓" * 20 + " 100 % of 0:01"


def test_of_steps_those_of_the_slowest_lane_count():
    known = snapshot(steps=10_000)
    slowest = min(lane.steps for lane in known.lanes)
    assert f" {slowest:,}".replace(",", " ") + " of 10 000 steps" in text(known)


def test_without_a_length_before_the_start_and_after_the_end_there_is_none():
    assert text(snapshot()) == ""
    assert text(snapshot(seconds=84.0, started_ns=None)) == ""
    demo = racing_demo()
    for name in demo.names:
        demo.enter(name, "done")
    known = demo.session.snapshot()
    assert text(replace(known, race=replace(known.race, seconds=84.0))) == ""


def test_a_message_goes_before_it():
    known = snapshot(seconds=84.0)
    shown = "\n".join(plain(draw(analyse(known), View(), 120, 36).rows))
    assert "50 % of 1:24" in shown
    long = View(message="word " * 25, message_until_ns=known.at_ns + 1)
    assert "50 % of 1:24" not in "\n".join(plain(draw(analyse(known), long, 120, 36).rows))

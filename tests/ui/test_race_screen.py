"""The race on the screen as text: header, verdict, bottom lines, small terminals, progress."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import CPU_MACHINE, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.race import Race
from tfmon.model.session import Session, Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.ui.canvas import changed_runs
from tfmon.ui.render.bars import progress_row
from tfmon.ui.render.race import RaceFrame, draw
from tfmon.ui.render.rows import plain
from tfmon.ui.view import SHARED, Scale, View


def page(demo: Demo, width: int = 120, height: int = 36, **view) -> RaceFrame:
    return draw(analyse(demo.session.snapshot()), View(**view), width, height)


def text(shown: RaceFrame) -> str:
    return "\n".join(plain(shown.rows))


def eight() -> Demo:
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(8)], CPU_MACHINE)
    demo.go()
    demo.race(5, [1_000 * (place + 1) for place in range(8)])
    return demo


def test_the_header_says_what_is_raced_and_on_what_as_far_as_there_is_room():
    def header(demo: Demo, *size: int) -> str:
        return text(page(demo, *size)).splitlines()[0]

    wide = ("small-dense", "batch 20 · prefetch off", "0:42", "taking turns", "8 of 16 cores", "H200", "TF 2.21.0")
    assert all(part in header(racing_demo(), 160) for part in wide)
    assert all(part in header(racing_demo(), 40, 20) for part in ("small-dense", "0:42"))
    variants = header(racing_demo(CPU_MACHINE))
    assert "batch 20" in variants and "no GPU" in variants
    assert "prefetch" not in variants, "settings that differ are in the panes"


def test_time_counts_from_the_start_signal_and_stops_with_the_last_lane():
    demo = Demo()
    demo.clock.ahead(3)
    assert " 0:00 " in text(page(demo)).splitlines()[0]
    demo = racing_demo()
    for name in demo.names:
        demo.enter(name, "done")
    demo.clock.ahead(60)
    assert " 0:42 " in text(page(demo)).splitlines()[0]


def test_the_verdict_names_the_winner_the_factor_and_what_limits_it():
    shown = text(page(racing_demo()))
    assert "▲ C  cpu is 3.2× faster than gpu:0 (95 % CI 3.1 to 3.2, 17 pairs)" in shown
    shown = text(page(racing_demo(mode="concurrent")))
    assert "▲ C  cpu is 3.2× faster than gpu:0" in shown
    assert "contended" in shown


def test_the_lane_whose_turn_it_is_is_marked():
    demo = racing_demo()
    whose = demo.session.snapshot().race.training
    rows = text(page(demo)).splitlines()
    assert rows[1].count("▸ training") == 1
    assert rows[1].count("waiting") == 1
    assert (rows[1].index("training") < rows[1].index("waiting")) == (whose == "cpu")


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
def test_why_there_is_no_gpu_lane_is_said(size):
    assert "no GPU lane: the NVIDIA driver is not installed" in text(page(racing_demo(CPU_MACHINE), *size))


def top(high: float) -> dict[str, Scale]:
    return {SHARED: Scale(0.0, high)}


def test_all_panes_share_one_scale_which_a_small_change_does_not_move():
    demo = racing_demo()
    assert text(page(demo)).count(" 10k ┤") == 2
    assert page(demo, scales=top(20_000)).scales[SHARED].high == 10_000
    demo.race(61, (9_500, 2_000), wobble=0)
    assert page(demo, scales=top(20_000)).scales[SHARED].high == 20_000
    assert page(demo).scales[SHARED].high == 10_000


def test_the_keys_show_the_value_in_effect_and_the_one_requested_and_what_they_do_as_remapped():
    def keys(demo: Demo, **view) -> str:
        return text(page(demo, **view)).splitlines()[-1]

    demo = racing_demo(CPU_MACHINE)
    assert all(part in keys(demo) for part in ("b/B batch 20", "p prefetch off/auto", "Space pause", "q quit"))
    demo.ask(demo.names[0], "batch_size", 40)
    assert "b/B batch 20 40 requested" in keys(demo)
    focused = keys(demo, focused=demo.names[1])
    assert "prefetch auto" in focused and "requested" not in focused
    remapped = keys(racing_demo(), keys={"prefetch.next": "f", "quit": "x"})
    assert "f prefetch off" in remapped and "x quit" in remapped
    for name in demo.names:
        demo.enter(name, "paused")
    assert "Space resume" in keys(demo)
    assert "stopping the lanes… q again leaves at once" in text(page(demo, stopping=True))


def test_a_message_goes_away_after_its_time():
    demo = racing_demo()
    view = {"message": "batch size is already 1", "message_until_ns": demo.clock() + 10}
    for size in ((120, 36), (60, 16), (60, 5)):
        assert "batch size is already 1" in text(page(demo, *size, **view))
    demo.clock.ahead(1)
    assert "batch size is already 1" not in text(page(demo, **view))


def test_lanes_without_room_are_announced():
    assert "lanes 1 to 2 of 8" in text(page(eight(), 80, 24))
    demo = eight()
    assert "lane 8 of 8" in text(page(demo, 60, 18, focused=demo.names[7]))


def test_a_small_terminal_shows_a_line_a_lane_and_a_smaller_one_a_single_line():
    lines = text(page(racing_demo(), 60, 6)).splitlines()
    assert lines[0].startswith(" C 7.7k ex/s  racing")
    assert lines[1].startswith(" G 2.4k ex/s  racing")
    assert "C is 3.2× faster than G (95 % CI 3.1 to 3.2" in lines[2]
    assert text(page(racing_demo(), 60, 1)) == " C 7.7k ex/s  G 2.4k ex/s  ▲ C 3.2×"
    assert text(page(racing_demo(), 10, 3)).split() == ["terminal", "too", "small"]


def test_before_there_are_lanes_the_screen_says_what_goes_on():
    session = Session(CPU_MACHINE, lambda: 0)
    session.begin(Race(), [])
    shown = text(draw(analyse(session.snapshot()), View(), 80, 24))
    assert "examining the machine" in shown and "faster" not in shown
    failed = text(draw(analyse(session.snapshot()), View(no_race="batch_size=0 is not possible"), 80, 24))
    assert "batch_size=0 is not possible" in failed


def test_while_all_pause_the_charts_stand_still():
    demo = racing_demo()
    for name in demo.names:
        demo.enter(name, "paused")
    before = text(page(demo))
    demo.clock.ahead(20)
    demo.sample()
    after = text(page(demo))
    assert after.replace("paused 0:20", "paused 0:00").replace("1:02", "0:42") == before


def test_a_second_of_a_calm_race_repaints_few_cells():
    demo = racing_demo()
    demo.race(60, wobble=0)
    before = page(demo).rows
    demo.race(1, wobble=0)
    after = page(demo).rows
    changed = sum(
        last - first for old, new in zip(before, after, strict=True) for first, last in changed_runs(old, new)
    )
    assert 1 <= changed <= 120 * 36 * 0.05


# ---------------------------------------------------------------- progress


def snapshot(**race) -> Snapshot:
    known = racing_demo().session.snapshot()
    return replace(known, race=replace(known.race, **race))


def progress(known: Snapshot) -> str:
    return plain([progress_row(known)])[0]


def test_a_race_of_a_known_length_says_how_far_it_is_while_it_trains():
    assert progress(snapshot(seconds=84.0)) == "▓" * 10 + "░" * 10 + " 50 % of 1:24"
    assert progress(snapshot(seconds=1.0)) == "▓" * 20 + " 100 % of 0:01"
    known = snapshot(steps=10_000)
    slowest = min(lane.steps for lane in known.lanes)
    assert f" {slowest:,}".replace(",", " ") + " of 10 000 steps" in progress(known)
    assert progress(snapshot()) == ""
    assert progress(snapshot(seconds=84.0, started_ns=None)) == ""
    demo = racing_demo()
    for name in demo.names:
        demo.enter(name, "done")
    known = demo.session.snapshot()
    assert progress(replace(known, race=replace(known.race, seconds=84.0))) == ""


def test_a_message_goes_before_it():
    known = snapshot(seconds=84.0)
    shown = text(draw(analyse(known), View(), 120, 36))
    assert "50 % of 1:24" in shown
    long = View(message="word " * 25, message_until_ns=known.at_ns + 1)
    assert "50 % of 1:24" not in text(draw(analyse(known), long, 120, 36))

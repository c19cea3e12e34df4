"""The race on the screen as text: header, verdict, bottom lines, small terminals, progress, the result."""

import re
from dataclasses import replace

import pytest
from support.ui import CPU_MACHINE, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.health import Concern
from tfmon.model.events import LaneStarted
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.ui.render.bars import progress_row
from tfmon.ui.render.race_frame import draw
from tfmon.ui.render.rows import plain
from tfmon.ui.source import Display

from .pilot import frame, rows_of, text


def test_time_counts_from_the_start_signal_and_stops_with_the_last_lane():
    demo = Demo()
    demo.clock.ahead(3)
    assert " 0:00 " in text(frame(demo)).splitlines()[1]
    demo = racing_demo()
    demo.enter_all("done")
    demo.clock.ahead(60)
    assert " 0:42 " in text(frame(demo)).splitlines()[1]


def test_six_lanes_are_told_apart_and_keep_their_names_whoever_trains():
    specs = [
        LaneSpec("cpu", {"batch_size": batch, "prefetch": prefetch, "mixed_precision": mixed})
        for batch in (10, 256)
        for prefetch, mixed in (("off", "off"), ("auto", "off"), (1, "bfloat16"))
    ]
    demo, seen = Demo(specs, mode="turns").go(), set()
    for _ in range(8):
        demo.race(0.6)
        heads = [row for row in text(frame(demo, 120, 36)).splitlines() if row.startswith("╭")]
        seen.add(tuple(re.findall(r" ([A-F])  (.*?) ─", " ".join(heads))))
    (names,) = seen
    assert [name for _, name in names] == [
        "batc 10, pref off, mixe off", "bat 10, pre auto, mix off", "batch 10, prefe 1, bfloat16",
        "bat 256, pre off, mix off", "bat 256, pre auto, mix off", "batc 256, pref 1, bfloat16",
    ]  # fmt: skip
    wide = text(frame(demo, 200, 50))
    assert "A  batch 10, prefetch off, mixed off " in wide
    assert "F  batch 256, prefetch 1, bfloat16 " in wide


def test_a_small_terminal_shows_a_line_a_lane_a_smaller_one_a_single_line_and_says_how_to_get_to_others():
    lines = text(frame(racing_demo(), 60, 7)).splitlines()
    assert lines[1].startswith(" ▲ C is 3.2× faster than G (95 % CI 3.1 to 3.3, ")
    assert lines[2].split() == ["lane", "ex/s", "over", "G", "step", "p50", "loss"]
    assert [row.split()[-6:-2] for row in lines[3:5]] == [["7", "677", "3.2×", "2.68"], ["2", "438", "1×", "8.43"]]
    assert {row.index(" ms") for row in lines[3:5]} == {lines[2].index("p50")}, "columns are aligned"
    line = " C 7.7k ex/s  G 2.4k ex/s  ▲ C 3.2×"
    lines = text(frame(racing_demo(), 60, 4)).splitlines()
    assert lines[0] == line and "C is 3.2× faster than G" in lines[1]
    assert text(frame(racing_demo(), 60, 1)) == line
    for size, hides in (((60, 15), True), ((120, 36), False), ((160, 16), False)):
        assert ("Tab next" in text(frame(racing_demo(), *size, focused="cpu"))) is hides, size


def snapshot(**race) -> Snapshot:
    known = racing_demo().session.snapshot()
    return replace(known, race=replace(known.race, **race))


def progress(known: Snapshot) -> str:
    return plain([progress_row(known)])[0]


def test_a_race_of_a_known_length_says_how_far_it_is_while_it_trains():
    assert progress(snapshot(seconds=84.0)) == "▓" * 10 + "░" * 10 + " 50 % of 1:24"
    assert progress(snapshot(seconds=1.0)) == "▓" * 20 + " 100 % of 0:01"
    known = snapshot(steps=10_000)
    slowest = min(lane.totals.measured_steps for lane in known.lanes)
    assert f" {slowest:,}".replace(",", " ") + " of 10 000 steps" in progress(known)
    assert progress(snapshot()) == ""
    assert progress(snapshot(seconds=84.0, started_ns=None)) == ""
    demo = racing_demo()
    demo.enter_all("done")
    known = demo.session.snapshot()
    assert progress(replace(known, race=replace(known.race, seconds=84.0))) == ""


def test_the_first_verdict_comes_with_a_countdown_from_the_rounds_that_were_measured():
    demo = Demo(mode="turns")
    demo.clock.ahead(1)
    said = analyse(demo.session.snapshot()).verdict.short
    assert said == "no verdict yet: the lanes are getting ready"
    demo.go()
    demo.race(2.4)
    waiting = analyse(demo.session.snapshot()).verdict.short
    assert waiting == "measured 2 of 3 rounds; verdict in about 2 s", "two of three rounds of 1.2 s"
    assert waiting in text(frame(demo))
    demo.race(7.2)
    assert "faster than" in text(frame(demo))
    demo.clock.ahead(0.1)
    demo.apply("cpu", "batch_size", 20)
    said = analyse(demo.session.snapshot()).verdict.short
    assert said.startswith("measuring again: batch size of C changed")
    demo.session.set_exclusive("cpu")
    assert analyse(demo.session.snapshot()).verdict.short.endswith("the race continues after the experiment")
    demo.session.set_exclusive("")
    demo.enter("cpu", "paused")
    assert analyse(demo.session.snapshot()).verdict.short.endswith("no verdict while a lane is paused")


def test_a_measurement_that_begins_again_names_the_change_that_caused_it():
    demo = Demo(mode="turns").go().race(2.4)
    demo.clock.ahead(0.1)
    demo.apply("cpu", "batch_size", 20)
    demo.clock.ahead(0.1)
    demo.session.set_mode("concurrent")
    assert "measuring again: now all at once" in text(frame(demo))
    demo.race(1)
    demo.session.set_mode("turns")
    assert "measuring again: now taking turns" in text(frame(demo))
    assert "batch size of C" not in text(frame(demo))
    demo.clock.ahead(0.1)
    demo.apply("gpu:0", "batch_size", 20)
    assert "measuring again: batch size of G changed" in text(frame(demo))


def test_the_bottom_line_says_on_which_lane_keys_act_and_what_is_ending_offers_no_key_and_is_not_paused():
    demo = racing_demo()

    def status(**view) -> str:
        return text(frame(demo, **view)).splitlines()[-2].strip()

    assert status() == "keys act on all lanes · Tab picks one"
    assert status(focused="cpu") == "keys act on cpu only · Esc all lanes"
    assert status(readonly=True) == "read only: keys change nothing" and status(replay=True) == ""
    demo.enter_all("paused")
    assert "Space resume" in text(frame(demo))
    shown = text(frame(demo, stopping=True))
    assert "resume" not in shown and "paused" not in shown and "ending" in shown and "q leave at once" in shown


def test_the_bottom_line_has_only_keys_that_apply():
    def keys(demo: Demo, width: int = 200, **view) -> str:
        return text(frame(demo, width, 36, **view)).splitlines()[-1]

    demo = racing_demo()
    assert all(word in keys(demo) for word in ("t at once", "s scenario", "e try advice", "c crossover", "? help"))
    single = Demo([LaneSpec("cpu")]).go().race(2)
    assert not any(word in keys(single) for word in ("t at once", "crossover"))
    for name in demo.names:
        demo.session.accept(LaneStarted(lane=name, at_ns=demo.clock(), pid=1, settings={}, command="python a.py"))
        demo.enter(name, "racing")
    script = keys(demo)
    assert not any(word in script for word in ("at once", "scenario", "advice", "crossover"))
    assert "Space pause" in script and "r restart" in script
    assert not any(word in keys(demo, readonly=True) for word in ("pause", "restart", "batch"))
    assert "pause" not in keys(Demo()), "nothing trains yet"
    for width in range(24, 201, 8):
        line = keys(demo, width)
        assert line.endswith("? help  q quit") and "…" not in line, width


def test_the_verdict_names_lanes_by_their_ids_and_stands_below_the_header():
    specs = [LaneSpec("cpu", {"batch_size": size, "prefetch": "auto", "graph": size > 10}) for size in (10, 256)]
    demo = Demo(specs, CPU_MACHINE, mode="turns").go().race(20, (2_400, 7_600))
    assert text(frame(demo, 80, 24)).splitlines()[1].startswith(" ▲ B is 3.2× faster than A (95 %")
    one_row = text(frame(demo, 60, 7))
    assert "▲ B is 3.2× faster than A" in one_row
    small = text(frame(demo, 60, 15))
    assert " A 10, off" in small and " B 256, on" in small, "no lane is hidden without a hint"
    assert small.count(" ms ") == 2 and "≠ batch 10" in small and "≠ batch 256" in small


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 36)])
def test_the_headline_of_one_lane_is_not_cut(size, monkeypatch):
    worst = (
        "memory grows by 10 MiB/s (9.9 MiB to 10 MiB), now 1.7 GiB; at this rate the machine's is full in 55 min"
    )
    demo = Demo((LaneSpec("cpu"),), machine=CPU_MACHINE).go().race(20)
    more = [Concern("waits", "and more; " * 50), Concern("memory_grows", worst)]
    monkeypatch.setattr("tfmon.analysis.health.concerns", lambda _snapshot, _lane: more)
    rows = plain(rows_of(draw(analyse(demo.session.snapshot()), Display(), *size)))
    assert worst in " ".join(" ".join(row.strip("│ ") for row in rows).split())


def test_the_result_of_scripts_has_the_time_to_finish_and_warns_of_other_losses():
    demo = racing_demo()
    for name in demo.names:
        started = LaneStarted(lane=name, at_ns=demo.clock(), pid=1, settings={}, command="python train.py")
        demo.session.accept(started)
        demo.settings[name], demo.steps[name] = {"batch_size": 10}, 0
        demo.enter(name, "racing")
        for _ in range(40):
            demo.clock.ahead(0.2)
            demo.train(name, 1_000, 2.6, demo.clock(), loss=1.0 + (name == "cpu"))
    demo.enter_all("done")
    shown = " ".join(text(frame(demo, width=200)).split())
    unsure = "one run of each cannot tell who finishes the same 8 000 examples sooner"
    assert f"{unsure} (cpu 8.0 s, gpu:0 8.1 s of training)" in shown
    assert "loss at the end: cpu 2.0000" in shown
    assert "at the same step differ by 1.0000" in shown and "one may train something else" in shown

"""The pages of a lane and of reports: what bounds it, what may help, and every reading with its source."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import CPU_MACHINE, GPU_MACHINE, SECOND, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.errors import TfmonError
from tfmon.model.events import LaneEnded, LaneStalled, Suspended
from tfmon.model.lane_events import Hello, StackReported
from tfmon.model.readings import ClockReason, HostSample, Missing
from tfmon.ui.render.race import draw
from tfmon.ui.render.readings import time_parts, time_row
from tfmon.ui.render.rows import cells, plain
from tfmon.ui.screens.lane import lane_rows
from tfmon.ui.view import View

from .pilot import app_of, press, shown, until


def race(demo: Demo) -> str:
    return "\n".join(plain(draw(analyse(demo.session.snapshot()), View(), 120, 36).rows))


def page(demo: Demo, lane: str, width: int = 120) -> str:
    snapshot = demo.session.snapshot()
    return "\n".join(
        "".join(text for text, _ in row) for row in lane_rows(analyse(snapshot), snapshot.lane(lane), width)
    )


class TestLane:
    def test_says_why_with_every_share_and_what_may_help_with_its_code(self):
        text = page(racing_demo(), "cpu")
        assert "mixed: starting the step takes" in text
        assert "What may help" in text and "batch 80" in text
        assert "dataset = dataset.batch(80)" in text
        assert "waiting for the next batch" in text

    def test_what_is_not_told_apart_has_its_reason(self):
        assert "the batch is in the host's memory already" in page(racing_demo(), "cpu")

    def test_names_what_was_left_out_of_the_figures(self):
        assert "warm-up 1; of 105 windows" in page(racing_demo(), "cpu")

    def test_a_gpu_has_its_readings_with_their_sources(self):
        demo = racing_demo()
        demo.session.accept(
            replace(
                demo.session.snapshot().gpus[0],
                sm_clock_mhz=1_200.0,
                sm_clock_max_mhz=1_980.0,
                clock_reasons=(ClockReason("its power cap holds it down", "warning"),),
                pcie_warning="4 of 16 lanes",
            )
        )
        text = page(demo, "gpu:0")
        for words in ("6 %", "(samples)", "1200 MHz of 1980 MHz", "its power cap holds it down", "4 of 16 lanes"):
            assert words in text
        assert "n/a (not read)" in text, "a reading that is missing says why"

    def test_a_lane_on_the_cpu_has_no_gpu_section(self):
        assert "(samples)" not in page(racing_demo(CPU_MACHINE), "cpu prefetch=off")

    def test_the_machine_and_what_disturbs_it_are_told(self):
        demo = racing_demo()
        nothing = Missing("this system keeps no account of pressure")
        demo.session.accept(
            HostSample(
                at_ns=demo.clock(), cpu_pct=150.0, memory_used_bytes=2.0**30, memory_total_bytes=2.0**33,
                others_cpu_pct=75.0, cpu_pressure_pct=nothing,
            )
        )  # fmt: skip
        text = page(demo, "cpu")
        assert "75 % by programs that are neither tfmon nor its lanes" in text
        assert "other programs keep 0.8 cores busy" in text
        assert "for a core   n/a (this system keeps no account of pressure)" in text

    def test_what_changes_is_drawn_over_the_last_minute(self):
        demo = racing_demo()
        sample = demo.session.snapshot().gpus[0]
        for second in range(90):
            demo.session.accept(replace(sample, at_ns=sample.at_ns + second, busy_pct=float(second)))
        (curve,) = [line for line in page(demo, "gpu:0").splitlines() if "last minute, up to 89 %" in line]
        assert curve.startswith("  busy") and any(0x2800 < ord(character) < 0x2900 for character in curve)
        assert len(demo.session.snapshot().gpu_history["GPU-1"]) == 60

    def test_a_single_sample_makes_no_curve(self):
        demo = Demo(mode="turns")
        demo.go()
        demo.sample()
        assert "last minute" not in page(demo, "gpu:0")

    def test_readings_that_should_be_younger_say_how_old_they_are(self):
        demo = racing_demo()
        demo.clock.ahead(42)
        assert "GPU (stale: read 42" in page(demo, "gpu:0")

    async def test_enter_opens_the_focused_lane_and_tab_goes_on(self):
        demo = racing_demo()
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "enter")
            assert "Lane C: cpu" in shown(pilot)
            await press(pilot, "tab")
            assert "Lane G: gpu:0" in shown(pilot)
            await press(pilot, "escape", "tab", "tab", "i")
            assert "Lane G: gpu:0" in shown(pilot)


class TestTime:
    def test_the_bar_and_its_words_fit_and_the_shares_add_up(self):
        analysis = analyse(racing_demo().session.snapshot())
        for lane in analysis.snapshot.lanes:
            shares = analysis.lane(lane.spec.name).bottleneck.shares
            assert sum(value for _, value, _ in time_parts(shares)) == pytest.approx(100, abs=0.1)
            for width in (36, 44, 56, 100):
                assert cells(time_row(shares, width, "lane0")) <= width


class TestReports:
    async def test_the_doctor_is_profiled_in_a_thread_and_its_report_shown(self):
        demo = racing_demo()
        app = app_of(demo, examine=lambda: "GPU\n  ✗ broken  driver\n  ! warning swap")
        async with app.run_test(size=(120, 36)) as pilot:
            await press(pilot, "d")
            await until(pilot, lambda: "broken  driver" in shown(pilot))
            assert "`tfmon doctor` does that, too" in shown(pilot)

    async def test_a_profile_is_that_of_the_focused_lane(self):
        demo = racing_demo()
        profiled: list[str] = []

        def profile(lane: str) -> str:
            profiled.append(lane)
            return "20 steps of 1.2 ms"

        async with app_of(demo, profile=profile).run_test(size=(120, 36)) as pilot:
            await press(pilot, "tab", "tab", "P")
            await until(pilot, lambda: "20 steps of 1.2 ms" in shown(pilot))
            assert profiled == ["gpu:0"] and "Profile of gpu:0" in shown(pilot)

    async def test_a_profile_that_cannot_be_taken_says_why_on_the_page(self):
        def profile(_lane: str) -> str:
            raise TfmonError("no profile of cpu could be taken: another one is")

        async with app_of(racing_demo(), profile=profile).run_test(size=(120, 36)) as pilot:
            await press(pilot, "P")
            await until(pilot, lambda: "no profile of cpu could be taken: another one is" in shown(pilot))

    async def test_without_a_lane_that_trains_there_is_nothing_to_profile(self):
        demo = racing_demo()
        for name in demo.names:
            demo.fail(name)
        async with app_of(demo).run_test(size=(120, 36)) as pilot:
            await press(pilot, "P")
            assert "nothing to profile" in shown(pilot)


# ---------------------------------------------------------------- a lane that hangs

STACK = ("Thread 0x00007f (most recent call first):", '  File "mine.py", line 7 in data [bold]no markup[/]')


def stalled_demo() -> Demo:
    demo = racing_demo(GPU_MACHINE)
    since_ns = demo.clock()
    demo.clock.ahead(25)
    demo.session.accept(Hello(lane="gpu:0", at_ns=since_ns, protocol=1, pid=1, python="3", reports_stack=True))
    demo.session.accept(LaneStalled(lane="gpu:0", at_ns=demo.clock(), since_ns=since_ns))
    return demo


def test_its_pane_says_since_when_and_which_keys_help():
    text = race(stalled_demo())
    assert "stalled 0:25" in text
    assert "Enter, then S shows its stacks, K ends it" in text


def test_its_next_word_ends_that():
    demo = stalled_demo()
    demo.enter("gpu:0", "racing")
    assert "stalled" not in race(demo)


def test_a_gap_is_marked_on_the_time_line():
    demo = racing_demo(GPU_MACHINE)
    for name in demo.names:
        stamps = {"at_ns": demo.clock(), "since_ns": demo.clock() - 12 * SECOND}
        demo.session.accept(Suspended(lane=name, lasted_s=12.0, **stamps))
    demo.clock.ahead(30)
    assert "suspended 12 s" in race(demo)


async def test_the_keys_of_its_page_ask_where_it_stands_and_end_it():
    demo = stalled_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("tab", "tab", "enter", "S")
        assert demo.controls.calls[-1] == ("ask_stack", "gpu:0")
        demo.session.accept(StackReported(lane="gpu:0", at_ns=demo.clock(), lines=STACK))
        app.pull()
        await pilot.pause()
        text = shown(pilot)
        assert "Stacks" in text and "line 7 in data [bold]no markup[/]" in text
        assert "no message for 25" in text and "while racing" in text
        await pilot.press("K")
        assert demo.controls.calls[-1] == ("kill", "gpu:0")


async def test_a_lane_that_cannot_tell_or_has_ended_is_not_profiled():
    demo = stalled_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("tab", "enter", "S")
        assert "cannot report its stacks" in app.view.message
        end = LaneEnded(lane="cpu", at_ns=demo.clock(), exit_code=0, signal=None, requested=True)
        demo.session.accept(end)
        app.pull()
        await pilot.press("S", "K")
        assert "has ended already" in app.view.message
    assert demo.controls.calls == []

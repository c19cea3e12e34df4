"""The pages of a lane and of reports: what bounds it, what may help, and every reading with its source."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import CPU_MACHINE, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.errors import TfmonError
from tfmon.model.readings import ClockReason, HostSample, Missing
from tfmon.ui.render.readings import time_parts, time_row
from tfmon.ui.render.rows import cells
from tfmon.ui.screens.lane import lane_rows

from .test_app import app_of, press, shown, until


def page(demo: Demo, lane: str, width: int = 120) -> str:
    snapshot = demo.session.snapshot()
    return "\n".join("".join(text for text, _ in row) for row in lane_rows(analyse(snapshot), snapshot.lane(lane), width))


class TestLane:
    def test_says_why_with_every_share_and_what_may_help_with_its_code(self):
        text = page(racing_demo(), "cpu")
        assert "dispatch-bound: starting the step takes" in text
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
        assert "n/a (not asked)" in text, "a reading that is missing says why"

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

    @pytest.mark.parametrize("lane", ["cpu", "gpu:0"])
    def test_looks_as_it_did(self, snap_compare, lane):
        keys = ["tab", "enter"] if lane == "cpu" else ["tab", "tab", "enter"]
        assert snap_compare(app_of(racing_demo()), terminal_size=(120, 50), press=keys)


class TestTime:
    @pytest.mark.parametrize("width", [36, 44, 56, 100])
    def test_the_bar_and_its_words_fit_and_the_shares_add_up(self, width):
        snapshot = racing_demo().session.snapshot()
        for lane in snapshot.lanes:
            shares = find_bottleneck(snapshot, lane).shares
            assert cells(time_row(shares, width, "lane0")) <= width
            assert sum(value for _, value, _ in time_parts(shares)) == pytest.approx(100, abs=0.1)


class TestReports:
    async def test_the_doctor_is_asked_in_a_thread_and_its_report_shown(self):
        demo = racing_demo()
        app = app_of(demo, examine=lambda: "GPU\n  ✗ broken  driver\n  ! warning swap")
        async with app.run_test(size=(120, 36)) as pilot:
            await press(pilot, "d")
            await until(pilot, lambda: "broken  driver" in shown(pilot))
            assert "`tfmon doctor` does that, too" in shown(pilot)

    async def test_a_profile_is_that_of_the_focused_lane(self):
        demo = racing_demo()
        asked: list[str] = []

        def profile(lane: str) -> str:
            asked.append(lane)
            return "20 steps of 1.2 ms"

        async with app_of(demo, profile=profile).run_test(size=(120, 36)) as pilot:
            await press(pilot, "tab", "tab", "P")
            await until(pilot, lambda: "20 steps of 1.2 ms" in shown(pilot))
            assert asked == ["gpu:0"] and "Profile of gpu:0" in shown(pilot)

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

"""The screen of a sweep: its table, the curve, sorting, a filter, and how it ends."""

import re
from dataclasses import replace

import pytest
from support.sweeps import planned, visit_events
from support.ui import GPU_MACHINE, Clock, Demo, FakeRuns

from tfmon.model.race import RecordingState
from tfmon.model.series import SeriesState, VisitBegan, VisitEnded, state_after
from tfmon.model.session import Session
from tfmon.ui.app import MonitorApp
from tfmon.ui.screens.experiments import SweepPage

from .pilot import app_of, press, shown, until

GRID = {"batch_size": (16, 32, 64, 128, 4_096), "mixed_precision": ("off", "bfloat16")}
RATIOS = {0: 0.8, 1: 0.9, 3: 1.1, 4: 1.62, 5: 1.8, 6: 1.4}


def half_way(kinds: tuple[str, ...] = ("cpu",)) -> SeriesState:
    """A sweep of which some combinations are measured, one is under way and one has died."""
    state = planned(GRID, kinds)
    for number, ratio in RATIOS.items():
        for event in visit_events(number, ratio, (300 + 20 * number) * 2.0**20):
            state = state_after(state, event)
    state = state_after(state, VisitEnded(7, died="the lane was ended by SIGKILL"))
    state = state_after(state, VisitBegan(7, "cpu"))
    return replace(state, visits_s=(20.0,))


def app(state: SeriesState | None = None, unsaved: str = "", **more) -> MonitorApp:
    state, at = state or half_way(), RecordingState("night.sweep", reason=unsaved)
    still = replace(Session(GPU_MACHINE, Clock()).snapshot(), experiment=state, recording=at)
    refusal = "a sweep chooses its settings itself"
    return app_of(Demo(), snapshot=lambda: still, refusal=refusal, tabs=(), **{"stop": str, **more})


def first_column(text: str) -> list[str]:
    return re.findall(r"^ [•✗ ] +(\d+) +(?:off|bfloat16)", text, re.MULTILINE)


async def test_the_best_is_on_top_a_column_sorts_and_escape_takes_a_filter_back_without_leaving():
    async with app().run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "1.79×" in shown(pilot))
        assert first_column(shown(pilot))[:3] == ["64", "64", "128"]
        assert "8 of 10 settled, at most 2 min left" in shown(pilot)
        assert "refused: too large" in shown(pilot) and "• 128" in shown(pilot)
        assert "SIGKILL" not in shown(pilot), "it is measured again"
        said = " ".join(shown(pilot).split())
        assert "1.79× the throughput of the baseline batch_size=32 mixed_precision=off (1.71 to 1.88)" in said
        for drawn in (True, False, True):
            assert ("Ratio over batch size" in shown(pilot)) is drawn
            await press(pilot, "c")
        await press(pilot, "o")
        assert first_column(shown(pilot))[:2] == ["16", "16"]
        await press(pilot, "O")
        assert first_column(shown(pilot))[0] == "4096"
        await press(pilot, "slash", *"bfloat16", "enter")
        assert "5 of 10 combinations" in shown(pilot)
        await press(pilot, "escape")
        assert "10 combinations" in shown(pilot) and isinstance(pilot.app.screen, SweepPage)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, SweepPage)


async def test_what_is_not_saved_and_a_place_that_is_lost_are_told():
    state = replace(half_way(), lost={"gpu2/gpu": "gpu2 did not answer"})
    async with app(state, unsaved="night.sweep cannot be written: No space left").run_test() as pilot:
        await until(pilot, lambda: "gpu2/gpu is not used any more: gpu2 did not answer" in shown(pilot))
        assert "night.sweep cannot be written: No space left" in shown(pilot)


async def test_a_report_is_made_of_the_file_of_the_sweep_and_quit_ends_it_before_the_app_leaves():
    runs, stopped = FakeRuns(), []
    async with app(runs=runs, stop=lambda: stopped.append(True)).run_test(size=(120, 36)) as pilot:
        await press(pilot, "W")
        await until(pilot, lambda: "saved race.html" in shown(pilot))
        assert runs.calls == [("report", "night.sweep")] and not stopped
        await press(pilot, "q")
        await until(pilot, lambda: stopped)


@pytest.mark.parametrize(("size", "key"), [((80, 24), "down"), ((80, 24), "c"), ((120, 36), "down")])
def test_pictures(snap_compare, size, key):
    assert snap_compare(app(), terminal_size=size, press=[key])

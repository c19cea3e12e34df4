"""The pages beside the race: tabs, what each keeps, and their lists."""

from dataclasses import replace

import pytest
from support.ui import RUNS, FakeRuns, racing_demo

from tfmon.ui.app import STILL_S
from tfmon.ui.render.bars import TABS, tab_action
from tfmon.ui.render.rows import plain
from tfmon.ui.render.table import GAP, Entry, arranged, whole_rows, widths
from tfmon.ui.screens.race_screen import RaceScreen

from .pilot import app_of, chosen, press, shown, until

OPENED_BY = {"lane": "i", "log": "l", "knobs": "k", "profile": "P", "doctor": "d", "runs": "R"}
DOCTOR = "GPU\n  ✗ broken  driver  not found\n             fix: install one\n  ✓ ok      libraries  all there"


@pytest.fixture
def app(demo):
    return app_of(demo, runs=FakeRuns(), examine=lambda: DOCTOR, profile=lambda lane: f"20 steps of {lane}")


async def test_each_page_is_a_key_away_from_every_other_and_from_the_race(app, pilot):
    actions = {tab: tab_action(tab) for tab in TABS}
    for there, key in OPENED_BY.items():
        await press(pilot, key)
        assert app.screen.tab == there
        assert f"[{key} {there}]" in shown(pilot).splitlines()[0]
        assert len(app.screen_stack) == 2, "pages do not pile up"
        for other, one in OPENED_BY.items():
            if other != there:
                assert app.screen.active_bindings[one].binding.action == actions[other], (there, other)
    await press(pilot, "escape")
    assert isinstance(app.screen, RaceScreen)
    await press(pilot, "l", "l")
    assert isinstance(app.screen, RaceScreen), "its own key closes a page"
    await press(pilot, "l", "question_mark", "k")
    assert app.screen.tab == "knobs" and len(app.screen_stack) == 2, "from the help, too"


async def test_a_page_keeps_its_place_its_filter_and_the_lane_while_others_are_shown(pilot):
    await press(pilot, "i", "tab", "pagedown")
    before = shown(pilot)
    assert "Lane G: gpu:0" in before
    await press(pilot, "k", "down", "down", "o", "R", "slash", *"conv", "enter", "down")
    assert "2 of 4 runs" in shown(pilot)
    await press(pilot, "l")
    assert "Log of lane G" in shown(pilot), "the lane is the same on every page"
    await press(pilot, "i")
    assert shown(pilot) == before
    await press(pilot, "k")
    assert chosen(pilot) == "graph" and "knob↑" in shown(pilot)
    await press(pilot, "escape", "R")
    assert "2 of 4 runs" in shown(pilot)
    assert chosen(pilot).startswith("2026-01-01")


async def test_tabs_columns_and_entries_of_a_list_and_words_at_the_bottom_can_be_clicked(demo, app, pilot):
    await press(pilot, "i")
    await pilot.click(offset=(shown(pilot).index("knobs"), 0))
    await until(pilot, lambda: app.screen.tab == "knobs" and "   width" in shown(pilot))
    for arrow in "↑↓":
        at = shown(pilot).splitlines()[3].index("a change")
        await pilot.click(offset=(at, 3))
        await until(pilot, lambda: f"a change{arrow}" in shown(pilot))  # noqa: B023 - called in this round
    await pilot.click(offset=(0, 3))
    await until(pilot, lambda: "knob↑" in shown(pilot))
    row = next(y for y, line in enumerate(shown(pilot).splitlines()) if line.startswith("   width"))
    await pilot.click(offset=(5, row))
    await until(pilot, lambda: chosen(pilot) == "width")
    assert not demo.controls.calls
    await pilot.click(offset=(5, row))
    await until(pilot, lambda: demo.controls.calls)
    await pilot.click(offset=(shown(pilot).splitlines()[-1].index("back"), 35))
    await until(pilot, lambda: isinstance(app.screen, RaceScreen))


async def test_a_page_that_does_not_move_is_left_alone_and_a_failure_is_told(demo, app, pilot):
    for key in ("question_mark", "d", "R"):
        await press(pilot, key)
        await until(pilot, lambda: app.screen.still)
        assert app.refresh_s() == STILL_S, key
    demo.fail("gpu:0")
    app._tick()
    assert "gpu:0 failed" in shown(pilot)


COLUMNS = ("name", "seconds", "text")
ENTRIES = [
    Entry("a", (("beta", "text"), ("10", "text"), ("short", "text")), ranks=("beta", 10.0, "short")),
    Entry("b", (("alpha", "text"), ("9", "text"), ("long " * 30, "text")), ("alpha", 9.0, ""), "more"),
    Entry("c", (("gamma", "text"), ("–", "text"), ("BETA", "text")), ranks=("gamma", None, "BETA")),
]  # fmt: skip


def test_entries_are_filtered_by_all_words_and_sorted_by_what_a_column_means():
    def found(words: str = "", column: int | None = None, *, down: bool = False) -> str:
        return "".join(str(one.id) for one in arranged(ENTRIES, words, column, down=down))

    assert (found(), found(down=True), found(column=0)) == ("abc", "cba", "bac")
    assert found(column=1) == "bac", "9 before 10; what has no number stands last"
    assert found(column=1, down=True) == "abc"
    assert (found("beta"), found("beta 10")) == ("ac", "a")
    assert found("more") == "b", "in the whole text, too"


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_columns_fit_and_the_whole_text_of_an_entry_that_is_cut_is_below(width):
    sizes = widths(COLUMNS, ENTRIES, width)
    assert sum(sizes) + GAP * len(sizes) <= width
    about = " ".join("".join(plain(whole_rows(ENTRIES[1], sizes, width, 30))).split())
    assert about.endswith("more")
    assert (about.count("long") == 30) is (width < 160)


async def test_what_changes_in_a_table_leaves_the_chosen_entry_and_the_place_as_they_are():
    runs = FakeRuns(runs=[replace(RUNS[0], id=f"run {number}") for number in range(50)])
    async with app_of(racing_demo(), runs=runs).run_test(size=(100, 20)) as pilot:
        await press(pilot, "R")
        await until(pilot, lambda: "50 runs" in shown(pilot))
        await press(pilot, "pagedown", "pagedown", "down")
        page = pilot.app.screen
        before, top = page.entry.id, page.body.scroll_offset.y
        assert top > 0
        runs.runs = [replace(run, scenario="new") for run in runs.runs]
        page.on_screen_resume()
        await until(pilot, lambda: shown(pilot).count("new") > 5)
        assert (page.entry.id, page.body.scroll_offset.y) == (before, top)
        runs.runs = [*runs.runs, replace(RUNS[1], id="the latest")]
        page.on_screen_resume()
        await until(pilot, lambda: "51 runs" in shown(pilot))
        assert page.entry.id == before


@pytest.mark.parametrize("pilot", [(120, 20)], indirect=True)
async def test_q_leaves_a_page_and_pgdn_turns_it_and_e_tries_advice_on_the_lane_that_is_shown(demo, pilot):
    await press(pilot, "i", "e")
    assert demo.experiments.calls == [("start_tuning", "cpu", False)]
    before = shown(pilot).splitlines()
    await press(pilot, "pagedown")
    assert shown(pilot).splitlines()[2] in before[-6:-2], "the last row stays in sight"
    await press(pilot, "q")
    assert "Bottleneck" not in shown(pilot) and not pilot.app.monitor.view.stopping

"""The pages of experiments: how a crossover and tuning are started and stopped, and what the pages show."""

import math
import re
from dataclasses import replace

import pytest
from support.tunings import tried as attempt_of
from support.tunings import tuning
from support.ui import Demo, crossover_demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.readings import Estimate
from tfmon.model.series import KEPT, REFUSED, REVERTED, Attempt, Pair
from tfmon.ui.render.rows import plain

from .pilot import app_of, frame, press, rows_of, shown

SIZE = (120, 36)


async def test_a_crossover_is_asked_for_with_knob_and_range_and_says_who_races_and_how_long(demo, pilot):
    await press(pilot, "c")
    text = shown(pilot)
    assert "   C  cpu" in text and "   G  gpu:0" in text
    assert "7 values: 4, 8, 16, 32, 64, 128, 256" in text, "from an eighth of the batch of 20 to 16 times it"
    assert "about 0:50, up to " in text, "7 values of 6 pairs of 1.2 s, as the rounds of this race take"
    await press(pilot, "tab", "right", "tab", "left", "left")
    assert "4 values: 8, 16, 32, 64" in shown(pilot)
    await press(pilot, *["left"] * 3)
    assert "fewer than two powers of two from 8 to 8" in shown(pilot)
    assert "starts" not in shown(pilot).splitlines()[-1], "a key that does nothing is not offered"
    await press(pilot, "enter")
    assert demo.experiments.calls == []
    await press(pilot, "down", "enter")
    assert demo.experiments.calls == [("start_crossover", "width", 16.0, 2048.0)]
    assert "Crossover" in shown(pilot) and "from" not in shown(pilot).splitlines()[1]


async def test_a_refused_crossover_is_said_and_one_that_runs_is_shown_and_stopped():
    demo = racing_demo()
    async with app_of(demo).run_test(size=SIZE) as pilot:
        demo.experiments.refusal = "a crossover compares two lanes that train; this race has fewer"
        await press(pilot, "c", "enter")
        assert demo.experiments.refusal in shown(pilot)
    demo = crossover_demo(at=64)
    async with app_of(demo).run_test(size=SIZE) as pilot:
        running = "crossover over batch: measuring 64, at most 0:42 left; c, Enter stops it"
        assert running in shown(pilot) and "crossover: gpu:0 overtakes cpu" in shown(pilot)
        await press(pilot, "p")
        assert running in shown(pilot)
        for page in ("i", "l", "k"):
            await press(pilot, page)
            assert running in shown(pilot), page
        state = demo.session.snapshot().experiment
        *others, last, refused = state.attempts
        demo.session.advance_series(replace(state, attempts=(*others, replace(last, pairs=()), refused)))
        pilot.app.pull()
        await press(pilot, "escape")
        assert re.search(r"measuring 64, at most \d:\d\d left", shown(pilot))
        await press(pilot, "c", "enter")
    assert demo.controls.calls == [] and demo.experiments.calls == [("stop",)]


def attempt(outcome: str, gain: Estimate | None = None, **change) -> Attempt:
    return attempt_of(
        "gpu:0", dict.fromkeys(change, "off"), change, change={"bottleneck": "input"}, outcome=outcome, gain=gain,
        refused="out of memory" if outcome == REFUSED else "",
    )  # fmt: skip


def tuned_demo(*, over: bool = True) -> Demo:
    """Return a race whose GPU lane was tuned: two changes helped, one did not, one was not possible."""
    demo = racing_demo()
    attempts = (
        attempt(KEPT, Estimate(1.38, 1.31, 1.44, 6), prefetch="auto"),
        attempt(REVERTED, Estimate(0.83, 0.8, 0.86, 6), cache=True),
        attempt(REFUSED, xla=True),
        attempt(KEPT, Estimate(5.1, 4.9, 5.3, 12), batch_size=256),
    )
    total = attempt(KEPT, Estimate(7.0, 6.8, 7.2, 6), prefetch="auto", batch_size=256)
    demo.session.advance_series(tuning("gpu:0", everything=True, attempts=attempts, total=total, over=over))
    return demo


@pytest.mark.parametrize(("opened_by", "key", "everything"), [([], "e", False), (["E"], "enter", True)])
async def test_advice_is_tried_and_undone_or_why_not_is_shown(opened_by, key, everything, demo, pilot):
    await press(pilot, *opened_by, key, "tab", key)
    assert demo.experiments.calls == [("start_tuning", name, everything) for name in ("gpu:0", "cpu")]
    await press(pilot, "u")
    assert "undone: prefetch auto" in shown(pilot)
    for again in (key, "u"):
        demo.experiments.refusal = f"{again}: no knob of this scenario helps cpu"
        await press(pilot, again)
        assert demo.experiments.refusal in shown(pilot)
    demo.session.advance_series(tuning("cpu", everything=True))
    pilot.app.monitor.pull()
    await press(pilot, "escape", "E", "enter")
    assert demo.experiments.calls[-1] == ("stop",)


@pytest.mark.parametrize("pilot", [(80, 24), (120, 36)], indirect=True)
async def test_the_history_shows_every_change_in_full_and_u_takes_back_the_last(demo, pilot):
    await press(pilot, "H")
    snapshot = demo.session.snapshot()
    for row in analyse(snapshot).history:
        shown_words = " ".join(shown(pilot).split())
        cells = row.cells(len(snapshot.lanes))
        assert all(" ".join(cell.split()) in shown_words for cell in cells), "the chosen one, below the table"
        await press(pilot, "down")
    await press(pilot, "u")
    assert "undone: prefetch auto" in shown(pilot)
    await press(pilot, "H")
    assert "0:42" in shown(pilot) and "History" not in shown(pilot), "the same key closes it"


async def test_while_a_lane_is_tuned_keys_change_nothing_and_say_why():
    demo = tuned_demo(over=False)
    async with app_of(demo).run_test(size=SIZE) as pilot:
        for key in ("b", "p", "space", "t", "r", "e"):
            pilot.app.monitor.say("")
            await press(pilot, key)
            assert "G is trying prefetch auto · batch 256; E, Enter stops it" in shown(pilot), key
        assert demo.controls.calls == [] and demo.experiments.calls == []


def test_the_race_says_what_came_of_it_and_how_to_undo_it():
    demo = racing_demo()
    kept = attempt(KEPT, Estimate(1.38, 1.31, 1.44, 6), prefetch="auto")
    demo.apply("gpu:0", "prefetch", "auto")
    demo.session.advance_series(tuning("gpu:0"))
    demo.session.advance_series(tuning("gpu:0", attempts=(kept,), over=True))
    rows = plain(rows_of(frame(demo, *SIZE)))
    assert "   G: prefetch auto: +38 % (CI +31 to +44), kept · u to undo" in rows


async def test_the_page_of_tuning_has_a_line_for_everything_that_was_tried_and_the_best_with_its_code():
    async with app_of(tuned_demo()).run_test(size=SIZE) as pilot:
        await press(pilot, "E")
        text = shown(pilot).splitlines()
    head = next(at for at, line in enumerate(text) if "outcome" in line)
    table, rest = text[head + 1 : head + 5], "\n".join(text[:head])
    changes = ["prefetch auto", "cache on", "xla on", "batch 256"]
    assert [line.removeprefix("▸").split("  ")[2].strip() for line in table] == changes
    assert "+38 %   +31 to +44 " in table[0] and "●" in table[0] and table[0].endswith("6   kept")
    assert "-17 %   -20 to -14 " in table[1] and table[1].endswith("6   reverted")
    assert table[2].endswith("not possible: out of memory")
    assert "5.1×" in table[3]
    assert "best: prefetch=auto batch_size=256: 7.0× (CI 6.8 to 7.2) in all" in rest
    assert "prefetch(tf.data.AUTOTUNE)" in rest and "dataset.batch(256)" in rest


async def test_an_attempt_in_progress_shows_its_pairs_and_the_gain_so_far(demo, pilot):
    _, after = demo.settings.values()
    pairs = tuple(Pair(math.log(1.28) + 0.001 * place, False, 1) for place in range(-3, 4))
    running = attempt_of("gpu:0", {**after, "batch_size": 10}, dict(after), pairs=pairs)
    demo.session.advance_series(tuning("gpu:0", attempts=(running,)))
    pilot.app.monitor.pull()
    await press(pilot, "E")
    (row,) = [line for line in shown(pilot).splitlines() if line.endswith("in progress")]
    assert " batch 20 " in row and "+28 %   +2" in row and row.split()[-3].isdigit()

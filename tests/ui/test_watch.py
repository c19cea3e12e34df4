"""The screen of a single lane: how far, which loss, what costs most, and where the wall time goes."""

import re

import pytest
from support.ui import CPU_MACHINE, SECOND, Demo

from tfmon.analysis.shares import wall_parts
from tfmon.model.account import BETWEEN, INPUT, START, STEPS, SUSPENDED, VALIDATION, TimePart
from tfmon.model.events import LaneStarted
from tfmon.model.lane_events import Accounted, CauseSeen, Progressed
from tfmon.model.spec import LaneSpec

from .pilot import frame, text

LINE = "train.py:10 `model.fit(x, y, validation_data=held)`"


def watched(epochs: int = 10) -> Demo:
    """Return a script in its third epoch that validates long."""
    demo = Demo([LaneSpec("cpu")], CPU_MACHINE)
    demo.session.accept(LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={}, command="python train.py"))
    demo.go().race(20)
    at = {"lane": "cpu", "at_ns": demo.clock()}
    for done, loss in ((1, 1.31), (2, 0.912)):
        demo.session.accept(
            Progressed(
                **at, doing="fit", epoch=done + 1, epochs=epochs, batch=250, batches=500, epochs_done=done,
                validation_ns=3 * SECOND, metrics={"val_loss": loss},
            )
        )  # fmt: skip
    parts = {
        (START, "imports"): 2, (STEPS, "step"): 11, (STEPS, INPUT): 2, (VALIDATION, ""): 6, (BETWEEN, ""): 1.5,
        (SUSPENDED, ""): 0.5,
    }  # fmt: skip
    times = tuple(TimePart(group, name, "", round(time * SECOND)) for (group, name), time in parts.items())
    demo.session.accept(Accounted(**at, parts=times))
    seen = CauseSeen(
        **at, cause="epoch_validation", place=LINE, count=2, cost_ns=6 * SECOND, of_ns=20 * SECOND,
        figures={"gain": 0.8},
    )  # fmt: skip
    demo.session.accept(seen)
    return demo


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 36), (200, 50)])
def test_a_watch_shows_progress_losses_and_the_worst_cause_first_at_every_size(size):
    rows = text(frame(watched(), *size)).splitlines()
    inner = [row.strip("│ ") for row in rows if row.startswith("│")]
    assert re.match(r"epoch   3 of 10  ▓+░+ +25 %  .* left$", inner[0]), inner[0]
    assert " ".join(inner[1:3]).startswith("loss    2.2801 → 1.90") and "1.3100 → 0.9120" in " ".join(inner[1:3])
    headline = next(place for place, row in enumerate(inner) if "validation takes long" in row)
    assert headline <= 4 and "train.py:10" in " ".join(inner[headline : headline + 2])
    assert "fixing it saves about 4.8 s" in " ".join(inner[headline : headline + 3])


def test_the_bar_of_the_wall_time_fills_its_row_and_its_parts_add_up():
    demo = watched()
    parts = dict(wall_parts(demo.session.snapshot().lane("cpu")))
    assert sum(parts.values()) == 100 and {"training", "input", "validation", "between epochs", "pauses"} <= {
        *parts
    }
    rows = text(frame(demo, 80, 24)).splitlines()
    at = next(place for place, row in enumerate(rows) if row.startswith("│ run "))
    assert len(rows[at].strip("│ ").removeprefix("run").strip()) == 80 - 4 - 8
    shown = " ".join(rows[at + 1 : at + 3])
    assert all(f"{name} {share} %" in shown for name, share in parts.items())


def test_before_the_first_account_the_parts_come_from_the_windows():
    demo = Demo([LaneSpec("cpu")], CPU_MACHINE).go()
    assert wall_parts(demo.session.snapshot().lane("cpu")) == (), "nothing is known"
    demo.race(20)
    parts = dict(wall_parts(demo.session.snapshot().lane("cpu")))
    assert sum(parts.values()) == 100 and parts["input"] > 10 and parts["training"] > 50


@pytest.mark.parametrize("over", [False, True])
def test_a_watch_has_no_words_of_a_race_and_says_why_it_failed(over):
    demo = watched()
    if over:
        demo.enter("cpu", "done")
    shown = text(frame(demo, 120, 36, tabs=("race", "lane", "log")))
    assert not re.search(r"\brac(e|ing)\b|compar|lanes\b|ahead|taking turns", shown), shown
    assert shown.count("validation takes long") == 1, "each fact is said once"
    demo.fail("cpu", "no more labels")
    assert "no more labels" in text(frame(demo, 80, 24))

"""The report of causes that a script's process has observed."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.events import SECOND, lane

from tfmon.analysis.cause_kinds import KINDS, SUPPOSED
from tfmon.analysis.causes import causes_of
from tfmon.model.knobs import STEPS_PER_EXECUTION
from tfmon.model.lane_events import MOST_CAUSES, CauseSeen
from tfmon.model.race import Machine, Race
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec


def seen(cause: str = "retrace_value", place: str = "train.py:7 `def step(x, n):`", **more) -> CauseSeen:
    more = {"subject": "step", "what": "`n`: 1 → 2", "count": 40, "cost_ns": 2 * SECOND, **more}
    return CauseSeen(at_ns=9, cause=cause, place=place, **{"of_ns": 10 * SECOND, **more})


def test_the_costliest_is_first_and_has_its_newest_figures_and_its_line():
    first, second = causes_of(lane("cpu", seen(count=3), seen(), seen("retrace_shape", cost_ns=4 * SECOND)))
    assert (first.id, first.share_pct, second.cost_s) == ("retrace_shape", 40.0, 2.0)
    assert second.text == (
        "a Python number retraces step, 40 times: `n`: 1 → 2; that took 2.0 s, 20 % of the time; fixing it "
        "saves about 2.0 s, 20 % (train.py:7 `def step(x, n):`)"
    )
    assert second.brief == "a Python number retraces step (train.py:7, 20 %)"
    assert "tf.constant" in second.code[0]


@pytest.mark.parametrize(
    "one", [seen(cost_ns=SECOND // 10), seen(count=1), seen("of_another_version"), seen("iterator_freed")]
)
def test_what_takes_little_or_is_not_known_or_cannot_be_changed_is_not_told(one):
    assert causes_of(lane("cpu", one)) == ()


def test_a_child_that_observes_too_much_does_not_fill_the_memory():
    causes = lane("cpu", *(seen(place=f"train.py:{n}") for n in range(3 * MOST_CAUSES))).script.causes
    assert (len(causes), causes[-1].place) == (MOST_CAUSES, f"train.py:{3 * MOST_CAUSES - 1}")


def test_a_cause_whose_remedy_is_in_effect_is_told_no_more():
    small = lane("cpu", seen("steps_small"))
    (one,) = causes_of(small, ["dispatch"], (STEPS_PER_EXECUTION,))
    assert one.can_try and (one.knob, one.value) == ("steps_per_execution", 32)
    (by_hand,) = causes_of(small)
    assert by_hand.by_hand and not by_hand.can_try
    assert causes_of(replace(small, settings={"steps_per_execution": 32})) == ()


def test_a_cause_has_the_time_that_its_change_gives_back_as_a_share():
    figures = {"of_input": 0.4, "gain": 0.5, "wasted": 0.6}
    dropped = seen("input_dropped", subject="skip(300)", of_ns=20 * SECOND, figures=figures)
    (one,) = causes_of(lane("cpu", dropped))
    assert (one.cost_s, one.share_pct, one.gain_s, one.gain_pct, one.wasted_pct) == (2.0, 10.0, 1.0, 5.0, 60.0)
    assert "waiting for it took 2.0 s, 10 % of the time; fixing it saves about 1.0 s, 5 %" in one.text
    assert one.advice == "divide the data before the map, or cache before `skip`"
    (one,) = causes_of(lane("cpu", seen("trace_unrolled", figures={"gain": 0.0})))
    assert one.gain_s == 0.0 and "fixing it saves nothing in this run" in one.text


@pytest.mark.parametrize("kind", ["input_generator", "input_generator_batches", "input_py_dataset"])
def test_python_that_makes_batches_gives_back_its_waits(kind):
    (one,) = causes_of(lane("cpu", seen(kind, figures={"of_input": 0.9})))
    assert one.gain_s == one.cost_s == 2.0 and "whole batches" in one.advice


@pytest.mark.parametrize("ids", [(), ("retrace_value",)])
def test_a_cause_that_the_user_has_turned_off_is_not_reported(ids):
    session = Session(Machine(), lambda: 10 * SECOND)
    session.begin(Race(ignored_causes=ids), [LaneSpec("cpu", name="cpu")])
    session.accept(replace(seen(), lane="cpu"))
    (one,) = session.snapshot().lanes
    assert [cause.id for cause in causes_of(one)] == [id for id in ("retrace_value",) if id not in ids]


@pytest.mark.parametrize(("explained", "left"), [(0.0, {"epoch_batch": 3, "epoch_first": 8}), (0.5, {})])
def test_waits_that_a_cause_with_a_line_explains_are_no_causes_of_their_own(explained, left):
    batch = seen("epoch_batch", cost_ns=3 * SECOND)
    first = seen("epoch_first", cost_ns=8 * SECOND)
    slow = seen("input_windows", cost_ns=5 * SECOND, figures={"of_input": explained})
    told = causes_of(lane("cpu", batch, first, slow))
    assert {one.id: one.cost_s for one in told if one.id != "input_windows"} == left


def test_every_cause_is_told_or_supposed_and_has_what_mends_it():
    supposed = {id for ids in SUPPOSED.values() for id in ids}
    page = (Path(__file__).parents[2] / "docs" / "causes.md").read_text()
    for id, kind in KINDS.items():
        advice = [kind.mends, *(remedy.mends for remedy in kind.remedies)]
        assert any(advice) and not any(one.endswith(".") for one in advice), id
        assert kind.title or id in supposed, id
        assert not kind.title or f"{{{{ {id} }}}}\n\n**Recognised**" in page, id
    assert supposed <= set(KINDS)

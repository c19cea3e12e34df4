"""Causes that a script's process has observed, as they are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.events import SECOND, lane, phase, window

from tfmon.analysis.cause_kinds import KINDS, SUPPOSED
from tfmon.analysis.causes import causes_of
from tfmon.model.knobs import STEPS_PER_EXECUTION
from tfmon.model.lane_state import RACING
from tfmon.model.script_events import MOST_CAUSES, CauseSeen


def seen(cause: str = "retrace_value", place: str = "train.py:7 `def step(x, n):`", **more) -> CauseSeen:
    more = {"subject": "step", "what": "`n`: 1 → 2", "count": 40, "cost_ns": 2 * SECOND, **more}
    return CauseSeen(at_ns=9, cause=cause, place=place, of_ns=10 * SECOND, **more)


def test_the_costliest_is_first_and_has_its_figures_and_its_line():
    first, second = causes_of(lane("cpu", seen(), seen("retrace_shape", cost_ns=4 * SECOND)))
    assert (first.id, first.share_pct, second.cost_s) == ("retrace_shape", 40.0, 2.0)
    assert second.text == (
        "a Python number retraces step, 40 times: `n`: 1 → 2; that took 2.0 s, 20 % of the time "
        "(train.py:7 `def step(x, n):`)"
    )
    assert second.brief == "a Python number retraces step (train.py:7, 20 %)"
    assert "tf.constant" in second.code[0]


def test_the_newest_figures_of_a_place_replace_those_before():
    (one,) = causes_of(lane("cpu", seen(count=3), seen(count=5)))
    assert one.count == 5


@pytest.mark.parametrize("one", [seen(cost_ns=SECOND // 10), seen(count=1), seen("of_another_version")])
def test_what_takes_little_or_is_not_known_is_not_told(one):
    assert causes_of(lane("cpu", one)) == ()


def test_a_child_that_observes_too_much_does_not_fill_the_memory():
    state = lane("cpu", *(seen(place=f"train.py:{number}") for number in range(3 * MOST_CAUSES)))
    assert len(state.script.causes) == MOST_CAUSES and state.script.causes[-1].place.endswith(
        f":{3 * MOST_CAUSES - 1}"
    )


def test_a_cause_whose_remedy_is_in_effect_is_told_no_more():
    small = lane("cpu", seen("steps_small"))
    (one,) = causes_of(small, ["dispatch"], (STEPS_PER_EXECUTION,))
    assert one.can_try and (one.knob, one.value) == ("steps_per_execution", 32)
    (by_hand,) = causes_of(small)
    assert by_hand.by_hand and not by_hand.can_try
    assert causes_of(replace(small, settings={"steps_per_execution": 32})) == ()


def test_what_makes_input_slow_is_told_by_its_part_of_what_the_lane_waits_for():
    slow = seen("input_generator", subject="from_generator(read)", figures={"of_input": 0.5})
    waits = [window(at_ns=at * SECOND, span_ns=SECOND, steps=10, input_ns=SECOND // 2) for at in range(1, 5)]
    (one,) = causes_of(lane("cpu", phase(RACING), *waits, slow))
    assert (one.share_pct, one.cost_s) == (25.0, 1.0)
    assert one.text.startswith(
        "from_generator(read) makes one example at a time in Python: `n`: 1 → 2; waiting for it took 1.0 s, 25 %"
    )
    assert causes_of(lane("cpu", slow)) == () == causes_of(lane("cpu", phase(RACING), window(steps=10), slow))


def test_every_cause_is_told_or_supposed_and_has_what_mends_it():
    supposed = {id for ids in SUPPOSED.values() for id in ids}
    page = (Path(__file__).parents[2] / "docs" / "causes.md").read_text()
    for id, kind in KINDS.items():
        advice = [kind.mends, *(one.mends for one in kind.remedies)]
        assert any(advice) and not any(one.endswith(".") for one in advice), id
        assert kind.title or id in supposed, id
        assert not kind.title or f"{{{{ {id} }}}}\n\n**Recognised**" in page, id
    assert supposed <= set(KINDS)

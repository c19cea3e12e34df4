"""What is told of a lane by itself: that it stands still, where it waits, and that its loss is lost."""

from __future__ import annotations

import math

import pytest
from support.events import MS, SECOND, ended, lane, phase, window

from tfmon.analysis.health import concerns, trained_text, waits_of
from tfmon.model.lane_events import Progressed
from tfmon.model.lane_state import DONE, PAUSED, RACING
from tfmon.model.race import Race
from tfmon.model.session import Snapshot
from tfmon.model.window_sums import count

STEP_MS = 20


def raced(*events, times_ms=(STEP_MS,) * 100, loss: float | None = 0.5):
    """Return a lane that has trained steps of these times until the second second."""
    bins = count(one * MS for one in times_ms)
    steady = window(2 * SECOND, histogram=bins, steps=len(times_ms), step=len(times_ms), loss=loss)
    return lane("cpu", phase(RACING), steady, *events)


def known(state, at_s: float = 2.1) -> Snapshot:
    return Snapshot(at_ns=round(at_s * SECOND), race=Race(started_ns=1), lanes=(state,))


def ids(state, at_s: float = 2.1) -> list[str]:
    return [one.id for one in concerns(known(state, at_s), state)]


@pytest.mark.parametrize(
    ("at_s", "longest_ms", "still"),
    [(6.9, STEP_MS, False), (7.1, STEP_MS, True), (11.0, 2_000, False), (12.5, 2_000, True)],
)
def test_a_lane_stands_still_from_five_seconds_and_five_times_its_longest_step_on(at_s, longest_ms, still):
    state = raced(times_ms=[STEP_MS] * 99 + [longest_ms])
    assert ("stands_still" in ids(state, at_s)) is still


def test_its_text_says_for_how_long():
    told = trained_text(known(state := raced(), 9), state)
    assert told.startswith("cpu: no step has ended for 7.0 s; the longest before took 20.1 ms; 100 steps")


@pytest.mark.parametrize(
    "event",
    [
        Progressed(lane="cpu", at_ns=2 * SECOND, doing="validation"),
        Progressed(lane="cpu", at_ns=2 * SECOND, doing="training", epoch=1, batch=100, batches=100),
        phase(PAUSED, 2 * SECOND),
        phase(DONE, 60 * SECOND),
    ],
)
def test_a_lane_that_does_something_else_or_has_ended_by_itself_does_not_stand_still(event):
    assert not ids(raced(event), 100.0)


def test_a_lane_that_was_ended_while_it_stood_still_is_told_so_afterwards():
    state = raced(ended(signal="SIGKILL"))
    assert [one.text for one in concerns(known(state, 100), state)] == [
        "no step has ended for 38.0 s; the longest before took 20.1 ms"
    ]


def test_a_loss_is_lost_from_the_first_step_that_shows_it_until_one_is_a_number():
    lost = window(3 * SECOND, step=110, loss=math.nan), window(4 * SECOND, step=120, loss=math.inf)
    state = raced(*lost)
    assert ids(state) == ["loss_lost"]
    assert "the loss is inf, from step 110 on at the latest; a lower learning rate" in trained_text(
        known(state, 4), state
    )
    assert not ids(raced(*lost, window(5 * SECOND, step=130, loss=2.0)))


def test_waits_are_the_steps_over_ten_times_the_median_and_told_from_a_twentieth_of_the_time_on():
    state = raced(times_ms=[STEP_MS] * 97 + [190, 300, 4_000])
    found = waits_of(state)
    assert (found.steps, round(found.longest_s, 1), round(found.share, 2)) == (2, 4.0, 0.67)
    assert ids(state) == ["waits"]
    assert not ids(raced(times_ms=[STEP_MS] * 999 + [250]))
    assert waits_of(lane("cpu", phase(RACING))) is None

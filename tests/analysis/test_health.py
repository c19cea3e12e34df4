"""What is told of a lane by itself: that it stands still, where it waits, and that its loss is lost."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from support.events import HIDDEN, MS, SECOND, ended, lane, phase, tree_sample, window

from tfmon.analysis.health import concerns, growth_of, trained_text, waits_of
from tfmon.model.hosts import HostState
from tfmon.model.lane_events import Progressed, StackReported
from tfmon.model.lane_state import DONE, PAUSED, RACING
from tfmon.model.race import Race
from tfmon.model.session import Snapshot
from tfmon.model.window_sums import count
from tfmon.probes.host import unknown_host

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


# ---------------- what came with a change of speed, loss, memory and children


def steady(seconds: float, step_ms: float, since_s: float = 0.0, step: int = 0, **readings: float):
    """Yield samples and windows of steps that all take as long, and between them those of the machine."""
    at_ns, until_ns = round(since_s * SECOND), round((since_s + seconds) * SECOND)
    while at_ns < until_ns:
        steps = max(1, round(250 / step_ms))
        at_ns, step = at_ns + round(steps * step_ms * MS), step + steps
        cpu, waited = readings.get("cpu", 90.0), readings.get("waited", 5.0)
        yield replace(tree_sample(), at_ns=at_ns, cpu_pct=cpu, waited_pct=waited)
        yield window(
            at_ns, round(steps * step_ms * MS), steps=steps, step=step,
            input_ns=round(steps * readings.get("input_ms", 1) * MS), loss=None,
            histogram=count([step_ms * MS] * steps),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("after", "id", "why"),
    [
        ({"cpu": 90.0}, "slower", "the step itself, not the input"),
        ({"cpu": 30.0, "input_ms": 41}, "slower", "it waits for its input"),
        ({"cpu": 30.0, "waited": 65.0}, "cores_taken", "it waits for cores that others have"),
        ({"cpu": 30.0, "waited": 2.0}, "slower", "it waits, and neither computes nor waits for a core"),
    ],
)
def test_a_lane_that_became_slower_is_told_since_when_by_how_much_and_why(after, id, why):
    first = [*steady(40, 20)]
    state = lane("cpu", phase(RACING), *first, *steady(30, 60, first[-1].at_ns / SECOND, first[-1].step, **after))
    (found,) = [one for one in concerns(known(state, 70.1), state) if one.id in ("slower", "cores_taken")]
    assert found.id == id and found.text.startswith("3.000 times slower (95 % CI 3.000 to 3.000) since step 1 9")
    assert f"(0:39); {why}" in found.text


def test_what_the_lane_did_just_then_is_told_with_it():
    first = [*steady(40, 20)]
    epochs = [
        Progressed(lane="cpu", at_ns=first[place].at_ns, doing="fit", epoch=epoch, batches=9)
        for place, epoch in ((0, 1), (-1, 2))
    ]
    state = lane("cpu", phase(RACING), *first, *epochs, *steady(20, 50, 40, first[-1].step))
    assert "epoch 2 began just then" in trained_text(known(state, 60.1), state)


def test_a_healthy_lane_says_for_how_long_it_is_steady():
    state = lane("cpu", phase(RACING), *steady(120, 20))
    assert trained_text(known(state, 120.1), state) == "cpu: healthy: 1 333 examples/s, steady for 2 min"


def losses(values) -> list:
    return [window(n * SECOND, step=n, loss=loss) for n, loss in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("values", "id"),
    [
        ([2 / (1 + n / 10) + 0.01 * (n % 3) for n in range(100)], None),
        ([2 / (1 + n / 10) + 0.01 * (n % 3) for n in range(60)] + [8e13] * 20, "loss_diverges"),
        ([0.693 + random.Random(n).gauss(0, 0.01) for n in range(120)], "loss_flat"),
    ],
)
def test_a_loss_diverges_against_its_own_best_and_one_that_stays_is_told_as_a_fact(values, id):
    state = lane("cpu", phase(RACING), *losses(values))
    found = [one for one in concerns(known(state, len(values) + 0.1), state) if one.id.startswith("loss")]
    assert [one.id for one in found] == [id] * bool(id)
    assert all(one.is_fault is (id == "loss_diverges") for one in found)


@pytest.mark.parametrize(
    ("value", "grows"),
    [
        (lambda n: 1e8 + 1e7 * n, True),
        (lambda n: 1e8 + 1e7 * n + 3e6 * (n % 4), True),
        (lambda n: 1e8 + 1e7 * min(n, 20), False),
        (lambda n: 1e8 + 4e7 * (n % 10), False),
        (lambda n: 1e8, False),
    ],
)
def test_memory_that_grows_is_told_with_its_slope_and_when_it_is_full(value, grows):
    assert (growth_of([(n * SECOND, value(n)) for n in range(60)]) is not None) is grows
    if grows:
        found = growth_of([(n * SECOND, value(n)) for n in range(60)])
        assert found.low <= 1e7 <= found.high


def test_the_machine_is_full_at_the_rate_of_the_lane():
    events = []
    for n in range(1, 80):
        events += [
            replace(tree_sample(), at_ns=n * SECOND, private_bytes=n * 10.0 * 2**20),
            window(n * SECOND + 1),
        ]
    state = lane("cpu", phase(RACING), *events)
    host = replace(unknown_host(SECOND, HIDDEN), memory_total_bytes=2.0**36, memory_used_bytes=2.0**35)
    snapshot = replace(known(state, 79.1), hosts={"": HostState(sample=host)})
    (found,) = [one for one in concerns(snapshot, state) if one.id == "memory_grows"]
    assert found.text == (
        "memory grows by 10 MiB/s (10 MiB to 10 MiB), now 790 MiB; at this rate the machine's is full in 55 min"
    )


STACK = (
    "Thread 0x1 [MainThread] (most recent call first):", '  File "/usr/lib/python3.11/queue.py", line 171 in get',
    '  File "/home/u/train.py", line 17 in batches', "Thread 0x2 [x] (most recent call first):",
)  # fmt: skip


def test_a_lane_that_stands_still_says_where_for_what_and_which_child_was_killed():
    killed = replace(tree_sample(), at_ns=3 * SECOND, killed={123: 9, 124: 15})
    stack = StackReported(lane="cpu", at_ns=9 * SECOND, lines=STACK)
    state = raced(killed, stack)
    told = [one.text for one in concerns(known(state, 20), state)]
    assert told[0] == "a child process, PID 123, was killed by SIGKILL at 0:02"
    assert told[1].endswith("; it stands at train.py:17 in batches, and waits for a queue")

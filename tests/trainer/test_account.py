"""The account of a process: every moment is in one part, and the parts add up."""

from types import SimpleNamespace

import pytest
from support import events

from tfmon.model import account as groups
from tfmon.model.lane_events import Window
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.time_parts import Account

MS = 1_000_000


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The lane's clock, moved by a test. Units: ms."""
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(lane_clock, "now_ns", lambda: clock.now * MS)
    monkeypatch.setattr("tfmon.trainer.time_parts.time.monotonic_ns", lambda: clock.now * MS)
    return clock


@pytest.fixture
def account(clock):
    account = Account()
    account.begin(0, 100 * MS)
    return account


def window(ends: int, span: int, **parts: int) -> Window:
    """Return a window that ends at a moment, with its parts in ms."""
    times = {"input": 0, "call": 0, "sync": 0, "report": 0, **parts}
    return events.window(ends * MS, span * MS, **{f"{name}_ns": value * MS for name, value in times.items()})


def parts_of(account: Account, *, last: bool = False) -> dict[tuple[str, str], int]:
    reported = account.report(last=last)
    assert sum(part.time_ns for part in reported.parts) == reported.at_ns  # nothing is lost or counted twice
    return {(part.group, part.name): part.time_ns // MS for part in reported.parts}


def train_first_step(account: Account, clock: SimpleNamespace) -> None:
    clock.now = 500
    account.steps_begin()
    clock.now = 900
    account.split(window(900, 400, input=150, call=250))


def test_a_script_that_trains_twice_with_a_trace_in_the_second_training(account, clock):
    train_first_step(account, clock)
    clock.now = 1_000
    account.split(window(1_000, 100, input=20, call=50, sync=10, report=5))
    account.steps_end(groups.BETWEEN, at_ns=950 * MS)
    account.switch(groups.CALLBACKS, "Slow")
    clock.now = 1_200
    account.switch(groups.OUTSIDE)
    clock.now = 1_500
    account.steps_begin()
    clock.now = 1_600
    with account.mark(groups.TRACING, "train.py:1"):
        clock.now = 1_900
    clock.now = 2_000
    account.split(window(2_000, 500, input=100, call=380))
    account.steps_end(groups.OUTSIDE)
    clock.now = 2_600
    assert parts_of(account, last=True) == {
        (groups.START, groups.INTERPRETER): 100,
        (groups.BEFORE, groups.NOT_SPLIT): 400,
        (groups.BEFORE, groups.FIRST_BATCH): 150,
        (groups.BEFORE, groups.FIRST_RUN): 250,
        (groups.STEPS, groups.INPUT): 120,
        (groups.STEPS, groups.CALL): 50 + 80,
        (groups.STEPS, groups.TRACING): 300,
        (groups.STEPS, groups.LOSS): 10,
        (groups.STEPS, groups.PYTHON): 15 + 20,
        (groups.OWN, "measuring"): 5,
        (groups.CALLBACKS, "Slow"): 200,
        (groups.OUTSIDE, groups.NOT_SPLIT): 300,
        (groups.AFTER, groups.NOT_SPLIT): 600,
    }


def test_lines_that_were_seen_split_the_time_outside_of_steps_and_not_the_marks_in_it(account, clock):
    line = ("", groups.LINE, "train.py:2")
    account.sampled = lambda: [(200 * MS, 400 * MS, line), (400 * MS, 700 * MS, (groups.SAVING, "saving", ""))]
    clock.now = 250
    with account.mark(groups.TRACING, "train.py:1"):
        clock.now = 350
    clock.now = 600
    assert parts_of(account) == {
        (groups.START, groups.INTERPRETER): 100,
        (groups.BEFORE, groups.NOT_SPLIT): 100,
        (groups.BEFORE, groups.LINE): 100,
        (groups.BEFORE, groups.TRACING): 100,
        (groups.SAVING, "saving"): 200,
    }


def test_a_freed_iterator_and_a_callback_of_batches_are_not_input_and_python_too(account, clock):
    train_first_step(account, clock)
    account.batch_callback("Log", "train.py:4", 60 * MS)
    clock.now = 1_300
    account.freed("train.py:3", 200 * MS)
    clock.now = 1_400
    account.split(window(1_400, 500, input=230, call=180))
    parts = parts_of(account)
    assert parts[groups.TENSORFLOW, "freeing an iterator"] == 200
    assert (parts[groups.STEPS, groups.INPUT], parts[groups.STEPS, groups.CALL]) == (30, 180)
    assert (parts[groups.STEPS, "callback Log"], parts[groups.STEPS, groups.PYTHON]) == (60, 30)


def test_a_suspension_is_a_part_of_its_own(clock, monkeypatch):
    account = Account()
    account.begin(0, 0)
    monkeypatch.setattr(type(lane_clock), "stopped_ns", property(lambda _: 300 * MS))
    clock.now = 500
    monkeypatch.setattr("tfmon.trainer.time_parts.time.monotonic_ns", lambda: 800 * MS)
    assert parts_of(account)[groups.SUSPENDED, groups.NOT_SPLIT] == 300


def test_the_smallest_parts_are_added_up_by_group(account, clock):
    account.sampled = lambda: [
        (200 * MS, 260 * MS, ("", groups.LINE, "train.py:2")),
        (260 * MS, 270 * MS, ("", groups.LINE, "train.py:3")),
        (270 * MS, 275 * MS, ("", groups.LINE, "train.py:4")),
    ]
    clock.now = 400
    parts = account.report(most=3).parts
    assert [(part.group, part.name, part.place, part.time_ns // MS) for part in parts] == [
        (groups.BEFORE, groups.NOT_SPLIT, "", 225),
        (groups.START, groups.INTERPRETER, "", 100),
        (groups.BEFORE, groups.LINE, "train.py:2", 60),
        (groups.BEFORE, "smaller parts", "", 15),
    ]

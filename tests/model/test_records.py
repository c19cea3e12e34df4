"""A copy with other values in some fields is what the standard library makes, field for field."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest
from support.ui import racing_demo

from tfmon.model.records import replace


@dataclass(frozen=True)
class Open:
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Checked:
    low: int
    high: int
    text: str = field(default="")

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(self.low)


def test_a_copy_of_every_field_but_one():
    demo = racing_demo()
    demo.race(1, (5_000, 3_000))
    snapshot = demo.session.snapshot()
    lane = snapshot.lanes[0]
    assert replace(lane, phase="paused") == dataclasses.replace(lane, phase="paused") != lane
    assert replace(snapshot, at_ns=7) == dataclasses.replace(snapshot, at_ns=7) != snapshot


def test_what_a_type_checks_is_checked_and_a_dictionary_is_copied():
    assert replace(Open(1, 2), right=3) == Open(1, 3)
    assert replace(Checked(1, 2), high=3) == Checked(1, 3)
    with pytest.raises(ValueError, match="9"):
        replace(Checked(1, 2), low=9)


def test_a_field_that_is_not_there_is_refused():
    with pytest.raises(TypeError, match="tpyo"):
        replace(racing_demo().session.snapshot(), tpyo=1)

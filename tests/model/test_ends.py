"""How an end that a lane did not explain is put in words."""

from __future__ import annotations

import pytest

from tfmon.model.events import LaneEnded
from tfmon.model.lane_state import OUT_OF_MEMORY, trouble_of

SECOND = 1_000_000_000
KILLED = "the kernel killed a process on this machine for lack of memory just then"


def ended(
    code: int | None = None, signal: str | None = None, *, asked: bool = False, kills: str = ""
) -> LaneEnded:
    return LaneEnded(lane="cpu", at_ns=40 * SECOND, exit_code=code, signal=signal, requested=asked, memory_kills=kills)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ended(signal="SIGKILL"), "the lane was ended by SIGKILL"),
        (ended(7), "the lane left with exit code 7 and did not say why"),
        (
            ended(signal="SIGKILL", kills=KILLED),
            f"out of memory, it seems: the lane was ended by SIGKILL, and {KILLED}",
        ),
        (ended(signal="SIGSEGV", kills=KILLED), "the lane was ended by SIGSEGV"),
    ],
)
def test_an_end_is_named_by_its_signal_or_code(event, message):
    assert trouble_of(event, None).message == message


def test_a_kill_for_memory_comes_with_the_advice_to_lower_the_batch():
    trouble = trouble_of(ended(signal="SIGKILL", kills=KILLED), None)
    assert trouble.kind == OUT_OF_MEMORY
    assert trouble.hint.startswith("b lowers the batch size")


def test_an_end_that_was_asked_for_is_no_trouble():
    assert trouble_of(ended(0, asked=True), None) is None
    assert trouble_of(ended(signal="SIGKILL", asked=True, kills=KILLED), None) is None


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            ended(signal="SIGKILL", asked=True),
            "the lane said nothing for 30 s, and was ended by SIGKILL, as was asked",
        ),
        (ended(0, asked=True), "the lane said nothing for 30 s, and left with exit code 0, as was asked"),
        (ended(signal="SIGKILL"), "the lane said nothing for 30 s, and was ended by SIGKILL"),
    ],
)
def test_a_lane_that_hung_has_failed_however_it_ended(event, message):
    assert trouble_of(event, 10 * SECOND).message == message

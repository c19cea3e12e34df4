"""The account of a run: the parts and the time before and after them add up to the wall time."""

from dataclasses import replace

import pytest

from tfmon.analysis.run_account import UNSCOPED, account_lines, account_of, kind_of_operation
from tfmon.model.account import BEFORE, INTERPRETER, START, STEPS, SUSPENDED, TimePart
from tfmon.model.events import LaneEnded
from tfmon.model.lane_events import Accounted
from tfmon.model.lane_state import LaneEnd, LaneState, ProcessInfo
from tfmon.model.spec import LaneSpec

S = 1_000_000_000
PARTS = (
    TimePart(START, INTERPRETER, "", 1 * S),
    TimePart(BEFORE, "adapting layers", "train.py:3 `adapt(x)`", 6 * S),
    TimePart(STEPS, "step", "", 1 * S),
)


def test_the_parts_have_shares_and_the_time_of_other_lanes_turns_is_in_no_denominator():
    end = LaneEnd(event=LaneEnded(lane="cpu", at_ns=20 * S, exit_code=0, signal=None, requested=False))
    account = Accounted(at_ns=18 * S, parts=PARTS, last=True)
    state = LaneState(LaneSpec("cpu"), process=ProcessInfo(started_ns=8 * S), end=end, account=account)
    lines = list(account_lines(account_of(state)))
    assert lines[0] == ("the run", "12.0 s", "100 %", "")
    assert ("before the first step", "6.0 s", "50 %", "") in lines
    assert ("· adapting layers", "6.0 s", "50 %", "train.py:3 `adapt(x)`") in lines
    parts = (*PARTS, TimePart(SUSPENDED, "", "", 4 * S))
    account = account_of(replace(state, account=replace(state.account, at_ns=22 * S, parts=parts)))
    lines = list(account_lines(account))
    assert lines[0] == ("the run, not suspended", f"{account.wall_s - 4:.1f} s", "100 %", "")
    assert lines[-1] == (SUSPENDED, "4.0 s", "", "")
    assert sum(row.share for row in account.rows if row.group != SUSPENDED) == pytest.approx(1)


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("sequential_1/dense_1/MatMul", "forward"),
        ("gradient_tape/sequential_1/dense_1/MatMul/MatMul", "backward"),
        ("gradient_tape/sequential_1/random_flip_1/ReverseV2", "backward"),
        ("sequential_1/random_flip_1/ReverseV2_1", "augmentation layers"),
        ("compile_loss/mse/sub", "loss"),
        ("adam/Square_4", "optimizer"),
        ("StatefulPartitionedCall/sgd_2/AssignSubVariableOp", "optimizer"),
        ("ArgMax", UNSCOPED),
    ],
)
def test_an_operation_belongs_to_the_part_of_the_step_that_its_scopes_name(operation, part):
    assert kind_of_operation(operation) == part

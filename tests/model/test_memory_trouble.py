"""Out of memory on a GPU that others fill is told as that, with who."""

from __future__ import annotations

import pytest
from support.shared_gpu import shared_demo

from tfmon.model.events import LaneEnded
from tfmon.model.lane_events import LaneFailed
from tfmon.model.lane_state import LOWER_THE_BATCH, OUT_OF_MEMORY

SAID = "out of memory: net.py:9: ResourceExhaustedError: OOM when allocating tensor with shape[4096,4096]"


def failed(demo, lane="gpu:0", message=SAID, kind=OUT_OF_MEMORY):
    demo.session.accept(
        LaneFailed(lane=lane, at_ns=demo.clock(), kind=kind, message=message, hint=LOWER_THE_BATCH)
    )
    return demo.session.snapshot().lane(lane).trouble


def test_it_is_told_who_holds_the_memory_and_what_to_do():
    trouble = failed(shared_demo([0]))
    assert trouble.message == (
        "out of memory, because another process holds 60.0 of the 80.0 GiB of gpu:0: "
        f"ana: python train.py --epochs 300 (pid 777). The lane said: {SAID}"
    )
    assert trouble.kind == OUT_OF_MEMORY  # so that b still starts it again with a smaller batch
    assert trouble.hint.startswith("--lane gpu takes the idlest GPU") and trouble.hint.endswith(LOWER_THE_BATCH)


def test_a_lane_that_fills_the_gpu_itself_is_told_as_before():
    trouble = failed(shared_demo([0], held_gib=2))
    assert (trouble.message, trouble.hint) == (SAID, LOWER_THE_BATCH)


def test_other_failures_and_lanes_on_the_cpu_are_left_alone():
    assert failed(shared_demo([0]), message="ValueError: no", kind="scenario").message == "ValueError: no"
    assert failed(shared_demo([0]), lane="cpu").message == SAID


@pytest.mark.parametrize("said", ["ResourceExhaustedError: x", "CUDA_ERROR_OUT_OF_MEMORY: out of memory"])
def test_the_last_words_of_a_script_are_enough(said):
    demo = shared_demo([0])
    lane = demo.session.snapshot().lane("gpu:0")
    assert not lane.over
    demo.session.accept(
        LaneFailed(
            lane="gpu:0", at_ns=demo.clock(), kind="error", message=f"the script exited with code 1: {said}"
        )
    )
    demo.session.accept(LaneEnded(lane="gpu:0", at_ns=demo.clock(), exit_code=1, signal=None, requested=False))
    message = demo.session.snapshot().lane("gpu:0").trouble.message
    assert message.count("another process holds 60.0 of the 80.0 GiB") == 1

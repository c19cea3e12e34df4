"""How a lane ends: as requested, well, or with the reason that is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import SECOND, ended, lane, phase, requested, started, tree_sample, window

from tfmon.model.events import EndRequested, LaneStalled
from tfmon.model.lane_end import reason_in, trouble_of
from tfmon.model.lane_reducer import advance
from tfmon.model.lane_state import DONE, FAILED, OUT_OF_MEMORY, RACING

TRACEBACK, FRAME = "Traceback (most recent call last):", '  File "train.py", line 1, in <module>'
KILLED = "the kernel killed a process on this machine for lack of memory just then"


def asked() -> EndRequested:
    return EndRequested(lane="cpu", at_ns=0, grace_s=30.0)


class TestEnd:
    @pytest.mark.parametrize(
        ("event", "message"),
        [
            (ended(signal="SIGKILL"), "the lane was ended by SIGKILL"),
            (ended(0), "the lane exited with code 0 and did not say why"),
            (
                ended(signal="SIGKILL", kills=KILLED),
                f"out of memory, it seems: the lane was ended by SIGKILL, and {KILLED}",
            ),
            (ended(signal="SIGSEGV", kills=KILLED), "the lane was ended by SIGSEGV"),
        ],
    )
    def test_an_unexplained_end_is_a_failure_named_by_signal_or_code(self, event, message):
        state = lane("cpu", phase(RACING), event)
        assert (state.phase, state.trouble.message) == (FAILED, message)

    def test_one_that_says_nothing_may_be_no_python(self):
        told = lane("cpu", ended(2)).trouble.message
        assert told.startswith("the lane exited with code 2 before it said anything: is its interpreter a Python")

    def test_a_kill_for_memory_comes_with_the_advice_to_lower_the_batch(self):
        trouble = trouble_of(ended(signal="SIGKILL", kills=KILLED), None, began=True)
        assert trouble.kind == OUT_OF_MEMORY
        assert trouble.hint.startswith("b lowers the batch size")

    @pytest.mark.parametrize("kills", ["", KILLED])
    def test_a_requested_end_is_no_failure_and_drops_open_requests(self, kills):
        state = lane("cpu", phase(RACING), requested(1), ended(signal="SIGKILL", requested=True, kills=kills))
        assert (state.phase, state.trouble, state.requested) == (DONE, None, {})

    @pytest.mark.parametrize(
        ("event", "how"),
        [
            (ended(signal="SIGKILL", requested=True), "was ended by SIGKILL, as requested"),
            (ended(0, requested=True), "exited with code 0, as requested"),
            (ended(signal="SIGKILL"), "was ended by SIGKILL"),
        ],
    )
    def test_a_lane_that_hung_has_failed_however_it_ended(self, event, how):
        stalled = LaneStalled(lane="cpu", at_ns=30 * SECOND, since_ns=10 * SECOND)
        state = lane("cpu", phase(RACING, 10 * SECOND), stalled, event)
        assert (state.phase, state.trouble.message) == (FAILED, f"the lane said nothing for 30 s, and {how}")

    @pytest.mark.parametrize(
        ("events", "phase", "message"),
        [
            ([window(), ended(0)], DONE, ""),
            ([ended(0)], DONE, "the script ended, and no training step was seen"),
            ([window(), ended(3)], FAILED, "the script exited with code 3: last words"),
            ([window(), ended(signal="SIGINT")], FAILED, "the script was ended by SIGINT"),
            ([asked(), ended(3)], DONE, ""),
            ([asked(), ended(signal="SIGINT")], DONE, ""),
            (
                [asked(), ended(signal="SIGKILL")],
                DONE,
                "the script did not end within 40 s of Ctrl+C: killed by SIGKILL",
            ),
        ],
    )
    def test_a_script_ends_well_with_code_0_or_as_it_was_asked(self, events, phase, message):
        state = lane("cpu", started(command="python train.py"), *events)
        assert (state.phase, state.trouble.message if state.trouble else "") == (phase, message)
        assert state.steps or state.ending or "no Python of it has loaded tfmon" in state.trouble.hint


def test_memory_after_the_end_is_that_of_the_race_and_not_of_the_exit():
    samples = [replace(tree_sample(), private_bytes=mib * 2.0**20) for mib in (100, 300, 320, 310, 17)]
    state = lane("cpu", phase(RACING), *samples)
    assert state.memory_bytes == 17 * 2**20
    state = advance(state, ended(0, requested=True))
    assert (state.memory_bytes, state.tree.peak_private_bytes) == (pytest.approx(257.5 * 2**20), 320 * 2**20)


class TestReason:
    @pytest.mark.parametrize(
        ("output", "reason"),
        [
            (("Epoch 1", "10 %"), "10 %"),
            (("one", TRACEBACK, FRAME, "    step()", "ValueError: no data", "cleaning up"), "ValueError: no data"),
            ((TRACEBACK, FRAME, "train.Boom"), "Boom"),
            (
                (TRACEBACK, FRAME, "KeyError: 1", "", "During handling …", "", TRACEBACK, FRAME, "OSError: 2"),
                "OSError: 2",
            ),
            (
                (
                    TRACEBACK,
                    FRAME,
                    "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:",
                    "",
                    "Detected at node loss defined at (most recent call last):",
                    FRAME,
                    "Received a label value of 9 which is outside the valid range of [0, 5).",
                    "\t [[{{node loss/SparseSoftmax}}]] [Op:__inference_one_step_on_iterator_832]",
                ),
                "InvalidArgumentError: Received a label value of 9 which is outside the valid range of [0, 5).",
            ),
            (("x" * 900,), "x" * 300),
            ((), ""),
        ],
    )
    def test_it_is_the_line_that_says_why(self, output, reason):
        assert reason_in(output) == reason

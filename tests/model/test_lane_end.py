"""How a lane ends: as requested, well, or with a reason; and its log."""

from dataclasses import replace

import pytest
from support.events import SECOND, advance, ended, lane, phase, started, tree_sample, window
from support.shared_gpu import shared_demo

from tfmon.model.events import EndRequested, LaneEnded, LanePrinted, LaneStalled
from tfmon.model.lane_events import LOWER_THE_BATCH, OUT_OF_MEMORY, RACING, LaneFailed
from tfmon.model.lane_state import DONE, FAILED, Trouble
from tfmon.model.lane_texts import fragments_in, last_line, reason_in, without_chatter

TRACEBACK, FRAME = "Traceback (most recent call last):", '  File "train.py", line 1, in <module>'
KILLED = "the kernel killed a process on this machine for lack of memory just then"
ASKED = EndRequested(lane="cpu", at_ns=0, grace_s=30.0)


class TestEnd:
    @pytest.mark.parametrize(
        ("events", "trouble"),
        [
            ([phase(RACING), ended(0)], Trouble("the lane exited with code 0 without giving a reason")),
            (
                [phase(RACING), ended(signal="SIGKILL", kills=KILLED)],
                Trouble(
                    f"out of memory, it seems: the lane was ended by SIGKILL, and {KILLED}",
                    LOWER_THE_BATCH, OUT_OF_MEMORY,
                ),
            ),
            ([phase(RACING), ended(signal="SIGSEGV", kills=KILLED)], Trouble("the lane was ended by SIGSEGV")),
            ([ended(2)], Trouble(
                "the lane exited with code 2 before it sent a message: is its interpreter a Python from 3.10 on?"
            )),
        ],
    )  # fmt: skip
    def test_an_unexplained_end_is_a_failure_named_by_signal_or_code(self, events, trouble):
        state = lane("cpu", *events)
        assert (state.phase, state.trouble) == (FAILED, trouble)

    @pytest.mark.parametrize(
        ("event", "how"),
        [
            (ended(signal="SIGKILL", requested=True), "ended with tfmon by SIGKILL"),
            (ended(signal="SIGKILL"), "was ended by SIGKILL"),
        ],
    )
    def test_a_lane_that_hung_has_failed_however_it_ended(self, event, how):
        stalled = LaneStalled(lane="cpu", at_ns=30 * SECOND, since_ns=10 * SECOND)
        state = lane("cpu", phase(RACING, 10 * SECOND), stalled, event)
        assert (state.phase, state.trouble.message) == (FAILED, f"not a word for 30 s; {how}")

    @pytest.mark.parametrize(
        ("events", "phase", "message"),
        [
            ([window(), ended(0)], DONE, ""),
            ([ended(0)], DONE, "the script ended, and no training step was seen"),
            ([window(), ended(3)], FAILED, "the script exited with code 3; it last printed: last words"),
            ([window(), ended(signal="SIGINT")], FAILED, "the script was ended by SIGINT"),
            ([ASKED, ended(3)], DONE, ""),
            ([ASKED, ended(signal="SIGINT")], DONE, ""),
            (
                [ASKED, ended(signal="SIGKILL")],
                DONE,
                "the script did not end within 40 s of Ctrl+C: killed by SIG",
            ),
        ],
    )
    def test_a_script_ends_well_with_code_0_or_as_it_was_asked(self, events, phase, message):
        state = lane("cpu", started(command="python train.py"), *events)
        told = state.trouble.message if state.trouble else ""
        assert state.phase == phase and told.startswith(message) and bool(told) == bool(message)
        if not state.totals.steps and not state.end.requested:
            assert "none of its Python processes loaded tfmon" in state.trouble.hint


def test_the_memory_in_reports_is_the_last_of_the_race_and_not_of_the_exit():
    events = []
    for second, mib in enumerate((100, 300, 320, 310), 1):
        sample = replace(tree_sample(), private_bytes=mib * 2.0**20, at_ns=second * SECOND)
        events += [sample, window(second * SECOND + 1)]
    exiting = replace(tree_sample(), private_bytes=17 * 2.0**20, at_ns=5 * SECOND)
    state = lane("cpu", phase(RACING), *events, exiting)
    for one in (state, advance(state, ended(0, requested=True))):
        assert (one.memory_bytes, one.tree.peak_private_bytes) == (310 * 2**20, 320 * 2**20)


@pytest.mark.parametrize(("output", "line"), [(("10 %", "", " " + "x" * 900, " "), "x" * 300), ((), "")])
def test_the_last_line_is_the_last_with_text(output, line):
    assert last_line(output) == line


IN_THE_GRAPH = (
    "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:",
    "",
    "Detected at node loss defined at (most recent call last):",
    FRAME,
    "Received a label value of 9 which is outside the valid range of [0, 5).",
    "\t [[{{node loss/SparseSoftmax}}]] [Op:__inference_one_step_on_iterator_832]",
)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ((), ""),
        (("Epoch 1", "10 %"), ""),
        (("one", TRACEBACK, FRAME, "    step()", "ValueError: no data", "cleaning up"), "ValueError: no data"),
        ((TRACEBACK, FRAME, "KeyError: 1", "", "During …", "", TRACEBACK, FRAME, "OSError: 2"), "OSError: 2"),
        ((TRACEBACK, FRAME, *IN_THE_GRAPH), f"InvalidArgumentError: {IN_THE_GRAPH[4]}"),
        ((TRACEBACK, FRAME, "E: " + "x" * 900), "E: " + "x" * 297),
    ],
)
def test_the_reason_is_the_line_that_says_why(output, reason):
    assert reason_in(output) == reason


SAID = "out of memory: net.py:9: ResourceExhaustedError: OOM when allocating tensor with shape[4096,4096]"


def failed(demo, message=SAID, kind=OUT_OF_MEMORY):
    ended = LaneFailed(lane="gpu:0", at_ns=demo.clock(), kind=kind, message=message, hint=LOWER_THE_BATCH)
    demo.session.accept(ended)
    return demo.session.snapshot().lane("gpu:0").trouble


def test_it_is_told_who_holds_the_memory_and_what_to_do():
    trouble = failed(shared_demo([0]))
    assert trouble.message == (
        "out of memory, because another process holds 60.0 of the 80.0 GiB of gpu:0: "
        f"ana: python train.py --epochs 300 (pid 777). The lane said: {SAID}"
    )
    assert trouble.kind == OUT_OF_MEMORY  # so that b still starts it again with a smaller batch
    assert trouble.hint.startswith("--lane gpu takes the idlest GPU") and trouble.hint.endswith(LOWER_THE_BATCH)
    alone = failed(shared_demo([0], held_gib=2))
    assert (alone.message, alone.hint) == (SAID, LOWER_THE_BATCH), "the lane fills the GPU itself"


@pytest.mark.parametrize("said", ["ResourceExhaustedError: x", "CUDA_ERROR_OUT_OF_MEMORY: out of memory"])
def test_the_last_words_of_a_script_are_enough(said):
    demo = shared_demo([0])
    failed(demo, message=f"the script exited with code 1: {said}", kind="error")
    demo.session.accept(LaneEnded(lane="gpu:0", at_ns=demo.clock(), exit_code=1, signal=None, requested=False))
    message = demo.session.snapshot().lane("gpu:0").trouble.message
    assert message.count("another process holds 60.0 of the 80.0 GiB") == 1


def test_dropped_output_is_counted_in_one_line():
    lost = [LanePrinted(lane="cpu", at_ns=n, lines=(str(n),), dropped_bytes=1_000) for n in range(1, 600)]
    *_, line = lane("cpu", *lost).log
    assert line.text == "dropped 599,000 bytes in all, printed faster than they are shown"


def test_what_tensorflow_says_of_itself_is_not_what_a_process_said_last():
    chatter = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795423724.468137   27579 port.cc:153] oneDNN custom operations are on.",
        "2026-11-23 08:40:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] AVX2 FMA",
        "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow",
    ]
    said = ["2026-11-23 08:40:00.1: W tensorflow/core/framework/op.cc:84] out of memory", "I am done at 3.cc"]
    assert without_chatter([*chatter, *said]) == said


def test_memory_in_fragments_is_told_from_memory_that_is_full():
    asks = "ResourceExhaustedError: OOM when allocating tensor with shape[256,1024,1024] and type float on gpu:0"

    def said(used: int) -> list[str]:
        return [
            "I0000 00:00:1.5 27 bfc_allocator.cc:1129] total_region_allocated_bytes_: 8589934592 memory_limit_: 9",
            "I0000 00:00:1.5 27 bfc_allocator.cc:1132] Stats: ",
            f"InUse:                {used}",
            asks,
        ]

    hint = fragments_in(without_chatter(said(6 * 2**30)))
    assert hint.startswith(
        "the GPU is not full: 2.0 GiB of TensorFlow's pool were free for 1.0, but in fragments;"
    )
    assert "allocator=cuda_malloc_async" in hint
    assert fragments_in(said(15 * 2**29)) == "" == fragments_in([asks])

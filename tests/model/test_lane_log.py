"""The log of a lane: what it printed, and in words what happened to it."""

from __future__ import annotations

from support.events import ended, lane, phase, started

from tfmon.model.events import LanePrinted
from tfmon.model.lane_events import KnobApplied, LaneFailed
from tfmon.model.lane_log import LOG_LINES, without_chatter


def printed(*lines: str, at_ns: int = 1, dropped_bytes: int = 0) -> LanePrinted:
    return LanePrinted(lane="cpu", at_ns=at_ns, lines=lines, dropped_bytes=dropped_bytes)


class TestLog:
    def test_printed_lines_and_events_are_in_their_order(self):
        log = lane(
            "cpu",
            started(1),
            printed("hello", "world", at_ns=2),
            phase("racing", 3),
            KnobApplied(at_ns=4, request=1, knob="prefetch", value="auto", step=1_200, gap_ns=4_000_000),
            LaneFailed(at_ns=5, kind="error", message="no memory", hint="use less"),
            ended(1),
            started(6),
        ).log
        assert [(line.kind, line.text) for line in log] == [
            ("event", "started, process 43; prefetch=2"),
            ("printed", "hello"),
            ("printed", "world"),
            ("event", "racing"),
            ("event", "prefetch=auto in effect from step 1,200; longest gap between steps 4.0 ms"),
            ("trouble", "no memory · use less"),
            ("trouble", "process exited with code 1"),
            ("event", "started, process 43; prefetch=2"),
        ]

    def test_it_keeps_the_newest_lines(self):
        log = lane("cpu", *(printed(*(f"{n}.{place}" for place in range(30))) for n in range(100))).log
        assert (len(log), log[-1].text) == (LOG_LINES, "99.29")

    def test_dropped_output_is_counted_in_one_line(self):
        *_, line = lane("cpu", *(printed(str(n), at_ns=n, dropped_bytes=1_000) for n in range(1, 600))).log
        assert line.text == "dropped 599,000 bytes in all, printed faster than they are shown"
        log = lane("cpu", *(printed("a", at_ns=n, dropped_bytes=9) for n in range(9))).log
        assert [one.kind for one in log] == ["printed"] * 9 + ["trouble"]


def test_what_tensorflow_says_of_itself_is_not_what_a_process_said_last():
    chatter = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795423724.468137   27579 port.cc:153] oneDNN custom operations are on.",
        "2026-11-23 08:40:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] AVX2 FMA",
        "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow",
    ]
    said = ["2026-11-23 08:40:00.1: W tensorflow/core/framework/op.cc:84] out of memory", "I am done at 3.cc"]
    assert without_chatter([*chatter, *said]) == said

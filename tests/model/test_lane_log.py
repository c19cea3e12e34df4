"""The log of a lane: what it printed, and in words what happened to it."""

from __future__ import annotations

from support.events import ended, lane, phase, started

from tfmon.model.events import LanePrinted
from tfmon.model.lane_events import KnobApplied, LaneFailed
from tfmon.model.lane_state import LOG_LINES, LogLine


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

    def test_dropped_output_is_said(self):
        (line,) = lane("cpu", printed(dropped_bytes=1_048_576)).log
        assert line == LogLine(1, "trouble", "dropped 1,048,576 bytes, printed faster than they are shown")

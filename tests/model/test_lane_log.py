from __future__ import annotations

from tfmon.model.events import BadLine, LaneEnded, LanePrinted, LaneStarted
from tfmon.model.lane_events import KnobApplied, LaneFailed, PhaseEntered
from tfmon.model.lane_reducer import advance
from tfmon.model.lane_state import LOG_LINES, LaneState, LogLine
from tfmon.model.readings import TreeSample
from tfmon.model.spec import LaneSpec


def printed(*lines: str, at_ns: int = 1, dropped_bytes: int = 0) -> LanePrinted:
    return LanePrinted(lane="cpu", at_ns=at_ns, lines=lines, dropped_bytes=dropped_bytes)


def after(*events) -> LaneState:
    state = LaneState(spec=LaneSpec("cpu", name="cpu"))
    for event in events:
        state = advance(state, event)
    return state


def test_what_a_lane_printed_stands_between_what_happened_to_it():
    log = after(
        LaneStarted(lane="cpu", at_ns=1, pid=42, settings={"prefetch": "off"}),
        printed("hello", "world", at_ns=2),
        PhaseEntered(lane="cpu", at_ns=3, phase="racing"),
        KnobApplied(lane="cpu", at_ns=4, request=1, knob="prefetch", value="auto", step=1_200, gap_ns=4_000_000),
        LaneFailed(lane="cpu", at_ns=5, kind="error", message="no memory", hint="use less"),
    ).log
    assert [(line.at_ns, line.kind) for line in log] == [
        (1, "event"), (2, "printed"), (2, "printed"), (3, "event"), (4, "event"), (5, "trouble"),
    ]  # fmt: skip
    assert [line.text for line in log] == [
        "started, process 42; prefetch=off",
        "hello",
        "world",
        "racing",
        "prefetch=auto in force from step 1,200; longest gap between steps 4.0 ms",
        "no memory · use less",
    ]


def test_it_is_bounded_and_keeps_the_newest():
    log = after(
        *(printed(*(f"{number}.{place}" for place in range(30)), at_ns=number) for number in range(100))
    ).log
    assert len(log) == LOG_LINES
    assert log[-1].text == "99.29"


def test_it_outlives_the_child():
    end = LaneEnded(lane="cpu", at_ns=2, exit_code=1, signal=None, requested=False)
    state = after(printed("last words"), end, LaneStarted(lane="cpu", at_ns=3, pid=43, settings={}))
    assert [line.text for line in state.log] == [
        "last words", "process ended with exit code 1", "started, process 43",
    ]  # fmt: skip


def test_what_was_left_out_is_said():
    (line,) = after(printed(dropped_bytes=1_048_576)).log
    assert line == LogLine(1, "trouble", "1,048,576 bytes were printed faster than they are shown: left out")


def test_an_event_without_news_changes_nothing():
    log = after(BadLine(lane="cpu", at_ns=1, problem="x")).log
    assert append_log(log, TreeSample(lane="cpu", at_ns=2, cpu_pct=1.0, private_bytes=1.0, processes=1)) is log

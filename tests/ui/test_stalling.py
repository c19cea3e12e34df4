"""A lane that hangs, on the screen: in its pane, on its page, and the keys that act on it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import GPU_MACHINE, SECOND, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.events import LaneEnded, LaneStalled, Suspended
from tfmon.model.knobs import BATCH_SIZE, PREFETCH
from tfmon.model.lane_events import Hello, LaneFailed, StackReported
from tfmon.ui.app import MonitorApp
from tfmon.ui.render.race import draw
from tfmon.ui.requests import reachable
from tfmon.ui.view import View

STACK = ("Thread 0x00007f (most recent call first):", '  File "mine.py", line 7 in data [bold]no markup[/]')


def stalled_demo() -> Demo:
    demo = racing_demo(GPU_MACHINE)
    since_ns = demo.clock()
    demo.clock.ahead(25)
    demo.session.accept(Hello(lane="gpu:0", at_ns=since_ns, protocol=1, pid=1, python="3", reports_stack=True))
    demo.session.accept(LaneStalled(lane="gpu:0", at_ns=demo.clock(), since_ns=since_ns))
    return demo


def shown(demo: Demo, width: int = 120, height: int = 36) -> str:
    return "\n".join(
        "".join(text for text, _ in row) for row in draw(analyse(demo.session.snapshot()), View(), width, height).rows
    )


def test_its_pane_says_since_when_and_which_keys_help():
    text = shown(stalled_demo())
    assert "stalled 0:25" in text
    assert "Enter, then S shows its stacks, K ends it" in text


def test_its_next_word_ends_that():
    demo = stalled_demo()
    demo.enter("gpu:0", "racing")
    assert "stalled" not in shown(demo)


def test_a_gap_is_marked_on_the_time_line():
    demo = racing_demo(GPU_MACHINE)
    for name in demo.names:
        stamps = {"at_ns": demo.clock(), "since_ns": demo.clock() - 12 * SECOND}
        demo.session.accept(Suspended(lane=name, lasted_s=12.0, **stamps))
    demo.clock.ahead(30)
    assert "suspended 12 s" in shown(demo)


async def test_the_keys_of_its_page_ask_where_it_stands_and_end_it():
    demo = stalled_demo()
    app = MonitorApp(demo.session, demo.controls, demo.experiments)
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("tab", "tab", "enter", "S")
        assert demo.controls.calls[-1] == ("ask_stack", "gpu:0")
        demo.session.accept(StackReported(lane="gpu:0", at_ns=demo.clock(), lines=STACK))
        app.pull()
        await pilot.pause()
        text = "\n".join(line.text for line in app.screen._compositor.render_strips())
        assert "Stacks" in text and "line 7 in data [bold]no markup[/]" in text
        assert "no message for 25" in text and "while racing" in text
        await pilot.press("K")
        assert demo.controls.calls[-1] == ("kill", "gpu:0")


async def test_a_lane_that_cannot_tell_or_has_ended_is_not_asked():
    demo = stalled_demo()
    app = MonitorApp(demo.session, demo.controls, demo.experiments)
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("tab", "enter", "S")
        assert "cannot report its stacks" in app.view.message
        end = LaneEnded(lane="cpu", at_ns=demo.clock(), exit_code=0, signal=None, requested=True)
        demo.session.accept(end)
        app.pull()
        await pilot.press("S", "K")
        assert "has ended already" in app.view.message
    assert demo.controls.calls == []


async def test_ctrl_z_stops_or_says_why_not():
    stopped: list[int] = []
    for suspend, said in ((lambda: stopped.append(1), ""), (None, "no shell")):
        demo = racing_demo(GPU_MACHINE)
        app = MonitorApp(demo.session, demo.controls, demo.experiments, suspend=suspend)
        async with app.run_test() as pilot:
            await pilot.press("ctrl+z")
            assert stopped == [1]
            assert said in app.view.message


class TestReachable:
    """Which lanes a knob's key acts on."""

    @pytest.fixture
    def lanes(self):
        demo = Demo()
        demo.go()
        demo.session.accept(LaneFailed(lane="gpu:0", at_ns=1, kind="out_of_memory", message="out of memory"))
        demo.session.accept(LaneEnded(lane="gpu:0", at_ns=2, exit_code=1, signal=None, requested=False))
        return demo.session.snapshot().lanes

    @pytest.mark.parametrize(
        ("knob", "direction", "focused", "names"),
        [
            (BATCH_SIZE, -1, False, ["cpu", "gpu:0"]),
            (BATCH_SIZE, 1, False, ["cpu"]),
            (PREFETCH, 1, False, ["cpu"]),
            (PREFETCH, 1, True, ["cpu", "gpu:0"]),
        ],
    )
    def test_one_that_ran_out_of_memory_starts_again_with_a_smaller_batch_or_when_it_is_meant(
        self, lanes, knob, direction, focused, names
    ):
        assert [lane.spec.name for lane in reachable(lanes, knob, direction, focused=focused)] == names

    def test_one_whose_process_is_not_gone_yet_waits(self, lanes):
        lanes = [replace(lane, ended=None) for lane in lanes]
        assert [lane.spec.name for lane in reachable(lanes, BATCH_SIZE, -1, focused=True)] == ["cpu"]

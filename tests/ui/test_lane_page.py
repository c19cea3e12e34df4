"""The pages of a lane, of its account and of reports: limits, advice, and every reading with its source."""

from dataclasses import replace

import pytest
from support.events import reread
from support.ui import GPU_MACHINE, SECOND, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.errors import TfmonError
from tfmon.model.account import BEFORE, INTERPRETER, START, STEPS, TimePart
from tfmon.model.events import LaneEnded, LaneStalled, LaneStarted
from tfmon.model.gpu_samples import ClockReason, SlowReading
from tfmon.model.lane_events import Accounted, CauseSeen, Hello, NotMeasured, StackReported
from tfmon.model.readings import HostSample, Missing
from tfmon.model.spec import LaneSpec
from tfmon.reports.race_report import to_text
from tfmon.ui.render.reading_rows import time_parts, time_row
from tfmon.ui.render.rows import cells, plain
from tfmon.ui.screens.lane_page import stack_rows

from .pilot import app_of, frame, lane_page, press, rows_of, shown, text, until


def test_a_gpu_has_its_readings_with_their_sources_and_ages_and_what_is_missing_says_why():
    demo = racing_demo()
    (before,) = demo.session.snapshot().gpus
    slow = SlowReading("load", 118.4, 11.84, before.at_ns - 7 * SECOND)
    read = reread(
        before, sm_clock_mhz=1_200.0, sm_clock_max_mhz=1_980.0, warning="4 of 16 lanes",
        reasons=(ClockReason("its power cap holds it down", "warning"),), slow=(slow,),
    )  # fmt: skip
    demo.session.accept(read)
    page = lane_page(demo, "gpu:0")
    for words in ("6 %", "(samples)", "1200 MHz of 1980 MHz", "its power cap holds it down", "4 of 16 lanes"):
        assert words in page
    assert "n/a (not read)" in page
    assert "load: the driver took 118 ms, so it is read every 11.8 s; read 7.0 s ago" in page
    assert "6 %, 7 s ago" in text(frame(demo))
    demo.session.accept(replace(read, slow=(replace(slow, at_ns=before.at_ns),)))
    assert "6 % busy" in text(frame(demo))
    demo.clock.ahead(42)
    assert "GPU (stale: read 42" in lane_page(demo, "gpu:0")


def test_a_cause_is_in_the_pane_on_the_page_and_in_the_report_with_its_line_and_the_code():
    demo = racing_demo()
    demo.session.accept(
        CauseSeen(
            lane="cpu", at_ns=demo.session.snapshot().at_ns, cause="retrace_value", subject="step",
            what="`n`: 1 → 2", place="train.py:7 `def step(x, n):`", count=40, cost_ns=2 * SECOND,
            of_ns=10 * SECOND,
        )
    )  # fmt: skip
    told = "a Python number retraces step, 40 times: `n`: 1 → 2; that took 2.0 s, 20 % of the time"
    page = lane_page(demo, "cpu", 160)
    assert told in page and "train.py:7" in page and "step = tf.constant(step)" in page
    report = to_text(analyse(demo.session.snapshot()))
    assert f"cpu: {told}" in report and "  step = tf.constant(step)" in report
    assert "a Python number retraces" in text(frame(demo)) and "(train.py:7, 20 %)" in text(frame(demo))
    narrow = "\n".join(plain(rows_of(frame(demo, 80, 30))))
    assert "dispatch and compute alike; a Pyth" in narrow, "the figures make room for it"


def test_the_machine_and_what_disturbs_it_are_told():
    demo = racing_demo()
    nothing = Missing("this system keeps no account of pressure")
    demo.session.accept(
        HostSample(
            at_ns=demo.clock(), cpu_pct=150.0, memory_used_bytes=2.0**30, memory_total_bytes=2.0**33,
            others_cpu_pct=75.0, cpu_pressure_pct=nothing,
        )
    )  # fmt: skip
    page = lane_page(demo, "cpu")
    assert "75 % by programs that are neither tfmon nor its lanes" in page
    assert "other programs keep 0.8 cores busy" in page
    assert "for a core   n/a (this system keeps no account of pressure)" in page


def test_the_bar_of_step_time_and_its_words_fit_and_the_shares_add_up():
    analysis = analyse(racing_demo().session.snapshot())
    for lane in analysis.lanes:
        shares = lane.bottleneck.shares
        assert sum(value for _, value, _ in time_parts(shares)) == pytest.approx(100, abs=0.1)
        for width in (36, 44, 56, 100):
            assert cells(time_row(shares, width, "lane0")) <= width


async def test_the_doctor_and_the_profile_of_the_focused_lane_are_made_in_a_thread_and_shown():
    demo = racing_demo()
    profiled: list[str] = []

    def profile(lane: str) -> str:
        profiled.append(lane)
        if lane == "cpu":
            raise TfmonError("no profile of cpu could be taken: another one is")
        return "20 steps of 1.2 ms\n\nthe loop\n  step call   1.1 ms   92 %\n  other      0.06 ms    8 %"

    app = app_of(demo, examine=lambda: "GPU\n  ✗ broken  driver\n  ! warning swap", profile=profile)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "d")
        await until(pilot, lambda: "broken  driver" in shown(pilot))
        assert "`tfmon doctor` does that, too" in shown(pilot)
        await press(pilot, "escape", "tab", "P")
        await until(pilot, lambda: "no profile of cpu could be taken: another one is" in shown(pilot))
        await press(pilot, "escape", "tab", "P")
        await until(pilot, lambda: "20 steps of 1.2 ms" in shown(pilot))
        assert profiled == ["cpu", "gpu:0"] and "Profile of lane G: gpu:0" in shown(pilot)
        await press(pilot, "escape")
        for name in demo.names:
            demo.fail(name)
        app.monitor.pull()
        await press(pilot, "P", "enter")
        assert "20 steps of 1.2 ms" in shown(pilot) and "profile again" not in shown(pilot)
        assert profiled == ["cpu", "gpu:0"], "a lane that has ended keeps its profile"


STACK = ("Thread 0x00007f (most recent call first):", '  File "mine.py", line 7 in data [bold]no markup[/]')


def stalled_demo() -> Demo:
    demo = racing_demo(GPU_MACHINE)
    since_ns = demo.clock()
    demo.clock.ahead(25)
    demo.session.accept(Hello(lane="gpu:0", at_ns=since_ns, protocol=1, pid=1, python="3", reports_stack=True))
    demo.session.accept(LaneStalled(lane="gpu:0", at_ns=demo.clock(), since_ns=since_ns))
    return demo


def test_the_pane_of_a_hung_lane_says_since_when_and_which_keys_help_until_its_next_message():
    demo = stalled_demo()
    pane = text(frame(demo))
    assert "stalled 0:25" in pane and "Enter, then S shows its stacks, K ends it" in pane
    demo.enter("gpu:0", "racing")
    assert "stalled" not in text(frame(demo))


def test_a_stack_shows_each_file_with_its_line_however_narrow_it_is():
    demo = stalled_demo()
    path = "/home/user/.venv/lib/python3.11/site-packages/keras/src/backend/tensorflow/trainer.py"
    lines = ("Thread 0x01 [] (most recent call first):", f'  File "{path}", line 377 in fit')
    demo.session.accept(StackReported(lane="gpu:0", at_ns=demo.clock(), lines=lines))
    lane = demo.session.snapshot().lane("gpu:0")
    for width in (60, 80, 100, 160):
        *_, thread, call = plain(stack_rows(lane, demo.clock(), width))
        assert call.endswith('tensorflow/trainer.py", line 377 in fit') and "[]" not in thread
        assert len(call) <= width and (path in call) == (width == 160)


async def test_the_keys_of_its_page_ask_where_it_stands_and_end_it_unless_it_cannot_tell_or_has_ended():
    demo = stalled_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 50)) as pilot:
        await press(pilot, "tab", "enter", "S")
        assert "cannot report its stacks" in app.monitor.view.message
        end = LaneEnded(lane="cpu", at_ns=demo.clock(), exit_code=0, signal=None, requested=True)
        demo.session.accept(end)
        app.monitor.pull()
        await press(pilot, "S", "K")
        assert "has ended already" in app.monitor.view.message
        assert demo.controls.calls == []
        await press(pilot, "tab", "S")
        assert demo.controls.calls[-1] == ("ask_stack", "gpu:0")
        demo.session.accept(StackReported(lane="gpu:0", at_ns=demo.clock(), lines=STACK))
        app.monitor.pull()
        await pilot.pause()
        text = shown(pilot)
        assert "Stacks" in text and "line 7 in data [bold]no markup[/]" in text
        assert "no message for 25" in text and "while racing" in text
        await press(pilot, "K")
        assert demo.controls.calls[-1] == ("kill", "gpu:0")


def test_a_script_lane_shows_the_code_that_keeps_what_was_changed_and_what_cannot_be_known():
    demo = racing_demo()
    assert "To keep" not in lane_page(demo, "cpu")
    demo.session.accept(
        LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={"prefetch": 2}, command="python train.py")
    )
    assert 'prefetch = report.knob("prefetch", 2)' in lane_page(demo, "cpu"), (
        "without TensorFlow, it is the script's own"
    )
    demo.equip("cpu")
    reason = "the loop reads no dataset"
    demo.session.accept(NotMeasured(lane="cpu", at_ns=demo.clock(), what="examples", reason=reason))
    told = lane_page(demo, "cpu")
    assert "To keep what was changed, in the script" in told
    assert "dataset = dataset.prefetch(2)" in told and reason in told


LINE = "train.py:3 `vectorize.adapt(source.batch(1))`"


@pytest.mark.parametrize("width", [80, 140])
async def test_a_opens_the_account_of_a_lane_with_the_lines_of_the_script(width):
    demo = Demo([LaneSpec("cpu")])
    async with app_of(demo).run_test(size=(width, 40)) as pilot:
        await press(pilot, "A")
        assert "before the first step" in shown(pilot), "there is no account yet"
        demo.race(2)
        parts = (
            TimePart(START, INTERPRETER, "", 1 * SECOND),
            TimePart(BEFORE, "adapting layers", LINE, 6 * SECOND),
            TimePart(STEPS, "step", "", 3 * SECOND),
        )
        demo.session.accept(Accounted(lane=demo.names[0], at_ns=demo.clock(), parts=parts))
        pilot.app.monitor.pull()
        await press(pilot)
        page = shown(pilot)
        for text in ("before the first step", "60 %", "6.0 s", "adapting layers", LINE[:20]):
            assert text in page, page
        assert all(len(line) <= width for line in page.splitlines())
        await press(pilot, "A", "i")
        assert "The whole run" in shown(pilot)

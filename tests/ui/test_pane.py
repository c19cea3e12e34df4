from dataclasses import replace

from support.events import reread
from support.ui import CPU_MACHINE, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.events import BadLine, KnobRequested, LaneEnded, LaneStarted
from tfmon.model.lane_events import KnobRefused, LaneFailed
from tfmon.model.readings import Missing
from tfmon.model.spec import LaneSpec
from tfmon.ui.render import reading_rows
from tfmon.ui.render.bars import refusal_line
from tfmon.ui.render.chart import charts_of
from tfmon.ui.render.pane import FRAME_CELLS, PaneRows, chart_width, heights_of
from tfmon.ui.render.rows import Row, cells, plain
from tfmon.ui.source import SHARED, Display, Scale


def drawn(demo: Demo, name: str, width: int = 60, height: int = 26, **view) -> list[str]:
    rows = rows_of(demo, name, width, height, **view)
    assert len(rows) == height
    assert [cells(row) for row in rows] == [width] * height
    return ["".join(text for text, _ in row) for row in rows]


def rows_of(demo: Demo, name: str, width: int = 60, height: int = 26, **view) -> list[Row]:
    index = demo.names.index(name)
    view = {"scales": {SHARED: Scale(0.0, 10_000.0)}, **view}
    analysis, shown = analyse(demo.session.snapshot()), Display(**view)
    charts = charts_of(analysis.snapshot, shown, chart_width(width))
    panes = [PaneRows(analysis, at, shown, width - FRAME_CELLS) for at in range(len(demo.names))]
    return panes[index].rows(height, heights_of(panes), charts)


def line(rows: list[str], label: str) -> str:
    return next(row.strip("│ ") for row in rows if row.strip("│┃ ").startswith(label))


def test_a_reading_that_is_missing_or_old_says_so_where_it_would_stand():
    demo = racing_demo()
    text = "\n".join(drawn(demo, "cpu"))
    assert text.count("n/a") == 1 and "n/a (no GPU in this lane)" in text
    gpu = demo.session.snapshot().gpus[0]
    demo.session.accept(reread(gpu, busy_pct=Missing("hidden by the container")))
    assert line(drawn(demo, "gpu:0"), "gpu ") == "gpu     n/a (hidden by the container)"
    demo.clock.ahead(12)
    assert line(drawn(demo, "gpu:0"), "gpu ") == "gpu     stale: read 12.0 s ago"


def test_memory_of_the_gpu_that_the_driver_does_not_tell_names_who_does():
    snapshot = racing_demo().session.snapshot()

    def words(**more) -> str:
        lane = snapshot.lane("gpu:0")
        lane = replace(lane, gpu_use=replace(lane.gpu_use, **more))
        return plain([reading_rows.gpu_memory_row(lane, snapshot, 80)])[0]

    of_all = "gpu mem GPU 1.2 GiB of 139 GiB · 38 MiB allocated (peak 51 MiB)"
    assert words(used_bytes=Missing("hidden")) == of_all
    assert "612 MiB used (only process)" in words(source="only process")


def test_a_script_without_a_step_says_so_and_after_a_while_what_to_do():
    demo = Demo()
    demo.session.accept(LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={}, command="python train.py"))
    demo.clock.ahead(29)
    rows = drawn(demo, "cpu", 64)
    assert "the script runs, no step seen yet…" in rows[1] and rows[1].rstrip("│ ").endswith("29.0 s")
    demo.clock.ahead(2)
    rows = drawn(demo, "cpu", 64)
    assert "no steps seen" in rows[1]
    assert "report.step(" in " ".join(rows[2:6])


def test_a_refused_request_and_unreadable_lines_are_said():
    demo = racing_demo()
    demo.session.accept(BadLine(lane="cpu", at_ns=demo.clock(), problem="not JSON"))
    assert line(drawn(demo, "cpu"), "note") == "note    1 unreadable line skipped: not JSON"
    at = {"lane": "cpu", "at_ns": demo.clock()}
    demo.session.accept(KnobRefused(**at, request=9, knob="batch_size", value=2000, reason="too large"))
    assert line(drawn(demo, "cpu"), "refused") == "refused too large"
    assert refusal_line(demo.session.snapshot()) == "cpu refused: too large", "on the pages"
    demo.clock.ahead(21)
    assert line(drawn(demo, "cpu"), "note") == "note    1 unreadable line skipped: not JSON", "a refusal goes away"
    assert refusal_line(demo.session.snapshot()) == ""
    demo.sample()
    assert line(drawn(demo, "cpu"), "memory") == "memory  301 MiB private"


def test_a_paused_lane_keeps_its_last_figure_and_dims_it():
    demo = racing_demo(mode="concurrent")
    racing = rows_of(demo, "cpu")[1]
    demo.enter("cpu", "paused")
    paused = rows_of(demo, "cpu")[1]
    assert "".join(text for text, _ in racing) == "".join(text for text, _ in paused)
    assert {style for text, style in racing if "7 668" in text} == {"lane0.strong"}
    assert {style for text, style in paused if "7 668" in text} == {"dim"}


def test_a_killed_lane_names_the_signal_and_an_absent_device_its_reason():
    demo = Demo()
    at = {"at_ns": demo.clock()}
    demo.session.accept(LaneEnded(lane="cpu", exit_code=None, signal="SIGKILL", requested=False, **at))
    demo.session.accept(LaneFailed(lane="gpu:0", kind="device_absent", message="TensorFlow sees no GPU", **at))
    assert "ended by SIGKILL" in "\n".join(drawn(demo, "cpu"))
    rows = drawn(demo, "gpu:0")
    assert " absent " in rows[0] and "TensorFlow sees no GPU" in "\n".join(rows)


def test_long_and_wide_names_never_break_the_frame():
    spec = LaneSpec("cpu", {"prefetch": "auto" * 20}, apart=("prefetch",))
    demo = Demo([spec, LaneSpec("cpu", {"prefetch": "日本語" * 9}, apart=("prefetch",))], CPU_MACHINE).go()
    for name in demo.names:
        for width in (40, 41, 60):
            assert "racing" in drawn(demo, name, width, 18)[0]


def test_a_long_step_says_how_long_it_runs_and_when_a_change_takes_effect():
    demo = Demo([LaneSpec("cpu", {"batch_size": 32})], CPU_MACHINE, mode="concurrent").go()
    demo.clock.ahead(4)
    demo.train("cpu", 160, 200, demo.clock())
    window = demo.session.snapshot().lane("cpu").points[-1]
    assert window.steps == 1

    def step() -> str:
        return line(drawn(demo, "cpu"), "step")

    demo.clock.ahead(1.5)
    assert "runs" not in step(), "its end may not have been told yet"
    demo.clock.ahead(1.5)
    assert " ".join(step().split()) == "step step 2 runs for 3.0 s, the last took 200.0 ms"
    demo.session.accept(KnobRequested(lane="cpu", at_ns=demo.clock(), request=1, knob="xla", value="on"))
    assert "step 2 runs; change in effect in 1 s" in step()
    demo.clock.ahead(1)
    demo.train("cpu", 160, 200, demo.clock())
    demo.clock.ahead(2)
    assert "step 3 runs; the change is being prepared" in step(), "it did not take effect after that step"

"""`W` saves a report of what is recorded of the race."""

from __future__ import annotations

from support.ui import FakeRuns, racing_demo

from tfmon.model.events import RecordingChanged
from tfmon.model.race import RecordingState

from .pilot import app_of, press, shown, until


async def test_w_saves_a_report_and_says_where_or_why_not():
    demo, runs = racing_demo(), FakeRuns()
    app = app_of(demo, runs=runs)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "W")
        assert "no report: this is not recorded" in shown(pilot)
        recording = RecordingState("/runs/race.jsonl")
        demo.session.accept(RecordingChanged(at_ns=demo.clock(), recording=recording))
        app.monitor.pull()
        await press(pilot, "W")
        await until(pilot, lambda: "saved race.html" in shown(pilot))
        assert runs.calls == [("report", "/runs/race.jsonl")]
        runs.refusal = "no space left"
        await press(pilot, "W")
        await until(pilot, lambda: "no space left" in shown(pilot))

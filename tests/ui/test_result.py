"""The result of a race on the screen: what is in it, and that nothing changes it."""

from __future__ import annotations

from support.ui import Demo, racing_demo

from tfmon.model.events import LaneStarted

from .drawn import frame, text


def over(demo: Demo) -> Demo:
    demo.enter_all("done")
    return demo


def test_a_restarted_lane_takes_the_result_away():
    demo = over(racing_demo())
    demo.session.accept(LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={"batch_size": 20}))
    shown = text(frame(demo))
    assert "Result" not in shown and "stage 1 of 6" in shown


def test_a_lane_that_was_ended_keeps_what_was_measured_before_its_last_seconds():
    demo = racing_demo(mode="concurrent")
    for _ in range(40):
        demo.clock.ahead(0.2)
        demo.train("cpu", 7_663, 2.6, demo.clock(), ("disturbed",))
    demo.enter("cpu", "done")
    pane = text(frame(demo, charset="ascii"))
    assert "7 669 examples/s" in pane and "not measured" not in pane


def test_the_result_of_scripts_has_the_time_to_finish_and_warns_of_other_losses():
    demo = racing_demo()
    for name in demo.names:
        started = LaneStarted(lane=name, at_ns=demo.clock(), pid=1, settings={}, command="python train.py")
        demo.session.accept(started)
        demo.settings[name], demo.steps[name] = {"batch_size": 10}, 0
        demo.enter(name, "racing")
        for _ in range(40):
            demo.clock.ahead(0.2)
            demo.train(name, 1_000, 2.6, demo.clock(), loss=1.0 + (name == "cpu"))
    shown = " ".join(text(frame(over(demo), width=200)).split())
    assert (
        "cpu finished the same 8 000 examples 1.01× sooner than gpu:0 (cpu 8.0 s, gpu:0 8.1 s of training)"
        in shown
    )
    assert "loss at the end: cpu 2.0000" in shown
    assert "at the same step differ by 1.0000" in shown and "one may train something else" in shown

"""An experiment leaves a lane alone that has ended, and what cannot be measured is refused; simulated."""

import pytest
from support.tunings import tried as attempt_of
from support.tunings import tuning
from support.ui import Demo

from tfmon.errors import ExperimentError
from tfmon.model.events import EndRequested, LaneStarted
from tfmon.model.lane_events import READY, TRACING
from tfmon.model.series import KEPT
from tfmon.model.spec import LaneSpec
from tfmon.series import lanes as lanes_module
from tfmon.series.engine import RefusedError, StoppedError
from tfmon.series.series_control import ExperimentControl
from tfmon.series.tuning import Tuning


@pytest.mark.parametrize("ended", [True, False])
def test_a_kept_change_is_not_taken_back_from_a_lane_that_has_ended(ended):
    demo = Demo(mode="turns").go()
    kept = attempt_of("cpu", {"prefetch": "auto"}, {"prefetch": "off"}, outcome=KEPT)
    demo.session.advance_series(tuning("cpu"))
    demo.session.advance_series(tuning("cpu", attempts=(kept,), over=True))
    control = ExperimentControl(demo.session, demo.controls)
    if not ended:
        control.undo()
        assert demo.controls.calls == [("set_knob", "cpu", "prefetch", "auto")]
        return
    demo.enter("cpu", "done")
    with pytest.raises(ExperimentError, match="has ended, and its result stays"):
        control.undo()
    assert demo.controls.calls == []


DEVICES = [LaneSpec("cpu"), LaneSpec("gpu:0")]


@pytest.mark.parametrize(
    ("specs", "knob", "why"),
    [
        (DEVICES, "graph", "a knob that is a number"),
        (DEVICES, "hue", "no knob 'hue'"),
        (DEVICES[:1], "batch_size", "this race has fewer"),
        ([LaneSpec("cpu", {"batch_size": size}) for size in (8, 16)], "batch_size", "choose another knob"),
    ],
)
def test_a_crossover_needs_a_numeric_knob_that_does_not_tell_its_two_lanes_apart(specs, knob, why):
    demo = Demo(specs, mode="turns").go()
    with pytest.raises(ExperimentError, match=why):
        ExperimentControl(demo.session, demo.controls).start_crossover(knob)


def test_a_lane_that_is_not_there_or_has_ended_is_not_tuned():
    demo = Demo(mode="turns").go()
    demo.enter("cpu", "done")
    for lane, why in (("tpu", "no lane tpu"), ("cpu", "does not train any more")):
        with pytest.raises(ExperimentError, match=why):
            ExperimentControl(demo.session, demo.controls).start_tuning(lane, everything=False)


@pytest.mark.parametrize(("command", "error"), [("python train.py", StoppedError), ("", RefusedError)])
@pytest.mark.parametrize("ends", ["has ended", "is about to end"])
def test_an_experiment_starts_no_script_again_that_ends_meanwhile(command, error, ends, monkeypatch):
    demo = Demo(mode="turns")
    demo.session.accept(
        LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={"prefetch": "off"}, command=command)
    )
    demo.go()
    monkeypatch.setattr(lanes_module, "PATIENCE_S", 0.05)
    station = Tuning(demo.session, demo.controls, tuning("cpu"))
    if command and ends == "is about to end":
        demo.session.accept(EndRequested(lane="cpu", at_ns=demo.clock(), grace_s=30.0))
    else:
        demo.enter("cpu", "done")
    with pytest.raises(error):
        station.set_knob(["cpu"], "prefetch", "auto")
    assert bool(demo.controls.calls) is not bool(command)
    with pytest.raises(error):
        station.wait_until_racing(["cpu"])


def test_a_lane_that_takes_long_to_get_ready_is_waited_for(monkeypatch):
    monkeypatch.setattr(lanes_module, "POLL_S", 0.01)
    monkeypatch.setattr(lanes_module, "PATIENCE_S", 0.05)
    demo, looks = Demo(mode="turns"), []
    demo.enter("cpu", TRACING)

    def look() -> bool:
        looks.append(1)
        if len(looks) == 50:
            for lane in demo.session.snapshot().lanes:
                demo.enter(lane.spec.name, READY)
        return False

    with pytest.raises(RefusedError, match="it did not"):
        Tuning(demo.session, demo.controls, tuning("cpu")).wait(look, "it did not")
    assert len(looks) >= 50

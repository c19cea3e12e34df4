"""What an experiment may not do to a lane that has ended, simulated."""

from __future__ import annotations

import pytest
from support.ui import Demo

from tfmon.experiments import driver as driver_module
from tfmon.experiments.control import ExperimentControl
from tfmon.experiments.driver import FailedError, LaneDriver, StoppedError
from tfmon.model.events import EndRequested, LaneStarted
from tfmon.model.lane_state import READY, TRACING
from tfmon.model.ports import ExperimentError
from tfmon.model.series import KEPT, Attempt, TuneState


@pytest.mark.parametrize("ended", [True, False])
def test_a_kept_change_is_not_taken_back_from_a_lane_that_has_ended(ended):
    demo = Demo(mode="turns").go()
    kept = Attempt("cpu", {"prefetch": "auto"}, {"prefetch": "off"}, outcome=KEPT)
    demo.session.set_experiment(TuneState("cpu"))
    demo.session.set_experiment(TuneState("cpu", attempts=(kept,), over=True))
    control = ExperimentControl(demo.session, demo.controls)
    if not ended:
        control.undo()
        assert demo.controls.calls == [("set_knob", "cpu", "prefetch", "auto")]
        return
    demo.enter("cpu", "done")
    with pytest.raises(ExperimentError, match="has ended, and its result stays"):
        control.undo()
    assert demo.controls.calls == []


@pytest.mark.parametrize(("command", "error"), [("python train.py", StoppedError), ("", FailedError)])
@pytest.mark.parametrize("ends", ["has ended", "is about to end"])
def test_an_experiment_starts_no_script_again_that_ends_meanwhile(command, error, ends):
    demo = Demo(mode="turns")
    demo.session.accept(
        LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={"prefetch": "off"}, command=command)
    )
    demo.go()
    driver = LaneDriver(demo.session, demo.controls, patience_s=0.05)
    if command and ends == "is about to end":
        demo.session.accept(EndRequested(lane="cpu", at_ns=demo.clock(), grace_s=30.0))
    else:
        demo.enter("cpu", "done")
    with pytest.raises(error):
        driver.set_knob(["cpu"], "prefetch", "auto")
    assert bool(demo.controls.calls) is not bool(command)
    with pytest.raises(error):
        driver.wait_until_racing(["cpu"])


def test_a_lane_that_takes_long_to_get_ready_is_waited_for(monkeypatch):
    monkeypatch.setattr(driver_module, "POLL_S", 0.01)
    demo, looks = Demo(mode="turns"), []
    demo.enter("cpu", TRACING)

    def look() -> bool:
        looks.append(1)
        if len(looks) == 50:
            for lane in demo.session.snapshot().lanes:
                demo.enter(lane.spec.name, READY)
        return False

    with pytest.raises(FailedError, match="it did not"):
        LaneDriver(demo.session, demo.controls, patience_s=0.05).wait(look, "it did not")
    assert len(looks) >= 50

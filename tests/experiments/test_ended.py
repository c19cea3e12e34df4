"""What an experiment may not do to a lane that has ended, simulated."""

from __future__ import annotations

import pytest
from support.ui import Demo

from tfmon.experiments.control import ExperimentControl
from tfmon.model.ports import ExperimentError
from tfmon.model.race import KEPT, Attempt, TuneState


@pytest.mark.parametrize("ended", [True, False])
def test_a_kept_change_is_not_taken_back_from_a_lane_that_has_ended(ended):
    demo = Demo(mode="turns")
    demo.go()
    kept = Attempt("cpu", {"prefetch": "auto"}, {"prefetch": "off"}, outcome=KEPT)
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

"""One model on several devices: logical devices of the CPU, in a child process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import run_python

from tfmon.catalog import built_in_folder, read_scenario
from tfmon.model.lane_events import KnobApplied, KnobRefused, Window
from tfmon.model.lane_state import FAILED

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer, pytest.mark.slow]

CHILD = Path(__file__).parent / "replicas_child.py"
FOLDER = built_in_folder()


def ask(*words: str) -> Any:
    """Run the child with these arguments, and return its result."""
    done = run_python(CHILD, *words, PYTHONPATH=str(FOLDER.parent), CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found() -> Any:
    return ask("3")


def test_three_devices_train_what_one_does_and_their_weights_stay_equal(found):
    alone = found["alone"]
    assert alone["replicas"] == [1]
    for name in ("plain", "eager", "per replica"):
        several = found[name]
        assert (several["replicas"], several["apart"], several["examples"]) == ([3], 0, alone["examples"]), name
        assert np.allclose(several["losses"], alone["losses"], rtol=1e-4), name
        assert np.allclose(several["weights"], alone["weights"], rtol=1e-4), name
    assert np.allclose(found["bfloat16"]["losses"], alone["losses"], rtol=0.02)
    assert found["bfloat16"]["losses"] != alone["losses"]


def test_replicas_with_dropout_and_batch_normalisation_train_and_keep_equal_weights(found):
    assert (found["noisy"]["replicas"], found["noisy"]["apart"]) == ([3], 0)
    assert np.isfinite(found["noisy"]["losses"]).all()


def test_a_lane_on_two_devices_counts_exactly_and_changes_its_knobs(race):
    info = read_scenario(FOLDER / "small_dense.py", "built-in")
    lane = race(info.path, "2xcpu", batch_scope="global", **info.defaults())
    lane.until_event(Window, lambda window: not window.marks)

    def windows_after(at_ns: int) -> list[Window]:
        lane.until(lambda: sum(w.at_ns > at_ns for w in lane.of(Window)) >= 4, "4 windows")
        return [window for window in lane.of(Window) if window.at_ns > at_ns]

    assert all(window.examples == 10 * window.steps for window in windows_after(0))
    lane.lanes.set_knob("2xcpu", "batch_scope", "per-replica")
    applied = lane.until_event(KnobApplied)
    assert all(window.examples == 20 * window.steps for window in windows_after(applied.at_ns))
    lane.lanes.set_knob("2xcpu", "mixed_precision", "bfloat16")
    lane.until_event(KnobApplied, lambda event: event.knob == "mixed_precision")
    for knob, value in (("xla", True), ("mixed_precision", "float16"), ("batch_size", 501)):
        lane.lanes.set_knob("2xcpu", knob, value)
        refused = lane.until_event(KnobRefused, lambda event, knob=knob: event.knob == knob)
        assert refused.reason and "\n" not in refused.reason
    assert "it can be at most 500" in refused.reason
    after = windows_after(lane.of(Window)[-1].at_ns)
    assert all(np.isfinite(window.loss) for window in after if window.loss is not None)
    assert lane.lane.process.bad_lines == 0


def test_a_lane_whose_step_several_devices_cannot_share_fails_in_one_line(race):
    info = read_scenario(FOLDER / "model_creation.py", "built-in")
    lane = race(info.path, "2xcpu", **info.defaults())
    lane.until(lambda: lane.lane.phase == FAILED, "the lane fails")
    assert lane.lane.trouble.message == (
        "this step runs in Python, and so on one device: several need a step that is a tf.function"
    )

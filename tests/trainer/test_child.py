"""A lane as it is in life: a child process that trains, and the session that hears it."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.processes import run_python
from support.waiting import PATIENCE_S

from tfmon.catalog import built_in_folder, read_scenario
from tfmon.lanes import lane_process
from tfmon.model.events import LaneEnded
from tfmon.model.lane_events import (
    BUILDING,
    IMPORTING,
    RACING,
    READY,
    TRACING,
    WARMING_UP,
    Built,
    KnobApplied,
    KnobRefused,
    LibrariesLoaded,
    Window,
)
from tfmon.model.lane_state import DONE, FAILED

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

SMALL_DENSE = built_in_folder() / "small_dense.py"


@pytest.mark.pythons
def test_a_built_in_scenario_trains_on_through_changes_of_both_knobs(race, tmp_path, monkeypatch):
    monkeypatch.setattr(lane_process, "ASK_S", PATIENCE_S)  # it ends without a signal
    info, batch_size = read_scenario(SMALL_DENSE, "built-in"), 500
    lane = race(info.path, environment={"TMPDIR": str(tmp_path)}, **info.defaults())
    first = lane.until_event(Window, lambda window: window.loss is not None)
    before = lane.until_event(Window, lambda window: not window.marks)
    lane.lanes.set_knob("cpu", "batch_size", batch_size)
    lane.lanes.set_knob("cpu", "prefetch", 2)
    applied = [
        lane.until_event(KnobApplied, lambda event, k=k: event.knob == k) for k in ("batch_size", "prefetch")
    ]
    changed_ns = max(event.at_ns for event in applied)

    def losses() -> list[float]:
        return [window.loss for window in lane.of(Window) if window.at_ns > changed_ns and window.loss is not None]

    def falls() -> bool:
        return len(losses()) >= 4 and np.mean(losses()[-2:]) < min(np.mean(losses()[:2]), first.loss)

    lane.until(falls, "the loss to fall")
    lane.lanes.stop()

    assert lane.phases == [IMPORTING, BUILDING, TRACING, WARMING_UP, READY, RACING]
    assert lane.lane.phase == DONE
    (libraries,) = lane.of(LibrariesLoaded)
    assert libraries.tensorflow and libraries.keras and libraries.numpy == np.__version__
    (built,) = lane.of(Built)
    assert (built.parameters, built.examples) == (14_218, info.examples)
    assert [(event.knob, event.value) for event in applied] == [("batch_size", batch_size), ("prefetch", 2)]

    assert before.settings == info.defaults()
    after = [window for window in lane.of(Window) if window.at_ns > changed_ns]
    assert all(window.settings == {**info.defaults(), "batch_size": batch_size, "prefetch": 2} for window in after)
    assert all(window.examples == batch_size * window.steps for window in after)
    assert [event.exit_code for event in lane.of(LaneEnded)] == [0]
    assert list(tmp_path.iterdir()) == [], "TensorFlow wrote files when it traced the step"
    assert lane.lane.process.bad_lines == 0


@pytest.mark.parametrize(
    ("module", "message", "install"),
    [
        ("raise ModuleNotFoundError('gone', name='tensorflow')", "has no TensorFlow", "tensorflow"),
        ("raise ModuleNotFoundError('gone', name='numpy')", "has no NumPy", "numpy"),
        ("raise ImportError('libcudart.so is missing')", "ImportError: libcudart.so is missing", "tensorflow"),
        ("import numpy", "importing NumPy failed: ImportError: no BLAS", "numpy --force-reinstall"),
        ("import tfmon_has_no_such_module", "No module named 'tfmon_has_no_such_module'", "tensorflow"),
    ],
    ids=["missing", "NumPy missing", "broken", "NumPy broken", "missing a part"],
)
def test_a_tensorflow_that_cannot_be_imported_is_told_with_the_command_that_helps(
    race, tmp_path, module, message, install
):
    (tmp_path / "tensorflow.py").write_text(module)
    if "NumPy failed" in message:
        (tmp_path / "numpy.py").write_text("raise ImportError('no BLAS')")
    lane = race(SMALL_DENSE, environment={"PYTHONPATH": str(tmp_path)})
    lane.until_event(LaneEnded)
    assert lane.lane.phase == FAILED
    assert lane.lane.trouble is not None
    assert lane.lane.trouble.kind == "no_tensorflow"
    assert message in lane.lane.trouble.message
    assert f"-m pip install {install}" in lane.lane.trouble.hint


@pytest.mark.slow
def test_three_devices_train_what_one_does_and_their_weights_stay_equal():
    done = run_python(
        Path(__file__).with_name("replicas_child.py"),
        PYTHONPATH=str(SMALL_DENSE.parents[1]),
        CUDA_VISIBLE_DEVICES="-1",
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    alone = found["alone"]
    assert alone["replicas"] == [1]
    for name in ("plain", "eager", "per replica"):
        several = found[name]
        assert (several["replicas"], several["apart"], several["examples"]) == ([3], 0, alone["examples"]), name
        assert np.allclose(several["losses"], alone["losses"], rtol=1e-4), name
        assert np.allclose(several["weights"], alone["weights"], rtol=1e-4), name
    assert np.allclose(found["bfloat16"]["losses"], alone["losses"], rtol=0.02)
    assert found["bfloat16"]["losses"] != alone["losses"]
    assert (found["noisy"]["replicas"], found["noisy"]["apart"]) == ([3], 0)
    assert np.isfinite(found["noisy"]["losses"]).all(), "with dropout and batch normalisation"


@pytest.mark.slow
def test_a_lane_on_two_devices_counts_exactly_and_changes_its_knobs(race):
    info = read_scenario(SMALL_DENSE, "built-in")
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


@pytest.mark.slow
def test_a_lane_whose_step_several_devices_cannot_share_fails_in_one_line(race):
    info = read_scenario(SMALL_DENSE.with_name("model_creation.py"), "built-in")
    lane = race(info.path, "2xcpu", **info.defaults())
    lane.until(lambda: lane.lane.phase == FAILED, "the lane fails")
    assert lane.lane.trouble.message == (
        "this step runs in Python, and so on one device: several need a step that is a tf.function"
    )

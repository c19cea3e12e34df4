"""A lane as it is in life: a child process that trains, and the session that hears it."""

import numpy as np
import pytest
from support.waiting import PATIENCE_S

from tfmon.catalog import built_in_folder, read_scenario
from tfmon.lanes import pipe_reader
from tfmon.model.events import LaneEnded
from tfmon.model.lane_events import Built, KnobApplied, LibrariesLoaded, Window
from tfmon.model.lane_state import ABSENT, BUILDING, DONE, FAILED, IMPORTING, RACING, READY, TRACING, WARMING_UP

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

SMALL_DENSE = built_in_folder() / "small_dense.py"


@pytest.mark.pythons
def test_a_built_in_scenario_trains_on_through_changes_of_both_knobs(race, monkeypatch):
    monkeypatch.setattr(pipe_reader, "ASK_S", PATIENCE_S)  # it ends without a signal, however busy the machine is
    info, batch_size = read_scenario(SMALL_DENSE, "built-in"), 500
    lane = race(info.path, **info.defaults())
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
        return len(losses()) >= 8 and np.mean(losses()[-4:]) < min(np.mean(losses()[:4]), first.loss)

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
    assert lane.lane.process.bad_lines == 0


@pytest.mark.slow
def test_a_lane_ends_after_its_steps_and_leaves_no_temporary_files(race, tmp_path):
    lane = race(SMALL_DENSE, environment={"TMPDIR": str(tmp_path)}, steps=100)
    lane.until_event(Window)  # TensorFlow wrote some when it traced the step
    ended = lane.until_event(LaneEnded)
    assert (ended.exit_code, ended.requested) == (0, False)
    assert lane.lane.phase == DONE
    assert lane.lane.totals.measured_steps == 100 <= lane.lane.totals.steps
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there_is_told_as_absent(race):
    lane = race(SMALL_DENSE, "gpu:0", environment={"CUDA_VISIBLE_DEVICES": "-1"})
    lane.until_event(LaneEnded)
    assert lane.lane.phase == ABSENT
    assert lane.lane.trouble is not None
    assert lane.lane.trouble.kind == "device_absent"
    assert "TensorFlow" in lane.lane.trouble.message


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

"""`tfmon.watch`: the figures of this process's training, and no changes after it."""

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from support.processes import run_python
from support.waiting import wait_for

import tfmon
from tfmon import report
from tfmon.api import watch as api
from tfmon.errors import UsageError
from tfmon.hooks.counts import NO_ROWS, PARTS_DIFFER
from tfmon.model.lane_events import PROTOCOL, Hello, LibrariesLoaded
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STEPS = 400


def train(steps: int = STEPS) -> None:
    for number in range(steps):
        time.sleep(0.003)
        report.step(examples=8, loss=1.0 / (number + 1))


def fds() -> set[tuple[str, str]]:
    """Return the numbers and targets of the open files of this process."""
    found = set()
    for fd in Path("/proc/self/fd").iterdir() if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # the descriptor that lists the folder
            found.add((fd.name, str(fd.readlink())))
    return found


def ours() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key.startswith("TFMON")}


def new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("tfmon") and one not in before]


@pytest.fixture(autouse=True)
def left_as_it_was():
    before, loaded = (ours(), [*sys.meta_path], os._exit), "tensorflow" in sys.modules  # by other tests
    threads, files = set(threading.enumerate()), fds()
    yield
    wait_for(lambda: not new_threads(threads), what="no thread is left")
    assert (ours(), [*sys.meta_path], os._exit) == before
    assert fds() <= files, "those of other tests may be closed by the garbage collector"
    assert ("tensorflow" in sys.modules) == loaded


def test_reported_steps_are_seen_twice_in_one_process_without_tensorflow():
    for _ in range(2):
        lines: list[str] = []
        with tfmon.watch(progress=lines.append) as w:
            train()
        result = w.result
        assert isinstance(result, tfmon.LaneResult)
        assert (result.state, result.steps, result.examples) == ("finished", STEPS, 8 * STEPS)
        assert 100 < result.examples_per_s < 8 / 0.003
        assert result.last_loss == pytest.approx(1 / STEPS)
        assert result.private_bytes > 2**20, "it was sampled"
        assert lines and lines[-1].startswith("cpu: ") and "examples/s" in lines[-1]
        assert str(w).startswith("cpu: time of a step: compute ")
        assert f"{STEPS} steps" in str(w) and "<polyline" in w._repr_html_()


def test_an_error_passes_unchanged_and_the_figures_until_then_are_kept():
    error = ValueError("of the <script>")
    w = tfmon.watch(progress=False)
    with pytest.raises(ValueError, match="of the") as raised, w:
        train()
        raise error
    assert raised.value is error
    assert (w.result.state, w.result.error, w.result.steps) == ("failed", "ValueError: of the <script>", STEPS)
    assert "of the &lt;script&gt;" in w._repr_html_()
    with pytest.raises(KeyboardInterrupt), tfmon.watch(progress=False) as w:
        raise KeyboardInterrupt
    assert w.result.state == "finished" and "interrupted by KeyboardInterrupt" in str(w)


def test_a_second_one_at_once_and_bad_input_are_refused_and_the_first_goes_on():
    with tfmon.watch(progress=False) as w:
        with pytest.raises(UsageError, match="watched already, and cannot be twice"), tfmon.watch():
            pass
        train()
    assert w.result.steps == STEPS
    with pytest.raises(UsageError, match="progress=3 is not possible · it is True or False"):
        tfmon.watch(progress=3)
    with pytest.raises(UsageError, match="nothing was watched yet"):
        print(tfmon.watch().result)


def test_a_script_that_tfmon_runs_is_watched_from_outside_alone(monkeypatch):
    with monkeypatch.context() as lane:
        lane.setenv("TFMON_PIPES", "3:4:5:token:any")
        with tfmon.watch() as w:
            finders = [*sys.meta_path]
        assert finders == sys.meta_path
    assert (w.result.state, w.result.steps) == ("finished", None)
    assert "steps not measured: tfmon runs this script, and measures it from outside" in str(w)


def test_what_cannot_be_shown_stops_nothing(monkeypatch, capsys):
    def fails(_line: str) -> None:
        raise RuntimeError

    with tfmon.watch(progress=fails) as w:
        train()
    assert w.result.steps == STEPS and capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with tfmon.watch() as w:
        train(300)
    printed = capsys.readouterr().err
    assert "\r\x1b[K" in printed and printed.endswith(f"{w}\n") and "300 steps" in printed
    with contextlib.suppress(UsageError), tfmon.watch():
        raise UsageError("x")
    assert "cpu failed: UsageError: x" in capsys.readouterr().err


def test_the_lane_is_on_the_gpus_that_tensorflow_has(monkeypatch):
    gpus = tuple(Gpu(number, f"GPU-{number}", "NVIDIA H100", number) for number in range(2))
    monkeypatch.setattr(api, "find_gpus", lambda: GpuSearch(gpus=gpus))
    monkeypatch.setattr(api, "gpu_probes", lambda gpus: [])
    with tfmon.watch(progress=False) as w:
        w._take(Hello(at_ns=1, protocol=PROTOCOL, pid=os.getpid(), python="3.12"))
        loaded = {"tensorflow": "2.21", "keras": "3", "numpy": "2", "device_name": "NVIDIA H100"}
        w._take(LibrariesLoaded(at_ns=1, gpu_uuids=("GPU-1",), **loaded))
        assert (w.result.device, w.result.device_name) == ("gpu:1", "NVIDIA H100")


def test_a_mistake_of_tfmon_fails_the_lane_and_not_the_script(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(api.MetricLines, "take", lambda *_: 1 / 0)
        with tfmon.watch(progress=False) as w:
            train()
    assert w.result.state == "failed" and "tfmon's thread tfmon-watch failed: ZeroDivisionError" in w.result.error


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict:
    environment = {
        "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1",
    }  # fmt: skip
    done = run_python(HERE / "watched_training.py", folder=tmp_path_factory.mktemp("work"), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.tensorflow
@pytest.mark.trainer
class TestTraining:
    @pytest.mark.parametrize(("block", "epochs"), [("fit 1", 10), ("fit 2", 2), ("loop 1", 2)])
    def test_weights_and_losses_are_those_without_it_and_all_steps_are_seen(self, trained, block, epochs):
        same_losses, same_weights, lane = trained[block]
        assert same_losses and same_weights
        assert (lane["state"], lane["steps"], lane["examples"]) == ("finished", epochs * 128, epochs * 1_024)
        if block == "fit 1":  # half a second of the others may have no steady window
            assert lane["examples_per_s"] > 0 and lane["bottleneck"] and lane["time_pct"]["input"] is not None
        assert not {"steps", "examples", "input"} & lane["missing"].keys()

    @pytest.mark.parametrize("block", ["again", "loop again"])
    def test_a_step_that_was_traced_in_an_earlier_block_is_measured_in_full(self, trained, block):
        lane = trained[block]
        assert trained["again equal"]
        assert (lane["steps"], lane["examples"]) == (2 * 128, 2 * 1_024)
        assert not {"steps", "examples", "input"} & lane["missing"].keys()

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            ("a part is longer", PARTS_DIFFER),
            ("several steps a call", PARTS_DIFFER),
            ("rows come second", NO_ROWS),
        ],
    )
    def test_examples_are_unknown_if_no_one_dimension_counts_them(self, trained, data, reason):
        lane = trained[data]
        assert (lane["steps"], lane["examples"], lane["missing"]["examples"]) == (8, None, reason)

    def test_everything_of_tensorflow_and_keras_is_the_original_after_it(self, trained):
        assert len(trained["hooked"]) > 20, "what is compared has the hooks in it"
        assert trained["changed"] == [] and trained["own function"]
        assert trained["state"], "environment, finders of modules, descriptors and threads"
        same, no_frames_of_ours, lane = trained["raises"]
        assert same and no_frames_of_ours
        assert (lane["state"], lane["error"], lane["steps"]) == ("failed", "ValueError: of the script", 2 * 128)


@pytest.mark.tensorflow
def test_of_a_step_that_was_traced_before_what_is_not_known_is_said(trained):
    lane = trained["traced before"]
    assert lane["steps"] == 2 * 128 and lane["examples"] is None
    assert "traced before tfmon watched: compile the model" in lane["missing"]["examples"]
    lane = trained["loop before"]
    assert (lane["steps"], lane["examples"], lane["loss"]["last"]) == (2 * 128, 2 * 1_024, None)


@pytest.mark.process
def test_the_magic_keeps_what_was_seen_and_returns_the_last_value():
    pytest.importorskip("IPython")
    from IPython.core.error import UsageError as MagicError
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}), user_ns={"train": train})
    tfmon.load_ipython_extension(shell)
    assert shell.run_cell_magic("tfmon", " w ", "train()\na = 5\na + 1\n") == 6
    assert shell.user_ns["w"].result.steps == STEPS and shell.user_ns["a"] == 5
    with pytest.raises(MagicError, match="%%tfmon a b is not possible; it takes a name"):
        shell.run_cell_magic("tfmon", "a b", "1")
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("tfmon", "failed", "1 / 0")
    assert shell.user_ns["failed"].result.state == "failed"
    with pytest.raises(UsageError, match="watched already"), tfmon.watch(progress=False):
        shell.run_cell_magic("tfmon", "", "1")
    assert api.VARIABLE not in os.environ

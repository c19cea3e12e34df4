"""A killed monitor leaves nothing of a script: below a shell, while it loads, and if it ignores signals."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.processes import gone
from support.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.process

TRAINS = """
import os, time
from tfmon import report
print(os.getpid(), flush=True)
open("pid-" + os.environ["TFMON_PIPES"].split(":")[3], "w").write(str(os.getpid()))
while True:
    time.sleep(0.002)
    report.step(examples=4)
"""
LOADS = 'import os, time\nopen("pid-1", "w").write(str(os.getpid()))\ntime.sleep(600)\n'
SAVES = f"""
try:
    exec({TRAINS!r})
except KeyboardInterrupt:
    for _ in range(2_000):
        print(100 * "saving ")  # more than a pipe holds
    open("saved", "w").write("all")
"""
RESISTS = (
    "import signal\nfor number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):\n"
    "    signal.signal(number, lambda *_: None)\n"
)


@pytest.fixture
def watched(tmp_path, monkeypatch) -> Iterator[Callable]:
    """Start tfmon with a script; return it and the processes below it, once the script says that it is there."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("TFMON_GRACE", "2")
    processes: list[psutil.Process] = []

    def start(text: str, *words: str, lanes: int = 1) -> tuple[psutil.Popen, list[psutil.Process]]:
        (tmp_path / "train.py").write_text(text)
        command = [sys.executable, "-m", "tfmon", *words]
        monitor = psutil.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        processes.append(monitor)

        def pids() -> list[int]:
            return [int(text) for file in tmp_path.glob("pid-*") if (text := file.read_text())]

        wait_for(lambda: len(pids()) == lanes, what="the script runs")
        below = monitor.children(recursive=True)
        processes.extend(below)
        assert set(pids()) <= {process.pid for process in below}
        return monitor, below

    yield start
    for process in processes:
        if not gone(process):
            process.kill()
    for monitor in processes[:1]:
        monitor.wait()


WATCH = ("watch", "--headless", "--no-record", "--")
SHELL = ("sh", "-c", f"{sys.executable} train.py; {sys.executable} train.py; sleep 600")
PYTHON = (sys.executable, "train.py")


@pytest.mark.slow
@pytest.mark.parametrize(("text", "words"), [(TRAINS, SHELL), (LOADS, PYTHON)], ids=["below a shell", "loading"])
def test_a_script_ends_with_its_monitor(watched, text, words):
    monitor, below = watched(text, *WATCH, *words)
    monitor.kill()
    wait_for(lambda: all(map(gone, below)), what="nothing is left")


def test_lanes_that_ignore_signals_below_a_shell_end_too_and_suspended_ones(watched):
    lanes = ("--lane", "cpu", "--lane", "cpu", "--mode", "turns", "--slice", "30")
    words = ("race", *lanes, "--in-place", "--headless", "--no-record", "--", *SHELL)
    monitor, below = watched(RESISTS + TRAINS, *words, lanes=2)
    wait_for(lambda: any(process.status() == psutil.STATUS_STOPPED for process in below), what="one is suspended")
    monitor.kill()
    wait_for(lambda: all(map(gone, below)), what="nothing is left")


def test_it_has_time_to_save_and_to_print_as_at_a_ctrl_c(watched, tmp_path, monkeypatch):
    monkeypatch.setenv("TFMON_GRACE", "600")  # as long as a busy machine may need
    monitor, _ = watched(SAVES, *WATCH, *PYTHON)
    monitor.kill()
    saved = tmp_path / "saved"
    wait_for(lambda: saved.exists() and saved.read_text() == "all", what="it is saved")


@pytest.mark.slow
def test_no_guard_is_left_when_the_script_ends_by_itself(watched, tmp_path):
    text = TRAINS.replace("while True:", "while not os.path.exists('enough'):")
    monitor, below = watched(text, *WATCH, *PYTHON)
    assert len(below) == 2, "the script and its guard"
    (tmp_path / "enough").touch()
    assert monitor.wait(PATIENCE_S) == 0
    wait_for(lambda: all(map(gone, below)), what="nothing is left")

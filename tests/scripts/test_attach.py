"""A user's training in a separate process: whatever happens to its viewers, it ends as without tfmon."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.processes import run_python
from support.slow import slow_except
from support.waiting import wait_for

pytest.importorskip("pexpect")
from support.terminal import Terminal, gone, racing

from tfmon.api import sockets
from tfmon.api.viewer import Viewer
from tfmon.model.session import Snapshot
from tfmon.recordings import sweeps
from tfmon.recordings.player import play_all

pytestmark = pytest.mark.pty

STAGES = ("starting", "racing", "finishing")
TRAINS = """
import os, sys, time
from tfmon import report

def stage(name, until, meanwhile=int):
    open(name, "w").close()
    while not os.path.exists(until):
        time.sleep(0.005)
        meanwhile()

print("begins", flush=True)
stage("starting", "go")
weights = 1
for step in range(600):
    weights = (weights * 6364136223846793005 + 1442695040888963407) % 2**64
    report.step(examples=4, loss=1 / (1 + step))
    time.sleep(0.002)
    if step == 400:
        stage("racing", "on", report.step)
stage("finishing", "end")
open("weights", "w").write(str(weights))
print("ends", weights)
sys.exit(3)
"""
CODE = 3
LOOP = """
import time
from tfmon import report
while True:
    time.sleep(report.knob("pause", 0.002))
    report.step(examples=4)
"""


def let(*files: str) -> None:
    """Create the files that the script waits for."""
    for file in files or ("go", "on", "end"):
        Path(file).touch()


def known(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without the time at which it was taken, and without the place of the recording."""
    return replace(snapshot, at_ns=0, recording=None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """Be in a folder with the script; whatever runs there ends with the test."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path / "recordings"))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINS)
    yield tmp_path
    let()
    for run in list(sockets.under_way()):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(run.greeting.pid).terminate()


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def start(*words: str) -> Terminal:
        terminals.append(Terminal(*words))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def attached(word: str = "last") -> Viewer:
    wait_for(lambda: sockets.find(word), what="it is under way")
    viewer = Viewer(sockets.connect(sockets.find(word).path))
    viewer.connect()
    return viewer


def end_viewer(terminal: Terminal, how: str) -> None:
    """End what runs in a terminal by a signal, or by closing the terminal."""
    if how == "closed terminal":
        os.close(terminal.process.child_fd)
    else:
        terminal.process.kill(getattr(signal, how))


def plain(folder: Path) -> tuple[str, str]:
    """Return the weights and the output of the script without tfmon."""
    (folder / "plain").mkdir()
    for name in ("go", "on", "end"):
        (folder / "plain" / name).touch()
    done = run_python(folder / "train.py", folder=folder / "plain")
    assert done.returncode == CODE
    return (folder / "plain" / "weights").read_text(), done.stdout


@pytest.mark.parametrize("stage", slow_except("racing", [*STAGES, "tuning"]))
@pytest.mark.parametrize("how", slow_except("SIGKILL", ["SIGHUP", "SIGKILL", "closed terminal"]))
def test_the_script_ends_as_without_tfmon_whatever_ends_its_viewer(start, folder, how, stage):
    tuned = stage == "tuning"
    words = ("tune", "--in-place") if tuned else ("watch",)
    terminal = start(*words, "--", sys.executable, "train.py")
    stage = "starting" if tuned else stage
    before = dict(zip(STAGES, ([], ["go"], ["go", "on"]), strict=True))[stage]
    if before:
        let(*before)
    wait_for(lambda: Path(stage).exists(), what=stage)
    viewer = psutil.Process(terminal.process.pid)
    runner = psutil.Process(sockets.find("last").greeting.pid)
    end_viewer(terminal, how)
    assert gone([viewer])
    follower = attached()
    let()
    wait_for(lambda: follower.session.snapshot().over, what="the script has ended")
    follower.stop()
    assert follower.ended is not None and follower.ended.exit_code == CODE
    assert gone([runner])
    weights, output = plain(folder)
    assert Path("weights").read_text() == weights
    end = follower.session.snapshot()
    (recording,) = Path("recordings").glob("*.gz")
    _, replayed = play_all(recording)
    assert known(replayed) == known(end)
    assert replayed.lanes[0].end.event.exit_code == CODE
    assert not tuned or replayed.tuned.over
    assert [line.text for line in replayed.lanes[0].log if line.text in output.splitlines()] == output.splitlines()


def test_ctrl_c_ends_a_tuning_on_a_terminal_with_what_it_has(start, folder):
    terminal = start("tune", "--in-place", "--", sys.executable, "train.py")
    terminal.wait_for(lambda shown: "get ready" in shown)
    terminal.process.send("\x03")
    assert terminal.wait_for_exit() == 130
    assert "ended early: stopped" in terminal.raw and not list(sockets.under_way())


SWEEP = ("sweep", "--over", "pause=0.003,0.004", "--slice", "0.2", "--limit", "4", "--all")


@pytest.mark.slow
def test_a_sweep_is_left_and_ended_from_anywhere_and_goes_on_from_its_file(start, folder):
    Path("loop.py").write_text(LOOP)
    begun = run_python("-m", "tfmon", *SWEEP, "--detach", "--", sys.executable, "loop.py")
    (run,) = sockets.under_way()
    assert (begun.returncode, begun.stdout.splitlines()[-1]) == (
        0,
        f"loop.py runs in the background: tfmon attach {run.name} shows it, and with --end it ends",
    )
    terminal = start("attach")
    terminal.wait_for(lambda shown: re.search(r"measuring, \d pairs", shown))
    lanes = psutil.Process(run.greeting.pid).children(recursive=True)
    terminal.process.send("q")
    terminal.wait_for(lambda shown: "leave loop.py running (d), or end it (q)?" in shown)
    terminal.process.send("d")
    assert f"tfmon attach {run.name} shows it" in terminal.leave(0)
    ended = run_python("-m", "tfmon", "attach", "--end")
    assert ended.returncode in (0, 5) and f"--resume {run.greeting.recording} continues it" in ended.stdout, ended
    assert gone(lanes) and not list(sockets.under_way())
    (file,) = Path("sweeps").glob("*.sweep")
    before = sweeps.read(file).attempts[0].pairs
    listed = run_python("-m", "tfmon", "runs").stdout
    assert f"tfmon sweep --resume {file.absolute()} continues it" in " ".join(listed.split())
    run_python("-m", "tfmon", "sweep", "--resume", file, "--headless")
    first, second = sweeps.read(file).attempts
    assert first.pairs[: len(before)] == before and second.pairs


def test_attach_shows_it_takes_keys_and_the_other_viewer_sees_who_pressed_them(start, folder):
    one = start("watch", "--", sys.executable, "train.py")
    let("go")
    one.wait_for(racing)
    other = start("attach", "last")
    other.wait_for(racing)
    other.process.send(" ")
    # The message disappears after some seconds, so it is looked for in all that the terminal has received.
    one.wait_for(lambda _: f"process {other.process.pid} on pts/" in one.raw and "pause cpu" in one.raw)
    other.wait_for(lambda shown: "paused" in shown)
    one.wait_for(lambda shown: "Space resume" in shown)
    one.process.send(" ")
    other.wait_for(lambda shown: "Space pause" in shown)
    only = start("attach", "--readonly")
    only.wait_for(racing)
    only.process.send(" ")
    only.wait_for(lambda shown: "read only" in shown)
    only.process.send("q")
    assert only.wait_for_exit() == 0
    let()
    for terminal in (one, other):
        terminal.wait_for(lambda shown: "exited with code 3" in shown)
        terminal.process.send("q")
        assert terminal.wait_for_exit() == CODE
    assert not list(sockets.under_way())


def test_detached_runs_are_listed_and_ended_from_the_command_line(folder):
    detached = run_python("-m", "tfmon", "watch", "--detach", "--no-record", "--", sys.executable, "train.py")
    assert detached.returncode == 0, detached.stderr
    assert detached.stdout.count("\n") == 1
    (run,) = sockets.under_way()
    pid = str(run.greeting.pid)
    assert f"tfmon attach {pid}" in detached.stdout
    assert f"{pid}  train.py is under way: tfmon attach {pid}" in run_python("-m", "tfmon", "runs").stdout
    let("go")
    wait_for(lambda: Path("racing").exists(), what="it trains")
    ended = run_python("-m", "tfmon", "attach", pid, "--end")
    assert ended.returncode == 0, "as q on the screen"
    assert "steps" in ended.stdout
    assert gone([psutil.Process(int(pid))] if psutil.pid_exists(int(pid)) else [])
    assert not Path("weights").exists()


def test_a_runner_that_is_killed_takes_the_lane_along_and_its_viewer_says_so(start, folder):
    terminal = start("watch", "--", sys.executable, "train.py")
    let("go")
    terminal.wait_for(racing)
    runner = psutil.Process(sockets.find("last").greeting.pid)
    lanes = runner.children(recursive=True)
    runner.kill()
    terminal.wait_for(lambda shown: "has ended without a word" in shown)
    assert gone(lanes)
    assert "still running" not in run_python("-m", "tfmon", "runs").stdout
    terminal.process.send("q")
    assert terminal.wait_for_exit() == 1
    assert "tfmon replay last" in terminal.raw


@pytest.mark.parametrize("began", [True, False], ids=["that began it", "that came later"])
def test_a_signal_to_a_viewer_ends_the_run_only_where_it_began_it(start, folder, began):
    terminal = start("watch", "--", sys.executable, "train.py")
    let("go")
    terminal.wait_for(racing)
    runner = psutil.Process(sockets.find("last").greeting.pid)
    viewer = terminal if began else start("attach")
    viewer.wait_for(racing)
    viewer.process.kill(signal.SIGTERM)
    assert viewer.wait_for_exit() == (130 if began else 0)
    assert Path("finishing").exists() is False
    if began:
        assert gone([runner])
    else:
        let()
        terminal.wait_for(lambda shown: "exited with code 3" in shown)
        terminal.process.send("q")
        assert terminal.wait_for_exit() == CODE


@pytest.mark.parametrize("words", [("--lane", "gpu:9"), ("--record", "there.gz")], ids=["device", "recording"])
def test_what_cannot_begin_is_refused_as_without_a_process_of_its_own(folder, words):
    Path("there.gz").touch()
    command = ["-m", "tfmon", "watch", *words]
    detached = run_python(*command, "--detach", "--", sys.executable, "train.py")
    headless = run_python(*command, "--headless", "--", sys.executable, "train.py")
    assert (detached.returncode, detached.stderr) == (headless.returncode, headless.stderr)
    assert detached.returncode in (2, 3)
    wait_for(lambda: not list(sockets.under_way()), what="nothing is left")

"""A user's training in a separate process: whatever happens to its viewers, it ends as without tfmon."""

import contextlib
import itertools
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
from support.waiting import HANGS_S, wait_for

pytest.importorskip("pexpect")
from support.terminal import RESTORED, Terminal, gone, racing

from tfmon.api import sockets
from tfmon.api.viewer import Viewer
from tfmon.model.session import Snapshot
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
            psutil.Process(run.pid).terminate()


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Terminal]]:
    with contextlib.ExitStack() as terminals:
        yield lambda *words: terminals.enter_context(contextlib.closing(Terminal(*words)))


def end_viewer(terminal: Terminal, how: str) -> None:
    """End what runs in a terminal by its keys, by a signal, or by closing the terminal."""
    if how == "closed terminal":
        os.close(terminal.process.child_fd)
    elif how == "d":
        terminal.wait_for(racing)
        terminal.process.send("q")
        terminal.wait_for(lambda shown: "leave train.py running (d), or end it (q)?" in shown)
        terminal.process.send("d")
        assert terminal.wait_for_exit() == 0
        assert "tfmon attach" in terminal.raw.rsplit(RESTORED[0], 1)[1]
    else:
        terminal.process.kill(getattr(signal, how))


ENDINGS = itertools.product(("SIGHUP", "SIGKILL", "closed terminal"), (*STAGES, "tuning"))
QUICK = [("SIGKILL", "racing"), ("d", "racing")]


@pytest.mark.parametrize(
    ("how", "stage"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in ENDINGS if case not in QUICK)],
)
def test_the_script_ends_as_without_tfmon_whatever_ends_its_viewer(start, folder, how, stage):
    tuned = stage == "tuning"
    words = ("tune", "--in-place") if tuned else ("watch",)
    terminal = start(*words, "--", sys.executable, "train.py")
    stage = "starting" if tuned else stage
    for file in ("go", "on")[: STAGES.index(stage)]:
        let(file)
    wait_for(lambda: Path(stage).exists(), what=stage)
    viewer = psutil.Process(terminal.process.pid)
    runner = psutil.Process(sockets.find("last").pid)
    end_viewer(terminal, how)
    assert gone([viewer])
    wait_for(lambda: sockets.find("last"), what="it is under way")
    follower = Viewer(sockets.connect(sockets.find("last").path))
    follower.connect()
    let()
    wait_for(lambda: follower.session.snapshot().over, what="the script has ended")
    follower.stop()
    assert follower.ended is not None and follower.ended.exit_code == CODE
    assert gone([runner])
    watched = Path("weights").rename("watched")
    plain = run_python("train.py")
    assert (plain.returncode, Path("weights").read_text()) == (CODE, watched.read_text())
    end = follower.session.snapshot()
    (recording,) = Path("recordings").glob("*.gz")
    _, replayed = play_all(recording)
    assert known(replayed) == known(end)
    assert replayed.lanes[0].end.event.exit_code == CODE
    assert not tuned or replayed.tuned.over
    printed = plain.stdout.splitlines()
    assert [line.text for line in replayed.lanes[0].log if line.text in printed] == printed


def test_ctrl_c_ends_a_tuning_on_a_terminal_with_what_it_has(start, folder):
    terminal = start("tune", "--in-place", "--", sys.executable, "train.py")
    terminal.wait_for(lambda shown: "get ready" in shown)
    terminal.process.send("\x03")
    assert terminal.wait_for_exit() == 130
    assert "ended early: stopped" in terminal.raw and not list(sockets.under_way())


def test_detached_runs_are_listed_and_ended_from_the_command_line(folder):
    detached = run_python("-m", "tfmon", "watch", "--detach", "--no-record", "--", sys.executable, "train.py")
    assert detached.returncode == 0, detached.stderr
    assert detached.stdout.count("\n") == 1
    (run,) = sockets.under_way()
    pid = str(run.pid)
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
    runner = psutil.Process(sockets.find("last").pid)
    lanes = runner.children(recursive=True)
    runner.kill()
    terminal.wait_for(lambda shown: "has ended unexpectedly" in shown)
    assert gone(lanes)
    assert "still running" not in run_python("-m", "tfmon", "runs").stdout
    terminal.process.send("q")
    assert terminal.wait_for_exit() == 1
    assert "tfmon replay last" in terminal.raw


def test_a_signal_to_a_viewer_ends_the_run_only_if_it_began_it(start, folder):
    first = start("watch", "--", sys.executable, "train.py")
    let("go")
    first.wait_for(racing)
    runner = psutil.Process(sockets.find("last").pid)
    later = start("attach")
    later.wait_for(racing)
    later.process.kill(signal.SIGTERM)
    assert later.wait_for_exit() == 0
    assert runner.is_running() and Path("finishing").exists() is False
    first.process.kill(signal.SIGTERM)
    assert first.wait_for_exit() == 130
    assert gone([runner])
    assert Path("finishing").exists() is False


@pytest.mark.parametrize("words", [("--lane", "gpu:9"), ("--record", "there.gz")], ids=["device", "recording"])
def test_what_cannot_begin_is_refused_as_without_a_process_of_its_own(folder, words):
    Path("there.gz").touch()
    command = ["-m", "tfmon", "watch", *words]
    detached = run_python(*command, "--detach", "--", sys.executable, "train.py")
    headless = run_python(*command, "--headless", "--", sys.executable, "train.py")
    assert (detached.returncode, detached.stderr) == (headless.returncode, headless.stderr)
    assert detached.returncode in (2, 3)
    wait_for(lambda: not list(sockets.under_way()), what="nothing is left")


DEADLOCK = """
import multiprocessing, os, signal, time
from tfmon import report

def feeds(queue):
    for n in range(100):
        queue.put(n)
        time.sleep(0.02)
    time.sleep(1000)

if __name__ == "__main__":
    queue = multiprocessing.Queue(4)
    child = multiprocessing.Process(target=feeds, args=(queue,), daemon=True)
    child.start()
    for n in range(10**9):
        queue.get()
        report.step(examples=8)
        if n == 80:
            os.kill(child.pid, signal.SIGKILL)
"""
LIVE = "was killed by SIGKILL at .* it stands at sick"
AT_THE_END = (
    r"a child process, PID \d+, was killed by SIGKILL at 0:\d\d; no step has ended for \d.*; it stands at "
    r"sick\.py:\d+ in <module>, and waits for another process"
)


def flat(text: str) -> str:
    """Return a text in one line, without what steers the terminal."""
    return " ".join(re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", text).split())


def test_a_deadlock_is_told_live_and_at_the_end(start, folder):
    Path("sick.py").write_text(DEADLOCK)
    terminal = start("watch", "--no-record", "--", sys.executable, "sick.py")
    terminal.wait_for(lambda shown: re.search(LIVE, flat(shown)), HANGS_S)
    terminal.process.send("qq")
    terminal.wait_for_exit()
    assert re.search(AT_THE_END, flat(terminal.raw)), flat(terminal.raw)[-1500:]
    assert "r starts it again" not in flat(terminal.raw)

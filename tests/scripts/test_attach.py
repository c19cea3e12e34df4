"""A user's training in a process of its own: whatever becomes of its viewers, it ends as without tfmon."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.processes import run_python
from support.slow import slow_except
from support.waiting import PATIENCE_S, wait_for

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
    """Let the script go on."""
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
    return Viewer(sockets.connect(sockets.find(word).path))


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
    follower.end()
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


@pytest.mark.slow
def test_attaching_and_detaching_at_random_loses_no_event(folder):
    detached = run_python("-m", "tfmon", "watch", "--detach", "--", sys.executable, "train.py")
    assert detached.returncode == 0, detached.stderr
    name = detached.stdout.split("tfmon attach ")[1].split()[0]
    first, chance = attached(name), random.Random(3)
    runner = psutil.Process(first.greeting.pid)
    let("go")
    viewers = []
    for number in range(50):
        viewers.append(attached(name))
        if number == 25:
            let("on")
        if chance.random() < 0.9:
            viewers.pop(chance.randrange(len(viewers))).leave()
    let()
    for viewer in [first, *viewers]:
        wait_for(lambda viewer=viewer: viewer.session.snapshot().over, what="each knows that it is over")
    first.end()
    assert gone([runner])
    (recording,) = Path("recordings").glob("*.gz")
    _, replayed = play_all(recording)
    for viewer in [first, *viewers]:
        assert viewer.join(PATIENCE_S)
        assert known(viewer.session.snapshot()) == known(replayed)


IGNORES = """
import signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
subprocess.run([sys.executable, "-m", "tfmon", *sys.argv[1:]])
signal.pause()
"""


@pytest.mark.parametrize("shown", [False, True], ids=["before the screen is up", "on the screen"])
def test_a_viewer_ends_with_a_terminal_though_nobody_sends_it_sighup(folder, shown):
    words = ("watch", "--", sys.executable, "train.py")
    terminal = Terminal(*words, program=("-c", IGNORES))
    if shown:
        let("go")
        terminal.wait_for(racing)
    wait_for(lambda: sockets.find("last"), what="it is under way")
    (viewer,) = psutil.Process(terminal.process.pid).children()
    os.close(terminal.process.child_fd)
    assert gone([viewer])
    follower = attached()
    let()
    wait_for(lambda: follower.session.snapshot().over, what="the script has ended")
    terminal.close()


@pytest.mark.slow
def test_a_tuning_on_a_terminal_tells_its_result_there_and_ends_the_script(start, folder):
    terminal = start(
        "tune", "--in-place", "--", sys.executable, "-c", TRAINS.replace("range(600)", "range(10**9)")
    )
    terminal.wait_for(lambda shown: "get ready" in shown)
    assert sockets.find("last") is not None
    let("go", "on")
    assert terminal.wait_for_exit() == 0
    assert "nothing was tried" in terminal.raw and "recorded in" in terminal.raw
    assert not Path("weights").exists() and not list(sockets.under_way())


def test_ctrl_c_ends_a_tuning_on_a_terminal_with_what_it_has(start, folder):
    terminal = start("tune", "--in-place", "--", sys.executable, "train.py")
    terminal.wait_for(lambda shown: "get ready" in shown)
    terminal.process.send("\x03")
    assert terminal.wait_for_exit() == 130
    assert "ended early: stopped" in terminal.raw and not list(sockets.under_way())


SWEEP = ("sweep", "--over", "pause=0.003,0.004", "--slice", "0.2", "--limit", "4", "--all")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGHUP", "SIGKILL", "closed terminal"])
def test_the_sweep_of_a_script_goes_on_whatever_ends_its_screen(start, folder, how):
    Path("loop.py").write_text(LOOP)
    terminal = start(*SWEEP, "--", sys.executable, "loop.py")
    terminal.wait_for(lambda shown: re.search(r"measuring, \d pairs", shown))
    run, screen = sockets.find("last"), psutil.Process(terminal.process.pid)
    end_viewer(terminal, how)
    assert gone([screen])
    listed = " ".join(run_python("-m", "tfmon", "runs").stdout.split())
    assert f"; under way: tfmon attach {run.name} shows it" in listed
    again = start("attach", run.name)
    again.wait_for(lambda shown: "Sweep of" in shown and "2 of 2 settled" in shown)
    again.process.send("q")
    assert "the nearest is pause=0.00" in again.leave(0)
    assert not list(sockets.under_way())
    assert all(one.pairs for one in sweeps.read(Path(run.greeting.recording)).combinations)


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
    before = sweeps.read(file).combinations[0].pairs
    listed = run_python("-m", "tfmon", "runs").stdout
    assert f"tfmon sweep --resume {file.absolute()} continues it" in " ".join(listed.split())
    run_python("-m", "tfmon", "sweep", "--resume", file, "--headless")
    first, second = sweeps.read(file).combinations
    assert first.pairs[: len(before)] == before and second.pairs


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "closed terminal"])
def test_the_sweep_of_a_scenario_ends_with_its_screen(start, folder, how):
    terminal = start("sweep", "small-dense", "--over", "batch_size=16,64")
    terminal.wait_for(lambda shown: "Sweep of" in shown)
    runner = psutil.Process(sockets.find("last").greeting.pid)
    wait_for(lambda: runner.children(recursive=True), what="it has lanes")
    lanes = [runner, *runner.children(recursive=True)]
    end_viewer(terminal, how)
    assert gone(lanes) and not list(sockets.under_way())


def test_attach_shows_it_takes_keys_and_the_other_viewer_sees_who_pressed_them(start, folder):
    one = start("watch", "--", sys.executable, "train.py")
    let("go")
    one.wait_for(racing)
    other = start("attach", "last")
    other.wait_for(racing)
    other.process.send(" ")
    # Read at once, for the message is shown for some seconds only; the other terminal shows a state that stays.
    one.wait_for(lambda shown: f"process {other.process.pid} on pts/" in shown and "pause cpu" in shown)
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


def test_the_end_of_a_script_that_takes_no_time_is_shown(start, folder):
    terminal = start("watch", "--", sys.executable, "-c", "print('short'); exit(5)")
    terminal.wait_for(lambda shown: "exited with code 5" in shown)
    terminal.process.send("q")
    assert terminal.wait_for_exit() == 5


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


def test_what_can_be_attached_to_is_marked_and_its_replay_comes_after_it(start, folder):
    run_python("-m", "tfmon", "watch", "--detach", "--", sys.executable, "train.py")
    (run,) = sockets.under_way()
    listed = json.loads(run_python("-m", "tfmon", "runs", "--json").stdout)
    assert [(one["id"], one["attachable"]) for one in listed] == [(run.name, True)]
    assert f"under way: tfmon attach {run.name}" in run_python("-m", "tfmon", "runs").stdout
    let()
    assert gone([psutil.Process(run.greeting.pid)])
    over = start("attach", run.name)
    over.wait_for(lambda shown: "end " in shown and "event" in shown)
    over.process.send("q")
    assert over.wait_for_exit() == 0
    late = run_python("-m", "tfmon", "attach", run.name, "--end")
    assert (late.returncode, late.stderr.splitlines()[0]) == (2, f"tfmon: {run.name} is over")


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


def test_detached_by_a_job_it_holds_no_pipe_of_it_open(folder):
    words = [sys.executable, "-m", "tfmon", "watch", "--detach", "--", sys.executable, "train.py"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as job:
        said, problems = job.communicate(timeout=120)
    assert job.returncode == 0, problems
    assert said.startswith(b"train.py runs in the background")

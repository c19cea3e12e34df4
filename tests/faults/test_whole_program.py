"""The whole program in a terminal: lanes in which something goes wrong, signals, and Ctrl+Z."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pexpect")

import pexpect
from support.terminal import Terminal
from support.waiting import wait_for

WITHIN_S = 3.0
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "support" / "fake_tfmon.py"
RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "cpu,prefetch=auto")
RESTORED = ("\x1b[?1049l", "\x1b[?25h")
MODES = (("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h"), ("\x1b[?1003h", "\x1b[?1003l"))
"""What a screen switches on or off, and what takes that back."""


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=WITHIN_S)[1]


def racing(display: str) -> bool:
    return bool(re.search(r"\d steps/s", display))


def leave(terminal, code: int) -> str:
    """Quit with q; check that all is as it was; return what was printed at the end."""
    children = psutil.Process(terminal.process.pid).children(recursive=True)
    terminal.process.send("q")
    assert gone(children)
    assert terminal.wait_for_exit() == code
    assert all(sequence in terminal.raw for sequence in RESTORED)
    return terminal.raw.rsplit(RESTORED[0], 1)[1]


# ------------------------------------------------------------ lanes with faults


def test_a_lane_that_exits_is_told_with_code_and_last_words_and_the_other_goes_on(start):
    terminal = start(*RACE, FAULT="exits")
    display = terminal.wait_for(lambda text: "these are the last words" in text and racing(text))
    assert "the lane left with exit code 7 and did not say why" in display
    assert "failed after" in display
    assert "exit code 7" in leave(terminal, 1)


def test_a_lane_that_was_killed_names_the_signal(start):
    terminal = start(*RACE, FAULT="exits", FAULT_AT="1000000")
    terminal.wait_for(racing)
    terminal.children()[0].kill()
    terminal.wait_for(lambda text: "the lane was ended by SIGKILL" in text)
    leave(terminal, 1)


def test_b_starts_a_lane_that_ran_out_of_memory_again_with_a_smaller_batch(start):
    batch = ("--set", "batch_size=64")
    terminal = start(*RACE, *batch, FAULT="runs_out_of_memory", TOO_LARGE="64")
    terminal.wait_for(lambda text: "out of memory: a tensor" in text and racing(text))
    terminal.process.send("b")
    terminal.wait_for(lambda text: "out of memory" not in text and text.count("knobs   batch 32") == 2)
    leave(terminal, 0)


def test_a_lane_that_hangs_tells_where_it_stands_and_is_ended_by_a_key(start):
    terminal = start(*RACE, FAULT="hangs_in_c", TFMON_TEST_STALL_S="1")
    terminal.wait_for(lambda text: re.search(r"stalled 0:0\d", text) and "S tells where it stands" in text)
    terminal.process.send("\t\t\r")
    terminal.wait_for(lambda text: "Lane B" in text and "it said nothing for" in text)
    terminal.process.send("S")
    terminal.wait_for(lambda text: "Where it stands" in text and "in hangs_in_c" in text)
    terminal.process.send("K")
    terminal.process.send("\x1b")
    display = terminal.wait_for(lambda text: "SIGKILL, as requested" in text)
    assert racing(display)
    leave(terminal, 1)


@pytest.mark.parametrize("fault", ["sends_escapes", "fails_with_escapes"])
def test_no_text_of_a_child_steers_the_terminal(start, fault):
    terminal = start(*RACE, FAULT=fault)
    if fault == "fails_with_escapes":
        terminal.wait_for(lambda text: "failed after" in text and "[bold red]markup[/]" in text)
    else:
        terminal.wait_for(lambda text: racing(text) and "unreadable line" in text)
    terminal.process.send("\t\t\r")
    terminal.wait_for(lambda text: "Lane B" in text)
    terminal.process.send("\x1b")
    terminal.wait_for(racing)
    leave(terminal, int(fault == "fails_with_escapes"))
    assert "owned" not in terminal.raw
    assert not re.search(r"\x1b\[31mred|\x9b|\x1b\[5n|\u202e", terminal.raw)


def test_no_network_port_is_opened(start):
    terminal = start(*RACE, FAULT="exits", FAULT_AT="1000000")
    terminal.wait_for(racing)
    for process in (psutil.Process(terminal.process.pid), *terminal.children()):
        assert process.net_connections(kind="inet") == []
    leave(terminal, 0)


# ------------------------------------------------------------ signals


@pytest.mark.parametrize("after_s", [0.05, 0.2, 0.5, 1.0])
def test_sigint_while_it_starts_ends_it_without_a_traceback(after_s, tmp_path):
    words = [sys.executable, "-m", "tfmon", "race", "small-dense", "--lane", "cpu", "--headless"]
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        time.sleep(after_s)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=10)
    assert "Traceback" not in said or after_s < 0.2, said
    assert program.returncode in (130, -signal.SIGINT)
    assert not [p for p in psutil.process_iter(["pid"]) if _session_of(p.pid) == program.pid]


@pytest.mark.parametrize("after_s", [0.3, 0.6, 0.9])
def test_ctrl_c_while_the_screen_comes_up_leaves_the_terminal_as_it_was(after_s):
    terminal = Terminal(*RACE, "--no-record", PYTHONPATH=str(ROOT))
    program = psutil.Process(terminal.process.pid)
    began = time.monotonic()
    while time.monotonic() < began + after_s:  # what is tried is that time passes
        terminal.read()
    lanes = program.children(recursive=True)
    terminal.process.send("\x03")
    code = terminal.wait_for_exit()
    assert code in (0, 130, None), terminal.raw  # 0: the screen took the key; None: Python itself was not up yet
    assert gone(lanes)
    assert not re.search(r'Traceback[^~]*File "[^"]*/tfmon/(?!__)', terminal.raw), terminal.raw
    assert all(terminal.raw.count(on) <= terminal.raw.count(off) for on, off in MODES), terminal.raw


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        (signal.SIGHUP, "hangs_in_c"),
        (signal.SIGTERM, "none"),
        (signal.SIGKILL, "none"),
        (signal.SIGKILL, "hangs_in_c"),
    ],
)
def test_however_tfmon_ends_no_lane_is_left(start, number, fault):
    terminal = start(*RACE, FAULT=fault, TFMON_TEST_STALL_S="1")
    terminal.wait_for(racing if fault == "none" else lambda text: "stalled 0:0" in text)
    children = terminal.children()
    terminal.process.kill(number)
    assert gone(children)
    if number != signal.SIGKILL:
        assert terminal.wait_for_exit() == 130
        assert all(sequence in terminal.raw for sequence in RESTORED)


# ------------------------------------------------------------ Ctrl+Z


class Shell:
    """An interactive shell in a terminal that runs tfmon."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        given = {"TERM": "xterm-256color", "PS1": "READY> ", "PYTHONPATH": str(ROOT), **environment}
        self.process = pexpect.spawn(
            "/bin/bash",
            ["--norc", "--noprofile"],
            dimensions=(36, 120),
            env={**os.environ, **given},
            encoding="utf-8",
            codec_errors="replace",
            timeout=20,
        )
        self.process.expect_exact("READY> ")
        self.modes = self.terminal_modes()
        self.process.sendline(f"{sys.executable} {PROGRAM} {' '.join(arguments)}")

    def terminal_modes(self) -> str:
        self.process.sendline("echo modes $(stty -g) end")
        self.process.expect(r"modes (\S+:\S+) end")
        modes = self.process.match[1]
        self.process.expect_exact("READY> ")
        return modes

    def program(self) -> psutil.Process:
        (program,) = psutil.Process(self.process.pid).children()
        return program


@pytest.fixture
def shell():
    if not Path("/bin/bash").exists():
        pytest.skip("there is no bash")
    shells: list[Shell] = []

    def run(*arguments: str, **environment: str) -> Shell:
        shells.append(Shell(*arguments, **environment))
        return shells[-1]

    yield run
    for each in shells:
        each.process.close(force=True)


@pytest.mark.parametrize("stop", ["ctrl-z", "SIGSTOP"])
def test_stopped_and_continued_the_terminal_is_sane_and_the_lanes_go_on(shell, stop):
    bash = shell(*RACE)
    bash.process.expect_exact("steps/s")
    program = bash.program()
    lanes = program.children()
    if stop == "ctrl-z":
        bash.process.send("\x1a")
    else:
        program.send_signal(signal.SIGSTOP)
    bash.process.expect_exact("Stopped")
    if stop != "SIGSTOP":
        bash.process.expect_exact("READY> ")
        wait_for(
            lambda: all(lane.status() == psutil.STATUS_STOPPED for lane in lanes), what="all lanes are stopped"
        )
        assert bash.terminal_modes() == bash.modes
    time.sleep(2.5)  # what is tried is that time passes
    bash.process.sendline("fg")
    bash.process.expect_exact("suspended", timeout=20)
    assert not any(lane.status() == psutil.STATUS_ZOMBIE for lane in lanes)
    bash.process.send("q")
    bash.process.expect_exact("READY> ")
    assert "stalled" not in bash.process.before
    bash.process.sendline("echo code $?")
    bash.process.expect_exact("code 0")
    bash.process.expect_exact("READY> ")
    assert bash.terminal_modes() == bash.modes


def test_ctrl_z_without_a_shell_to_come_back_to_says_so(start):
    terminal = start(*RACE, FAULT="none", FAULT_AT="1000000")
    terminal.wait_for(racing)
    terminal.process.send("\x1a")
    terminal.wait_for(lambda text: "no shell that could bring it back" in text)
    leave(terminal, 0)


def test_a_race_without_a_screen_stops_and_goes_on_too(shell):
    bash = shell(*RACE, "--headless", "--seconds", "4")
    bash.process.expect(r"\d examples/s|\d ex", timeout=20)
    lanes = bash.program().children()
    bash.process.send("\x1a")
    bash.process.expect_exact("Stopped")
    wait_for(lambda: all(lane.status() == psutil.STATUS_STOPPED for lane in lanes), what="all lanes are stopped")
    bash.process.expect_exact("READY> ")
    bash.process.sendline("fg")
    bash.process.expect(r"windows left out: .*suspended \d+", timeout=20)


# ------------------------------------------------------------ asking for too much


def test_64_lanes_get_an_answer(tmp_path):
    words = [sys.executable, "-m", "tfmon", "race", "small-dense", *["--lane", "cpu"] * 64]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "tfmon: 64 lanes are too many; 16 is the most that can be raced"


def test_scenarios_of_the_working_directory_are_listed_without_being_run(tmp_path):
    folder = tmp_path / "scenarios"
    folder.mkdir()
    source = (
        '"""Evil, but well described."""\nfrom pathlib import Path\nPath("owned").touch()\n'
        "from tfmon.trainer import Scenario\n\n\nclass Evil(Scenario):\n    batch_size = 8\n"
    )
    (folder / "evil.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for words in (["list"], ["show", "evil"], ["race", "evil", "--lane", "gpu:7", "--headless"]):
        words = [sys.executable, "-m", "tfmon", *words]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode in (0, 3)
    listed = subprocess.run(
        [sys.executable, "-m", "tfmon", "list"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "evil" in listed and "Evil, but well described" in listed
    assert not list(tmp_path.rglob("owned"))

"""However tfmon is stopped or ended, no lane is left and the terminal is as it was."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.slow import slow_except
from support.terminal import FAKE_TFMON, RESTORED, Terminal, gone, lanes_of, racing
from support.waiting import HANGS_S, wait_for

from tfmon.__main__ import run

pytestmark = pytest.mark.pty
ROOT = Path(__file__).parents[2]
RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "cpu,prefetch=auto")
TRACEBACK = rf'Traceback[^~]*File "{ROOT}/tfmon/(?!__)'
"""Python itself may write one before the first line of tfmon runs."""


@pytest.mark.pythons
def test_a_closed_terminal_ends_the_program_and_its_lanes(start):
    terminal = start(*RACE, FAULT="none")
    terminal.wait_for(racing)
    program = psutil.Process(terminal.process.pid)
    children = terminal.children()
    terminal.process.ptyproc.fileobj.close()
    assert gone(children)
    wait_for(lambda: program.status() == psutil.STATUS_ZOMBIE, what="tfmon ends with its terminal")


@pytest.mark.parametrize("number", slow_except(signal.SIGHUP, [signal.SIGHUP, signal.SIGKILL]))
def test_no_lane_is_left_though_one_hangs(start, number):
    terminal = start(*RACE, FAULT="hangs_in_c", TFMON_TEST_STALL_S="1")
    terminal.wait_for(lambda text: "stalled 0:" in text)
    children = terminal.children()
    terminal.process.kill(number)
    assert gone(children)
    if number != signal.SIGKILL:
        assert terminal.wait_for_exit() == 130
        assert all(sequence in terminal.raw for sequence in RESTORED)


def test_sigint_while_it_starts_ends_it_without_a_traceback():
    words = [sys.executable, "-m", "tfmon", "race", "small-dense", "--lane", "cpu", "--headless"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for after_s in (0.2, 0.5, 1.0):
        with subprocess.Popen(words, cwd=ROOT, start_new_session=True, **pipes) as program:
            time.sleep(after_s)  # the signal arrives at different moments of the start
            program.send_signal(signal.SIGINT)
            _, printed = program.communicate(timeout=HANGS_S)
        assert not re.search(TRACEBACK, printed), printed
        assert program.returncode in (130, -signal.SIGINT)
        wait_for(lambda pid=program.pid: pid not in map(session_of, psutil.pids()), what="nothing is left")


def test_sigint_that_python_wraps_while_a_class_is_made_ends_it_the_same(monkeypatch):
    def load():
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr("tfmon.cli.main.main", load)
    with pytest.raises(SystemExit, match="130"):
        run()


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def stopped(processes: list[psutil.Process]) -> bool:
    return all(process.status() == psutil.STATUS_STOPPED for process in processes)


class Shell(Terminal):
    def __init__(self, *arguments: str) -> None:
        words = ("--norc", "--noprofile")
        super().__init__(program=words, executable="/bin/bash", PS1="READY> ", PYTHONPATH=str(ROOT))
        self.process.timeout = HANGS_S
        self.process.expect_exact("READY> ")
        self.modes = self.terminal_modes()
        self.process.sendline(f"{sys.executable} {FAKE_TFMON} {' '.join(arguments)}")

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
def bash():
    if not Path("/bin/bash").exists():
        pytest.skip("there is no bash")
    bash = Shell(*RACE)
    yield bash
    bash.close()


@pytest.mark.parametrize("size", slow_except((36, 120), [(36, 120), (24, 80)]), ids=["the same size", "resized"])
def test_after_ctrl_z_the_terminal_is_sane_and_fg_paints_the_whole_screen_again(bash, size):
    bash.process.expect_exact("steps/s")
    lanes = lanes_of(bash.program())
    bash.process.send("\x1a")
    bash.process.expect_exact("Stopped")
    bash.process.expect_exact("READY> ")
    wait_for(lambda: stopped(lanes), what="all lanes are stopped")
    assert bash.terminal_modes() == bash.modes
    rows, columns = size
    bash.resize(columns, rows)
    bash.process.sendline("fg")

    def whole(text: str) -> bool:
        top, *body, bottom = text.split("\n")
        framed = sum(row.startswith(("╭", "│", "╰")) for row in body)
        headed = "small-dense" in top + body[0]  # the tabs are above the header where there is room
        return headed and "quit" in bottom and framed > rows // 2

    bash.wait_for(whole)
    if rows == 36:
        bash.wait_for(lambda text: whole(text) and "suspended" in bash.raw)
    assert not any(lane.status() == psutil.STATUS_ZOMBIE for lane in lanes)
    leave(bash)
    assert "stalled" not in bash.raw


@pytest.mark.slow
def test_after_sigstop_the_race_goes_on_and_fg_brings_the_screen_back(bash):
    bash.process.expect_exact("steps/s")
    program = bash.program()
    lanes = lanes_of(program)
    program.send_signal(signal.SIGSTOP)
    bash.process.expect_exact("Stopped")
    assert not stopped(lanes), "the race goes on in its own process"
    bash.process.sendline("fg")
    bash.process.expect_exact("steps/s")
    leave(bash)


def leave(bash: Shell) -> None:
    """Quit tfmon, and check that the lanes did well and the terminal is as it was."""
    bash.process.send("q")
    bash.process.expect_exact("READY> ")
    assert "stalled" not in bash.process.before
    bash.process.sendline("echo code $?")
    bash.process.expect_exact("code 0")
    bash.process.expect_exact("READY> ")
    assert bash.terminal_modes() == bash.modes

"""However tfmon is stopped or ended, no lane is left and the terminal is as it was."""

from __future__ import annotations

import contextlib
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
import pyte
from support.slow import slow_except
from support.terminal import RESTORED, Terminal, gone, racing, terminal_environment
from support.waiting import HANGS_S, wait_for

from tfmon.__main__ import run

pytestmark = pytest.mark.pty
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "support" / "fake_tfmon.py"
RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "cpu,prefetch=auto")
TRACEBACK = rf'Traceback[^~]*File "{ROOT}/tfmon/(?!__)'
"""Python itself may write one before the first line of tfmon runs."""
MODES = (("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h"), ("\x1b[?1003h", "\x1b[?1003l"))
"""What a screen switches on or off, and what takes that back."""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_race_shows_numbers_takes_a_key_and_opens_no_port():
    terminal = Terminal(*RACE, PYTHONPATH=str(ROOT))
    try:
        terminal.wait_for(lambda text: racing(text) and re.search(r"\(.*\d to \d", text) and "examples/s" in text)
        terminal.process.send("B")
        # "until" marks the verdict of before.
        terminal.wait_for(
            lambda text: (
                len(re.findall(r"batch\s+16\b", text)) >= 2
                and "until" not in text
                and re.search(r"\(.*\d to \d", text)
            )
        )
        for process in (psutil.Process(terminal.process.pid), *terminal.children()):
            assert process.net_connections(kind="inet") == [], "TensorFlow opens no port either"
        table = terminal.leave(0)
        assert "examples/s" in table and "knob change" in table
    finally:
        terminal.close()


@pytest.mark.slow
@pytest.mark.tensorflow
def test_sigterm_while_tensorflow_loads_ends_the_lanes_and_restores_the_terminal():
    terminal = Terminal(*RACE, PYTHONPATH=str(ROOT))
    terminal.wait_for(lambda display: "importing" in display)
    children = terminal.children()
    terminal.process.kill(signal.SIGTERM)
    assert gone(children)
    assert terminal.wait_for_exit() == 130
    assert all(sequence in terminal.raw for sequence in RESTORED)


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
            time.sleep(after_s)  # what is tried is that time passes
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


@pytest.mark.slow
def test_ctrl_c_while_the_screen_comes_up_leaves_the_terminal_as_it_was():
    for after_s in (0.4, 0.9):
        terminal = Terminal(*RACE, "--no-record", PYTHONPATH=str(ROOT))
        program = psutil.Process(terminal.process.pid)
        began = time.monotonic()
        while time.monotonic() < began + after_s:  # what is tried is that time passes
            terminal.read()
        lanes = program.children(recursive=True)
        terminal.process.send("\x03")
        code = terminal.wait_for_exit()
        assert code in (0, 130, None), terminal.raw  # 0: the screen took the key; None: Python was not up yet
        assert gone(lanes)
        assert not re.search(TRACEBACK, terminal.raw), terminal.raw
        assert all(terminal.raw.count(on) <= terminal.raw.count(off) for on, off in MODES), terminal.raw


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


# ---------------------------------------------------------------- Ctrl+Z


def stopped(processes: list[psutil.Process]) -> bool:
    return all(process.status() == psutil.STATUS_STOPPED for process in processes)


class Shell:
    """An interactive shell in a terminal that runs tfmon."""

    def __init__(self, *arguments: str) -> None:
        self.process = pexpect.spawn(
            "/bin/bash",
            ["--norc", "--noprofile"],
            dimensions=(36, 120),
            env=terminal_environment(PS1="READY> ", PYTHONPATH=str(ROOT)),
            encoding="utf-8",
            codec_errors="replace",
            timeout=HANGS_S,
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

    def run(*arguments: str) -> Shell:
        shells.append(Shell(*arguments))
        return shells[-1]

    yield run
    for each in shells:
        each.process.close(force=True)


@pytest.mark.parametrize("stop", slow_except("ctrl-z", ["ctrl-z", "SIGSTOP"]))
def test_stopped_and_continued_the_terminal_is_sane_and_the_lanes_go_on(shell, stop):
    bash = shell(*RACE)
    bash.process.expect_exact("steps/s")
    program = bash.program()
    lanes = program.children()
    if stop == "ctrl-z":
        bash.process.send("\x1a")
        bash.process.expect_exact("Stopped")
        bash.process.expect_exact("READY> ")
        wait_for(lambda: stopped(lanes), what="all lanes are stopped")
        assert bash.terminal_modes() == bash.modes
    else:
        program.send_signal(signal.SIGSTOP)
        bash.process.expect_exact("Stopped")
        time.sleep(2.5)  # the watchdog notices a gap of more than two seconds
    bash.process.sendline("fg")
    bash.process.expect_exact("suspended")
    assert not any(lane.status() == psutil.STATUS_ZOMBIE for lane in lanes)
    bash.process.send("q")
    bash.process.expect_exact("READY> ")
    assert "stalled" not in bash.process.before
    bash.process.sendline("echo code $?")
    bash.process.expect_exact("code 0")
    bash.process.expect_exact("READY> ")
    assert bash.terminal_modes() == bash.modes


@pytest.mark.parametrize(
    "size", slow_except((24, 80), [(36, 120), (24, 80)]), ids=["the same size", "resized meanwhile"]
)
def test_after_fg_the_whole_screen_is_painted_again(shell, size):
    bash = shell(*RACE)
    bash.process.expect_exact("steps/s")
    bash.process.send("\x1a")
    bash.process.expect_exact("Stopped")
    bash.process.expect_exact("READY> ")
    bash.process.setwinsize(*size)
    rows, columns = size
    screen = pyte.Screen(columns, rows)
    stream = pyte.Stream(screen)
    bash.process.sendline("fg")

    def whole() -> bool:
        with contextlib.suppress(pexpect.TIMEOUT):
            text = bash.process.read_nonblocking(65_536, timeout=0.05)
            stream.feed(re.sub(r"\x1b\[[<>=?][0-9;]*u", "", text))
        top, *body, bottom = screen.display
        framed = sum(row.startswith(("╭", "│", "╰")) for row in body)
        headed = "small-dense" in top + body[0]  # the tabs are above the header where there is room
        return headed and "quit" in bottom and framed > rows // 2

    wait_for(whole, what="header, panes and keys are painted again")
    bash.process.send("q")
    bash.process.expect_exact("READY> ")


@pytest.mark.slow
def test_a_race_without_a_screen_stops_and_goes_on_too(shell):
    bash = shell(*RACE, "--headless", "--seconds", "3600")
    bash.process.expect(r"\d examples/s|\d ex")
    lanes = bash.program().children()
    bash.process.send("\x1a")
    bash.process.expect_exact("Stopped")
    wait_for(lambda: stopped(lanes), what="all lanes are stopped")
    bash.process.expect_exact("READY> ")
    bash.process.sendline("fg")
    for _ in range(12):  # lines of progress, so that windows have come since
        bash.process.expect(r"\d examples/s|\d ex")
    bash.process.send("\x03")
    bash.process.expect_exact("suspended")
    bash.process.expect_exact("READY> ")

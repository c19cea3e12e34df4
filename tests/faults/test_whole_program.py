"""The whole program in a terminal, with lanes in which something goes wrong."""

import re
from pathlib import Path

import psutil
import pytest
from support.terminal import FAKE_TFMON, RESTORED, gone, racing

pytestmark = pytest.mark.pty
RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "cpu,prefetch=auto")


def test_no_port_is_opened_ctrl_z_without_a_shell_says_so_and_a_kill_names_the_signal(start):
    terminal = start(*RACE, FAULT="none")
    terminal.wait_for(racing)
    lanes = terminal.children()
    for process in (psutil.Process(terminal.process.pid), *lanes):
        assert process.net_connections(kind="inet") == []
    terminal.process.send("\x1a")
    terminal.wait_for(lambda text: "not started by a shell" in text)
    lanes[0].kill()
    terminal.wait_for(lambda text: "the lane was ended by SIGKILL" in text)
    terminal.leave(1)


FAILS = """
import pathlib, runpy
import tfmon.ui.screens.race_screen as race

draw = race.draw

def draw_or_fail(*arguments):
    if pathlib.Path({now!r}).exists():
        raise ZeroDivisionError("no width")
    return draw(*arguments)

race.draw = draw_or_fail
runpy.run_path({fake!r}, run_name="__main__")
"""
SHELL = """
import os, select, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
code = subprocess.call([sys.executable, "-c", {tfmon!r}, *sys.argv[1:]])
print("the shell got", os.read(0, 99) if select.select([0], [], [], 0)[0] else "nothing")
sys.exit(code)
"""


def test_a_race_goes_on_without_a_screen_that_fails_and_its_keys_do_not_reach_the_shell(start, tmp_path):
    now = tmp_path / "now"
    shell = SHELL.format(tfmon=FAILS.format(fake=str(FAKE_TFMON), now=str(now)))
    terminal = start(*RACE, program=("-c", shell), FAULT="none")
    terminal.wait_for(racing)
    lanes = terminal.children(at_least=3)[1:]
    now.touch()
    terminal.wait_for(lambda _: "the race goes on without it" in terminal.raw)
    assert all(lane.is_running() for lane in lanes)
    terminal.process.send("oops\n\x03")
    assert terminal.wait_for_exit() == 130
    assert gone(lanes)
    left = terminal.raw.rsplit(RESTORED[0], 1)[1]
    assert "the screen failed: ZeroDivisionError: no width" in left and "Traceback" not in left
    assert "small-dense" in left.split("the race goes on")[1] and "recorded in" in left, "the result of the race"
    assert "the shell got nothing" in left
    report = Path(re.search(r"\(traceback:\s+(\S+)\)", left)[1])
    assert "ZeroDivisionError" in report.read_text()
    report.unlink()


def test_leaving_while_lanes_get_ready_says_what_there_was_and_where(start, tmp_path):
    terminal = start(*RACE, FAULT="none", GATE=str(tmp_path / "never"))
    terminal.wait_for(lambda text: "starting" in text or "stage" in text)
    left = terminal.leave(0)
    assert "no verdict: nothing was measured" in left and "recorded in" in left


def test_b_starts_a_lane_that_ran_out_of_memory_again_with_a_smaller_batch(start):
    terminal = start(*RACE, "--set", "batch_size=64", FAULT="runs_out_of_memory", TOO_LARGE="64")
    terminal.wait_for(lambda text: "out of memory: a tensor" in text and racing(text))
    terminal.process.send("b")
    terminal.wait_for(lambda text: "out of memory" not in text and len(re.findall(r"batch\s+32\b", text)) >= 2)
    terminal.leave(0)


def test_no_text_of_a_child_steers_the_terminal(start):
    terminal = start(*RACE, FAULT="fails_with_escapes")
    terminal.wait_for(lambda text: "failed after" in text and "[bold red]markup[/]" in text)
    terminal.process.send("\t\t\r")
    terminal.wait_for(lambda text: "Lane B" in text)
    terminal.process.send("\x1b")
    terminal.wait_for(racing)
    terminal.leave(1)
    assert "owned" not in terminal.raw
    assert not re.search(r"\x1b\[31mred|\x9b|\x1b\[5n|\u202e", terminal.raw)

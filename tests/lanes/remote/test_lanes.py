"""Lanes on a host that a fake ssh reaches: a remote child has the same events as a local one."""

import os
import sys
from pathlib import Path

import pytest
from support.processes import gone, suspended
from support.waiting import wait_for

from tfmon.model.events import HostConnected, HostConnecting
from tfmon.model.lane_events import PhaseEntered, Profiled, StackReported
from tfmon.model.requests import TakeProfile

pytestmark = pytest.mark.process


def test_a_connection_tells_what_it_reached_and_leaves_nothing_behind(ssh):
    ssh.behave(log=str(ssh.folder / "log"))
    link = ssh.connect()
    assert [type(event) for event in link.events[:1]] == [HostConnecting]
    measured = link.measured
    assert link.heard(HostConnected) and 0 < measured.error_ns <= measured.round_trip_ns < 60e9
    assert abs(measured.offset_ns) <= measured.error_ns, "both clocks are the same one"
    assert link.machine.cores == os.cpu_count()
    folder = Path(link.folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    agent = link.agent
    assert agent.is_running()
    link.close()
    wait_for(lambda: gone(agent.pid) and not folder.exists(), what="the agent and its folder are gone")
    words = (ssh.folder / "log").read_text()
    assert words.count("\n") == 1 and '"BatchMode=yes"' in words and '"--", "gpu2", "sh"' in words


def test_a_users_command_has_its_arguments_folder_environment_output_and_exit_code(ssh, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    (tmp_path / "train.py").write_text(
        "import os, sys\n"
        "print(sys.argv[1:], os.getcwd(), os.environ['GIVEN'], os.environ.get('TAKEN'), sys.prefix, flush=True)\n"
        "os.write(2, b'\\x1b]0;title\\x07half a \\xff line')\n"
        "sys.exit(7)\n"
    )
    ssh.behave(environment={"TAKEN": "1"})
    link = ssh.connect()
    awkward = ["two words", "$HOME", "'quoted\"", "", "ü\n"]
    raw = bytearray()
    child = link.start(command=["python", "train.py", *awkward], echo=raw.extend, GIVEN="yes", TAKEN=None)
    assert child.end.exit_code == 7
    told = f"{awkward} {tmp_path} yes None {sys.prefix}"
    assert child.printed == [told, "half a \ufffd line"], "`python` is the one that the settings name"
    assert bytes(raw) == f"{told}\n".encode() + b"\x1b]0;title\x07half a \xff line", "byte for byte"


def test_what_does_not_start_there_says_why(ssh, monkeypatch):
    link = ssh.connect()
    with pytest.raises(OSError, match="No such file or directory"):
        link.start(command=["no-such-program"])
    monkeypatch.setattr("tfmon.lanes.remote.connection.working_folder", lambda: "/nowhere")
    with pytest.raises(OSError, match="there is no folder /nowhere"):
        link.start(command=["true"])
    assert not link.lost


def test_stacks_are_read_there(ssh):
    child = ssh.connect().start("its_stacks")
    child.said_pid()
    child.process.ask_stacks()
    wait_for(lambda: any(isinstance(event, StackReported) for event in child.events), what="its stacks")
    (told,) = [event for event in child.events if isinstance(event, StackReported)]
    assert any("in its_stacks" in line for line in told.lines)


def test_a_profile_is_read_there_and_its_folder_is_the_requested_one(ssh, tmp_path):
    child = ssh.connect().start("a_profile")
    child.said_pid()
    here = tmp_path / "here"
    child.process.send(TakeProfile(folder=str(here), steps=4))
    wait_for(lambda: any(isinstance(event, Profiled) for event in child.events), what="the profile")
    (profiled,) = [event for event in child.events if isinstance(event, Profiled)]
    assert (profiled.folder, profiled.profile.steps) == (str(here), 4)
    assert not here.exists(), "no trace travels"


def test_the_monitor_suspends_all_lanes_with_itself_and_only_continues_those_that_ran(ssh):
    link = ssh.connect()
    one, other = link.start("a_listener"), link.start("a_listener")
    for child in (one, other):
        child.said_pid()
    other.process.suspend()
    wait_for(lambda: suspended(other.pid), what="suspended")
    link.hold()
    wait_for(lambda: suspended(one.pid) and suspended(other.pid), what="both suspended")
    link.go_on()
    wait_for(lambda: not suspended(one.pid), what="one goes on")
    assert suspended(other.pid)


def test_stamps_of_another_clock_are_turned_into_ours(ssh):
    skew_s = -3600.0
    (ssh.folder / "sitecustomize.py").write_text(
        f"import time\n_ns = time.monotonic_ns\ntime.monotonic_ns = lambda: _ns() + int({skew_s} * 1e9)\n"
    )
    ssh.behave(environment={"PYTHONPATH": str(ssh.folder)})
    link = ssh.connect()
    assert abs(link.measured.offset_ns + skew_s * 1e9) <= link.measured.error_ns + 1e6
    child = link.start("now")
    end = child.end
    assert not child.problems, "nothing lies in the future"
    phases = [event for event in child.events if isinstance(event, PhaseEntered)]
    begun, *_ = link.heard(HostConnected)
    assert begun.at_ns < phases[0].at_ns <= end.at_ns
    assert end.at_ns - begun.at_ns < abs(skew_s) / 2 * 1e9

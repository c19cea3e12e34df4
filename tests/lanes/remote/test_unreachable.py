"""Hosts that cannot be used: each has its clear line and what to do, before anything is raced."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support.processes import gone
from support.sshd import needs_sshd
from support.waiting import PATIENCE_S, wait_for

from tfmon.errors import TfmonError
from tfmon.lanes.remote import questions, start_program
from tfmon.model.readings import HostSample, TreeSample, known

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "[gpu2]:2222"
Host key verification failed."""
DENIED = "me@gpu2: Permission denied (publickey,password)."
REFUSED = "ssh: connect to host gpu2 port 22: Connection refused"
pytestmark = pytest.mark.process
UNKNOWN_HOST = "ssh: Could not resolve hostname gpu2: Name or service not known"


def error_of(link) -> TfmonError:
    with pytest.raises(TfmonError) as raised:
        link.ensure()
    error = raised.value
    assert "\n" not in error.line and "\x1b" not in error.line
    assert error.hint and "gpu2" in error.message + error.hint
    return error


@pytest.mark.parametrize(
    ("code", "said", "message", "hint"),
    [
        (
            255,
            CHANGED,
            "host key of me@gpu2 changed",
            'ssh-keygen -f "/home/me/.ssh/known_hosts" -R "[gpu2]:2222"',
        ),
        (255, "Host key verification failed.", "host key of me@gpu2 is not known here", "ssh me@gpu2"),
        (255, DENIED, f"me@gpu2: permission denied: {DENIED}", "ssh-copy-id me@gpu2"),
        (255, REFUSED, f"me@gpu2 cannot be reached: {REFUSED}", "ssh me@gpu2 true"),
        (255, UNKNOWN_HOST, "there is no host me@gpu2", "[hosts]"),
        (255, "", "ssh ended without a message", "ssh me@gpu2 true"),
        (127, "bash: line 1: sh: command not found", "there is no shell on me@gpu2: bash: line 1: sh", "sh"),
        (1, "\x1b[31mThis account is\x07 not available.\x1b]0;x\x07", "This account is not available.", "sh"),
    ],
)
def test_what_ssh_says_becomes_one_line_and_what_to_do(ssh, code, said, message, hint):
    ssh.behave(exit=code, says=said)
    error = error_of(ssh.link("me@gpu2"))
    assert message in error.message and hint in error.hint


def test_a_host_without_room_for_the_agent_names_the_folder(ssh, put):
    ssh.behave(environment={"TMPDIR": "/dev/null"})  # and with no other that can be written to
    python = put_python(put, "ulimit -f 0", f'exec {sys.executable} "$@"')
    error = error_of(ssh.link(python=python))
    assert "tfmon's agent did not start on gpu2: " in error.message and "; it writes into " in error.message
    assert "TMPDIR" in error.hint


@pytest.mark.parametrize("ending", ["silent", "talking"])
def test_a_host_that_never_comes_to_python_is_given_up(ssh, monkeypatch, ending):
    command = "yes 'queued and waiting'" if ending == "talking" else "sleep 600"
    link = ssh.link(run=["sh", "-c", command])

    if ending == "silent":
        monkeypatch.setattr(start_program, "LAUNCHER_PATIENCE_S", 0.5)
    # The patience ends as soon as it has talked.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 1e6 * bool(link._wire.received))
    monkeypatch.setattr(start_program, "time", clock)
    error = error_of(link)
    assert f"gpu2 did not answer within {start_program.LAUNCHER_PATIENCE_S:.0f} s" in error.message
    assert ("but this: " in error.message) == (ending == "talking"), "the last line, as far as it was received"
    pid = link._wire.popen.pid
    wait_for(lambda: gone(pid), what="the launcher is gone")


def test_a_machine_without_ssh_and_a_name_that_ssh_would_read_as_an_option_start_nothing(ssh, monkeypatch):
    ssh.behave(log=str(ssh.folder / "log"))
    for name in ("-oProxyCommand=touch proxied", "-V", ""):
        with pytest.raises(TfmonError, match="is not a host"):
            ssh.link(name).ensure()
    assert not (ssh.folder / "log").exists()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TfmonError, match="there is no ssh on this machine") as raised:
        ssh.link().ensure()
    assert "OpenSSH" in raised.value.hint


@pytest.mark.parametrize(("python", "named"), [("~/no/bin/python", "no ~/no/bin/python"), ("", "no Python")])
def test_a_host_without_python_says_so(ssh, python, named):
    tools = ssh.folder / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    ssh.behave(path=str(tools))
    error = error_of(ssh.link(python=python))
    assert error.message == f"there is {named} on gpu2" and "[hosts.gpu2]" in error.hint


def put_python(put, *lines: str) -> str:
    """Put a stand-in for Python there. Its third argument is the marker."""
    return str(put("python3", "\n".join(["#!/bin/sh", *lines]) + "\n", 0o755))


def test_a_python_that_is_too_old_says_its_version(ssh, put):
    word = """printf '%s {"python": [3, 8, 10], "executable": "/usr/bin/python3"}\\n' "$3" """
    error = error_of(ssh.link(python=put_python(put, word)))
    assert error.message == "/usr/bin/python3 on gpu2 is Python 3.8.10; lanes need 3.10 or newer"


def test_a_python_with_nothing_but_the_standard_library_will_do(ssh, put):
    link = ssh.connect(python=put_python(put, f'exec {sys.executable} -S -I "$@"'))
    child = link.start("a_listener")
    link.begin_readings(())
    wait_for(lambda: len(link.heard(TreeSample)) > 1, what="readings come")
    sample = link.heard(HostSample)[-1]
    assert sample.host == "gpu2" and known(sample.memory_total_bytes) and known(sample.cpu_pct) is not None
    tree = link.heard(TreeSample)[-1]
    assert tree.lane == "gpu2/cpu" and child.pid in tree.pids and known(tree.private_bytes)
    assert link.ask(questions.machine).cores and link.ask(questions.gpus)
    assert link.ask(questions.doctor, False, "/")


def test_a_connection_can_be_broken_off_while_it_is_made(ssh):
    link = ssh.link(run=["sh", "-c", "sleep 600"])
    with ThreadPoolExecutor() as thread:
        made = thread.submit(link.ensure)
        wait_for(lambda: link._wire is not None, what="it is being made")
        link.close()
        assert "broken off" in made.exception(PATIENCE_S).message


@pytest.mark.slow
@needs_sshd
@pytest.mark.parametrize("wrong", ["unknown key", "changed key", "no login"])
def test_what_ssh_refuses_is_said_before_anything_runs(real_ssh, sshd, wrong):
    known = sshd.folder / "known_hosts"
    if wrong == "unknown key":
        known.write_text("")
        message, hint = "the host key of gpu2 is not known here", "ssh gpu2"
    elif wrong == "changed key":
        other = (sshd.folder / "user.pub").read_text()
        known.write_text(f"[127.0.0.1]:{sshd.port} {other}")
        message, hint = "the host key of gpu2 changed", f'-R "[127.0.0.1]:{sshd.port}"'
    else:
        (sshd.folder / "user").unlink()
        message, hint = "gpu2: permission denied: ", "ssh-copy-id gpu2"
    with pytest.raises(TfmonError) as raised:
        real_ssh.connect()
    assert raised.value.message.startswith(message) and hint in raised.value.hint

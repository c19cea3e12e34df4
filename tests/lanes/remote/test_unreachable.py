"""Hosts that cannot be used: each has its clear line and what to do, before anything is raced."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest
from support.processes import gone
from support.waiting import PATIENCE_S, wait_for

from tfmon.errors import TfmonError
from tfmon.lanes.remote import start_program
from tfmon.model.readings import HostSample, known

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "[gpu2]:2222"
Host key verification failed."""
DENIED = "me@gpu2: Permission denied (publickey,password)."
REFUSED = "ssh: connect to host gpu2 port 22: Connection refused"
UNKNOWN_HOST = "ssh: Could not resolve hostname gpu2: Name or service not known"


def error_of(link) -> TfmonError:
    with pytest.raises(TfmonError) as raised:
        link.ensure()
    error = raised.value
    assert "\n" not in error.line and "\x1b" not in error.line
    assert error.hint and "gpu2" in error.message + error.hint
    return error


@pytest.mark.process
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
        (255, "", "ssh ended without a word", "ssh me@gpu2 true"),
        (127, "bash: line 1: sh: command not found", "there is no shell on me@gpu2: bash: line 1: sh", "sh"),
        (1, "\x1b[31mThis account is\x07 not available.\x1b]0;x\x07", "This account is not available.", "sh"),
    ],
)
def test_what_ssh_says_becomes_one_line_and_what_to_do(ssh, code, said, message, hint):
    ssh.behave(exit=code, says=said)
    error = error_of(ssh.link("me@gpu2"))
    assert message in error.message and hint in error.hint


@pytest.mark.process
def test_what_a_login_shell_prints_is_skipped(ssh):
    ssh.behave(banner="\x1b[1mWelcome\x1b[0m to gpu2\nlast login: never\n" * 400 + "no end of line: ")
    assert ssh.connect().machine.cores


@pytest.mark.process
def test_a_host_without_room_for_the_agent_names_the_folder(ssh):
    ssh.behave(environment={"TMPDIR": "/dev/null"})  # and with no other that can be written to
    python = put_python(ssh, "ulimit -f 0", f'exec {sys.executable} "$@"')
    error = error_of(ssh.link(python=python))
    assert "tfmon's agent did not start on gpu2: " in error.message and "; it writes into " in error.message
    assert "TMPDIR" in error.hint


@pytest.mark.process
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


@pytest.mark.process
def test_a_machine_without_ssh_says_so(ssh, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TfmonError, match="there is no ssh on this machine") as raised:
        ssh.link().ensure()
    assert "OpenSSH" in raised.value.hint


@pytest.mark.process
@pytest.mark.parametrize("name", ["-oProxyCommand=touch proxied", "-V", ""])
def test_a_name_that_ssh_would_read_as_an_option_starts_nothing(ssh, name):
    ssh.behave(log=str(ssh.folder / "log"))
    with pytest.raises(TfmonError, match="is not a host"):
        ssh.link(name).ensure()
    assert not (ssh.folder / "log").exists()


@pytest.mark.process
@pytest.mark.parametrize(("python", "named"), [("~/no/bin/python", "no ~/no/bin/python"), ("", "no Python")])
def test_a_host_without_python_says_so(ssh, python, named):
    tools = ssh.folder / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    ssh.behave(path=str(tools))
    error = error_of(ssh.link(python=python))
    assert error.message == f"there is {named} on gpu2" and "[hosts.gpu2]" in error.hint


def put_python(ssh, *lines: str) -> str:
    """Put a stand-in for Python there. Its third argument is the marker."""
    program = ssh.folder / "python3"
    program.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.process
def test_a_python_that_is_too_old_says_its_version(ssh):
    word = """printf '%s {"python": [3, 8, 10], "executable": "/usr/bin/python3"}\\n' "$3" """
    error = error_of(ssh.link(python=put_python(ssh, word)))
    assert error.message == "/usr/bin/python3 on gpu2 is Python 3.8.10; lanes need 3.10 or newer"


@pytest.mark.process
def test_a_python_with_nothing_but_the_standard_library_will_do(ssh):
    link = ssh.connect(python=put_python(ssh, f'exec {sys.executable} -S -I "$@"'))
    link.begin_readings(())
    wait_for(lambda: len(link.heard(HostSample)) > 1, what="readings come")
    sample = link.heard(HostSample)[-1]
    assert sample.host == "gpu2" and known(sample.memory_total_bytes) and known(sample.cpu_pct) is not None


@pytest.mark.process
def test_any_launcher_that_passes_stdin_and_stdout_will_do(ssh):
    link = ssh.connect("a100", run=["env", "-i", f"HOME={ssh.home}", "PATH=/usr/bin:/bin"])
    child = link.start("an_exit_code")
    assert child.end.exit_code == 3


@pytest.mark.process
def test_a_connection_can_be_broken_off_while_it_is_made(ssh):
    link = ssh.link(run=["sh", "-c", "sleep 600"])
    errors: list[TfmonError] = []

    def make() -> None:
        try:
            link.ensure()
        except TfmonError as error:
            errors.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    wait_for(lambda: link._wire is not None, what="it is being made")
    link.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and "broken off" in errors[0].message

"""Hosts behind a real sshd on loopback: the same lanes, what dies with what, and what ssh itself refuses."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.hosts import Linked, all_gone, be_patient, start_all_kinds
from support.processes import gone
from support.sshd import Sshd, needs_sshd
from support.waiting import wait_for

from tfmon.errors import TfmonError
from tfmon.lanes.remote.host import Host

pytestmark = [pytest.mark.process, pytest.mark.slow, needs_sshd]


@pytest.fixture
def connect(sshd: Sshd, monkeypatch):
    """Connect to a host that the sshd is."""
    monkeypatch.setenv("PATH", sshd.put_client(), prepend=":")
    links: list[Linked] = []

    def begin(name: str = "gpu2") -> Linked:
        links.append(Linked(Host(name, python=sys.executable)))
        links[-1].ensure()
        return links[-1]

    yield begin
    for link in links:
        link.close()


def test_lanes_run_over_it_and_nothing_is_left(connect, sshd):
    link = connect()
    assert abs(link.measured.offset_ns) <= link.measured.error_ns
    many = link.start("ten_thousand_lines")
    command = link.start(command=["sh", "-c", 'echo "$0 $1"; exit 9', "a b", "*"])
    assert many.end.exit_code == 0 and len(many.phases) == 10_000
    assert command.end.exit_code == 9 and command.printed == ["a b *"]
    agent = link.agent
    link.close()
    folder = Path(link.greeting.folder)
    wait_for(lambda: gone(agent.pid) and not folder.exists(), what="all is gone")
    wait_for(lambda: not sshd.sessions(), what="the session is over")


@pytest.mark.parametrize("dies", ["client", "session"])
def test_what_dies_takes_every_lane_with_it(connect, sshd, dies, monkeypatch):
    be_patient(monkeypatch)
    link = connect()
    children, agent = start_all_kinds(link), link.agent
    for pid in [link._wire.popen.pid] if dies == "client" else [one.pid for one in sshd.sessions()]:
        with contextlib.suppress(ProcessLookupError):  # one session process may end with the other
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: all_gone(children, agent.pid), what="all are gone, though no silence is taken for a loss")
    assert link.wait_for_loss().reason
    assert all(child.failure for child in children)


@pytest.mark.parametrize("wrong", ["unknown key", "changed key", "no login"])
def test_what_ssh_refuses_is_said_before_anything_runs(connect, sshd, wrong):
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
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(sshd.folder / "user")]
        (sshd.folder / "user.pub").rename(sshd.folder / "before.pub")
        subprocess.run(words, check=True)
        (sshd.folder / "before.pub").replace(sshd.folder / "user.pub")
        message, hint = "gpu2: permission denied: ", "ssh-copy-id gpu2"
    with pytest.raises(TfmonError) as raised:
        connect()
    assert raised.value.message.startswith(message) and hint in raised.value.hint

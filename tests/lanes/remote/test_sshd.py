"""Hosts behind a real sshd on loopback: the same lanes, what dies with what, and what ssh itself refuses."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from support.hosts import Linked, all_gone, be_patient, start_all_kinds
from support.sshd import Sshd, needs_sshd
from support.waiting import wait_for

from tfmon.errors import TfmonError
from tfmon.lanes.remote.remote_host import Host

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


@pytest.mark.parametrize("dies", ["client", "session"])
def test_what_dies_takes_every_lane_with_it(connect, sshd, dies, monkeypatch):
    be_patient(monkeypatch)
    link = connect()
    children, agent = start_all_kinds(link), link.agent
    for pid in [link._wire.popen.pid] if dies == "client" else [session.pid for session in sshd.sessions()]:
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

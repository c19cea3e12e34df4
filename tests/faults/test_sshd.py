"""A lost SSH connection, over an sshd of the test's own on loopback; skipped unless `make sshd` runs it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.waiting import wait_for

pytest.importorskip("pexpect")

import pexpect

ROOT = Path(__file__).parents[2]
WITHIN_S = 3.0
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
PROGRAMS = (SSHD, shutil.which("ssh"), shutil.which("ssh-keygen"))
pytestmark = [
    pytest.mark.pty,
    pytest.mark.skipif(
        "TFMON_TEST_SSHD" not in os.environ, reason="it starts an sshd on loopback: make sshd asks for that"
    ),
    pytest.mark.skipif(None in PROGRAMS, reason="sshd, ssh or ssh-keygen is not installed"),
]
SETTINGS = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""


@pytest.fixture
def port(tmp_path) -> Iterator[int]:
    """The port of an sshd that lets this user in with the key `user`."""
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(words, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    settings = tmp_path / "sshd_config"
    settings.write_text(SETTINGS.format(port=number, folder=tmp_path))
    assert SSHD is not None
    log = (tmp_path / "log").open("w")
    with subprocess.Popen([SSHD, "-D", "-e", "-f", str(settings)], stderr=log) as daemon:
        try:
            wait_for(lambda: _listens(number), 10, "sshd listens")
            yield number
        finally:
            daemon.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("loss", ["the client is killed", "the terminal is closed"])
def test_no_lane_outlives_a_connection_that_is_lost(port, loss, tmp_path):
    program = ROOT / "tests" / "support" / "fake_tfmon.py"
    race = f"race small-dense --lane cpu --lane cpu,prefetch=auto; echo $? > {tmp_path}/code"
    words = ["-tt", "-i", str(tmp_path / "user"), "-p", str(port), "-o", "StrictHostKeyChecking=no"]
    words += ["-o", "UserKnownHostsFile=/dev/null", f"{getpass.getuser()}@127.0.0.1"]
    command = f"env PYTHONPATH={ROOT} {sys.executable} {program} {race}"
    client = pexpect.spawn(
        "ssh", [*words, command], dimensions=(36, 120), encoding="utf-8", codec_errors="replace"
    )
    client.expect_exact("steps/s", timeout=30)
    (tfmon,) = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"][1:2] == [str(program)]]
    lanes = tfmon.children(recursive=True)
    assert len(lanes) == 2
    if loss == "the client is killed":
        client.kill(9)
    else:
        client.close(force=False)
    assert not psutil.wait_procs([*lanes, tfmon], timeout=WITHIN_S)[1]

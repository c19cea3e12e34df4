"""A lost SSH connection, over an sshd of the test's own on loopback; skipped where none is installed."""

from __future__ import annotations

import contextlib
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
from support.terminal import gone
from support.waiting import wait_for

pytest.importorskip("pexpect")

import pexpect

ROOT = Path(__file__).parents[2]
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
PROGRAMS = (SSHD, shutil.which("ssh"), shutil.which("ssh-keygen"))
pytestmark = [
    pytest.mark.pty,
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
ROOTS_FOLDER = Path("/run/sshd")
"""What Debian's sshd needs when root starts it; otherwise its service makes it."""


@pytest.fixture
def sshd(tmp_path) -> Iterator[tuple[psutil.Process, int]]:
    """An sshd that lets this user in with the key `user`, and its port."""
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(words, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = tmp_path / "sshd_config"
    settings.write_text(SETTINGS.format(port=port, folder=tmp_path))
    if os.getuid() == 0:
        ROOTS_FOLDER.mkdir(mode=0o755, exist_ok=True)
    command = [str(SSHD), "-D", "-e", "-f", str(settings)]
    if subprocess.run([*command, "-t"], capture_output=True).returncode:
        pytest.skip("an sshd may not be started here")
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stderr=log) as daemon:
        try:
            wait_for(lambda: listens(port), 30, "sshd listens")
            yield psutil.Process(daemon.pid), port
        finally:
            daemon.terminate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_no_lane_outlives_a_connection_that_is_lost(sshd, tmp_path):
    daemon, port = sshd
    program = ROOT / "tests" / "support" / "fake_tfmon.py"
    race = "race small-dense --lane cpu --lane cpu,prefetch=auto --no-record"
    words = ["-tt", "-i", str(tmp_path / "user"), "-p", str(port), "-o", "StrictHostKeyChecking=no"]
    words += ["-o", "UserKnownHostsFile=/dev/null", f"{getpass.getuser()}@127.0.0.1"]
    words += [f"env PYTHONPATH={ROOT} {sys.executable} {program} {race}"]
    clients = [
        pexpect.spawn("ssh", words, dimensions=(36, 120), encoding="utf-8", codec_errors="replace")
        for _ in range(2)
    ]
    for client in clients:
        client.expect_exact("steps/s", timeout=60)
    monitors = [each for each in daemon.children(recursive=True) if each.cmdline()[1:2] == [str(program)]]
    lanes = [lane for each in monitors for lane in each.children(recursive=True)]  # and spare workers
    assert len(monitors) == 2 and len(lanes) >= 4
    clients[0].kill(9)
    with contextlib.suppress(pexpect.ExceptionPexpect):  # it waits only a moment for the end of ssh
        clients[1].close(force=False)
    assert gone([*lanes, *monitors])
